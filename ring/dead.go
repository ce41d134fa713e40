package ring

// This file contains the ring of a client that has rebuilt it without the servers that are dead.

import "slices"

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
