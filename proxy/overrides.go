package proxy

// What people want of servers: which of them get no requests of which pools.
//
// An override is one thing to people, and is kept in one of two places:
//
//	pool with a keeper    the view record on its servers: all Ringsides obey, and it outlives this process
//	pool without one      overrideMap: this process obeys, until it ends
//
// They can't be one. A pool without a keeper (fail_fast, one copy of each key) has
// no view record, and to make one would mean to ping and write to servers of which
// the file says that nothing is to be moved or flushed. A pool with one needs the
// steps of the phases. So Override decides by the pool which place it is, and when a
// reload gives a pool a keeper the overrides of this process go to that
// (handOverrides).

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

// overrideMap is the overrides of pools without a keeper, by pool and server. It is
// immutable: the engines compare pointers, as they do with tables.
type overrideMap map[[2]string]OverrideSince

// OverrideSince is an override that is in force, and since when. The zero one is none.
type OverrideSince struct {
	Override health.Override
	Since    time.Time
}

// Override makes o what is wanted of the servers of a pool of the current table that
// have this name, and waits until every engine obeys. The error says that there is
// no such server, that the keeper can't obey, or that nobody knows (ErrUnsure).
//
// Overrides are kept by these two names and so outlive a reload; one whose server a
// table does not have waits for a table that has it.
//
// A server that is overridden in one pool still serves the others that name its
// address; its connections are closed when none of them wants it to serve.
func (p *Proxy) Override(pool, server string, o health.Override) error {
	cur := p.published.Load() // once: a reload may put another in its place
	if !cur.Has(pool, server) {
		return fmt.Errorf("no server %q in a pool %q", server, pool)
	}
	if w := cur.Agent(pool); w != nil {
		p.setOverride(pool, server, health.Restore) // what was wanted while the pool had no keeper
		if err := p.overrideByKeeper(w, server, o); err != errReplaced {
			return err
		}
		return p.Override(pool, server, o)
	}
	before, changed := p.setOverride(pool, server, o)
	if !changed {
		return nil
	}
	p.Log.Warn("a person gives an order", "pool", pool, "server", server, "order", o.String(), "before", before.String())
	engines := p.Engines()
	obeyed := make(chan struct{}, len(engines))
	for _, e := range engines {
		e.Post(func(e *Engine) {
			e.takeOverrides()
			obeyed <- struct{}{}
		})
	}
	late := time.After(time.Second)
	for range engines {
		select {
		case <-obeyed:
		case <-late:
			return errLoopLate
		}
	}
	return nil
}

var (
	// ErrUnsure is the error of what may be done by now, or later, or never.
	ErrUnsure = errors.New("it may be done or not")

	errLoopLate = fmt.Errorf("a loop did not answer within 1s: %w", ErrUnsure)

	// errReplaced says that a reload has given a pool another keeper, or none.
	errReplaced = errors.New("the keeper is no longer in use")
)

// setOverride makes o what is wanted of a server in a pool without a keeper. The
// engines are not told.
func (p *Proxy) setOverride(pool, server string, o health.Override) (before health.Override, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.OverrideOf(pool, server).Override
	if before == o {
		return before, false
	}
	next := overrideMap{}
	if old := p.overrides.Load(); old != nil {
		next = maps.Clone(*old)
	}
	name := [2]string{pool, server}
	if o == health.Restore {
		delete(next, name)
	} else {
		next[name] = OverrideSince{Override: o, Since: time.Now()}
	}
	p.overrides.Store(&next)
	return before, true
}

// overrideByKeeper lets a pool's keeper obey. It tells all other Ringsides by the
// view record, which keeps the override, too: so a reload and a restart leave it in
// force.
func (p *Proxy) overrideByKeeper(w *failover.Agent, server string, o health.Override) error {
	i := slices.IndexFunc(w.Members, func(t table.Target) bool { return t.Name == server })
	p.Log.Warn("a person gives an order", "pool", w.Pool, "server", server, "order", o.String())
	done := make(chan error, 1)
	p.keeperLoop().Post(func(e *Engine) {
		if p.published.Load().Agent(w.Pool) != w {
			done <- errReplaced
			return
		}
		done <- w.Keeper.Override(i, o, e.Now)
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
		return errLoopLate
	}
}

// handOverrides gives what is wanted of a pool's servers to the keeper that a reload
// has given the pool. What the keeper can't obey yet stays in force as it was.
func (e *Engine) handOverrides(w *failover.Agent) {
	for i, m := range w.Members[:w.OwnMembers] {
		o := e.Shared.OverrideOf(w.Pool, m.Name).Override
		if o == health.Restore || w.Keeper.Override(i, o, e.Now) != nil {
			continue
		}
		w.HasWork = true
		e.Shared.setOverride(w.Pool, m.Name, health.Restore)
		e.Shared.Log.Warn("an order goes on as one for all Ringsides: the pool moves keys now", "pool", w.Pool, "server", m.Name, "order", o.String())
	}
}

// OverrideOf is the override in force for a server of a pool that has no keeper.
func (p *Proxy) OverrideOf(pool, server string) OverrideSince {
	if m := p.overrides.Load(); m != nil {
		return (*m)[[2]string{pool, server}]
	}
	return OverrideSince{}
}

// takeOverrides takes up the overrides as they are now, if they have changed.
func (e *Engine) takeOverrides() {
	if o := e.Shared.overrides.Load(); o != e.overrides {
		e.overrides = o
		e.applyOverrides()
	}
}

// applyOverrides tells the bound pools, and their servers, what is wanted of them.
// It is the one place where an override of this process reaches them.
func (e *Engine) applyOverrides() {
	least := map[*upstream.Server]health.Override{} // of the pools that name a server
	for _, bp := range e.gen.pools {
		bp.Refusals = nil
		for i, t := range bp.Pool.Servers {
			srv := bp.Servers[i]
			o := e.Shared.OverrideOf(bp.Pool.Name, t.Name).Override
			if known, ok := least[srv]; !ok || o < known {
				least[srv] = o
			}
			if o != health.Restore {
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
