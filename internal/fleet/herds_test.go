package fleet

// The tested guarded routes, what each promises, and the purpose of each rule of the
// guard.

import (
	"os"
	"slices"
	"testing"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health"
	"ringside/proxy/table"
)

// calmHerd returns a fault-free fleet whose clients rebuild missing values.
func calmHerd(name string, h herd, asks ...ask) scenario {
	return scenario{name: name, sidecars: 2, servers: 2, mode: table.FailFast, request: time.Second, cold: 1, pace: 20 * milli,
		asks: asks, faults: []string{"nothing"}, count: 4, calm: true, exact: true, herd: &h}
}

// copiedHerd returns c with two replicas of each key.
func copiedHerd(c scenario) scenario {
	c.copies = twice
	return c
}

// resizedHerd returns a fleet whose servers change while clients rebuild missing values.
func resizedHerd(name string, h herd, asks []ask, faults ...string) scenario {
	return scenario{name: name, sidecars: 2, servers: 4, mode: table.Rehash, strict: true, resize: table.ResizeWarm, cold: 12,
		asks: asks, faults: faults, count: 2, calm: true, exact: true, few: true, herd: &h}
}

// turnedHerd returns a fleet whose servers change, and change back while keys move.
func turnedHerd(name string, h herd, asks []ask) scenario {
	c := resizedHerd(name, h, asks, "resize, turn")
	c.rate, c.count, c.cold, c.pace = 1, 1, 200, 40*milli
	return c
}

// faulty returns c with servers that fail.
func faulty(c scenario) scenario {
	c.calm, c.few = false, false
	return c
}

// threeProxies returns c with a third proxy and so many changes.
func threeProxies(c scenario, count int) scenario {
	c.sidecars, c.engines, c.count, c.few = 3, 2, count, c.few && count > 1
	return c
}

// restartsOf returns a fleet whose server is restarted again and again, so that cas
// numbers are low and repeat.
func restartsOf(name string, h herd) scenario {
	h.takes = 800 * milli
	return scenario{name: name, sidecars: 2, servers: 1, mode: table.FailFast, cold: 1, asks: deleting,
		faults: []string{"bounce"}, count: 30, apart: 500 * milli, calm: true, exact: true, herd: &h}
}

// waiting is a guard with which clients wait as long as rebuilds take.
var waiting = table.GuardSettings{Lease: 10 * time.Second, LeaseMax: 10 * time.Second, Wait: 3 * time.Second}

func guardOf(change func(g *table.GuardSettings)) table.GuardSettings {
	g := waiting
	change(&g)
	return g
}

