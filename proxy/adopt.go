package proxy

// This file switches an engine to a new table.

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/health/roll"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/ring"
)

// generation is a table that an engine has adopted, with its pools bound to servers.
type generation struct {
	*failover.Published
	pools []*routing.BoundPool
}

// longest returns the longest time that a command of a client may take in a pool of the table.
func (g *generation) longest() (d time.Duration) {
	for _, p := range g.Pools {
		d = max(d, p.Timeouts.Deadline)
	}
	return d
}

// adopt switches the engine to the table in cur. A server that the old table also names
// keeps its connections. A server that only the old table names completes its requests
// in flight and closes its connections.
func (e *Engine) adopt(cur *failover.Published) {
	first, t := e.gen == nil, cur.Table
	writesEnd := e.Now
	if !first {
		writesEnd += int64(max(e.gen.longest(), (&generation{Published: cur}).longest()))
		for _, bp := range e.gen.pools {
			e.Buffers.Hold(-bp.Owners.Size())
			bp.Retired = true
		}
	}
	e.gen = &generation{Published: cur}
	e.Limits, e.MemoryLimit = &t.Limits, t.Limits.Memory
	e.SetShare()
	e.Debug = e.Log.Enabled(context.Background(), slog.LevelDebug)
	e.LogSlow(t.LogSlow)
	e.Shared.keepBook(t.Misses, e.Now)
	e.Accepts = wire.Limits{Key: t.Limits.Key, Line: t.Limits.Line, Value: t.Limits.Value}
	e.WholeValue = int64(e.Accepts.MaxValue())
	before := e.List
	bound := e.bindPools(before)
	if b := e.Shared.book.Load(); b != nil {
		for _, srv := range e.List {
			srv.Number = b.Number(srv.Target.Network + " " + srv.Target.Address)
		}
	}
	agents := e.Agents
	e.Agents = nil
	e.Registrations = map[*upstream.Server][]failover.Registration{}
	for _, bp := range e.gen.pools { // in the order of the table, because a ledger compares the pools of a server with those of an earlier time by index
		e.tie(bp, cur.Agents[bp.Pool], bound)
	}
	e.TakeOrders(agents)
	e.bindListeners(bound, writesEnd)
	e.Clients.HasTasks = e.hasTasks()
	e.learnItemSizes()
	e.Replicator.Pools = e.gen.pools
	e.tags.Pools = e.taggedPools()
	e.TakeCopies()
	e.letGo(before)
	e.overrides = e.Shared.overrides.Load()
	e.applyOverrides()
	e.Counters.Rebind() // before any command uses the new table
	if first {
		return
	}
	for _, s := range e.ByAge() { // a client of a listener that no longer exists is closed
		if lst := e.listener(s); lst != nil && e.Listeners[lst.Name] != lst {
			s.Quit()
		} else if lst != nil {
			s.SetUsers(lst.Users)
			e.permit(s)
		}
	}
	e.Soon(link.IdleTimer)
}

// bindPools binds the pools of the new table to servers. It reuses the servers of the old
// table, which are in `before`. A server that the new table does not name is left with Retired
// set.
func (e *Engine) bindPools(before []*upstream.Server) map[*table.Pool]*routing.BoundPool {
	for _, srv := range before {
		srv.Retired = true
	}
	e.List = nil
	bound := map[*table.Pool]*routing.BoundPool{}
	for _, p := range e.gen.Pools {
		bp := &routing.BoundPool{Pool: p, Owners: ring.NewMemo(&p.Place, func(n int) bool {
			room := !e.Scarce(n)
			if room {
				e.Buffers.Hold(n)
			}
			return room
		})}
		for _, target := range p.Servers {
			bp.Servers = append(bp.Servers, e.Server(target, p))
		}
		if p.Next != nil {
			bp.Next = &routing.BoundPool{Pool: p.Successor()}
			for _, target := range p.Next.Servers {
				srv := e.ByAddress[target.Network+" "+target.Address]
				if srv == nil || srv.Retired {
					srv = e.Server(target, p)
				}
				bp.Next.Servers = append(bp.Next.Servers, srv)
			}
		}
		if p.Fill != nil {
			bp.Source = &routing.BoundPool{Pool: p.Fill.From}
			for _, target := range p.Fill.From.Servers {
				bp.Source.Servers = append(bp.Source.Servers, e.Server(target, p.Fill.From))
			}
		}
		bound[p] = bp
		e.gen.pools = append(e.gen.pools, bp)
	}
	return bound
}

