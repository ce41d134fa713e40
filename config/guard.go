package config

// This file contains the settings of the guard and of the near cache of a route, with their checks.

import (
	"slices"
	"time"

	"ringside/proxy/table"
)

// usualWait is the default for how long a get can wait for another client's rebuild. waitReserve is
// the part of the deadline that remains for the reply after that wait.
const (
	usualWait   = 3 * time.Second
	waitReserve = 200 * time.Millisecond
)

// defaultGuard returns the settings for `guard: true`. decideWait lowers Wait later if the pool has
// a shorter deadline.
func defaultGuard() Guard {
	return Guard{On: true, GuardSettings: table.GuardSettings{Lease: 10 * time.Second, LeaseMax: time.Minute, Wait: usualWait}}
}

func guardValue() value[Guard] {
	type g = Guard
	long := group(defaultGuard(),
		set("lease", "how long one rebuild can take before another client can start one", duration(time.Second, time.Hour), func(g *g) *time.Duration { return &g.Lease }),
		set("lease_max", "the longest lease; leases grow up to it if rebuilds of the route take longer", duration(time.Second, time.Hour), func(g *g) *time.Duration { return &g.LeaseMax }),
		set("wait", "how long a get can wait while another client rebuilds. Unless set: 3s, or the deadline of the pool minus 200ms if that is less", depends(duration(0, time.Hour)), func(g *g) *time.Duration { return &g.Wait }),
		set("early", "how long before its expiry a value is rebuilt; auto is twice the duration of the route's slow rebuilds", earlyValue(), func(g *g) *early { return (*early)(&g.GuardSettings) }),
		set("stale", "how long the old value is served after its expiry or delete, to all clients except the one that rebuilds", duration(0, 30*24*time.Hour), func(g *g) *time.Duration { return &g.Stale }),
		set("late", "reply to a get after its wait has ended. miss: the client rebuilds, too. error: SERVER_ERROR. stale: with guard.stale, all gets wait first and then get the old value",
			named(table.GuardLate.String, table.LateMiss, table.LateError, table.LateStale), func(g *g) *table.GuardLate { return &g.Late }),
		set("sets", "after_miss: the application sets only what it has missed, so each set of the process is a rebuild. any: it also sets other keys", oneOf(option[bool]{"any", false}, option[bool]{"after_miss", true}), func(g *g) *bool { return &g.OnlyAfterMiss }),
		set("clients", "how clients use connections. connection: one request at a time. shared: several threads, or pipelining. pooled: a connection pool, without protection against late sets. detect: distinguishes the first two",
			named(table.GuardClients.String, table.Detected, table.Sequential, table.Shared, table.Pooled), func(g *g) *table.GuardClients { return &g.Clients }),
	)
	brief := wordOr("a mapping of its settings",
		option[Guard]{"on", defaultGuard()}, option[Guard]{"off", Guard{}}, option[Guard]{"hide", Guard{On: true, GuardSettings: table.GuardSettings{Hide: true}}})
	return either(brief, fresh(defaultGuard(), long))
}

// early is the type through which the key `early` of a guard is read. That key sets only the fields
// Early and Auto.
type early table.GuardSettings

// shortestEarly is the shortest useful value of the key `early`. A value is rebuilt when its
// remaining lifetime is less than `early`. memcached counts that lifetime in whole seconds.
const shortestEarly = 2 * time.Second

func earlyValue() value[early] {
	some := after(duration(0, time.Hour), func(d *document, n *node, path string, to *time.Duration) {
		if *to > 0 && *to < shortestEarly {
			d.failAt(n, "%s must be off, auto, or at least %s, not %s: servers count expiry in whole seconds", path, short(shortestEarly), n.is())
			*to = 0
		}
	})
	return value[early]{
		read: func(d *document, n *node, path string, to *early) {
			if to.Auto = n.text == "auto"; !to.Auto {
				some.read(d, n, path, &to.Early)
			}
		},
		show: func(e early) any {
			if e.Auto {
				return "auto"
			}
			return some.show(e.Early)
		},
		schema: anyOf(some.schema, schema{"const": "auto"}),
	}
}

// defaultNear returns the settings for `near: true`.
func defaultNear() Near {
	return Near{On: true, NearSettings: table.NearSettings{TTL: time.Second, Memory: 16 << 20}}
}

func nearValue() value[Near] {
	type n = Near
	long := group(defaultNear(),
		set("ttl", "how long a value is served, from the request to its server; writes by other instances are visible that much later", duration(100*time.Millisecond, 10*time.Second), func(n *n) *time.Duration { return &n.TTL }),
		set("memory", "bytes of values and their bookkeeping, divided among the loops; above it, the oldest are removed", size[int64](64<<10, 4<<30), func(n *n) *int64 { return &n.Memory }),
		set("keys", "which keys are kept: those that are read most (hot), or all", oneOf(option[bool]{"hot", false}, option[bool]{"all", true}), func(n *n) *bool { return &n.All }),
	)
	brief := wordOr("a mapping of its settings", option[Near]{"on", defaultNear()}, option[Near]{"off", Near{}})
	return either(brief, fresh(defaultNear(), long))
}

