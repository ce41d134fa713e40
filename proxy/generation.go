package proxy

// A table as one engine has taken it up: its routes tied to live servers.

import (
	"cmp"
	"slices"

	"ringside/proxy/wire"
)

// generation is one table tied to an engine's servers.
type generation struct {
	table  *Table
	limits *Limits
	wire   wire.Limits
	pools  []*livePool
}

// listener is what the clients of one address see. It outlives generations;
// its routes don't.
type listener struct {
	name   string
	routes []route // longest prefix first
	pools  []*livePool

	ordered bool // one of the pools wants multi-gets answered in order
}

// route sends keys to a pool.
type route struct {
	prefix string
	strip  string // what the servers don't see of the key: the prefix, or nothing
	*livePool
}

// livePool is a pool and, by the same index, its servers.
type livePool struct {
	pool    *Pool
	servers []*Server

	refusals []string // by the same index, of servers that a person has ordered away; nil if there are none
}

// adopt takes up t. Servers that both tables name keep their connections;
// those that only the old one names finish what is in flight and close.
func (e *Engine) adopt(t *Table) {
	first := e.gen == nil
	e.gen = &generation{
		table:  t,
		limits: &t.Limits,
		wire:   wire.Limits{Key: t.Limits.Key, Line: t.Limits.Line, Value: t.Limits.Value},
	}
	before := e.list
	for _, srv := range before {
		srv.retired = true
	}
	e.list = nil
	live := map[*Pool]*livePool{}
	for _, p := range t.Pools {
		lp := &livePool{pool: p}
		for _, target := range p.Servers {
			lp.servers = append(lp.servers, e.server(target, p))
		}
		live[p] = lp
		e.gen.pools = append(e.gen.pools, lp)
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
	for _, srv := range before {
		if srv.retired {
			delete(e.servers, srv.target.Network+" "+srv.target.Address)
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
		if s.lst != nil && e.keep[s.lst.name] != s.lst {
			s.quit()
		}
	}
	if t.Limits.Idle > 0 {
		e.sweep = e.now
	}
}

// server finds or makes the server of target.
func (e *Engine) server(target Target, p *Pool) *Server {
	key := target.Network + " " + target.Address
	srv := e.servers[key]
	if srv == nil {
		srv = &Server{e: e, target: target, retired: true, changed: e.now}
		e.servers[key] = srv
	}
	if srv.retired {
		e.list = append(e.list, srv)
	}
	srv.settle(p, target, srv.retired)
	return srv
}

func (l *listener) take(routes []Route, live map[*Pool]*livePool) {
	l.routes, l.pools, l.ordered = nil, nil, false
	for _, r := range routes {
		made := route{prefix: r.Prefix, livePool: live[r.Pool]}
		if r.Strip {
			made.strip = r.Prefix
		}
		l.routes = append(l.routes, made)
		l.ordered = l.ordered || r.Pool.Ordered
		if !slices.Contains(l.pools, made.livePool) {
			l.pools = append(l.pools, made.livePool)
		}
	}
	slices.SortStableFunc(l.routes, func(a, b route) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
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

// deniesFlush says whether one of l's pools refuses flush_all.
func (l *listener) deniesFlush() bool {
	return slices.ContainsFunc(l.pools, func(p *livePool) bool { return p.pool.DenyFlush })
}
