package proxy

// Where a key goes, worked out without asking anybody.

import "ringside/ring"

// Plan says what a table does with a key on one listener. It is what `ringside
// route` prints.
type Plan struct {
	Key    string
	Routed bool   // a route takes the key; else the rest is empty
	Prefix string // of that route
	Strip  bool   // the servers see the key without Prefix
	Pool   *Pool
	Hashed string // the part of the key that is hashed
	Hash   uint64
	Hit    ring.Hit // what the hash hit before it led to the owner
	Owner  int      // index in Pool.Servers; -1: the rule gives the key to nobody

	// Successors are the servers that the rule asks next when the ones before
	// are dead, each once.
	Successors []int
}

// Plan works out where key, decoded, goes on the listener l.
func (l *Listener) Plan(key []byte) Plan {
	p := Plan{Key: string(key), Owner: -1}
	best := -1
	for i, r := range l.Routes {
		if len(key) >= len(r.Prefix) && string(key[:len(r.Prefix)]) == r.Prefix && (best < 0 || len(r.Prefix) > len(l.Routes[best].Prefix)) {
			best = i
		}
	}
	if best < 0 {
		return p
	}
	r := l.Routes[best]
	p.Routed, p.Prefix, p.Strip, p.Pool = true, r.Prefix, r.Strip, r.Pool
	if r.Strip {
		key = key[len(r.Prefix):]
	}
	part, h, owner := r.Pool.Place.Locate(key)
	p.Hashed, p.Hash, p.Owner = string(part), h, owner
	if e, ok := r.Pool.Place.Ring.(ring.Explainer); ok {
		p.Hit = e.Explain(part, h)
	}
	seen := map[int]bool{owner: true}
	for n := 1; len(seen) < len(r.Pool.Servers); n++ {
		i := r.Pool.Place.Ring.At(part, h, n)
		if i < 0 || n > 4*len(r.Pool.Servers)+32 { // some clients' rules never end and repeat themselves
			break
		}
		if !seen[i] {
			seen[i] = true
			p.Successors = append(p.Successors, i)
		}
	}
	return p
}
