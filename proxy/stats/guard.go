package stats

// The counters of a guarded route, and the rebuild times that the guard has measured, over all loops.

import (
	"sync"
	"sync/atomic"
	"time"
)

// GuardEvent is an event on a guarded route.
type GuardEvent uint8

// The events.
const (
	GuardLeaseGranted  GuardEvent = iota // a client was granted a lease: its reply tells it to rebuild the value
	GuardFill                            // a lease holder's set was stored
	GuardExists                          // a set came too late: another client has stored another value
	GuardGone                            // a set came too late: the key was deleted, or its lease expired
	GuardVoid                            // a set was not stored because its miss is no longer known
	GuardWait                            // a get had to wait because another client rebuilds the value
	GuardSaved                           // a waiting get received a value
	GuardLate                            // the wait of a get timed out
	GuardStale                           // an old value was returned
	GuardEarly                           // a client was granted a lease before the value expired
	GuardLeaseCanceled                   // a lease holder disconnected, and its lease ended
	GuardLeaseExpired                    // a lease holder did not return within its lease, so another client got one
	GuardPoll                            // a request to a server on behalf of waiting gets
	GuardForgotten                       // a miss was dropped from the table because the table was full
	GuardNeverFilled                     // a get did not wait, because no client ever stores a value of its key
	GuardExtraRequest                    // a request to a server that only the guard needs
	GuardWrite                           // a command other than a read
	GuardOff                             // a command to a server without meta commands or cas, which can't be guarded
	NumGuardEvents
)

// Count counts an event.
func (g *GuardStats) Count(e GuardEvent) { g.count[e].Add(1) }

// Counted returns how often an event happened.
func (g *GuardStats) Counted(e GuardEvent) uint64 { return g.count[e].Load() }

// GuardStats is what is known about one guarded route, over all loops and reloads of a
// process. A cache hit uses none of it.
type GuardStats struct {
	Route string // the label of the route: see table.Route

	count [NumGuardEvents]atomic.Uint64

	Waiting, Misses atomic.Int64 // current numbers: waiting gets; misses whose rebuild has not been stored yet

	lease atomic.Int64 // how long rebuilds were seen to take, in nanoseconds; 0: use the configured lease
	slow  atomic.Int64 // duration of slow rebuilds, in nanoseconds

	mu              sync.Mutex
	fadedAt         int64         // when lease was lowered last
	usual           time.Duration // a moving average of the duration of rebuilds
	won, filled     int           // number of leases that ended since the last evaluation, and of those whose holder has stored a value
	unheld          bool          // too few lease holders have stored a value, so no get waits
	waited, rebuilt Histogram
}

// GuardSnapshot is a copy of the numbers of a route that are protected by a lock.
type GuardSnapshot struct {
	Waited, Rebuilt Histogram
}

// Snapshot copies the histograms.
func (g *GuardStats) Snapshot() GuardSnapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GuardSnapshot{g.waited, g.rebuilt}
}

// TookTooLong handles a set that was rejected because it was late: `age` is the time
// since its miss. Rebuilds take longer than the lease, so the lease becomes twice that
// age, limited by the parameter `most`.
func (g *GuardStats) TookTooLong(age, most time.Duration, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease.Store(int64(min(2*age, most)))
	g.fadedAt = now
}

// Lease returns how long a rebuild may take: the learned time, but not less than the
// parameter `least`.
func (g *GuardStats) Lease(least time.Duration) time.Duration {
	return max(least, time.Duration(g.lease.Load()))
}

// Won counts a granted lease. Every minute it also lowers the learned lease by a tenth.
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

// Slow returns the duration of slow rebuilds of the route.
func (g *GuardStats) Slow() time.Duration { return time.Duration(g.slow.Load()) }

// Usual returns the usual duration of a rebuild of the route.
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

// Ended records that a lease has ended, and whether its holder has stored a value (filled). If
// fewer than half of the last hundred holders have, gets of the route no longer wait for rebuilds.
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

// Holds reports whether gets of the route may wait for a rebuild.
func (g *GuardStats) Holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.unheld
}
