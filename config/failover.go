package config

// This file contains the settings for what a pool does when one of its servers is down: their
// defaults, and the checks that they fit together.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/replicate"
)

func defaultFailover() Failover {
	return Failover{
		InterimTTL: 10 * time.Minute,
		Settings: health.Settings{
			AfterFailures: 3,
			EjectAfter:    health.EjectAfter{Refused: 400 * time.Millisecond, Silent: 3 * time.Second, Restart: 3 * time.Second},
			Ping:          500 * time.Millisecond,
			Lease:         2 * time.Second,
		},
	}
}

const (
	manyServers     = 3 // with at least this number of servers in a pool, keys move by default, and a majority can outvote one server
	maxFailures     = 1000
	lastingLease    = time.Second
	lastingPing     = 250 * time.Millisecond
	lastingDeadline = 4500 * time.Millisecond // deadline that is long enough for a write to wait until a lost replica is ejected, and shorter than the 5 s that libmemcached, and so PHP's sessions, wait for a reply
	lastingEject    = 50 * time.Millisecond   // time until a suspect server is ejected; short, because writes wait for that, and because the other replica restores what the flush of the server removes
	month           = 30 * 24 * time.Hour     // largest expiry in seconds: memcached interprets a larger number as a Unix time
)

func failoverValue() value[Failover] {
	type f = Failover
	return group(defaultFailover(),
		set("mode", "where the keys of a failed server move: nowhere (fail_fast), to the other servers of the pool (rehash), or to another pool (gutter). Unless set: fail_fast for distributions of existing clients and below three servers, otherwise rehash",
			depends(named(table.Mode.String, table.FailFast, table.Rehash, table.Gutter)), func(f *f) *table.Mode { return &f.Mode }),
		set("consistency", "relaxed: keep serving while instances may disagree about a server. strict: return a miss, or reject a write, while an instance is not certain",
			oneOf(option[bool]{"relaxed", false}, option[bool]{"strict", true}), func(f *f) *bool { return &f.Strict }),
		set("after_failures", "consecutive timeouts after which a server is suspect: its keys miss until it replies", integer(1, maxFailures), func(f *f) *int { return &f.AfterFailures }),
		set("eject_after", "eject a server that was suspect for this time: its keys move, and it is flushed before it rejoins; one duration for all, or",
			ejectAfterValue(), func(f *f) *health.EjectAfter { return &f.EjectAfter }),
		set("ping", "time between two pings of a server", duration(10*time.Millisecond, time.Minute), func(f *f) *time.Duration { return &f.Ping }),
		set("lease", "how long a successful ping is valid; equal in all instances that use these servers",
			duration(10*time.Millisecond, 10*time.Minute), func(f *f) *time.Duration { return &f.Lease }),
		set("on_rejoin", "what a rejoining server does. flush: it is flushed and serves. warm: for a while, its misses also ask the substitute server",
			named(health.OnRejoin.String, health.Flush, health.Warm), func(f *f) *health.OnRejoin { return &f.OnRejoin }),
		set("wait", "how long a write can wait while the instances agree that its server is out, or off. A write that would wait longer fails at once. Unless set: the deadline for consistency: strict and for the presets counters and sessions, otherwise off",
			depends(duration(0, time.Hour)), func(f *f) *time.Duration { return &f.Wait }),
		set("substitute_ttl", "the longest expiry of values that a substitute server stores for an ejected server",
			duration(time.Second, month), func(f *f) *time.Duration { return &f.InterimTTL }),
		set("gutter", "the pool that takes the keys, for mode gutter", text("the name of a pool"), func(f *f) *string { return &f.Gutter }),
	)
}

// ejectAfterValue describes the setting eject_after. One duration sets all fields of EjectAfter. A
// mapping sets each of them.
func ejectAfterValue() value[health.EjectAfter] {
	type e = health.EjectAfter
	one := duration(10*time.Millisecond, time.Hour)
	return either(
		after(through(one, func(e *e) *time.Duration { return &e.Silent }), func(d *document, n *node, _ string, to *e) {
			d.where[&to.Refused], to.Refused = n, to.Silent
			d.where[&to.Restart], to.Restart = n, to.Silent
		}),
		group(defaultFailover().EjectAfter,
			set("refused", "for a server that refuses connections: its process has ended and its data are lost; at most silent unless set",
				one, func(e *e) *time.Duration { return &e.Refused }),
			set("silent", "for a server that does not reply, or loses its connections", one, func(e *e) *time.Duration { return &e.Silent }),
			set("restart", "for a server with restartable memory (memcached -e), if longer than silent: back within this time, it keeps its data and is not flushed",
				one, func(e *e) *time.Duration { return &e.Restart }),
		))
}

