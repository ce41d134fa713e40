package proxy

// A table as one loop has taken it up: its routes tied to its servers.

import (
	"cmp"
	"slices"

	"ringside/proxy/health"
	"ringside/replicate"
	"ringside/ring"
)

// listener is what the clients of one address see. It outlives generations;
// its routes don't.
type listener struct {
	name   string
	routes []route // longest prefix first
	pools  []*livePool

	ordered bool // one of the pools wants multi-gets answered in order
	moves   bool // one of the pools moves keys or keeps copies of them
}

// route sends keys to a pool.
type route struct {
	listener string // its listener's name
	prefix   string
	strip    string // what the servers don't see of the key: the prefix, or nothing
	*livePool

	getErrors bool // a read whose server can't answer gets an error, not a miss

	copies replicate.Policy // of each key; its Copies is 0 if there is only one
	also   []*livePool
	prefer *livePool // of livePool and also, the one that is read first; nil: the first
	zone   string
}

// livePool is a pool and, by the same index, its servers.
type livePool struct {
	pool    *Pool
	servers []*Server
	owners  *ring.Memo // the index of the server that a key belongs to

	refusals []string // by the same index, of servers that a person has ordered away; nil if there are none

	// Of a pool whose keys move: see failover.go.
	view    *health.View
	others  []*Server            // of its gutter
	order   ring.Ring            // its own, each server once
	gutter  ring.Ring            // the gutter's
	rebuilt map[string]ring.Ring // without the servers that are out
}

// member is a server of the pool or, behind them, of its gutter.
func (lp *livePool) member(i int) *Server {
	if n := len(lp.servers); i >= n {
		return lp.others[i-n]
	}
	return lp.servers[i]
}

func (l *listener) take(routes []Route, live map[*Pool]*livePool) {
	l.routes, l.pools, l.ordered, l.moves = nil, nil, false, false
	for _, r := range routes {
		made := route{listener: l.name, prefix: r.Prefix, livePool: live[r.Pool], getErrors: r.Pool.GetErrors, zone: r.Zone}
		if r.GetErrors != nil {
			made.getErrors = *r.GetErrors
		}
		if r.Copies.Copies != 0 && r.Copies.Copies != 1 || len(r.Also) > 0 {
			made.copies = r.Copies
			made.copies.Copies = cmp.Or(made.copies.Copies, 1)
		}
		for _, p := range r.Also {
			made.also = append(made.also, live[p])
		}
		made.prefer = live[r.Prefer]
		if r.Strip {
			made.strip = r.Prefix
		}
		l.routes = append(l.routes, made)
		l.ordered = l.ordered || r.Pool.Ordered
		for _, lp := range append([]*livePool{made.livePool}, made.also...) {
			l.reach(lp)
			if g := lp.pool.Failover.Gutter; g != nil {
				l.reach(live[g])
			}
		}
	}
	slices.SortStableFunc(l.routes, func(a, b route) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
}

// reach adds a pool that keys of l may be in.
func (l *listener) reach(lp *livePool) {
	if !slices.Contains(l.pools, lp) {
		l.pools = append(l.pools, lp)
		l.moves = l.moves || lp.view != nil
	}
}

// route finds the route of key; nil if none wants it.
func (l *listener) route(key []byte) *route {
	for i := range l.routes {
		r := &l.routes[i]
		if len(key) >= len(r.prefix) && string(key[:len(r.prefix)]) == r.prefix {
			return r
		}
	}
	return nil
}

// each calls f for every server behind l, once per address, with the first
// pool that names it and lets it serve; if none does, with why not.
func (l *listener) each(f func(srv *Server, p *Pool, refusal string)) {
	type place struct {
		pool    *Pool
		refusal string
	}
	found := map[*Server]place{}
	var order []*Server
	for _, p := range l.pools {
		for i, srv := range p.servers {
			at, ok := found[srv]
			if !ok {
				order = append(order, srv)
			}
			if !ok || at.refusal != "" && p.refusal(i) == "" {
				found[srv] = place{p.pool, p.refusal(i)}
			}
		}
	}
	for _, srv := range order {
		f(srv, found[srv].pool, found[srv].refusal)
	}
}

// eachInUse is each, without the servers that are out for every pool behind l
// that has them, and with the gutters of pools that may use them now.
func (l *listener) eachInUse(f func(srv *Server, p *Pool, refusal string)) {
	used := map[*Server]bool{}
	for _, p := range l.pools {
		for i, srv := range p.servers {
			used[srv] = used[srv] || p.view == nil || p.view.Phase(i) != health.Out
		}
	}
	l.each(func(srv *Server, p *Pool, refusal string) {
		if used[srv] {
			f(srv, p, refusal)
		}
	})
	for _, p := range l.pools {
		if p.view == nil || p.view.AllIn() {
			continue
		}
		for i, srv := range p.others {
			if _, done := used[srv]; !done && p.view.Phase(len(p.servers)+i) != health.Out {
				used[srv] = true
				f(srv, p.pool.Failover.Gutter, "")
			}
		}
	}
}

// deniesFlush says whether one of l's pools refuses flush_all.
func (l *listener) deniesFlush() bool {
	return slices.ContainsFunc(l.pools, func(p *livePool) bool { return p.pool.DenyFlush })
}

// copiesOn says whether rt keeps copies on lp.
func (rt *route) copiesOn(lp *livePool) bool {
	return rt.copies.Copies != 0 && (rt.livePool == lp || slices.Contains(rt.also, lp))
}

// refusal says why a person keeps server i from getting requests of this
// pool; "" if nobody does.
func (p *livePool) refusal(i int) string {
	if p.refusals == nil {
		return ""
	}
	return p.refusals[i]
}
