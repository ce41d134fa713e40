package proxy

// Orders by a person: which servers of which pools get no requests.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// orders is every order in force, by pool and server. It is immutable: the
// engines compare pointers, as they do with tables.
type orders map[[2]string]table.OverrideSince

// Order makes o the order for the servers of a pool of the current table that
// have this name, and waits until every engine obeys. The error says that
// there is no such server, or that a loop did not answer within a second.
//
// Orders are kept by these two names and so live through a reload; one whose
// server a table does not have waits for a table that has it.
//
// A server that has an order in one pool still serves the others that name
// its address; its connections are closed when all of them have ordered it
// away.
func (p *Proxy) Order(pool, server string, o table.Override) error {
	cur := p.published.Load() // once: a reload may put another in its place
	if !cur.Has(pool, server) {
		return fmt.Errorf("no server %q in a pool %q", server, pool)
	}
	if w := cur.Agent(pool); w != nil {
		p.forget(pool, server) // what was ordered while the pool had no keeper
		if err := p.orderKept(w, server, o); err != errReplaced {
			return err
		}
		return p.Order(pool, server, o)
	}
	p.mu.Lock()
	next := orders{}
	if old := p.orders.Load(); old != nil {
		next = maps.Clone(*old)
	}
	name := [2]string{pool, server}
	before := next[name]
	switch {
	case before.Order == o:
		p.mu.Unlock()
		return nil
	case o == table.Restore:
		delete(next, name)
	default:
		next[name] = table.OverrideSince{Order: o, Since: time.Now()}
	}
	p.orders.Store(&next)
	p.mu.Unlock()
	p.Log.Warn("a person gives an order", "pool", pool, "server", server, "order", o.String(), "before", before.Order.String())
	engines := p.Engines()
	obeyed := make(chan struct{}, len(engines))
	for _, e := range engines {
		e.Post(func(e *Engine) {
			e.obey()
			obeyed <- struct{}{}
		})
	}
	late := time.After(time.Second)
	for range engines {
		select {
		case <-obeyed:
		case <-late:
			return fmt.Errorf("the order is given, but a loop did not answer within 1s")
		}
	}
	return nil
}

// forget takes back an order to a server of a pool that had no keeper.
func (p *Proxy) forget(pool, server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.orders.Load()
	if old == nil {
		return
	}
	name := [2]string{pool, server}
	if _, given := (*old)[name]; given {
		next := maps.Clone(*old)
		delete(next, name)
		p.orders.Store(&next)
	}
}

// handOrders gives the orders in force in a pool to the keeper that a reload
// has given it. One that it can't obey yet stays in force as it was.
func (e *Engine) handOrders(w *failover.Agent) {
	for i, m := range w.Members[:w.OwnMembers] {
		o := e.Shared.Ordered(w.Pool, m.Name).Order
		if o == table.Restore || w.Keeper.Order(i, health.Order(o), e.Now) != nil {
			continue
		}
		w.HasWork = true
		e.Shared.forget(w.Pool, m.Name)
		e.Shared.Log.Warn("an order goes on as one for all Ringsides: the pool moves keys now", "pool", w.Pool, "server", m.Name, "order", o.String())
	}
}

// orderKept lets a keeper obey. It tells all other proxies by the view record,
// which keeps the order, too: so a reload and a restart leave it in force.
func (p *Proxy) orderKept(w *failover.Agent, server string, o table.Override) error {
	i := slices.IndexFunc(w.Members, func(t table.Target) bool { return t.Name == server })
	p.Log.Warn("a person gives an order", "pool", w.Pool, "server", server, "order", o.String())
	done := make(chan error, 1)
	p.keeperLoop().Post(func(e *Engine) {
		if p.published.Load().Agent(w.Pool) != w {
			done <- errReplaced
			return
		}
		done <- w.Keeper.Order(i, health.Order(o), e.Now)
		w.HasWork = true
		e.Soon(link.KeeperTimer)
	})
	select {
	case err := <-done:
		if err != nil && err != errReplaced {
			return fmt.Errorf("server %s of pool %s can't be told to %s: %w", server, w.Pool, o, err)
		}
		return err
	case <-time.After(time.Second):
		return fmt.Errorf("the order is given, but a loop did not answer within 1s")
	}
}

// errReplaced says that a reload has given a pool another keeper, or none.
var errReplaced = errors.New("the keeper is no longer in use")

// Ordered is the order in force for a server of a pool that has no keeper.
func (p *Proxy) Ordered(pool, server string) table.OverrideSince {
	if m := p.orders.Load(); m != nil {
		return (*m)[[2]string{pool, server}]
	}
	return table.OverrideSince{}
}

// obey takes up the orders as they are now, if they have changed.
func (e *Engine) obey() {
	if o := e.Shared.orders.Load(); o != e.orders {
		e.orders = o
		e.applyOrders()
	}
}

// applyOrders tells the pools and servers of the generation what the orders
// say. It is the one place where an order reaches them.
func (e *Engine) applyOrders() {
	least := map[*upstream.Server]table.Override{} // of the pools that name a server
	for _, bp := range e.gen.pools {
		bp.Refusals = nil
		for i, t := range bp.Pool.Servers {
			srv := bp.Servers[i]
			o := e.Shared.Ordered(bp.Pool.Name, t.Name).Order
			if known, ok := least[srv]; !ok || o < known {
				least[srv] = o
			}
			if o != table.Restore {
				if bp.Refusals == nil {
					bp.Refusals = make([]string, len(bp.Servers))
				}
				bp.Refusals[i] = o.Refusal(t.Name)
			}
		}
	}
	for srv, o := range least {
		srv.Apply(o)
	}
}
