package ring

// This file contains rings with dead servers, for each kind of client.

import "slices"

// Skip returns a ring for clients that try the next server when one is dead. The ring
// has the order of r, without the dead servers.
func Skip(r Ring, dead []bool) Ring {
	return skip{r, slices.Clone(dead)}
}

type skip struct {
	Ring
	dead []bool
}

func (s skip) At(key []byte, h uint64, n int) int {
	for i := 0; ; i++ {
		at := s.Ring.At(key, h, i)
		if at < 0 {
			return -1
		}
		if !s.dead[at] {
			if n == 0 {
				return at
			}
			n--
		}
	}
}

// Stay returns a ring for clients that never move a key. The ring assigns keys to
// servers as r does. Keys of a dead server have no owner, and no key has a next server.
func Stay(r Ring, dead []bool) Ring {
	return stay{r, slices.Clone(dead)}
}

type stay struct {
	Ring
	dead []bool
}

func (s stay) At(key []byte, h uint64, n int) int {
	if n > 0 {
		return -1
	}
	at := s.Ring.At(key, h, 0)
	if at < 0 || s.dead[at] {
		return -1
	}
	return at
}

// Live converts the indices of r to those of a longer list. r is a ring of the live
// servers of a list of n servers. servers[i] is the index in that list of the server
// that has index i in r.
func Live(r Ring, servers []int, n int) Ring {
	return live{r, slices.Clone(servers), n}
}

type live struct {
	ring    Ring
	servers []int
	n       int
}

func (l live) Len() int { return l.n }

func (l live) At(key []byte, h uint64, n int) int {
	at := l.ring.At(key, h, n)
	if at < 0 {
		return -1
	}
	return l.servers[at]
}

func (l live) Explain(key []byte, h uint64) Hit {
	if e, ok := l.ring.(Explainer); ok {
		return e.Explain(key, h)
	}
	return Hit{}
}

func (l live) Shares() []float64 {
	s, ok := l.ring.(Sharer)
	if !ok {
		return nil
	}
	shares := make([]float64, l.n)
	for i, share := range s.Shares() {
		shares[l.servers[i]] = share
	}
	return shares
}
