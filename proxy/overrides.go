package proxy

// This file implements overrides: an operator keeps requests of a pool from a server.
//
// An override is one concept for the operator, but is stored in one of two places:
//
//	pool that ejects servers    the view record on its servers: all instances apply it, and it survives this process
//	pool that does not          overrideMap: only this process applies it, until it ends
//
// One place is not enough. A pool that does not eject servers (fail_fast, no replicas) has no view
// record, or only for changes of its servers. An override in the record ejects the server, and it is flushed
// before it returns, although the configuration forbids that. A pool that ejects servers needs the
// steps of the phases. So Override chooses the place by the pool. When a reload lets a pool
// eject servers, handOverrides moves the overrides of this process to the keeper.

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// overrideMap contains the overrides of pools that do not eject servers, by pool and server. It
// is immutable, so engines detect changes by comparing pointers.
type overrideMap map[[2]string]OverrideSince

// OverrideSince is an override and the time when it was set. The zero value means that
// there is none.
type OverrideSince struct {
	Override health.Override
	Since    time.Time
}

// Override sets o as the override of the server with this name in a pool of the current
// table. It waits until every engine applies it. The error says that there is no such
// server, that the keeper can't apply the override, or that the result is unknown
// (ErrUnsure).
//
// Overrides are stored by the names of pool and server, so they survive a reload. If a new
// table lacks the server the override stays stored, and applies again to a table that has it.
//
// A server that is overridden in one pool still serves the other pools that name its
// address. Its connections are closed when all of these pools have an override.
func (p *Proxy) Override(pool, server string, o health.Override) error {
	cur := p.published.Load() // read once, because a reload may replace it
	if !cur.Has(pool, server) {
		return fmt.Errorf("no server %q in a pool %q", server, pool)
	}
	here := p.OverrideOf(pool, server).Override
	// An order in the view record of a pool that does not eject servers is from another time, or from an instance with another mode.
	if w := cur.Agent(pool); w != nil && (!w.Stays() || o == health.Restore && here == health.Restore) {
		_, changed := p.setOverride(pool, server, health.Restore) // delete an override set while the pool had no keeper
		if err := p.overrideByKeeper(w, server, o, changed); err != errReplaced {
			return err
		}
		return p.Override(pool, server, o)
	}
	before, changed := p.setOverride(pool, server, o)
	if !changed {
		return nil
	}
	err := p.waited(func(e *Engine) {
		e.takeOverrides()
		if e == p.keeperLoop() {
			e.logOverride(o, pool, server, before)
		}
	})
	if err != nil {
		return errLoopLate
	}
	return nil
}

var (
	// ErrUnsure means that the change may be done already, or may be done later, or never.
	ErrUnsure = errors.New("it may be done or not")

	errLoopLate = fmt.Errorf("a loop did not answer within 1s: %w", ErrUnsure)

	// errReplaced means that a reload has replaced or removed the keeper of a pool.
	errReplaced = errors.New("the keeper is no longer in use")
)

// logOverride writes an operator's override to the log. The end of an override is a return
// to normal, so its level is INFO.
func (e *Engine) logOverride(o health.Override, pool, server string, before health.Override) {
	level, what, is := slog.LevelInfo, "operator restored server", event.Restored
	switch o {
	case health.Drain:
		level, what, is = slog.LevelWarn, "operator drained server", event.Drained
	case health.Down:
		level, what, is = slog.LevelWarn, "operator took server down", event.TakenDown
	}
	e.LogOrder(level, pool+" "+server, what, "pool", pool, "server", server, "order", o.String(), "before", before.String(), is.Attr())
}

// setOverride stores o as the override of a server in a pool that does not eject servers. It does
// not notify the engines.
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

// overrideByKeeper passes o to the keeper of a pool. The keeper publishes it to all
// other instances in the view record, where it is also stored. So it survives reloads
// and restarts.
func (p *Proxy) overrideByKeeper(w *failover.Agent, server string, o health.Override, changed bool) error {
	i := slices.IndexFunc(w.Servers, func(t table.Target) bool { return t.Name == server })
	done := make(chan error, 1)
	p.keeperLoop().Post(func(e *Engine) {
		if p.published.Load().Agent(w.Pool) != w {
			done <- errReplaced
			return
		}
		before := w.Keeper.Verdict(i).Override
		err := w.Keeper.Override(i, o, e.Now)
		if err == nil && (changed || before != o) {
			e.logOverride(o, w.Pool, server, before)
		}
		done <- err
		e.Schedule(w)
	})
	select {
	case err := <-done:
		if err != nil && err != errReplaced {
			return fmt.Errorf("server %s of pool %s: %s failed: %w", server, w.Pool, o, err)
		}
		return err
	case <-time.After(time.Second):
		return errLoopLate
	}
}

// handOverrides moves the overrides of a pool's servers to the keeper that a reload has
// added to the pool, if the pool ejects servers. An override that the keeper can't apply yet stays where it is.
func (e *Engine) handOverrides(w *failover.Agent) {
	if w.Stays() {
		return
	}
	for i, m := range w.Servers[:w.OwnServers] {
		o := e.Shared.OverrideOf(w.Pool, m.Name).Override
		if o == health.Restore || w.Keeper.Override(i, o, e.Now) != nil {
			continue
		}
		e.Schedule(w)
		e.Shared.setOverride(w.Pool, m.Name, health.Restore)
		e.LogOrder(slog.LevelWarn, w.Pool+" "+m.Name, "override applies to all instances from now on: the pool moves keys now", "pool", w.Pool, "server", m.Name, "order", o.String())
	}
}

// OverrideOf returns the override of a server in a pool that does not eject servers.
func (p *Proxy) OverrideOf(pool, server string) OverrideSince {
	if m := p.overrides.Load(); m != nil {
		return (*m)[[2]string{pool, server}]
	}
	return OverrideSince{}
}

// takeOverrides applies the current overrides if they have changed.
func (e *Engine) takeOverrides() {
	if o := e.Shared.overrides.Load(); o != e.overrides {
		e.overrides = o
		e.applyOverrides()
	}
}

// applyOverrides applies the overrides to the bound pools and their servers. It is the
// only place where overrides of this process reach them.
func (e *Engine) applyOverrides() {
	least := map[*upstream.Server]health.Override{} // by server, the weakest override of the pools that name it
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