func (d *document) checkGuard(f *File, r *Route) {
	g := &r.Guard
	if !g.On {
		return
	}
	at := d.place(g, r)
	switch {
	case r.Preset == presetSessions:
		d.failAt(at, "guard has no place beside preset: sessions: a session is not rebuilt, and a set must not be refused because it came late; give them different prefixes")
		return
	case r.Preset == presetCounters || r.counts():
		d.failAt(at, "guard has no place beside preset: counters, autocreate or buffer: a missing counter starts again, no client rebuilds it, and an incr does not wait for a set; give them different prefixes")
		return
	case r.Copies.Copies != 0 && g.Stale > 0:
		d.failAt(d.place(&g.Stale, g, r), "guard.stale can't be combined with replicas and pools: a repair could copy a stale value to servers that have deleted it; leave out stale, or keep one replica")
		return
	}
	for _, s := range []struct {
		name string
		d    *time.Duration
	}{{"lease", &g.Lease}, {"lease_max", &g.LeaseMax}, {"early", &g.Early}, {"stale", &g.Stale}} {
		if *s.d%time.Second != 0 {
			d.failAt(d.place(s.d, (*early)(&g.GuardSettings), g, r), "guard.%s must be whole seconds, not %s: servers count expiry in those", s.name, short(*s.d))
		}
	}
	if g.LeaseMax < g.Lease {
		d.failAt(d.place(&g.LeaseMax, &g.Lease, g, r), "guard.lease_max (%s) must be at least guard.lease (%s)", short(g.LeaseMax), short(g.Lease))
	}
	if p := f.pool(r.Pool); p != nil && g.Wait >= p.Timeouts.Deadline {
		d.failAt(d.place(&g.Wait, g, r), "guard.wait (%s) must be less than pools.%s.timeouts.deadline (%s), after which the command has failed", short(g.Wait), p.Name, short(p.Timeouts.Deadline))
	}
	if g.Lease < 3*g.Wait {
		d.warn(d.place(&g.Lease, &g.Wait, g, r), "guard.lease (%s) is less than three times guard.wait (%s): the lease can end while clients wait, and then a second one rebuilds at the same time", short(g.Lease), short(g.Wait))
	}
	if n := d.where[&g.Late]; n != nil && g.Late != table.LateMiss && g.Wait == 0 {
		d.failAt(n, "late: %s has no effect with wait: off, which holds no get", g.Late)
	}
	if n := d.where[&g.Late]; n != nil && g.Late == table.LateStale && g.Stale == 0 {
		d.failAt(n, "late: stale has no effect without guard.stale, because no old value is kept; write stale: 30s")
	}
}

// guarded reports whether r has a guard. Routes with tags always have one.
func (r *Route) guarded() bool { return r.Guard.On || r.Tags.On }

// checkNear rejects a near cache for data that clients must read in its current state.
func (d *document) checkNear(f *File, r *Route) {
	n := &r.Near
	if !n.On {
		return
	}
	at := d.place(n, r)
	strict := slices.IndexFunc(r.to(), func(name string) bool {
		p := f.pool(name)
		return p != nil && p.Failover.Strict && f.Agrees(name)
	})
	switch {
	case r.Preset == presetSessions:
		d.failAt(at, "near has no place beside preset: sessions: a session that is read must be the one that was written last, here or at another instance; give them different prefixes")
	case r.Preset == presetCounters || r.counts():
		d.failAt(at, "near has no place beside preset: counters, autocreate or buffer: a counter that is read must be of now; give them different prefixes")
	case strict >= 0:
		d.failAt(at, "near has no place beside consistency: strict of pool %s: what is kept here may be old for near.ttl; use another pool, or consistency: relaxed", r.to()[strict])
	}
}

// decideWait sets how long gets of a guarded route can wait, unless the route sets it. For preset:
// cache, decideWait also raises the deadline of the pool, unless the pool sets it.
func (d *document) decideWait(f *File, r *Route) {
	p := f.pool(r.Pool)
	if p == nil && len(r.Pools) > 0 {
		p = f.pool(r.Pools[0])
	}
	if p == nil || !r.Guard.On || r.Guard.Hide || d.where[&r.Guard.Wait] != nil {
		return
	}
	if t := &p.Timeouts; r.Preset == presetCache && d.where[&t.Deadline] == nil {
		if t.Deadline = max(t.Deadline, cacheDeadline); t.Total > 0 {
			t.Deadline = min(t.Deadline, t.Total)
		}
	}
	r.Guard.Wait = max(0, min(usualWait, p.Timeouts.Deadline-waitReserve))
}

// cacheDeadline is the default deadline of a pool that has a route with preset: cache. It
// leaves time for the reply to a get that has waited for as long as the guard allows.
const cacheDeadline = usualWait + 500*time.Millisecond
