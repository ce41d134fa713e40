package ring

// This file contains a hash circle of 128-bit points, for clients that compare whole
// digests.

import (
	"cmp"
	"fmt"
	"slices"
)

// WidePoint is one 128-bit point on a Wide circle, with the server to which it belongs.
type WidePoint struct {
	Hi, Lo uint64
	Server int
}

// Wide is a circle of 128-bit points. A key belongs to the first point after its hash.
// The 64-bit Hash of a key is only the upper half of the key's position. The lower half
// is computed only if the upper half equals that of a point.
type Wide struct {
	hi, lo  []uint64
	owners  []int32
	servers int
	low     Hash
}

// NewWide returns a circle of the given points. The function low computes the lower
// half of a key's position. Of several equal points, only the one added last counts.
func NewWide(servers int, points []WidePoint, low Hash) *Wide {
	points = slices.Clone(points)
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b WidePoint) int {
		return cmp.Or(cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo))
	})
	points = slices.CompactFunc(points, func(a, b WidePoint) bool { return a.Hi == b.Hi && a.Lo == b.Lo })
	w := &Wide{servers: servers, low: low}
	for _, p := range points {
		w.hi = append(w.hi, p.Hi)
		w.lo = append(w.lo, p.Lo)
		w.owners = append(w.owners, int32(p.Server))
	}
	return w
}

func (w *Wide) Len() int { return w.servers }

func (w *Wide) At(key []byte, h uint64, n int) int {
	if len(w.hi) == 0 {
		return -1
	}
	i := w.find(key, h)
	if n == 0 {
		return int(w.owners[i])
	}
	return nth(w.owners, w.servers, w.owners[i], i, 1, n)
}

func (w *Wide) once() bool { return true }

func (w *Wide) find(key []byte, h uint64) int {
	base, n := 0, len(w.hi)
	for n > 1 {
		half := n >> 1
		if w.hi[base+half-1] < h {
			base += half
		}
		n -= half
	}
	if w.hi[base] < h {
		base++
	}
	for base < len(w.hi) && w.hi[base] == h && w.lo[base] <= w.low(key) {
		base++
	}
	if base == len(w.hi) {
		return 0
	}
	return base
}

func (w *Wide) Explain(key []byte, h uint64) Hit {
	if len(w.hi) == 0 {
		return Hit{}
	}
	i := w.find(key, h)
	return Hit{Kind: "point", Value: fmt.Sprintf("%016x%016x", w.hi[i], w.lo[i]), Index: i + 1, Of: len(w.hi)}
}

// Shares returns the share of each server. It is the sum of the distances between the
// server's points and the points before them, by the upper halves of the points.
func (w *Wide) Shares() []float64 {
	shares := make([]float64, w.servers)
	for i, p := range w.hi {
		before := w.hi[(i+len(w.hi)-1)%len(w.hi)]
		shares[w.owners[i]] += float64(p-before) / (1 << 64)
	}
	if len(w.hi) == 1 {
		shares[w.owners[0]] = 1
	}
	return shares
}
