package ring

// This file contains jump consistent hash (Lamping and Veach, 2014). It has no points,
// names or weights. Only the order of the servers matters.

import (
	jump "github.com/dgryski/go-jump"
)

// Jump is the rule "jump consistent hash" for servers in a given order.
type Jump struct {
	order []int32 // by bucket: index of its server
}

// NewJump returns the rule Jump for servers in the given order. order contains indices
// of servers.
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

// even returns n equal shares that add up to 1.
func even(n int) []float64 {
	shares := make([]float64, n)
	for i := range shares {
		shares[i] = 1 / float64(n)
	}
	return shares
}
