package ring

import (
	"fmt"
	"testing"
)

// A drawing must assign each hash to the same server as the ring.
func TestDraw(t *testing.T) {
	points := []Point{{100, 0}, {1 << 20, 1}, {1 << 31, 2}, {3 << 30, 0}}
	for _, seek := range []Seek{AtOrAfter, AtOrBefore} {
		c := NewCircle(3, points, CircleOptions{Seek: seek})
		d := Draw(c)
		if d.Kind != "points" || len(d.At) != 4 || len(d.Owners) != 4 {
			t.Fatalf("drawn as %+v", d)
		}
		for i := range 1000 {
			h := XXH64.Sum([]byte(fmt.Sprint(i))) & (1<<32 - 1)
			at := 0
			for at < len(d.At) && d.At[at] < d.Place(c, h) {
				at++
			}
			if d.Before && (at == len(d.At) || d.At[at] != uint32(h)) {
				at += len(d.At) - 1
			}
			if got, want := int(d.Owners[at%len(d.At)]), c.At(nil, h, 0); got != want {
				t.Fatalf("hash %x is drawn with server %d, and is server %d's", h, got, want)
			}
		}
	}
}

func TestHops(t *testing.T) {
	j := NewJump([]int{4, 3, 2, 1, 0, 5, 6, 7, 8, 9, 10, 11})
	for i := range 1000 {
		h := XXH64.Sum([]byte(fmt.Sprint(i)))
		hops := j.Hops(h)
		if got, want := hops[len(hops)-1], j.Explain(nil, h).Index; got != want {
			t.Fatalf("the hops of %x are %v and end in %d, its bucket is %d", h, hops, got, want)
		}
	}
	if d := Draw(j); d.Kind != "buckets" || d.Owners[0] != 4 {
		t.Errorf("drawn as %+v", d)
	}
}
