package ring

// Jump consistent hash (Lamping and Veach, 2014). It has no points, names or
// weights; only the order of the list matters.

import (
	jump "github.com/dgryski/go-jump"
)

// Jump is jump consistent hash over a list in a given order.
type Jump struct {
	order []int32 // bucket to server
}

// NewJump returns Jump over servers in the given order.
func NewJump(order []int) *Jump {
	j := &Jump{order: make([]int32, len(order))}
	for i, s := range order {
		j.order[i] = int32(s)
	}
	return j
}

func (j *Jump) Len() int { return len(j.order) }

func (j *Jump) At(_ []byte, h uint64, n int) int {
	if len(j.order) == 0 {
		return -1
	}
	owner := j.order[jump.Hash(h, len(j.order))]
	if n == 0 {
		return int(owner)
	}
	return scatter(j.order, len(j.order), owner, h, n)
}

func (j *Jump) once() bool { return true }

func (j *Jump) Explain(_ []byte, h uint64) Hit {
	return Hit{Kind: "bucket", Index: int(jump.Hash(h, len(j.order))), Of: len(j.order)}
}

func (j *Jump) Shares() []float64 { return even(len(j.order)) }

// even returns equal shares for n servers.
func even(n int) []float64 {
	shares := make([]float64, n)
	for i := range shares {
		shares[i] = 1 / float64(n)
	}
	return shares
}
