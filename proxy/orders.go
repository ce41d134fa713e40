package proxy

// Orders by a person: which servers of which pools get no requests.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ringside/proxy/health"
)

// Order is what a person wants of one server of one pool.
type Order uint8

// The orders.
const (
	Restore Order = iota // it serves, as every server does without an order
	Drain                // it gets no new request; those in flight finish
	Down                 // it gets none; those in flight fail, and its connections are closed, save for undos
)

func (o Order) String() string { return [...]string{"restore", "drain", "down"}[o] }

// Ordered is an order that is in force, and since when. The zero one is none.
type Ordered struct {
	Order Order
	Since time.Time
}

// orders is every order in force, by pool and server. It is immutable: the
// engines compare pointers, as they do with tables.
type orders map[[2]string]Ordered

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
func (p *Proxy) Order(pool, server string, o Order) error {
	cur := p.live.Load() // once: a reload may put another in its place
	if !cur.has(pool, server) {
		return fmt.Errorf("no server %q in a pool %q", server, pool)
	}
	if w := cur.watch(pool); w != nil {
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
	case o == Restore:
		delete(next, name)
	default:
		next[name] = Ordered{Order: o, Since: time.Now()}
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
func (e *Engine) handOrders(w *watch) {
	for i, m := range w.members[:w.own] {
		o := e.Shared.Ordered(w.pool, m.Name).Order
		if o == Restore || w.keeper.Order(i, health.Order(o), e.now) != nil {
			continue
		}
		w.ripe = true
		e.Shared.forget(w.pool, m.Name)
		e.Shared.Log.Warn("an order goes on as one for all Ringsides: the pool moves keys now", "pool", w.pool, "server", m.Name, "order", o.String())
	}
}

// orderKept lets a keeper obey. It tells all other proxies by the view record,
// which keeps the order, too: so a reload and a restart leave it in force.
func (p *Proxy) orderKept(w *watch, server string, o Order) error {
	i := slices.IndexFunc(w.members, func(t Target) bool { return t.Name == server })
	p.Log.Warn("a person gives an order", "pool", w.pool, "server", server, "order", o.String())
	done := make(chan error, 1)
	p.first().Post(func(e *Engine) {
		if p.live.Load().watch(w.pool) != w {
			done <- errReplaced
			return
		}
		done <- w.keeper.Order(i, health.Order(o), e.now)
		w.ripe = true
		e.soon(keeperTimer)
	})
	select {
	case err := <-done:
		if err != nil && err != errReplaced {
			return fmt.Errorf("server %s of pool %s can't be told to %s: %w", server, w.pool, o, err)
		}
		return err
	case <-time.After(time.Second):
		return fmt.Errorf("the order is given, but a loop did not answer within 1s")
	}
}

// errReplaced says that a reload has given a pool another keeper, or none.
var errReplaced = errors.New("the keeper is no longer in use")

// Ordered is the order in force for a server of a pool that has no keeper.
func (p *Proxy) Ordered(pool, server string) Ordered {
	if m := p.orders.Load(); m != nil {
		return (*m)[[2]string{pool, server}]
	}
	return Ordered{}
}

func (t *Table) has(pool, server string) bool {
	return slices.ContainsFunc(t.Pools, func(p *Pool) bool {
		return p.Name == pool && slices.ContainsFunc(p.Servers, func(s Target) bool { return s.Name == server })
	})
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
	least := map[*Server]Order{} // of the pools that name a server
	for _, lp := range e.gen.pools {
		lp.refusals = nil
		for i, t := range lp.pool.Servers {
			srv := lp.servers[i]
			o := e.Shared.Ordered(lp.pool.Name, t.Name).Order
			if known, ok := least[srv]; !ok || o < known {
				least[srv] = o
			}
			if o != Restore {
				if lp.refusals == nil {
					lp.refusals = make([]string, len(lp.servers))
				}
				lp.refusals[i] = o.refusal(t.Name)
			}
		}
	}
	for srv, o := range least {
		srv.obey(o)
	}
}

// refusal is the error line for the requests of a server that has order o.
func (o Order) refusal(server string) string {
	how := "drained"
	if o == Down {
		how = "taken down"
	}
	return fmt.Sprintf("server %s is %s by a person: ringside server restore %s", server, how, server)
}
