package table

// This file computes the servers of a key, without any request to a server.

import (
	"ringside/ring"
)

// Plan describes what a table does with a key on one listener. `ringside route` prints it.
type Plan struct {
	Key    string
	Routed bool   // a route matches the key; if not, only Key is set, and Owner is -1
	Prefix string // the route's prefix
	Match  string // the route's pattern; empty: Prefix applies
	Strip  bool   // servers see the key without Prefix
	Pool   *Pool
	Hashed string // the part of the key that is hashed
	Hash   uint64
	Hit    ring.Hit // the element of the ring that the hash selected, such as a point; it determines the owner
	Owner  int      // index in Pool.Servers; -1: the rule does not select a server

	// Successors are the servers that the rule selects after the owner. Each is used while
	// the owner and all servers before it are dead. No server is listed twice.
	Successors []int

	// Copies are the servers that keep a replica, the primary first. It is nil if only the
	// owner stores the key. Replicas have no substitute servers, so Substitutes is empty if
	// Copies is set.
	Copies []PoolServer

	// Substitutes are the substitute servers for an ejected owner, in order: the second
	// one is used if the first is ejected too, and so on. For a pool that rebuilds
	// its ring, it has only the next few.
	Substitutes []PoolServer
}

// PoolServer is a server of a pool.
type PoolServer struct {
	Pool   *Pool
	Server int // index of the server in Pool.Servers
}

// Target returns the Target of the server that m names.
func (m PoolServer) Target() *Target { return &m.Pool.Servers[m.Server] }

// Plan computes the servers of key on the listener l. A key that the client sends in base64
// must be decoded first.
func (l *Listener) Plan(key []byte) Plan {
	p := Plan{Key: string(key), Owner: -1}
	best, most := -1, -1
	for i := range l.Routes {
		if want := l.Routes[i].Pattern(); want.Takes(key) && want.Literal() > most {
			best, most = i, want.Literal()
		}
	}
	if best < 0 {
		return p
	}
	r := &l.Routes[best]
	p.Routed, p.Prefix, p.Match, p.Strip, p.Pool = true, r.Prefix, r.Match, r.Strip, r.Pool
	if r.Strip {
		key = key[len(r.Prefix):]
	}
	part, h, owner := r.Pool.Place.Locate(key)
	p.Hashed, p.Hash, p.Owner = string(part), h, owner
	if e, ok := r.Pool.Place.Ring.(ring.Explainer); ok {
		p.Hit = e.Explain(part, h)
	}
	walk := r.Pool.walk(part, h)
	p.Successors = walk[min(1, len(walk)):]
	if r.Copies.Several() {
		p.Copies = r.holders(key)
	} else if owner >= 0 {
		p.Substitutes = r.Pool.interim(key, owner, p.Successors)
	}
	return p
}

// walk returns the owner of a hash and the servers that the rule selects after it, each once.
func (p *Pool) walk(part []byte, h uint64) (order []int) {
	seen := map[int]bool{}
	for n := 0; len(seen) < len(p.Servers); n++ {
		i := p.Place.Ring.At(part, h, n)
		if i < 0 || n > 4*len(p.Servers)+32 { // the rules of some clients repeat servers without end
			break
		}
		if !seen[i] {
			seen[i] = true
			order = append(order, i)
		}
	}
	return order
}

// rebuilds is the number of rings that Plan builds to find substitute servers.
const rebuilds = 3

// interim returns the substitute servers for key while owner is ejected.
func (p *Pool) interim(key []byte, owner int, successors []int) (list []PoolServer) {
	switch {
	case p.Failover.Mode == Gutter:
		g := p.Failover.Gutter
		part, h, _ := g.Place.Locate(key)
		for _, i := range g.walk(part, h) {
			list = append(list, PoolServer{g, i})
		}
	case p.Failover.Mode == Rehash && p.Without == nil:
		for _, i := range successors {
			list = append(list, PoolServer{p, i})
		}
	case p.Failover.Mode == Rehash:
		part, h, _ := p.Place.Locate(key)
		out := make([]bool, len(p.Servers))
		for range rebuilds {
			out[owner] = true
			live, err := p.Without(out)
			if err != nil {
				break
			}
			if owner = live.At(part, h, 0); owner < 0 {
				break
			}
			list = append(list, PoolServer{p, owner})
		}
	}
	return list
}