// herds are guarded routes. They promise what the model of the guard has shown. Except
// for ended leases and waits, deletes and faults, one client rebuilds at a time. No
// stub is visible to clients. A value that was read from the origin before an
// acknowledged delete, or before a writer's acknowledged set, is not served as fresh.
// No stub stays forever.
var herds = []scenario{
	calmHerd("guard", herd{GuardSettings: waiting, takes: 300 * milli, lives: 2, dies: true, alone: true}, wanting...),
	calmHerd("guard, waits end", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Wait = 100 * time.Millisecond }), takes: 400 * milli, lives: 2, dies: true, alone: true}, wanting...),
	calmHerd("guard, leases end", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Lease = time.Second }), takes: 2500 * milli, lives: 2, dies: true}, wanting...),
	calmHerd("guard, soft deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Stale = 3 * time.Second }), takes: 400 * milli, lives: 3, dies: true}, wanting...),
	calmHerd("guard, early, soft deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Stale, g.Early = 3*time.Second, 2*time.Second }), takes: 400 * milli, lives: 9, dies: true}, wanting...),
	calmHerd("guard, writers", herd{GuardSettings: waiting, takes: 300 * milli, lives: 2, writers: true, dies: true}, writing...),
	calmHerd("guard, writers, soft deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Stale = 3 * time.Second }), takes: 300 * milli, lives: 3, writers: true}, writing...),
	calmHerd("guard, others append and touch", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Lease = time.Second }), takes: 300 * milli, lives: 2, dies: true}, meddling...),
	calmHerd("guard, soft deletes, others append and touch", forgiving, appending...),
	calmHerd("guard, pooled", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.OnlyAfterMiss, g.Wait = true, 100*time.Millisecond }), takes: 400 * milli, lives: 2, shares: true}, wanting...),
	calmHerd("guard, pooled, without protection against late sets", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Clients = table.Pooled }), takes: 400 * milli, lives: 2, shares: true, writers: true, unbound: true}, writing...),
	calmHerd("guard, old values after a wait", herd{GuardSettings: guardOf(func(g *table.GuardSettings) {
		g.Stale, g.Late, g.Wait = 3*time.Second, table.LateStale, 200*time.Millisecond
	}), takes: 400 * milli, lives: 3, dies: true}, wanting...),
	calmHerd("guard, pooled, many deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.OnlyAfterMiss, g.Wait = true, 100*time.Millisecond }), takes: 400 * milli, lives: 2, shares: true}, deleting...),
	calmHerd("guard, pooled, soft deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.OnlyAfterMiss, g.Stale = true, 3*time.Second }), takes: 400 * milli, lives: 3, shares: true}, wanting...),
	calmHerd("guard, pooled, after misses only", herd{GuardSettings: guardOf(func(g *table.GuardSettings) {
		g.Clients, g.OnlyAfterMiss, g.Wait = table.Pooled, true, 100*time.Millisecond
	}), takes: 400 * milli, lives: 2, shares: true}, wanting...),
	calmHerd("guard, threads", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Clients, g.Lease = table.Shared, time.Second }), takes: 400 * milli, lives: 2, threads: 3, dies: true}, wanting...),
	calmHerd("guard, threads, many deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Clients, g.Lease = table.Shared, time.Second }), takes: 400 * milli, lives: 2, threads: 3, dies: true}, deleting...),
	calmHerd("guard, threads, not declared", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Lease, g.Wait = time.Second, 100*time.Millisecond }), takes: 400 * milli, lives: 2, threads: 3, writers: true, unbound: true}, writing...),
	calmHerd("guard, threads, soft deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Clients, g.Lease, g.Stale = table.Shared, time.Second, 3*time.Second }), takes: 400 * milli, lives: 3, threads: 3}, wanting...),
	calmHerd("guard, few misses remembered", herd{GuardSettings: waiting, takes: 300 * milli, lives: 2, dies: true, tickets: 2, unbound: true}, wanting...),
	calmHerd("guard, threads, few misses remembered", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Clients, g.Lease = table.Shared, time.Second }), takes: 400 * milli, lives: 2, threads: 3, tickets: 2, unbound: true}, writing...),
	calmHerd("guard, gets of many keys", herd{GuardSettings: guardOf(func(*table.GuardSettings) {}), takes: 300 * milli, lives: 2, dies: true}, many...),

	{name: "guard, faults, threads", sidecars: 2, engines: 2, servers: 2, mode: table.FailFast, cold: 4, asks: wanting, faults: []string{"links", "hang", "kill", "restart", "slow", "pause"}, count: 4, exact: true, herd: &threaded, again: []uint64{116}},
	{name: "guard, faults, slow, writers", sidecars: 2, servers: 2, mode: table.FailFast, cold: 4, asks: writing, faults: []string{"slow", "hang", "slow"}, count: 4, exact: true, herd: &crowded},
	{name: "guard, faults", sidecars: 2, servers: 3, mode: table.FailFast, cold: 4, asks: wanting, faults: []string{"cut", "links", "hang", "kill", "restart", "slow", "pause", "flush"}, count: 4, exact: true, herd: &brisk},
	{name: "guard, faults, proxies of two engines", sidecars: 2, engines: 2, servers: 2, mode: table.FailFast, cold: 4, asks: wanting, faults: []string{"links", "hang", "kill", "restart", "slow", "pause"}, count: 4, exact: true, herd: &brisk},
	{name: "guard, faults, writers", sidecars: 2, servers: 2, mode: table.FailFast, cold: 4, asks: writing, faults: []string{"cut", "hang", "kill", "restart"}, count: 4, exact: true, herd: &crowded},
	{name: "guard, faults, pooled", sidecars: 2, servers: 2, mode: table.FailFast, cold: 4, asks: wanting, faults: []string{"cut", "hang", "kill", "restart"}, count: 4, exact: true, herd: &pooled, again: []uint64{35}},
	{name: "guard, strict", sidecars: 2, servers: 3, mode: table.Rehash, strict: true, cold: 4, asks: wanting, faults: anything, count: 3, exact: true, herd: &brisk},
	{name: "guard, strict, soft deletes, warm", sidecars: 2, servers: 3, mode: table.Rehash, strict: true, rejoin: health.Warm, cold: 4, asks: wanting, faults: anything, count: 2, exact: true, herd: &softly},
	{name: "guard, strict, warm, others append and touch", sidecars: 2, servers: 3, mode: table.Rehash, strict: true, rejoin: health.Warm, cold: 4, asks: appending, faults: anything, count: 3, exact: true, herd: &crowded},
	{name: "guard, strict, one proxy, locks", sidecars: 1, servers: 3, mode: table.Rehash, strict: true,
		asks: []ask{(*app).take}, aimed: true, pace: 6 * milli, faults: []string{"kill"}, count: 3, locks: true, herd: &brisk},
	{name: "guard, strict, one proxy, locks, soft deletes, warm", sidecars: 1, servers: 3, mode: table.Rehash, strict: true, rejoin: health.Warm,
		asks: []ask{(*app).take}, aimed: true, pace: 6 * milli, faults: []string{"kill"}, count: 3, locks: true, herd: &softly},
	{name: "guard, strict, gutter, writers", sidecars: 2, servers: 2, gutter: 2, mode: table.Gutter, strict: true, cold: 4, asks: writing, faults: anything, count: 3, exact: true, herd: &crowded},
	{name: "guard, strict, slow rebuilds", sidecars: 2, servers: 2, mode: table.Rehash, strict: true, cold: 1, pace: 60 * milli, asks: []ask{(*app).want, (*app).want, (*app).want, (*app).remove},
		aimed: true, faults: []string{"even, cut"}, count: 4, exact: true, herd: &slowest},
	restartsOf("guard, restarts of a server", brisk),
	restartsOf("guard, pooled, restarts of a server", pooled),
	{name: "guard, one proxy far away, others append", sidecars: 2, servers: 2, mode: table.FailFast, far: 20 * milli, cold: 1, pace: 6 * milli, request: time.Second,
		asks: appending, faults: []string{"nothing"}, count: 4, calm: true, exact: true, herd: &forgiving},
	{name: "guard, restarts, others touch", sidecars: 2, servers: 2, mode: table.FailFast, cold: 1, asks: []ask{(*app).want, (*app).want, (*app).touch, (*app).bypass},
		faults: []string{"evict, restart"}, count: 6, exact: true, herd: &yielding},
	copiedHerd(calmHerd("guard, copies", herd{GuardSettings: waiting, takes: 300 * milli, lives: 2, dies: true, alone: true}, wanting...)),
	copiedHerd(calmHerd("guard, copies, threads", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Clients, g.Lease = table.Shared, time.Second }), takes: 400 * milli, lives: 2, threads: 3, dies: true}, wanting...)),
	copiedHerd(calmHerd("guard, copies, gets of many keys", herd{GuardSettings: guardOf(func(*table.GuardSettings) {}), takes: 300 * milli, lives: 2, dies: true}, many...)),
	copiedHerd(calmHerd("guard, copies, waits end", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Wait = 100 * time.Millisecond }), takes: 400 * milli, lives: 2, dies: true, alone: true}, wanting...)),
	copiedHerd(calmHerd("guard, copies, leases end", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Lease = time.Second }), takes: 2500 * milli, lives: 2, dies: true}, wanting...)),
	copiedHerd(calmHerd("guard, copies, early", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Early = 2 * time.Second }), takes: 400 * milli, lives: 9, dies: true}, wanting...)),
	copiedHerd(calmHerd("guard, copies, writers", herd{GuardSettings: waiting, takes: 300 * milli, lives: 2, writers: true, dies: true}, writing...)),
	copiedHerd(calmHerd("guard, copies, others append and touch", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Lease = time.Second }), takes: 300 * milli, lives: 2, dies: true}, meddling...)),
	copiedHerd(calmHerd("guard, copies, pooled, many deletes", herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.OnlyAfterMiss, g.Wait = true, 100*time.Millisecond }), takes: 400 * milli, lives: 2, shares: true}, deleting...)),
	{name: "guard, copies, late packets", sidecars: 2, servers: 2, strict: true, copies: spread, late: tardy, request: patient, errs: true,
		asks: deleting, aimed: true, cold: 1, pace: 6 * milli, faults: []string{"nothing"}, count: 3, calm: true, exact: true, herd: &brisk},
	{name: "guard, copies, one proxy far away", sidecars: 2, servers: 2, strict: true, copies: spread, far: 30 * milli, errs: true,
		asks: deleting, aimed: true, cold: 1, pace: 6 * milli, faults: []string{"nothing"}, count: 3, calm: true, exact: true, herd: &brisk, again: []uint64{96}},
	{name: "guard, copies, strict", sidecars: 2, servers: 3, strict: true, copies: twice, cold: 4, asks: wanting, faults: lasting, count: 3, exact: true, herd: &brisk},
	{name: "guard, copies, strict, spread, proxies of two engines", sidecars: 2, engines: 2, servers: 3, strict: true, copies: spread, cold: 4, asks: wanting, faults: lasting, count: 3, exact: true, herd: &brisk},
	{name: "guard, copies, strict, two servers, writers", sidecars: 2, servers: 2, strict: true, copies: twice, cold: 4, asks: writing, faults: lasting, count: 3, exact: true, herd: &crowded},
	{name: "guard, copies, strict, others append and touch", sidecars: 2, servers: 3, strict: true, copies: spread, cold: 4, asks: meddling, faults: lasting, count: 3, exact: true, herd: &brisk},
	{name: "guard, copies, strict, pooled", sidecars: 2, servers: 3, strict: true, copies: twice, cold: 4, asks: deleting, faults: lasting, count: 3, exact: true, herd: &pooled},
	{name: "guard, copies, restarts", sidecars: 2, servers: 2, strict: true, copies: spread, late: tardy, request: patient, cold: 1, asks: deleting, aimed: true, faults: []string{"kill", "restart", "lose"}, brief: true, count: 6, exact: true, herd: &brisk},
	{name: "guard, copies, evictions", sidecars: 2, servers: 2, strict: true, copies: spread, late: tardy, request: patient, cold: 1, asks: appending, aimed: true, faults: []string{"evict"}, count: 6, calm: true, exact: true, herd: &brisk},
	{name: "guard, copies, relaxed, one proxy", sidecars: 1, servers: 3, copies: twice, cold: 4, asks: writing, faults: alone, count: 3, exact: true, herd: &crowded},
	{name: "guard, copies, relaxed", sidecars: 2, servers: 3, copies: twice, cold: 4, asks: wanting, faults: anything, count: 3, loose: true, herd: &brisk},
	resizedHerd("guard, resize", moved, wanting, "resize", "resize, weights"),
	resizedHerd("guard, resize, soft deletes", movedSoftly, wanting, "resize", "resize, weights"),
	resizedHerd("guard, resize, writers", movedCrowd, writing, "resize", "resize, weights"),
	resizedHerd("guard, resize, others append and touch", moved, meddling, "resize", "resize, weights"),
	resizedHerd("guard, resize, threads", movedThreads, wanting, "resize, weights"),
	resizedHerd("guard, resize, early", movedEarly, wanting, "resize, weights"),
	resizedHerd("tags, resize", movedTags, invalidating, "resize", "resize, weights"),
	threeProxies(resizedHerd("tags, resize, three proxies of two engines", movedTags, invalidating, "resize", "resize, weights"), 2),
	threeProxies(resizedHerd("tags, resize, restarts", movedTags, invalidating, "resize, restart"), 1),
	faulty(resizedHerd("tags, resize, faults", movedTags, invalidating, "resize, hang", "resize, kill")),
	faulty(resizedHerd("guard, resize, faults", moved, wanting, "resize, hang", "resize, kill")),
	threeProxies(resizedHerd("guard, resize, restarts", moved, deleting, "resize, restart"), 1),
	threeProxies(resizedHerd("guard, resize, three proxies of two engines", movedCrowd, writing, "resize", "resize, weights"), 2),
	resizedHerd("guard, resize, back", moved, deleting, "resize, back"),
	turnedHerd("guard, resize, turn", moved, wanting),
	turnedHerd("guard, resize, writers, turn", movedCrowd, writing),
	turnedHerd("tags, resize, turn", movedTags, invalidating),
	calmHerd("tags, gets of many keys", herd{GuardSettings: waiting, takes: 300 * milli, lives: 2, dies: true, tagged: true, prefixed: true}, invalidatingMany...),
	{name: "tags, faults, gets of many keys", sidecars: 2, engines: 2, servers: 3, mode: table.FailFast, cold: 4, asks: invalidatingMany, faults: []string{"cut", "links", "hang", "kill", "restart", "slow", "pause", "flush"}, count: 4, exact: true, herd: &briskTags},
	{name: "tags, strict, gets of many keys", sidecars: 2, servers: 3, mode: table.Rehash, strict: true, errs: true, cold: 4, asks: invalidatingMany, faults: anything, count: 3, exact: true, herd: &briskTags},
	{name: "tags, strict, warm", sidecars: 2, servers: 3, mode: table.Rehash, strict: true, rejoin: health.Warm, cold: 4, asks: invalidatingMany, faults: anything, count: 2, exact: true, herd: &briskTags},
	{name: "tags, strict, gutter, late packets", sidecars: 2, servers: 2, gutter: 2, mode: table.Gutter, strict: true, late: tardy, request: patient, cold: 4, asks: invalidatingMany, faults: anything, count: 3, exact: true, herd: &briskTags},
	{name: "guard, relaxed", sidecars: 2, servers: 3, mode: table.Rehash, cold: 4, asks: wanting, faults: anything, count: 3, herd: &brisk},
}

