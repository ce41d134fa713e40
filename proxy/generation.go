package proxy

// A table as one engine has taken it up: its routes tied to live servers.

import (
	"cmp"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/replicate"
	"ringside/ring"
)

// generation is one table tied to an engine's servers.
type generation struct {
	table *Table
	pools []*livePool
}

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
	whole   *whole               // of a pool that keeps copies
}

// member is a server of the pool or, behind them, of its gutter.
func (lp *livePool) member(i int) *Server {
	if n := len(lp.servers); i >= n {
		return lp.others[i-n]
	}
	return lp.servers[i]
}

// adopt takes up t. Servers that both tables name keep their connections;
// those that only the old one names finish what is in flight and close.
func (e *Engine) adopt(cur *live) {
	first, t := e.gen == nil, cur.Table
	e.gen = &generation{table: t}
	e.limits, e.most = &t.Limits, t.Limits.Memory
	e.wire = wire.Limits{Key: t.Limits.Key, Line: t.Limits.Line, Value: t.Limits.Value}
	before := e.list
	for _, srv := range before {
		srv.retired = true
	}
	e.list = nil
	live := map[*Pool]*livePool{}
	for _, p := range t.Pools {
		lp := &livePool{pool: p, owners: ring.NewMemo(&p.Place)}
		for _, target := range p.Servers {
			lp.servers = append(lp.servers, e.server(target, p))
		}
		live[p] = lp
		e.gen.pools = append(e.gen.pools, lp)
	}
	e.watches = nil
	e.watched = map[*Server][]member{}
	for p, lp := range live {
		e.tie(lp, cur.watches[p], live)
	}
	keep := e.keep
	e.keep = map[string]*listener{}
	for _, l := range t.Listeners {
		name := l.Network + " " + l.Address
		lst := keep[name]
		if lst == nil {
			lst = &listener{name: name}
		}
		lst.take(l.Routes, live)
		e.keep[name] = lst
	}
	e.takeCopies()
	for _, srv := range before {
		if srv.retired {
			delete(e.byAddress, srv.target.Network+" "+srv.target.Address)
			for n := range srv.own { // nobody would look after them
				srv.drop(n)
			}
			for _, c := range srv.conns {
				if c.state != connIdle || c.length > 0 {
					e.leaving = append(e.leaving, c)
					e.mark(&c.Link)
				}
			}
		}
	}
	e.orders = e.Shared.orders.Load()
	e.applyOrders()
	if first {
		return
	}
	for s := range e.sessions { // of a listener that is no more
		if lst := e.listener(s); lst != nil && e.keep[lst.name] != lst {
			s.quit()
		}
	}
	if t.Limits.Idle > 0 {
		e.soon(idleTimer)
	}
}

// tie ties a pool to its keeper and its gutter.
func (e *Engine) tie(lp *livePool, w *watch, live map[*Pool]*livePool) {
	if w == nil {
		return
	}
	lp.view = w.view
	copies := lp.pool.copied(e.gen.table)
	if copies {
		lp.whole = e.wholeOf(lp)
	}
	lp.order = ring.Distinct(lp.pool.Place.Ring)
	if g := lp.pool.Failover.Gutter; g != nil {
		lp.others = live[g].servers
		lp.gutter = ring.Distinct(g.Place.Ring)
	}
	for i := range w.members {
		srv := lp.member(i)
		e.watched[srv] = append(e.watched[srv], member{lp.pool.Name, w, i, lp, copies})
	}
	if e.keeps {
		e.watches = append(e.watches, w)
		w.ripe = true
		e.soon(keeperTimer)
	}
}

// server finds or makes the server of target.
func (e *Engine) server(target Target, p *Pool) *Server {
	key := target.Network + " " + target.Address
	srv := e.byAddress[key]
	if srv == nil {
		srv = &Server{e: &e.Servers, target: target, retired: true, changed: e.now}
		e.byAddress[key] = srv
	}
	if srv.retired {
		e.list = append(e.list, srv)
	}
	srv.settle(p, target, srv.retired)
	return srv
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
