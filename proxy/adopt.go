package proxy

// A new table: how an engine takes it up.

import (
	"ringside/proxy/failover"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/ring"
)

// generation is one table tied to an engine's servers.
type generation struct {
	table *table.Table
	pools []*routing.BoundPool
}

// adopt takes up t. Servers that both tables name keep their connections;
// those that only the old one names finish what is in flight and close.
func (e *Engine) adopt(cur *failover.Published) {
	first, t := e.gen == nil, cur.Table
	if !first {
		for _, lp := range e.gen.pools {
			e.Buffers.Hold(-lp.Owners.Size())
		}
	}
	e.gen = &generation{table: t}
	e.Limits, e.Most = &t.Limits, t.Limits.Memory
	e.Wire = wire.Limits{Key: t.Limits.Key, Line: t.Limits.Line, Value: t.Limits.Value}
	before := e.List
	for _, srv := range before {
		srv.Retired = true
	}
	e.List = nil
	live := map[*table.Pool]*routing.BoundPool{}
	for _, p := range t.Pools {
		lp := &routing.BoundPool{Pool: p, Owners: ring.NewMemo(&p.Place, func(n int) bool {
			room := !e.Scarce(n)
			if room {
				e.Buffers.Hold(n)
			}
			return room
		})}
		for _, target := range p.Servers {
			lp.Servers = append(lp.Servers, e.Server(target, p))
		}
		live[p] = lp
		e.gen.pools = append(e.gen.pools, lp)
	}
	e.Agents = nil
	e.Watched = map[*upstream.Server][]failover.Registration{}
	for p, lp := range live {
		e.tie(lp, cur.Agents[p], live)
	}
	keep := e.Listeners
	e.Listeners = map[string]*routing.Listener{}
	for _, l := range t.Listeners {
		name := l.Network + " " + l.Address
		lst := keep[name]
		if lst == nil {
			lst = &routing.Listener{Name: name}
		}
		lst.Take(l.Routes, live)
		e.Listeners[name] = lst
	}
	e.Copies.Pools = e.gen.pools
	e.TakeCopies()
	for _, srv := range before {
		if srv.Retired {
			delete(e.ByAddress, srv.Target.Network+" "+srv.Target.Address)
			for n := range srv.Dedicated { // nobody would look after them
				srv.Drop(n)
			}
			for _, c := range srv.Conns {
				if c.State != upstream.ConnIdle || c.Length > 0 {
					e.Closing = append(e.Closing, c)
					e.Mark(&c.Link)
				}
			}
		}
	}
	e.orders = e.Shared.orders.Load()
	e.applyOrders()
	if first {
		return
	}
	for s := range e.Sessions { // of a listener that is no more
		if lst := e.listener(s); lst != nil && e.Listeners[lst.Name] != lst {
			s.Quit()
		}
	}
	if t.Limits.Idle > 0 {
		e.Soon(link.IdleTimer)
	}
}

// tie ties a pool to its keeper and its gutter.
func (e *Engine) tie(lp *routing.BoundPool, w *failover.Agent, live map[*table.Pool]*routing.BoundPool) {
	if w == nil {
		return
	}
	lp.View = w.View
	copies := lp.Pool.Copied(e.gen.table)
	if copies {
		e.KeepLedger(lp)
	}
	lp.Walk = ring.Distinct(lp.Pool.Place.Ring)
	if g := lp.Pool.Failover.Gutter; g != nil {
		lp.Others = live[g].Servers
		lp.Gutter = ring.Distinct(g.Place.Ring)
	}
	for i := range w.Members {
		srv := lp.Member(i)
		e.Watched[srv] = append(e.Watched[srv], failover.Registration{Pool: lp.Pool.Name, Agent: w, Member: i, Live: lp, Copies: copies})
	}
	if e.RunsKeepers {
		e.Agents = append(e.Agents, w)
		w.HasWork = true
		e.Soon(link.KeeperTimer)
	}
}