// need is the behaviour of a pool without which a setting has no effect.
type need uint8

const (
	ejection  need = iota // the pool ejects servers: their keys move to other servers, or their keys have replicas
	agreement             // all instances of the pool agree about its servers: it ejects servers, or coordinates changes of them
	interim               // the pool moves keys to substitute servers
	gutter                // the pool moves keys to another pool, its gutter
)

// needy is a failover setting that has no effect in pools without a certain behaviour (see need).
type needy struct {
	name  string
	field any
	need  need
}

func (f *Failover) needy() []needy {
	return []needy{
		{"consistency", &f.Strict, agreement}, {"eject_after", &f.EjectAfter, agreement},
		{"ping", &f.Ping, agreement}, {"lease", &f.Lease, agreement},
		{"on_rejoin", &f.OnRejoin, ejection},
		{"wait", &f.Wait, interim}, {"substitute_ttl", &f.InterimTTL, interim}, {"gutter", &f.Gutter, gutter},
	}
}

// has reports whether the pool p has the behaviour n. copies is true if a route keeps replicas in
// p.
func (p *Pool) has(n need, copies bool) bool {
	switch n {
	case ejection:
		return copies || p.Failover.Mode != table.FailFast
	case agreement:
		return p.has(ejection, copies) || p.Resize.Mode != table.ResizePlain
	case interim:
		return p.Failover.Mode != table.FailFast
	}
	return p.Failover.Mode == table.Gutter
}

// said returns the position of a setting of a pool: in the pool itself, else in `defaults`. It
// returns nil if the file sets it in neither of them.
func (d *document) said(setting any) *node { return cmp.Or(d.where[setting], d.inherited[setting]) }

func (f *File) poolNames() (names []string) {
	for i := range f.Pools {
		names = append(names, f.Pools[i].Name)
	}
	return names
}

// served returns the names of the pools that are not gutters or former pools of other pools.
func (f *File) served() []string {
	return slices.DeleteFunc(f.poolNames(), func(name string) bool { return !f.serves(name) })
}

// serves reports whether the pool with that name is not the gutter or the former pool of another one.
func (f *File) serves(name string) bool { return !f.isSource(name) && !f.look().gutters[name] }

// usualMode returns the default mode of a pool, and why it is the default. If the distribution is
// that of an existing client, other applications may use the servers through that client. With such
// a distribution, the default mode flushes no server.
func (p *Pool) usualMode() (table.Mode, string) {
	preset, _ := FindPreset(p.Distribution)
	switch {
	case p.Fill.Pool != "":
		return table.FailFast, "the default with fill_from"
	case !preset.New:
		return table.FailFast, "the default of " + p.Distribution + ", which is that of an existing client"
	case len(p.Sources) > 0: // the number of servers changes, and the mode should not change with it
		return table.Rehash, "the default of " + p.Distribution + " for a pool with discovered servers"
	case p.addresses() < manyServers:
		return table.FailFast, "the default below three servers"
	}
	return table.Rehash, "the default of " + p.Distribution + " from three servers on"
}

// AtReturn describes in a sentence what happens to a server of a pool that was down and
// returns. A flush removes all data of the server, including that of other pools.
func (f *File) AtReturn(pool string) string {
	if f.Ejects(pool) {
		return flushedAtReturn
	}
	for _, i := range slices.Sorted(maps.Keys(f.viewersOf(f.pool(pool)))) {
		if q := &f.Pools[i]; f.Ejects(q.Name) {
			return flushedAtReturn + ", because pool " + q.Name + " uses it too and ejects it"
		}
	}
	if f.Agrees(pool) {
		return "a server that returns serves what it had; only one that was down while keys moved to other servers is flushed before"
	}
	return "a server that returns serves what it had: nothing of it is flushed"
}

