// Package ketama puts servers on the circle where each ketama client puts them.
//
// All of these clients agree on the idea and on little else. Four choices make
// the difference, and each is one field of a Rule: what text names a server
// (Label), how many labels its weight gives it (Count), how a label becomes
// points (Spread), and which point a hash belongs to (Seek). The variables of
// type Rule in this package are the clients; every one of them was checked
// against the answers of the real program.
package ketama

import (
	"fmt"

	"ringside/ring"
)

// Rule is how one client builds and searches its circle.
type Rule struct {
	Label    Label
	Count    Count
	Spread   Spread
	Seek     ring.Seek
	LastWins bool      // of two servers on one point the later one has it
	Walk     ring.Walk // on from a dead server; the zero Walk goes along the circle
	KeyBits  int       // of the key hash; 0 means 32
}

// Circle returns the circle of servers. It is an error if a server can't be
// labelled or if nobody gets a point.
func (r Rule) Circle(servers []ring.Server) (*ring.Circle, error) {
	points, err := r.points(servers)
	if err != nil {
		return nil, err
	}
	return ring.NewCircle(len(servers), points, ring.CircleOptions{
		Seek: r.Seek, LastWins: r.LastWins, Walk: r.Walk, SpaceBits: r.KeyBits,
	}), nil
}

// maxPoints bounds the memory of a circle whose points weights multiply.
const maxPoints = 1 << 22

func (r Rule) points(servers []ring.Server) ([]ring.Point, error) {
	var points []ring.Point
	total := totalWeight(servers)
	for i, s := range servers {
		label, err := r.Label.of(s)
		if err != nil {
			return nil, err
		}
		count := r.Count(s.Share(), total, len(servers))
		if len(points)+count > maxPoints {
			return nil, fmt.Errorf("more than %d points: divide the weights by a common factor", maxPoints)
		}
		for _, at := range r.Spread(label, count) {
			points = append(points, ring.Point{At: at, Server: i})
		}
	}
	if len(points) == 0 && len(servers) > 0 {
		return nil, fmt.Errorf("no server gets a point on the circle: the weights are too uneven or the points too few")
	}
	return points, nil
}

func totalWeight(servers []ring.Server) int {
	total := 0
	for _, s := range servers {
		total += s.Share()
	}
	return total
}

// buckets is how often pecl memcache asks its circle: once for each bucket.
const buckets = 1024

// Buckets returns the table of php-memcache's "consistent" strategy, which
// searches the circle of r once for each of 1024 buckets and then gives a key
// to bucket hash mod 1024.
func (r Rule) Buckets(servers []ring.Server) (*ring.Table, error) {
	walk := r.Walk
	r.Walk = ring.Walk{}
	circle, err := r.Circle(servers)
	if err != nil {
		return nil, err
	}
	entries := make([]int, buckets)
	for b := range entries {
		entries[b] = circle.At(nil, uint64(b)*(1<<32/buckets-1), 0)
	}
	return ring.NewTable(len(servers), entries, ring.TableOptions{Walk: walk, Noun: "bucket"}), nil
}
