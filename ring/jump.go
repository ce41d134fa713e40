package ring

// This file contains jump consistent hash (Lamping and Veach, 2014). It has no points,
// names or weights. Only the order of the servers matters.

import (
	jump "github.com/dgryski/go-jump"
)

// Jump is the rule "jump consistent hash" for servers in a given order.
type Jump struct{ ordered }

// ordered has the servers of a rule that yields a bucket for each hash.
type ordered struct {
	order []int32 // by bucket: index of its server
}

func (o *ordered) Len() int { return len(o.order) }

func (o *ordered) once() bool { return true }

func (o *ordered) Shares() []float64 { return even(len(o.order)) }

// at returns server n for the hash h, whose bucket is given.
func (o *ordered) at(bucket int, h uint64, n int) int {
	if len(o.order) == 0 {
		return -1
	}
	owner := o.order[bucket]
	if n == 0 {
		return int(owner)
	}
	return scatter(o.order, len(o.order), owner, h, n)
}

// NewJump returns the rule Jump for servers in the given order. order contains indices
// of servers.
func NewJump(order []int) *Jump {
	j := &Jump{ordered{make([]int32, len(order))}}
	for i, s := range order {
		j.order[i] = int32(s)
	}
	return j
}

func (j *Jump) At(_ []byte, h uint64, n int) int { return j.at(int(jump.Hash(h, len(j.order))), h, n) }

func (j *Jump) Explain(_ []byte, h uint64) Hit {
	return Hit{Kind: "bucket", Index: int(jump.Hash(h, len(j.order))), Of: len(j.order)}
}

// even returns n equal shares that add up to 1.
func even(n int) []float64 {
	shares := make([]float64, n)
	for i := range shares {
		shares[i] = 1 / float64(n)
	}
	return shares
}