const flushedAtReturn = "a server that returns is flushed before it serves again"

func (d *document) decideConsistency(f *File, p *Pool) {
	o := &p.Failover
	o.WhyConsistency = "the default"
	if d.said(&p.Failover.Strict) != nil {
		o.WhyConsistency = "as the file says"
	}
	copied := f.copiesIn(p.Name)
	lasting := slices.IndexFunc(copied, (*Route).mustLast)
	if lasting >= 0 {
		d.decideLasting(p, copied[lasting].Preset, f.viewServers(p))
	}
	if d.said(&p.Failover.EjectAfter.Refused) == nil { // the file does not set eject_after.refused; a smaller eject_after.silent lowers the default, and is not an error
		o.EjectAfter.Refused = min(o.EjectAfter.Refused, o.EjectAfter.Silent)
	}
	if (o.Strict || lasting >= 0) && d.said(&p.Failover.Wait) == nil {
		o.Wait = p.Timeouts.Deadline
	}
	if o.Strict && f.viewServers(p) < manyServers {
		o.WhyConsistency += "; below three view servers it holds for one fault at a time"
	}
}

// decideFlush denies flush_all in pools of routes with preset: counters, unless the pool sets
// flush_all, and in pools with fill_from.
func (d *document) decideFlush(f *File, p *Pool) {
	p.DenyFlush = p.DenyFlush || p.Fill.Pool != ""
	for _, r := range f.look().routes[p.Name] {
		if r.Preset == presetCounters && d.where[&p.DenyFlush] == nil {
			p.DenyFlush = true
		}
	}
}

// decideLasting sets what the presets counters and sessions require of a pool, unless the pool
// itself sets it. servers is the pool's number of view servers.
func (d *document) decideLasting(p *Pool, preset string, servers int) {
	o := &p.Failover
	for _, s := range []struct {
		setting *time.Duration
		is      time.Duration
	}{
		{&o.Lease, lastingLease}, {&o.Ping, lastingPing}, {&o.EjectAfter.Refused, lastingEject}, {&o.EjectAfter.Silent, lastingEject},
		{&p.Timeouts.Deadline, max(p.Timeouts.Deadline, lastingDeadline)},
	} {
		if d.where[s.setting] == nil {
			*s.setting = s.is
		}
	}
	switch {
	case d.where[&o.Strict] != nil:
	case servers >= manyServers:
		o.Strict, o.WhyConsistency = true, fmt.Sprintf("by preset %s, with %d view servers", preset, servers)
	case !o.Strict:
		o.WhyConsistency = fmt.Sprintf("preset %s is strict from three view servers on; here: %d", preset, servers)
	}
}

// Ejects reports whether a pool ejects servers: its keys move to other servers, or a route
// keeps replicas in it.
func (f *File) Ejects(pool string) bool {
	p := f.pool(pool)
	return p != nil && !f.isSource(pool) && p.has(ejection, len(f.copiesIn(pool)) > 0)
}

// Agrees reports whether all instances of a pool agree about its servers, because the pool ejects servers or
// coordinates changes of them.
func (f *File) Agrees(pool string) bool {
	p := f.pool(pool)
	return p != nil && !f.isSource(pool) && p.has(agreement, len(f.copiesIn(pool)) > 0)
}

// viewServers returns the number of view servers of p: the servers that store the record of
// which servers are ejected. A pool with discovered servers counts as one with at least three,
// because settings should not depend on how many there are now.
func (f *File) viewServers(p *Pool) int {
	n := len(distinct(f.viewed(p), replicate.Servers))
	if g := f.pool(p.Failover.Gutter); len(p.Sources) > 0 || p.Failover.Mode == table.Gutter && g != nil && len(g.Sources) > 0 {
		n = max(n, manyServers)
	}
	return n
}

// viewed returns the view servers of the pool p: its own servers, and in mode gutter also the servers of
// the gutter.
func (f *File) viewed(p *Pool) []Server {
	if g := f.pool(p.Failover.Gutter); p.Failover.Mode == table.Gutter && g != nil {
		return slices.Concat(p.Servers, g.Servers)
	}
	return p.Servers
}