// Herds during faults, with a request timeout of 200 ms.
var (
	moved        = herd{GuardSettings: table.GuardSettings{Lease: time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond}, takes: 150 * milli}
	movedTags    = herd{GuardSettings: moved.GuardSettings, takes: 150 * milli, lives: 60, tagged: true}
	briskTags    = herd{GuardSettings: moved.GuardSettings, takes: 150 * milli, lives: 2, tagged: true, prefixed: true}
	movedSoftly  = herd{GuardSettings: table.GuardSettings{Lease: time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond, Stale: 3 * time.Second}, takes: 150 * milli, lives: 6}
	movedCrowd   = herd{GuardSettings: moved.GuardSettings, takes: 150 * milli, writers: true}
	movedThreads = herd{GuardSettings: threaded.GuardSettings, takes: 150 * milli, threads: 3}
	movedEarly   = herd{GuardSettings: table.GuardSettings{Lease: time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond, Stale: 2 * time.Second, Early: 2 * time.Second}, takes: 150 * milli, lives: 9}

	brisk     = herd{GuardSettings: table.GuardSettings{Lease: time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond}, takes: 150 * milli, lives: 2}
	threaded  = herd{GuardSettings: table.GuardSettings{Clients: table.Shared, Lease: time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond}, takes: 150 * milli, lives: 2, threads: 3}
	softly    = herd{GuardSettings: table.GuardSettings{Lease: time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond, Stale: 3 * time.Second}, takes: 150 * milli, lives: 4}
	crowded   = herd{GuardSettings: table.GuardSettings{Lease: time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond}, takes: 150 * milli, lives: 2, writers: true}
	forgiving = herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Lease, g.Stale = time.Second, 3*time.Second }), takes: 300 * milli, lives: 2, dies: true}
	yielding  = herd{GuardSettings: brisk.GuardSettings, takes: 300 * milli, lives: 2, yields: true}
	slowest   = herd{GuardSettings: brisk.GuardSettings, takes: 2 * second, lives: 100, equal: true}
	pooled    = herd{GuardSettings: table.GuardSettings{Lease: 3 * time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond, OnlyAfterMiss: true}, takes: 150 * milli, lives: 2, shares: true}
)

