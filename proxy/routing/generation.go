package routing

// A table as one loop has taken it up: its routes tied to its servers.

import (
	"cmp"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/replicate"
	"ringside/ring"
)

// Listener is what the clients of one address see. It outlives reloads; its routes
// don't.
type Listener struct {
	Name   string       // network and address
	Routes []Route      // longest prefix first
	Pools  []*BoundPool // that its keys may be in, gutters included
	Users  *table.Users // who may use it; nil: everybody

	InOrder bool // one of the pools wants multi-gets answered in order
	Tagged  bool // one of the routes has tags
	Moves   bool // one of the pools moves keys or keeps copies of them
}

// Route sends keys to a pool.
type Route struct {
	Listener string // its listener's name
	Prefix   string
	Strip    string // what the servers don't see of the key: the prefix, or nothing
	*BoundPool

	GetErrors bool           // a read whose server can't answer gets an error, not a miss
	Timeouts  table.Timeouts // of its commands

	Copies replicate.Policy // how many of each key, and how; its Copies is 0 if there is only one
	Also   []*BoundPool     // the pools that keep a copy each beside BoundPool; nil: all copies are in that
	Prefer *BoundPool       // the pool whose copy is read first; nil: BoundPool's
	Zone   string           // Ringside's own: copies there are nearest

	Guard *Guard // nil: it is not guarded
	Tags  *Tags  // nil: its values have no tags
}

// Tags is how values of a route are tied to tags, and what it has counted and
// learned of that.
type Tags struct {
	*table.Tags
	Learned *stats.Tags
	Command bool // it is no route to values: its keys name tags
}

// Guard is how a route guards against simultaneous rebuilding, and what it has
// counted and learned of that.
type Guard struct {
	*table.Guard
	Learned *stats.Guard
}

// OneLoop says that one loop leads all commands on a key of the route that take
// tasks: what it knows of the key is in one place then.
func (rt *Route) OneLoop() bool { return rt.Copies.Copies != 0 || rt.Guard != nil }

// BoundPool is a pool of the table and, by the same index, its servers as the
// engine has them.
type BoundPool struct {
	Pool    *table.Pool
	Servers []*upstream.Server
	Owners  *ring.Memo // finds the server that a key belongs to, by its index

	Refusals []string // error lines of servers that a person has ordered away, by the same index; nil: there are none

	// Of a pool whose keys move or that keeps copies; nil of others.
	View          *health.View         // what the pool's keeper has decided
	GutterServers []*upstream.Server   // the servers of its gutter
	Walk          ring.Ring            // its ring, each server once
	Gutter        ring.Ring            // the gutter's ring, each server once
	rebuilt       map[string]ring.Ring // its ring without the servers that are out, by the set of these
}

// Member is a server of the pool or, behind them, of its gutter.
func (bp *BoundPool) Member(i int) *upstream.Server {
	if n := len(bp.Servers); i >= n {
		return bp.GutterServers[i-n]
	}
	return bp.Servers[i]
}

// Learned is what routes have counted and learned so far, by prefix.
type Learned interface {
	Guarded(prefix string) *stats.Guard
	Tagged(prefix string) *stats.Tags
}