// shares returns the first server of p that is also one of servers: it has the same address in the table,
// or is now at the same address. It returns nil if there is none.
func (p *Pool) shares(servers []Server) *Server {
	all := distinct(servers, replicate.Servers)
	for i := range servers {
		all[servers[i].place()] = true
	}
	for i := range p.Servers {
		if s := &p.Servers[i]; s.Address.Network != "" && (all[s.apart(replicate.Servers)] || all[s.place()]) {
			return s
		}
	}
	return nil
}

func (d *document) checkFailover(f *File) {
	heeded := map[string]bool{}
	for i := range f.Pools {
		p := &f.Pools[i]
		if f.isSource(p.Name) { // its settings for failover have no effect
			continue
		}
		o, copies := &p.Failover, len(f.copiesIn(p.Name)) > 0
		mode := d.said(&p.Failover.Mode)
		if mode != nil && mode.text != o.Mode.String() {
			continue // the wrong mode is already recorded as an error; errors of other settings would be about a mode that the file does not ask for
		}
		rejected := d.checkResize(f, p)
		for _, s := range o.needy() {
			if p.has(s.need, copies) {
				heeded[s.name] = true
			} else if n := d.where[s.field]; n != nil && !(rejected && s.need == agreement) {
				d.failAt(n, "pools.%s.failover.%s has no effect %s", p.Name, s.name, o.idle(s.need))
			}
		}
		if p.has(agreement, copies) {
			d.checkAgreement(p)
		}
		switch {
		case o.Mode == table.Gutter:
			d.checkGutter(f, p)
		case o.Mode == table.Rehash && p.addresses() == 1 && len(p.Sources) == 0:
			d.failAt(mode, "pools.%s has one server, so mode rehash can't move its keys to another; use fail_fast or gutter", p.Name)
		}
	}
	for _, s := range d.defaults.Failover.needy() {
		if n := d.where[s.field]; n != nil && !heeded[s.name] && len(f.Pools) > 0 {
			d.failAt(n, "defaults.failover.%s has no effect: %s", s.name, [...]string{
				ejection:  "every pool is in mode fail_fast and keeps no replicas, so no server is ejected",
				agreement: "every pool is in mode fail_fast and keeps no replicas, so no server is ejected",
				interim:   "every pool is in mode fail_fast, in which keys stay with their server",
				gutter:    "no pool is in mode gutter",
			}[s.need])
		}
	}
}

// decideResize sets resize.mode of a pool, unless the file does.
func (d *document) decideResize(f *File, p *Pool) {
	r := &p.Resize
	if r.Why = "as the file says"; d.said(&r.Mode) == nil {
		r.Mode, r.Why = f.usualResize(p)
		r.Usual = r.Mode != table.ResizePlain
	}
}

// usualResize returns the default of resize.mode, and why it is the default. If the distribution is that of an existing
// client, other applications may place keys by the former servers while keys move.
func (f *File) usualResize(p *Pool) (table.ResizeMode, string) {
	preset, _ := FindPreset(p.Distribution)
	switch {
	case p.Failover.Mode != table.Rehash:
		return table.ResizePlain, "the default with failover.mode " + p.Failover.Mode.String()
	case !preset.New:
		return table.ResizePlain, "the default of " + p.Distribution + ", which is that of an existing client"
	case len(f.copiesIn(p.Name)) > 0:
		return table.ResizePlain, "the default of a pool with replicated keys, which move with their values"
	case !f.routed(p.Name):
		return table.ResizePlain, "the default of a pool that no route uses"
	}
	if why := f.whyNotWarm(p); why != "" {
		return table.ResizePlain, "the default: mode warm " + why
	}
	return table.ResizeWarm, "the default with failover.mode " + p.Failover.Mode.String()
}

// CanWarm reports whether keys with one copy of a pool can move with their values.
func (f *File) CanWarm(pool string) bool {
	p := f.pool(pool)
	return p != nil && p.Failover.Mode != table.Gutter && len(f.copiesIn(pool)) == 0 && f.routed(pool) && f.whyNotWarm(p) == ""
}