var (
	wanting          = slices.Concat(slices.Repeat([]ask{(*app).want}, 10), []ask{(*app).wantToken, (*app).remove})
	invalidating     = slices.Concat(wanting, []ask{(*app).invalidate})
	invalidatingMany = slices.Concat(slices.Repeat([]ask{(*app).wantMany}, 8), []ask{(*app).want, (*app).wantToken, (*app).remove, (*app).invalidate, (*app).invalidate})
	appending        = slices.Concat(wanting, []ask{(*app).touch, (*app).appendNothing, (*app).appendNothing, (*app).remove})
	many             = slices.Concat(slices.Repeat([]ask{(*app).wantMany}, 5), []ask{(*app).want, (*app).remove})
	deleting         = []ask{(*app).want, (*app).want, (*app).remove}
	writing          = slices.Concat(wanting, slices.Repeat([]ask{(*app).put}, 3))
	meddling         = slices.Concat(wanting, []ask{(*app).touch, (*app).appendNothing, (*app).bypass})
)

// TestGuard runs the herds.
func TestGuard(t *testing.T) {
	from, to := seedRange(t)
	list := quickly(herds, 12)
	if raced {
		list = list[:5]
	}
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			play(t, c, from, from+(to-from+6)/7)
			if os.Getenv("RINGSIDE_SEED") == "" && !testing.Short() {
				for _, seed := range c.again {
					play(t, c, seed, seed+1)
				}
			}
		})
	}
}

