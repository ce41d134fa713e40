package ring

// Circles: seek rules, equal points, order and shares.

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The circle used here, small enough to see:
//
//	0 . . 10 . . 20 . . 30 . . 2^32-1
//	      s0     s1     s0,s2
func circle(o CircleOptions) *Circle {
	return NewCircle(3, []Point{{30, 0}, {10, 0}, {20, 1}, {30, 2}}, o)
}

func TestSeek(t *testing.T) {
	const top = 1<<32 - 1
	for _, c := range []struct {
		name    string
		options CircleOptions
		owners  map[uint64]int // expected owner by hash
	}{
		{"at or after", CircleOptions{}, map[uint64]int{0: 0, 10: 0, 11: 1, 20: 1, 21: 0, 30: 0, 31: 0, top: 0}},
		{"after", CircleOptions{Seek: After}, map[uint64]int{0: 0, 9: 0, 10: 1, 19: 1, 20: 0, 29: 0, 30: 0, top: 0}},
		{"at or before", CircleOptions{Seek: AtOrBefore}, map[uint64]int{0: 0, 9: 0, 10: 0, 19: 0, 20: 1, 29: 1, 30: 0, top: 0}},
		{"last wins", CircleOptions{LastWins: true}, map[uint64]int{20: 1, 21: 2, 30: 2, 31: 0}},
		{"last wins, at or before", CircleOptions{LastWins: true, Seek: AtOrBefore}, map[uint64]int{0: 2, 10: 0, 30: 2, top: 2}},
	} {
		r := circle(c.options)
		for h, want := range c.owners {
			if got := r.At(nil, h, 0); got != want {
				t.Errorf("%s: hash %d goes to %d, want %d", c.name, h, got, want)
			}
		}
	}
}

// TestFirst covers the ends of the list, where a search without branches is easy to
// get wrong.
func TestFirst(t *testing.T) {
	for size := 1; size < 40; size++ {
		points := make([]uint32, size)
		for i := range points {
			points[i] = uint32(10 * (i + 1))
		}
		for h := range uint32(10*size + 15) {
			want := 0
			for want < size && points[want] < h {
				want++
			}
			if got := first(points, h); got != want {
				t.Fatalf("%d points: first at or after %d is %d, want %d", size, h, got, want)
			}
		}
	}
}

func TestCircleOrder(t *testing.T) {
	// The order along the circle is 0, 1. Server 2 has no point left, because 0
	// added the equal point first.
	r := circle(CircleOptions{})
	if a, b, c := r.At(nil, 5, 0), r.At(nil, 5, 1), r.At(nil, 5, 2); a != 0 || b != 1 || c != -1 {
		t.Errorf("order of hash 5: %d %d %d, want 0 1 -1", a, b, c)
	}
	// Backwards from 20: server 1, then server 0 at 10, then server 2 at 30.
	r = circle(CircleOptions{Seek: AtOrBefore, LastWins: true})
	if a, b, c := r.At(nil, 25, 0), r.At(nil, 25, 1), r.At(nil, 25, 2); a != 1 || b != 0 || c != 2 {
		t.Errorf("order of hash 25: %d %d %d, want 1 0 2", a, b, c)
	}
}

func TestCircleShares(t *testing.T) {
	for _, bits := range []int{0, 4, 5, 6} {
		for _, seek := range []Seek{AtOrAfter, After, AtOrBefore} {
			r := circle(CircleOptions{Seek: seek, SpaceBits: bits})
			size := float64(space(bits))
			want := make([]float64, 3)
			for h := range uint64(min(64, size)) {
				want[r.At(nil, h, 0)]++
			}
			if bits == 0 { // all hashes from 64 on have the owner of the last hash
				want[r.At(nil, 1<<32-1, 0)] += size - 64
			}
			for i, got := range r.Shares() {
				if math.Abs(got*size-want[i]) > 1e-3 {
					t.Errorf("%d bits, seek %d: server %d owns %v hashes, want %v", bits, seek, i, got*size, want[i])
				}
			}
		}
	}
}

func TestEmptyRings(t *testing.T) {
	for _, r := range []Ring{NewCircle(2, nil, CircleOptions{}), NewWide(2, nil, nil), NewTable(2, nil, TableOptions{}),
		NewJump(nil), NewCh3(0), NewMcrouter(nil), NewPymemcache(nil, false)} {
		for n := range 3 {
			if got := r.At([]byte("key"), 1, n); got != -1 {
				t.Errorf("%T without points: try %d goes to %d", r, n, got)
			}
			if got := Distinct(r).At([]byte("key"), 1, n); got != -1 {
				t.Errorf("%T without points: distinct try %d goes to %d", r, n, got)
			}
		}
	}
}

// The upper half of the hash decides, unless it equals that of a point. Then the
// lower half decides.
func TestWide(t *testing.T) {
	low := uint64(0)
	r := NewWide(3, []WidePoint{{5, 10, 0}, {5, 20, 1}, {9, 0, 2}, {9, 0, 1}}, func([]byte) uint64 { return low })
	for _, c := range []struct {
		h, low uint64
		want   int
	}{{4, 99, 0}, {5, 9, 0}, {5, 10, 1}, {5, 19, 1}, {5, 20, 1}, {6, 0, 1}, {9, 0, 0}, {10, 0, 0}} {
		low = c.low
		if got := r.At(nil, c.h, 0); got != c.want {
			t.Errorf("hash %d,%d goes to %d, want %d", c.h, c.low, got, c.want)
		}
	}
}

// The guide only shortens the search. For every distribution of points, it must
// find the same point as a search over all of them.
func TestGuide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, crowd := range []uint32{1<<32 - 1, 1<<17 - 1, 255} {
		for _, n := range []int{1, 2, 3, 480, 5000} {
			var points []Point
			for i := range n {
				points = append(points, Point{At: r.Uint32() & crowd, Server: i})
			}
			c := NewCircle(n, points, CircleOptions{})
			ask := func(h uint32) {
				if got, want := c.first(h), first(c.points, h); got != want {
					t.Fatalf("%d points below %#x: first(%#x) = %d, want %d", n, crowd, h, got, want)
				}
			}
			for _, p := range c.points {
				ask(p - 1)
				ask(p)
				ask(p + 1)
			}
			for range 1000 {
				ask(r.Uint32())
				ask(r.Uint32() & crowd)
			}
		}
	}
}