// Bind gives l the routes of a new table. bound has the pools of that; command is
// what invalidates tags.
func (l *Listener) Bind(routes []table.Route, bound map[*table.Pool]*BoundPool, learned Learned, command string) {
	l.Routes, l.Pools, l.InOrder, l.Moves = nil, nil, false, false
	var tagged *Route
	for _, r := range routes {
		made := Route{Listener: l.Name, Prefix: r.Prefix, BoundPool: bound[r.Pool], GetErrors: r.Pool.GetErrors, Timeouts: r.Pool.Timeouts, Zone: r.Zone}
		if r.GetErrors != nil {
			made.GetErrors = *r.GetErrors
		}
		if r.Total != nil {
			made.Timeouts.Total = *r.Total
		}
		if r.Copies.Copies != 0 && r.Copies.Copies != 1 || len(r.Also) > 0 {
			made.Copies = r.Copies
			made.Copies.Copies = cmp.Or(made.Copies.Copies, 1)
		}
		for _, p := range r.Also {
			made.Also = append(made.Also, bound[p])
		}
		made.Prefer = bound[r.Prefer]
		if r.Guard != nil {
			made.Guard = &Guard{Guard: r.Guard, Learned: learned.Guarded(r.Prefix)}
		}
		if r.Tags != nil {
			made.Tags = &Tags{Tags: r.Tags, Learned: learned.Tagged(r.Prefix)}
			tagged = &made
		}
		if r.Strip {
			made.Strip = r.Prefix
		}
		l.Routes = append(l.Routes, made)
		l.InOrder = l.InOrder || r.Pool.InOrder
		for _, bp := range append([]*BoundPool{made.BoundPool}, made.Also...) {
			l.addPool(bp)
			if g := bp.Pool.Failover.Gutter; g != nil {
				l.addPool(bound[g])
			}
		}
	}
	if tagged != nil {
		l.Routes = append(l.Routes, Route{Listener: l.Name, Prefix: command, BoundPool: tagged.BoundPool, GetErrors: tagged.GetErrors, Timeouts: tagged.Timeouts,
			Guard: tagged.Guard, Tags: &Tags{Tags: tagged.Tags.Tags, Learned: tagged.Tags.Learned, Command: true}})
	}
	l.Tagged = tagged != nil
	slices.SortStableFunc(l.Routes, func(a, b Route) int { return cmp.Compare(len(b.Prefix), len(a.Prefix)) })
}

// addPool adds a pool that keys of l may be in, once.
func (l *Listener) addPool(bp *BoundPool) {
	if !slices.Contains(l.Pools, bp) {
		l.Pools = append(l.Pools, bp)
		l.Moves = l.Moves || bp.View != nil
	}
}

// Route finds the route of key; nil if none wants it.
func (l *Listener) Route(key []byte) *Route {
	for i := range l.Routes {
		r := &l.Routes[i]
		if r.Prefix == "" || len(key) >= len(r.Prefix) && string(key[:len(r.Prefix)]) == r.Prefix { // most have none: nothing is called for it
			return r
		}
	}
	return nil
}

// Each calls f for every server behind l, once per address, with the first
// pool that names it and lets it serve; if none does, with why not.
func (l *Listener) Each(f func(srv *upstream.Server, p *table.Pool, refusal string)) {
	type place struct {
		pool    *table.Pool
		refusal string
	}
	found := map[*upstream.Server]place{}
	var order []*upstream.Server
	for _, p := range l.Pools {
		for i, srv := range p.Servers {
			at, ok := found[srv]
			if !ok {
				order = append(order, srv)
			}
			if !ok || at.refusal != "" && p.Refusal(i) == "" {
				found[srv] = place{p.Pool, p.Refusal(i)}
			}
		}
	}
	for _, srv := range order {
		f(srv, found[srv].pool, found[srv].refusal)
	}
}

// EachInUse is Each for the servers that hold keys now: without those that are out
// in every pool behind l that has them, and with the gutters that stand in for some.
func (l *Listener) EachInUse(f func(srv *upstream.Server, p *table.Pool, refusal string)) {
	used := map[*upstream.Server]bool{}
	for _, p := range l.Pools {
		for i, srv := range p.Servers {
			used[srv] = used[srv] || p.View == nil || p.View.Phase(i) != health.Out
		}
	}
	l.Each(func(srv *upstream.Server, p *table.Pool, refusal string) {
		if used[srv] {
			f(srv, p, refusal)
		}
	})
	for _, p := range l.Pools {
		if p.View == nil || p.View.AllIn() {
			continue
		}
		for i, srv := range p.GutterServers {
			if _, done := used[srv]; !done && p.View.Phase(len(p.Servers)+i) != health.Out {
				used[srv] = true
				f(srv, p.Pool.Failover.Gutter, "")
			}
		}
	}
}

// DeniesFlush says whether one of l's pools refuses flush_all.
func (l *Listener) DeniesFlush() bool {
	return slices.ContainsFunc(l.Pools, func(p *BoundPool) bool { return p.Pool.DenyFlush })
}

// CopiesOn says whether rt keeps copies on bp.
func (rt *Route) CopiesOn(bp *BoundPool) bool {
	return rt.Copies.Copies != 0 && (rt.BoundPool == bp || slices.Contains(rt.Also, bp))
}

// Refusal says why a person keeps server i from getting requests of this
// pool; "" if nobody does.
func (p *BoundPool) Refusal(i int) string {
	if p.Refusals == nil {
		return ""
	}
	return p.Refusals[i]
}
