// Package ketama builds the hash circle of each client that implements ketama.
//
// These clients share the idea and differ in four choices. Each choice is a field
// of Rule: the text that names a server (Label), the number of labels for its
// weight (Count), how a label becomes points (Spread), and which point a hash
// belongs to (Seek). Each variable of type Rule in this package is the rule of one
// client. All of them were checked against the output of the real program.
package ketama

import (
	"fmt"

	"ringside/ring"
)

// Rule describes how one client builds and searches its hash circle.
type Rule struct {
	Label    Label
	Count    Count
	Spread   Spread
	Seek     ring.Seek
	LastWins bool      // true: if two servers have the same point, it belongs to the server added later; false: to the earlier one
	Walk     ring.Walk // how the client finds the next server after a dead one; zero: it uses the next points of the circle
	KeyBits  int       // number of bits of the key hash; 0 means 32
}

// Circle returns the circle of servers by this rule. It returns an error if a server
// has no label, or if no server has a point.
func (r Rule) Circle(servers []ring.Server) (*ring.Circle, error) {
	points, err := r.points(servers)
	if err != nil {
		return nil, err
	}
	return ring.NewCircle(len(servers), points, ring.CircleOptions{
		Seek: r.Seek, LastWins: r.LastWins, Walk: r.Walk, SpaceBits: r.KeyBits,
	}), nil
}

// maxPoints is the maximum number of points of a circle. It limits the memory, because
// large weights multiply the points.
const maxPoints = 1 << 22

func (r Rule) points(servers []ring.Server) (points []ring.Point, err error) {
	err = label(servers, r.Label, r.Count, func(i int, text string, labels int) int {
		for _, at := range r.Spread(text, labels) {
			points = append(points, ring.Point{At: at, Server: i})
		}
		return len(points)
	})
	if err == nil && len(points) == 0 && len(servers) > 0 {
		err = fmt.Errorf("no server gets a point on the circle: the weights are too uneven or the points too few")
	}
	return points, err
}

// label calls add with the index of each server, its label, and its number of labels. add returns
// the number of points so far.
func label(servers []ring.Server, l Label, count Count, add func(i int, text string, labels int) (points int)) error {
	total, points := totalWeight(servers), 0
	for i, s := range servers {
		text, err := l.of(s)
		if err != nil {
			return err
		}
		labels := count(s.Share(), total, len(servers))
		if points+labels > maxPoints {
			return fmt.Errorf("more than %d points: divide the weights by a common factor", maxPoints)
		}
		points = add(i, text, labels)
	}
	return nil
}

func totalWeight(servers []ring.Server) int {
	total := 0
	for _, s := range servers {
		total += s.Share()
	}
	return total
}

// buckets is the number of entries in the table of php-memcache's consistent strategy.
const buckets = 1024

// Buckets returns the table of php-memcache's consistent strategy. That client searches
// the circle once for each of 1024 buckets. A key then belongs to bucket number (hash
// mod 1024).
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