// checkResize rejects resize: {mode: flush} and {mode: warm} in a pool that can't have it. Such a pool does not
// inherit it. It reports whether it has rejected the mode.
func (d *document) checkResize(f *File, p *Pool) (rejected bool) {
	if n := d.where[&p.Resize.Rate]; n != nil && p.Resize.Mode != table.ResizeWarm {
		d.failAt(n, "pools.%s.resize.rate has no effect in mode %s; set mode: warm, or leave this out", p.Name, p.Resize.Mode)
	}
	if p.Resize.Mode == table.ResizePlain {
		return false
	}
	o, n := &p.Failover, d.where[&p.Resize.Mode]
	why := ""
	switch {
	case o.Mode == table.Gutter:
		why = "needs failover.mode rehash or fail_fast: a gutter is not flushed, so it keeps values of earlier outages, which another server's outage could bring back after the change"
	case len(f.copiesIn(p.Name)) > 0 && p.Resize.Mode == table.ResizeWarm:
		why = "is not needed in a pool with replicated keys, which move with their values; give keys with one copy another pool, or leave this out"
	case len(f.copiesIn(p.Name)) > 0:
		why = "is not possible in a pool with replicated keys, because the flush would remove replicas: give these routes another pool, or leave this out"
	case !f.serves(p.Name):
		why = "is not possible in a gutter, which no route uses"
	case p.Resize.Mode == table.ResizeWarm:
		why = f.whyNotWarm(p)
	case o.Mode == table.FailFast: // in other modes, checkShared rejects such a file
		why = f.whyShared(p, "the flush would remove keys of that pool")
	}
	if why == "" {
		return false
	}
	mode := p.Resize.Mode
	p.Resize.Mode, p.Resize.Usual, p.Resize.Why = table.ResizePlain, false, fmt.Sprintf("mode %s of defaults %s", mode, why)
	if n != nil {
		d.failAt(n, "pools.%s.resize: mode %s %s", p.Name, mode, why)
	}
	return n != nil
}

// whyNotWarm returns why keys of the pool can't move with their values; "": they can.
func (f *File) whyNotWarm(p *Pool) string {
	if p.Fill.Pool != "" {
		return whyFillIsPlain
	}
	return f.whyShared(p, "the keys of both pools can't be told apart")
}

// whyShared returns that the pool, or its former pool, has a server that another pool has, too, and what that
// means; "": there is no such server.
func (f *File) whyShared(p *Pool, means string) string {
	servers := p.Servers
	if q := f.pool(p.WarmFrom); q != nil {
		servers = slices.Concat(servers, q.Servers)
	}
	first, common := len(f.Pools), map[Address]bool{} // the first other pool that has such a server
	for i := range servers {
		common[servers[i].Address] = true
		for _, j := range f.look().at[servers[i].Address] {
			if name := f.Pools[j].Name; name != p.Name && name != p.WarmFrom {
				first = min(first, j)
				break
			}
		}
	}
	if first == len(f.Pools) {
		return ""
	}
	others := f.Pools[first].Servers
	at := &others[slices.IndexFunc(others, func(s Server) bool { return common[s.Address] })].Address
	return fmt.Sprintf("is not possible with server %s, which pools.%s has, too: %s", at.text(), f.Pools[first].Name, means)
}

// idle returns the reason why a setting has no effect in this pool. The setting needs the behaviour
// n of the pool.
func (f *Failover) idle(n need) string {
	mode := fmt.Sprintf("in mode %s (%s)", f.Mode, f.WhyMode)
	switch n {
	case ejection, agreement:
		return mode + ": a server that is down is never ejected; set mode to rehash or gutter, or leave this out"
	case interim:
		return mode + ": keys stay with their server; set mode to rehash or gutter, or leave this out"
	}
	return mode + "; set mode: gutter, or leave this out"
}

// saidIn returns the position of the first of settings of p that the pool itself sets, or that it inherits, and the path
// of that position. If the file sets none of them, it returns those of the pool.
func (d *document) saidIn(p *Pool, settings ...any) (n *node, path string) {
	for _, s := range settings {
		if n := d.where[s]; n != nil {
			return n, "pools." + p.Name
		}
	}
	for _, s := range settings {
		if n := d.inherited[s]; n != nil {
			return n, "defaults"
		}
	}
	return d.place(p), "pools." + p.Name
}