// tie binds a pool to w, the agent of its keeper, and to its gutter (the pool that
// replaces servers that are out). It does nothing if w is nil.
func (e *Engine) tie(bp *routing.BoundPool, w *failover.Agent, bound map[*table.Pool]*routing.BoundPool) {
	if w == nil {
		return
	}
	bp.View = w.View
	copies := bp.Pool.Copied(e.gen.Table)
	if copies {
		e.KeepLedger(bp)
	} else if e.Ledgers[bp.Pool.Name] != nil { // it may take part in a handover
		copies = true
	}
	bp.Walk = ring.Distinct(bp.Pool.Place.Ring)
	if next := bp.Next; next != nil && bp.Pool.Resize == table.ResizeWarm {
		next.View, next.Walk, next.Indexes = w.View, ring.Distinct(next.Pool.Place.Ring), failover.Joined(bp.Pool, w)
		for j, i := range next.Indexes {
			if i >= len(bp.Servers) {
				bp.Joining = append(bp.Joining, next.Servers[j])
			}
		}
	}
	if g := bp.Pool.Failover.Gutter; g != nil {
		bp.GutterServers = bound[g].Servers
		bp.Gutter, bp.GutterAt = ring.Distinct(g.Place.Ring), len(bp.Servers)+len(bp.Joining)
		if next := bp.Next; next != nil { // a reload has set mode gutter while keys move
			next.GutterServers, next.Gutter, next.GutterAt = bp.GutterServers, bp.Gutter, bp.GutterAt
		}
	}
	for i := range w.Servers {
		srv := bp.Server(i)
		e.Registrations[srv] = append(e.Registrations[srv], failover.Registration{Pool: bp.Pool.Name, Agent: w, ServerIndex: i, Bound: bp, Copies: copies})
	}
	if e.RunsKeepers {
		if p := e.Shared; p.Name != "" {
			w.View.Introduce(roll.Instance{ID: p.Seed, Name: p.Name, Version: p.Version, Config: e.gen.Print, Copies: e.gen.Copies[bp.Pool]})
		}
		e.Agents = append(e.Agents, w)
		if w.Began == 0 {
			w.Began = e.Now
		}
		e.Schedule(w)
	}
}

// bindListeners binds listeners to the routes of the new table. A listener that the old
// table also has is reused. writesEnd is the time at which all writes in flight will have ended.
func (e *Engine) bindListeners(bound map[*table.Pool]*routing.BoundPool, writesEnd int64) {
	t := e.gen.Table
	old := e.Listeners
	e.near.Begin(e.Shared.nearMarks(t), writesEnd)
	e.Listeners, e.InOrder = map[string]*routing.Listener{}, nil
	for _, l := range t.Listeners {
		name := l.Network + " " + l.Address
		lst := old[name]
		if lst == nil {
			lst = &routing.Listener{Name: name}
		}
		for _, c := range lst.Bind(l.Routes, bound, e.Shared, t.TagCommand) {
			e.ForgetRoute(c)
		}
		e.near.Keep(lst, e.Shared.near, len(e.Shared.Engines()))
		lst.Users, lst.Certificates = l.Users, l.TLS != nil && len(l.TLS.ClientCA) > 0
		e.Listeners[name], e.InOrder = lst, append(e.InOrder, lst)
	}
	for name, lst := range old {
		if e.Listeners[name] == nil {
			for i := range lst.Routes {
				e.ForgetRoute(lst.Routes[i].Count)
			}
		}
	}
	e.near.End()
}

// hasTasks reports whether a route has features whose commands often need tasks.
func (e *Engine) hasTasks() bool {
	for _, l := range e.InOrder {
		if slices.ContainsFunc(l.Routes, func(rt routing.Route) bool {
			return rt.Guard != nil || rt.Tags != nil || rt.Buffer != nil || rt.Autocreate != nil || rt.Copies.Copies != 0 || rt.Source != nil || rt.Pool.Failover.Strict || rt.Pool.Next != nil
		}) {
			return true
		}
	}
	return false
}

// learnItemSizes makes the engine ask servers for the size of their items, if a route may send
// them an ms where its client has sent another command.
func (e *Engine) learnItemSizes() {
	for _, l := range e.InOrder {
		for i := range l.Routes {
			rt := &l.Routes[i]
			if rt.Guard == nil && rt.Tags == nil && rt.Copies.Copies == 0 && rt.Source == nil {
				continue
			}
			for _, bp := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
				for _, srv := range bp.Servers {
					srv.LearnItemSize()
				}
				for _, srv := range bp.GutterServers {
					srv.LearnItemSize()
				}
			}
		}
	}
}

// taggedPools returns the pools with values that may have tags. A pool without known servers may have
// such values, too.
func (e *Engine) taggedPools() (list []*routing.BoundPool) {
	for _, l := range e.InOrder {
		for i := range l.Routes {
			if rt := &l.Routes[i]; (rt.Tags != nil || rt.Pool.Unknown) && !slices.Contains(list, rt.BoundPool) {
				list = append(list, rt.BoundPool)
			}
		}
	}
	return list
}

// letGo releases those servers in the parameter `before` that the new table does not
// name. Each of their connections completes its requests in flight before it is closed.
func (e *Engine) letGo(before []*upstream.Server) {
	for _, srv := range before {
		if srv.Retired {
			delete(e.ByAddress, srv.Target.Network+" "+srv.Target.Address)
			for n := range srv.Dedicated { // dedicated connections have requests of Ringside itself, such as stats; a new table cancels them
				srv.CloseDedicated(n)
			}
			for _, c := range srv.Conns {
				if c.State != upstream.ConnIdle || c.Length > 0 {
					e.Closing = append(e.Closing, c)
					e.Mark(&c.Link)
				}
			}
		}
	}
}
