package table

// Who keeps the copies of a key.

import (
	"ringside/replicate"
	"ringside/ring"
)

// holders are the servers that keep a copy of key, which is as servers know it. The one
// that decides is first: they are the owner in each of several pools, or some of one pool.
func (r *Route) holders(key []byte) (list []PoolServer) {
	if len(r.Also) > 0 {
		for _, p := range append([]*Pool{r.Pool}, r.Also...) {
			if _, _, i := p.Place.Locate(key); i >= 0 {
				list = append(list, PoolServer{p, i})
			}
		}
		return list
	}
	for _, i := range r.Pool.Holders(nil, ring.Distinct(r.Pool.Place.Ring), key, r.Copies) {
		list = append(list, PoolServer{r.Pool, i})
	}
	return list
}

// Holders appends to dst the servers of p that keep a copy of key by the policy c: the
// owner, and those next on walk, p's ring with each server once, that share nothing with the
// ones before. An address is one holder, whatever names the pool has for it: it would
// refuse the second half of an add.
func (p *Pool) Holders(dst []int, walk ring.Ring, key []byte, c replicate.Policy) []int {
	part := p.Place.Part.Of(key)
	h := p.Place.Hash(part)
	return members(dst, func(n int) int { return walk.At(part, h, n) }, c.Copies, func(a, b int) bool {
		x, y := &p.Servers[a], &p.Servers[b]
		return x.Apart(replicate.Servers) == y.Apart(replicate.Servers) || x.Apart(c.Apart) == y.Apart(c.Apart)
	})
}

// members appends to dst the first n servers of an order that may all stand
// beside each other. order(i) is the i-th server to try, -1 at the end; same
// reports whether two may not both hold a copy. replicate.All is as many as there are.
// There may be fewer than n, and are never more than replicate.Max.
func members(dst []int, order func(i int) int, n int, same func(a, b int) bool) []int {
	if n == replicate.All || n > replicate.Max {
		n = replicate.Max
	}
	start := len(dst)
next:
	for i := 0; len(dst)-start < n; i++ {
		s := order(i)
		if s < 0 {
			break
		}
		for _, chosen := range dst[start:] {
			if chosen == s || same(chosen, s) {
				continue next
			}
		}
		dst = append(dst, s)
	}
	return dst
}