// checkAgreement checks the settings by which instances agree about servers.
func (d *document) checkAgreement(p *Pool) {
	o := &p.Failover
	n, path := d.saidIn(p, &o.Wait)
	atMost(d, n, path, "failover.wait", o.Wait, "timeouts.deadline", p.Timeouts.Deadline)
	n, path = d.saidIn(p, &o.EjectAfter.Refused, &o.EjectAfter.Silent)
	atMost(d, n, path, "failover.eject_after.refused", o.EjectAfter.Refused, "failover.eject_after.silent", o.EjectAfter.Silent)
	// A ping fails at the earlier of two times: when the next ping is due, and at the request
	// timeout.
	answer := min(o.Ping, p.Timeouts.Request)
	if least := 3*o.Ping + answer; o.Lease < least {
		n, path := d.saidIn(p, &o.Lease, &o.Ping, &p.Timeouts.Request)
		d.failAt(n, "%s.failover: lease (%s) must be at least three pings (of %s) and the time for an answer (%s), %s, so that a lost ping costs nothing",
			path, short(o.Lease), short(o.Ping), short(answer), short(least))
	}
}

// checkShared rejects a server that is in two pools if one of them ejects it. Each such pool runs
// failover on its own. One pool could flush the returning server after the other pool has stored
// data on it, and a second add of a key would then be STORED too. checkGutter checks a pool
// together with its own gutter, because the servers of a gutter are also view servers of the pool.
func (d *document) checkShared(f *File) {
	for i := range f.Pools {
		p := &f.Pools[i]
		if f.isSource(p.Name) {
			continue
		}
		found, reported := f.viewersOf(p), map[*Server]bool{} // each server once, also if many pools have it
		for _, j := range slices.Sorted(maps.Keys(found)) {
			q, s := &f.Pools[j], found[j]
			if i == j || reported[s] || !f.Ejects(q.Name) || q.Failover.Mode == table.Gutter && q.Failover.Gutter == p.Name {
				continue
			}
			if i > j && f.Ejects(p.Name) { // both pools eject servers: report the pair once, not in both orders
				continue
			}
			reported[s] = true
			d.failAt(d.place(&s.Address, s, p), "pools.%s and pools.%s share the server %s, and %s ejects it and flushes it when it returns, also what %s has stored by then; use one pool with a route for each, "+
				"or for both mode fail_fast and no replicas", p.Name, q.Name, s.label(), q.Name, p.Name)
		}
	}
}

// checkGutter checks the gutter of the pool p. The gutter is the pool with the substitute servers
// for p.
func (d *document) checkGutter(f *File, p *Pool) {
	mode := d.said(&p.Failover.Mode)
	at := d.said(&p.Failover.Gutter)
	g := f.pool(p.Failover.Gutter)
	switch {
	case at == nil:
		d.failAt(mode, "pools.%s.failover: mode gutter needs gutter, the name of the pool with the substitute servers", p.Name)
	case p.Failover.Gutter == "": // the missing name of a gutter is already recorded as an error
	case g == nil:
		d.failAt(at, "there is no pool %s%s to be the gutter of pools.%s", quote(p.Failover.Gutter), didYouMean(p.Failover.Gutter, f.poolNames()), p.Name)
	case g == p:
		d.failAt(at, "pools.%s can't be its own gutter: name another pool, or give this one a failover.mode of its own", p.Name)
	case g.Failover.Mode == table.Gutter:
		d.failAt(at, "pools.%s is the gutter of pools.%s and can't have one itself: keys move once; give it a failover.mode of its own, fail_fast or rehash", g.Name, p.Name)
	default:
		if s := g.shares(p.Servers); s != nil {
			d.failAt(at, "pools.%s is the gutter of pools.%s and has the server %s with it: when it is unreachable, so is its substitute server, and its return flushes what it stores for others",
				g.Name, p.Name, s.label())
			return
		}
		if routes := f.look().routes[g.Name]; len(routes) > 0 {
			r := routes[0]
			d.failAt(d.place(&r.Pool, &r.Pools, r), "pools.%s is the gutter of pools.%s, so no route can use it: its servers are flushed when they return, also what the route has stored by then; "+
				"give the route a pool with other servers", g.Name, p.Name)
		}
	}
}
