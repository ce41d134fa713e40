package stats

// This file has the counters of a route with a guard, and what the guard has learned about rebuild
// times. Both are for all loops together.

import (
	"sync"
	"sync/atomic"
	"time"
)

// GuardEvent is an event on a route with a guard.
type GuardEvent uint8

// The events on a route with a guard.
const (
	GuardLeaseGranted  GuardEvent = iota // a client was granted a lease: its reply tells it to rebuild the value
	GuardFill                            // a client with a lease stored the rebuilt value
	GuardExists                          // a set came too late: another client has stored another value
	GuardGone                            // a set came too late: the key was deleted, or its lease expired
	GuardVoid                            // a set was not stored because its miss is not known any more
	GuardWait                            // a get had to wait because another client rebuilds the value
	GuardSaved                           // a waiting get received a value
	GuardLate                            // the wait of a get timed out
	GuardStale                           // a stale value was returned to a get
	GuardEarly                           // a client was granted a lease before the value expired
	GuardLeaseCanceled                   // a client with a lease disconnected, so its lease ended
	GuardLeaseExpired                    // a client with a lease did not store a value before its lease expired, so another client got one
	GuardPoll                            // a request to a server on behalf of waiting gets
	GuardForgotten                       // a miss was dropped from the table because the table was full
	GuardNeverFilled                     // a get did not wait for a rebuild, because clients never store a value of its key
	GuardExtraRequest                    // a request to a server that only the guard needs
	GuardWrite                           // a write or another command that is not a read was executed
	GuardOff                             // a command was not guarded, because its server has no meta commands or no cas
	NumGuardEvents
)

// Count counts one event on the route.
func (g *GuardStats) Count(e GuardEvent) { g.count[e].Add(1) }

// GuardStats has the counters of one route with a guard and what the guard has learned. It is for
// all loops and reloads of a process. A cache hit uses none of it.
type GuardStats struct {
	Route string // label of the route; see table.Route

	count [NumGuardEvents]atomic.Uint64

	Waiting, Misses atomic.Int64 // current numbers of waiting gets, and of misses whose rebuilt value has not been stored yet

	lease atomic.Int64 // lease learned from slow rebuilds, in nanoseconds; 0: none, and the configured lease applies
	slow  atomic.Int64 // duration of slow rebuilds in nanoseconds: about the longest recent one

	mu              sync.Mutex
	fadedAt         int64         // time at which the learned lease was lowered or set last
	usual           time.Duration // moving average of the duration of rebuilds
	won, filled     int           // number of leases that ended since the last evaluation, and of those after which the client had stored a value
	unheld          bool          // true if clients with leases store values too rarely, so that gets do not wait for them
	waited, rebuilt Histogram
}

// GuardSnapshot is a copy of the counters of a route with a guard.
type GuardSnapshot struct {
	Events          [NumGuardEvents]uint64
	Waiting         int64     // number of gets that wait now
	Waited, Rebuilt Histogram // how long gets waited, and how long rebuilds took
}

// Snapshot returns a copy of the counters of the route.
func (g *GuardStats) Snapshot() GuardSnapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := GuardSnapshot{Waiting: g.Waiting.Load(), Waited: g.waited, Rebuilt: g.rebuilt}
	for e := range is.Events {
		is.Events[e] = g.count[e].Load()
	}
	return is
}

// TookTooLong is called when a set was rejected because it came too late. age is the time since the
// miss of its key. The learned lease becomes twice that age, but at most `most`.
func (g *GuardStats) TookTooLong(age, most time.Duration, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease.Store(int64(min(2*age, most)))
	g.fadedAt = now
}

// Lease returns how long a rebuild may take: the learned lease, or `least` if that is longer.
func (g *GuardStats) Lease(least time.Duration) time.Duration {
	return max(least, time.Duration(g.lease.Load()))
}

// Won counts a lease that was granted. Each minute it also lowers the learned lease by a tenth.
func (g *GuardStats) Won(now int64) {
	g.Count(GuardLeaseGranted)
	g.mu.Lock()
	defer g.mu.Unlock()
	for now-g.fadedAt >= int64(time.Minute) {
		lease := g.lease.Load()
		if lease == 0 {
			g.fadedAt = now
			break
		}
		g.fadedAt += int64(time.Minute)
		g.lease.Store(lease - lease/10 - 1)
	}
}

// Rebuilt records how long a rebuild took.
func (g *GuardStats) Rebuilt(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rebuilt.Observe(int64(took))
	slow := g.slow.Load()
	g.slow.Store(max(int64(took), slow-slow/64))
	g.usual += (took - g.usual) / 8
}

// Slow returns how long slow rebuilds of the route take. It is about the longest recent duration.
func (g *GuardStats) Slow() time.Duration { return time.Duration(g.slow.Load()) }

// Usual returns how long rebuilds of the route usually take, as a moving average.
func (g *GuardStats) Usual() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.usual
}

