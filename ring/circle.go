package ring

// This file contains a hash circle of 32-bit points. Each point belongs to one server.

import (
	"fmt"
	"math/bits"
	"slices"
)

// Seek is the rule by which a hash finds its point on a circle.
type Seek uint8

const (
	AtOrAfter  Seek = iota // the first point that is >= the hash; after the last point, the first one of the circle
	After                  // the first point that is > the hash; after the last point, the first one of the circle
	AtOrBefore             // the last point that is <= the hash; before the first point, the last one of the circle
)

// Point is one point on a Circle, with the server to which it belongs.
type Point struct {
	At     uint32
	Server int
}

// Circle is the ring of most clients that implement ketama. It uses only the low 32
// bits of a hash.
type Circle struct {
	points  []uint32 // the positions of all points, sorted
	owners  []int32  // by index of a point in points: index of the server to which the point belongs
	guide   []int32  // by the leading bits of a hash: index of the first point with at least these leading bits
	shift   uint     // number of low bits of a hash that are dropped to get an index into guide
	servers int
	seek    Seek
	walk    Walk
	space   uint64
}

// CircleOptions describe how a client searches the points of a circle.
type CircleOptions struct {
	Seek      Seek
	LastWins  bool // true: of several equal points, the one added last owns the hash (as in Java's maps); false: the one added first
	Walk      Walk // how the client finds the next server after a dead one; zero: it uses the next points of the circle
	SpaceBits int  // number of low bits that the key hash can set; 0 means 32
}

// NewCircle returns a circle of the given points. The points must be in the order in
// which the client adds them. If several points are equal, that order decides which one
// counts.
func NewCircle(servers int, points []Point, o CircleOptions) *Circle {
	points = slices.Clone(points)
	if o.LastWins {
		slices.Reverse(points)
	}
	slices.SortStableFunc(points, func(a, b Point) int {
		return int(int64(a.At) - int64(b.At))
	})
	// Of several equal points, keep only the first: the others are never found.
	points = slices.CompactFunc(points, func(a, b Point) bool { return a.At == b.At })
	c := &Circle{
		points:  make([]uint32, len(points)),
		owners:  make([]int32, len(points)),
		servers: servers,
		seek:    o.Seek,
		walk:    o.Walk,
		space:   space(min(o.SpaceBits, 32)),
	}
	for i, p := range points {
		c.points[i], c.owners[i] = p.At, int32(p.Server)
	}
	c.makeGuide()
	return c
}

// makeGuide fills the guide: it divides the circle into more ranges than it has points,
// and stores the first point of each range. A lookup begins at the range of its hash
// and usually needs only one or two comparisons.
func (c *Circle) makeGuide() {
	k := min(uint(bits.Len(uint(2*len(c.points)))), 16)
	c.shift = 32 - k
	c.guide = make([]int32, 1<<k+1)
	at := 0
	for piece := range c.guide {
		for at < len(c.points) && uint64(c.points[at])>>c.shift < uint64(piece) {
			at++
		}
		c.guide[piece] = int32(at)
	}
}

// space returns the number of different hashes with `width` bits. A width of 0 means
// 32.
func space(width int) uint64 {
	if width == 0 {
		width = 32
	}
	return 1 << width
}

func (c *Circle) Len() int { return c.servers }

// Points returns the number of distinct points on the circle.
func (c *Circle) Points() int { return len(c.points) }

func (c *Circle) At(key []byte, h uint64, n int) int {
	if len(c.points) == 0 {
		return -1
	}
	if n == 0 {
		return int(c.owners[c.find(uint32(h))])
	}
	if c.walk.Tries > 0 {
		if h, ok := c.walk.at(key, h, n); ok {
			return int(c.owners[c.find(uint32(h))])
		}
		return -1
	}
	i, step := c.find(uint32(h)), 1
	if c.seek == AtOrBefore {
		step = len(c.owners) - 1
	}
	return nth(c.owners, c.servers, c.owners[i], i, step, n)
}

func (c *Circle) once() bool { return c.walk.Tries == 0 }

// find returns the index of the point to which the hash h belongs. The circle must have
// at least one point.
func (c *Circle) find(h uint32) int {
	switch c.seek {
	case After:
		i := c.firstAfter(h)
		if i == len(c.points) {
			return 0
		}
		return i
	case AtOrBefore:
		i := c.firstAfter(h)
		if i == 0 {
			i = len(c.points)
		}
		return i - 1
	}
	i := c.first(h)
	if i == len(c.points) {
		return 0
	}
	return i
}

// few is the number of points up to which a range is searched linearly.
const few = 8

// first returns the index of the first point that is >= h, or the number of points if
// there is none.
func (c *Circle) first(h uint32) int {
	piece := h >> c.shift
	from, to := int(c.guide[piece]), int(c.guide[piece+1])
	if to-from > few { // many points are in one range, because the client's hashes cover only part of the circle
		return from + first(c.points[from:to], h)
	}
	for from < to && c.points[from] < h {
		from++
	}
	return from
}

func (c *Circle) firstAfter(h uint32) int {
	if h == 1<<32-1 {
		return len(c.points)
	}
	return c.first(h + 1)
}

// first returns the index of the first of points that is >= h, or len(points). It is a
// binary search with a fixed number of rounds and no unpredictable branch, which takes
// half the time of sort.Search.
func first(points []uint32, h uint32) int {
	base, n := 0, len(points)
	for n > 1 {
		half := n >> 1
		if points[base+half-1] < h {
			base += half
		}
		n -= half
	}
	if points[base] < h {
		base++
	}
	return base
}

func (c *Circle) Explain(_ []byte, h uint64) Hit {
	if len(c.points) == 0 {
		return Hit{}
	}
	i := c.find(uint32(h))
	return Hit{Kind: "point", Value: fmt.Sprintf("%08x", c.points[i]), Index: i + 1, Of: len(c.points)}
}

// Shares returns the exact share of each server: the number of hashes that lead to the
// server, divided by the number of all hashes.
func (c *Circle) Shares() []float64 {
	shares := make([]float64, c.servers)
	if len(c.points) == 0 {
		return shares
	}
	counts := make([]uint64, c.servers)
	// The points divide the hashes into ranges. All hashes of one range lead to the
	// same server. `from` is the first hash of a range. A range ends before a point,
	// but with AtOrAfter it includes the point.
	shift := uint64(0)
	if c.seek == AtOrAfter {
		shift = 1
	}
	from := uint64(0)
	for _, p := range c.points {
		to := min(uint64(p)+shift, c.space)
		if to > from {
			counts[c.owners[c.find(uint32(from))]] += to - from
			from = to
		}
	}
	if from < c.space {
		counts[c.owners[c.find(uint32(from))]] += c.space - from
	}
	for i, n := range counts {
		shares[i] = float64(n) / float64(c.space)
	}
	return shares
}
