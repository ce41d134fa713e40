package table

// This file computes the servers that keep the replicas of a key.

import (
	"ringside/replicate"
	"ringside/ring"
)

// holders returns the servers that keep a replica of key, the primary first. key is in the
// form that servers see. With several pools the replicas are on the owner in each pool, else
// on several servers of the one pool.
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

// Holders appends to dst the servers of p that keep a replica of key by the policy c. These
// are the owner and the next servers of walk that are apart, by c.Apart, from all servers
// before them. walk is p's ring with each server once. An address is used once, even if the
// pool has several names for it. Otherwise the server would store the first half of an add
// and reject the second.
func (p *Pool) Holders(dst []int, walk ring.Ring, key []byte, c replicate.Policy) []int {
	part := p.Place.Part.Of(key)
	h := p.Place.Hash(part)
	return members(dst, func(n int) int { return walk.At(part, h, n) }, c.Copies, func(a, b int) bool {
		x, y := &p.Servers[a], &p.Servers[b]
		return x.Address == y.Address && x.Network == y.Network || c.Apart != replicate.Servers && x.Apart(c.Apart) == y.Apart(c.Apart)
	})
}

// members appends to dst the first n servers of an order. It skips a server that is the same
// as, or excludes, one that it has appended. order(i) returns the i-th server to try, or -1 at
// the end. same reports whether two servers exclude each other, because they must not both keep
// a replica of a key. If n is replicate.All, all possible servers are appended. members may
// append fewer than n servers, and appends at most replicate.Max.
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