// TestGuardAblations disables one rule of the guard after the other, and must see the
// resulting violation.
func TestGuardAblations(t *testing.T) {
	const seeds = 200
	herdOf := func(name string) scenario {
		i := slices.IndexFunc(herds, func(c scenario) bool { return c.name == name })
		return herds[i]
	}
	unpooled := herdOf("guard, pooled")
	unpooled.herd = &herd{GuardSettings: waiting, takes: unpooled.herd.takes, lives: unpooled.herd.lives, shares: true}
	unthreaded := herdOf("guard, threads, many deletes")
	unthreaded.herd = &herd{GuardSettings: guardOf(func(g *table.GuardSettings) { g.Clients, g.Lease = table.Sequential, time.Second }), takes: unthreaded.herd.takes, lives: unthreaded.herd.lives, threads: 3}
	cases := []struct {
		name  string
		fleet scenario
		leave ablations
	}{
		{"no stubs", herdOf("guard"), ablations{spoiled: noStubs}},
		{"stubs are shown", herdOf("guard"), ablations{spoiled: shownStubs}},
		{"sets are not bound", herdOf("guard"), ablations{spoiled: blindSets}},
		{"sets are not bound, soft deletes", herdOf("guard, soft deletes"), ablations{spoiled: blindSets}},
		{"nothing there is free", herdOf("guard"), ablations{spoiled: goneIsFree}},
		{"late sets are stored as stale", herdOf("guard, writers"), ablations{spoiled: lateSets}},
		{"no miss recorded after a wait", herdOf("guard, waits end"), ablations{Set: ablation.Set{Late: true}}},
		{"no miss recorded after an error", herdOf("guard, faults"), ablations{Set: ablation.Set{Failed: true}}},
		{"misses outlive a server", herdOf("guard, restarts of a server"), ablations{Set: ablation.Set{Life: true}}},
		{"misses outlive a phase", herdOf("guard, strict, slow rebuilds"), ablations{Set: ablation.Set{Phase: true}}},
		{"an append is not bound", herdOf("guard, one proxy far away, others append"), ablations{spoiled: blindAppend}},
		{"touch does not look, nobody watches", herdOf("guard, restarts, others touch"), ablations{Set: ablation.Set{Touch: true, Watch: true}}},
		{"all give back", herdOf("guard, waits end"), ablations{Set: ablation.Set{CancelLease: true}}},
		{"pooled, by connection", unpooled, ablations{}},
		{"threads, as if there were one", unthreaded, ablations{}},
		{"threads, sets are not bound", herdOf("guard, threads, many deletes"), ablations{spoiled: blindSets}},
		{"copies, sets are not bound", herdOf("guard, copies"), ablations{spoiled: blindSets}},
		{"copies, no miss recorded after a wait", herdOf("guard, copies, waits end"), ablations{Set: ablation.Set{Late: true}}},
		{"copies, no miss recorded after an error", herdOf("guard, copies, strict"), ablations{Set: ablation.Set{Failed: true}}},
		{"copies, what is copied is not bound", herdOf("guard, copies, one proxy far away"), ablations{spoiled: blindFills}},
		{"resize, sets are not bound", herdOf("guard, resize"), ablations{spoiled: blindSets}},
		{"resize, the old owner keeps the value", herdOf("guard, resize"), ablations{Set: ablation.Set{Leaves: true}}},
		{"resize, no wait", herdOf("guard, resize, writers"), ablations{Set: ablation.Set{Clear: true}}},
		{"resize, stubs are copied", herdOf("guard, resize"), ablations{spoiled: copiedStubs}},
		{"copies, stubs are copied", herdOf("guard, copies, strict, spread, proxies of two engines"), ablations{spoiled: copiedStubs}},
	}
	if hurried() {
		cases = cases[:6]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.fleet.ablate = c.leave
			seeks(t, c.name, c.fleet, seeds)
		})
	}
}
