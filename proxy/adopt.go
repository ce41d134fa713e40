package proxy

// A new table: how an engine takes it up.

import (
	"ringside/proxy/wire"
	"ringside/ring"
)

// generation is one table tied to an engine's servers.
type generation struct {
	table *Table
	pools []*livePool
}

// adopt takes up t. Servers that both tables name keep their connections;
// those that only the old one names finish what is in flight and close.
func (e *Engine) adopt(cur *live) {
	first, t := e.gen == nil, cur.Table
	if !first {
		for _, lp := range e.gen.pools {
			e.pool.hold(-lp.owners.Size())
		}
	}
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
		lp := &livePool{pool: p, owners: ring.NewMemo(&p.Place, func(n int) bool {
			room := !e.scarce(n)
			if room {
				e.pool.hold(n)
			}
			return room
		})}
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
	keep := e.listeners
	e.listeners = map[string]*listener{}
	for _, l := range t.Listeners {
		name := l.Network + " " + l.Address
		lst := keep[name]
		if lst == nil {
			lst = &listener{name: name}
		}
		lst.take(l.Routes, live)
		e.listeners[name] = lst
	}
	e.Copies.pools = e.gen.pools
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
		if lst := e.listener(s); lst != nil && e.listeners[lst.name] != lst {
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
		e.keepLedger(lp)
	}
	lp.order = ring.Distinct(lp.pool.Place.Ring)
	if g := lp.pool.Failover.Gutter; g != nil {
		lp.others = live[g].servers
		lp.gutter = ring.Distinct(g.Place.Ring)
	}
	for i := range w.members {
		srv := lp.member(i)
		e.watched[srv] = append(e.watched[srv], member{pool: lp.pool.Name, w: w, member: i, live: lp, copies: copies})
	}
	if e.keeps {
		e.watches = append(e.watches, w)
		w.ripe = true
		e.soon(keeperTimer)
	}
}