// Waited counts a get that has waited ns nanoseconds for a rebuild.
func (g *GuardStats) Waited(ns int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waited.Observe(ns)
}

// Ended records that a lease has ended, and whether its client has stored a value (filled). After
// each hundred leases it decides anew. If clients have stored values for fewer than half of them,
// gets of the route do not wait for rebuilds.
func (g *GuardStats) Ended(filled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.won++
	if filled {
		g.filled++
	}
	if g.won >= 100 {
		g.unheld = 2*g.filled < g.won
		g.won, g.filled = 0, 0
	}
}

// Holds reports whether gets of the route may wait for another client's rebuild.
func (g *GuardStats) Holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.unheld
}

// Metrics of routes with a guard, by route.
var (
	guardRefused = NewCounter("guard_refused_total",
		"Sets rejected because they came too late, by reason. ex: another value was stored since the miss. nf: the key was deleted, "+
			"or the lease expired. void: the set could not be matched to a miss.",
		"route", "reason")
	guardWaiting = PerRoute.Gauge("guard_waiting",
		"Gets that are waiting for another client's rebuild.")
	guardMisses = PerRoute.Gauge("guard_misses",
		"Misses that are waiting for their set.")
	guardLease = PerRoute.Gauge("guard_lease_seconds",
		"Lease learned from slow rebuilds, in seconds. It applies if it is longer than the configured lease. 0: no lease was learned.")
	guardWaitTime = PerRoute.Histogram("guard_wait_seconds",
		"Time that gets waited for another client's rebuild, in seconds.")
	guardRebuildTime = PerRoute.Histogram("guard_rebuild_seconds",
		"Time from the get that was granted a lease to the set of its client, in seconds.")
)

// guardEvents has the metric of each kind of event on a route with a guard.
var guardEvents = [NumGuardEvents]struct {
	metric *Metric
	reason string // value of the label reason; empty: the metric has no such label
}{
	GuardExists: {guardRefused, "ex"},
	GuardGone:   {guardRefused, "nf"},
	GuardVoid:   {guardRefused, "void"},
	GuardLeaseGranted: {PerRoute.Counter("guard_leases_total",
		"Gets that were granted a lease: they are answered with a miss, so their clients rebuild the value."), ""},
	GuardFill: {PerRoute.Counter("guard_fills_total",
		"Sets of lease holders that were stored."), ""},
	GuardWait: {PerRoute.Counter("guard_waits_total",
		"Gets that waited while another client rebuilt the value."), ""},
	GuardSaved: {PerRoute.Counter("guard_saved_total",
		"Waiting gets that received a value, so their clients did not rebuild it. Gets of replicated keys are not counted."), ""},
	GuardLate: {PerRoute.Counter("guard_late_total",
		"Waiting gets that timed out."), ""},
	GuardStale: {PerRoute.Counter("guard_stale_served_total",
		"Stale values returned while another client rebuilds the value."), ""},
	GuardEarly: {PerRoute.Counter("guard_early_total",
		"The part of ringside_guard_leases_total that was granted a lease before the value expired."), ""},
	GuardLeaseCanceled: {PerRoute.Counter("guard_leases_canceled_total",
		"Leases canceled because their holder disconnected, or because a tag may have been invalidated since the miss."), ""},
	GuardLeaseExpired: {PerRoute.Counter("guard_leases_expired_total",
		"Leases canceled because their holder did not store a value within the lease. The next get is granted a new one."), ""},
	GuardPoll: {PerRoute.Counter("guard_polls_total",
		"Requests to servers on behalf of waiting gets."), ""},
	GuardForgotten: {PerRoute.Counter("guard_forgotten_total",
		"Misses dropped because limits.guard_misses was reached. Their sets are handled as ordinary sets."), ""},
	GuardNeverFilled: {PerRoute.Counter("guard_never_filled_total",
		"Gets that did not wait because clients never fill their key."), ""},
	GuardExtraRequest: {PerRoute.Counter("guard_extra_requests_total",
		"Additional requests to servers that only the guard needs."), ""},
	GuardWrite: {PerRoute.Counter("guard_writes_total",
		"Commands other than reads that the guard handled."), ""},
	GuardOff: {PerRoute.Counter("guard_off_total",
		"Commands without protection by the guard because their server has no meta commands or no cas."), ""},
}

// Figures returns the numbers of the route.
func (g *GuardStats) Figures() []Figure {
	times := g.Snapshot()
	list := []Figure{
		{guardWaiting, "", "", times.Waiting},
		{guardMisses, "", "", g.Misses.Load()},
		{guardLease, "", "", g.Lease(0).Seconds()},
		{guardWaitTime, "", "", &times.Waited},
		{guardRebuildTime, "", "", &times.Rebuilt},
	}
	for e, m := range guardEvents {
		list = append(list, Figure{m.metric, m.reason, "", times.Events[e]})
	}
	return list
}
