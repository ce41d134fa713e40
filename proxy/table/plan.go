package table

// Where a key goes, worked out without asking anybody.

import (
	"ringside/ring"
)

// Plan says what a table does with a key on one listener. It is what `ringside
// route` prints.
type Plan struct {
	Key    string
	Routed bool   // a route takes the key; else the rest is empty
	Prefix string // of that route
	Match  string // in place of Prefix
	Strip  bool   // the servers see the key without Prefix
	Pool   *Pool
	Hashed string // the part of the key that is hashed
	Hash   uint64
	Hit    ring.Hit // what the hash hit before it led to the owner
	Owner  int      // index in Pool.Servers; -1: the rule gives the key to nobody

	// Successors are the servers that the rule asks next when the ones before
	// are dead, each once.
	Successors []int

	// Copies are the servers that keep a copy, the one that decides first; nil if
	// only the owner does. Nobody stands in for a server that keeps one, so Interim
	// is empty then.
	Copies []PoolServer

	// Interim are those who stand in for the owner when it is out: the first one,
	// the second if that is out too, and so on. Of a pool that builds its ring again
	// only the next few are named.
	Interim []PoolServer
}

// PoolServer is a server of a pool.
type PoolServer struct {
	Pool   *Pool
	Server int // index in Pool.Servers
}

// Target is the server.
func (m PoolServer) Target() *Target { return &m.Pool.Servers[m.Server] }

// Plan works out where key, decoded, goes on the listener l.
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
		p.Interim = r.Pool.interim(key, owner, p.Successors)
	}
	return p
}

// walk is the owner of a hash and the servers its rule asks next, each once.
func (p *Pool) walk(part []byte, h uint64) (order []int) {
	seen := map[int]bool{}
	for n := 0; len(seen) < len(p.Servers); n++ {
		i := p.Place.Ring.At(part, h, n)
		if i < 0 || n > 4*len(p.Servers)+32 { // some clients' rules never end and repeat themselves
			break
		}
		if !seen[i] {
			seen[i] = true
			order = append(order, i)
		}
	}
	return order
}

// rebuilds is how many rings Plan builds to tell who stands in.
const rebuilds = 3

// interim is who stands in for the owner of key.
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
