package stats

// What a guarded route has counted and learned, over all loops.

import (
	"sync"
	"sync/atomic"
	"time"
)

// GuardEvent is what happens on a guarded route.
type GuardEvent uint8

// The events.
const (
	GuardWin       GuardEvent = iota // a client was told to rebuild
	GuardFill                        // its set was stored
	GuardExists                      // a set came too late: somebody has stored another value
	GuardGone                        // a set came too late: the key was deleted, or its lease has ended
	GuardVoid                        // a set was not stored because nothing is known of the key since its miss
	GuardWait                        // a get was held for another's rebuild
	GuardSaved                       // it got a value
	GuardLate                        // its wait was over
	GuardStale                       // an old value was served
	GuardEarly                       // a client was told to rebuild before the value expired
	GuardGivenBack                   // a client went away that was to rebuild
	GuardRearmed                     // one that was to rebuild did not come back within a lease
	GuardPoll                        // a server was asked for those who wait
	GuardForgotten                   // there was no room to remember a miss
	GuardBarren                      // a get was not held because nobody fills its key
	GuardLook                        // a server was asked what only the guard needs
	GuardWrite                       // a command that is no read
	GuardOff                         // a command to a server without meta commands or cas
	NumGuardEvents
)

// Count counts an event.
func (g *Guard) Count(e GuardEvent) { g.count[e].Add(1) }

// Counted is how often an event has happened.
func (g *Guard) Counted(e GuardEvent) uint64 { return g.count[e].Load() }

// Guard is one guarded route, over all loops and tables of a process. Nothing of it
// is touched by a hit.
type Guard struct {
	Route string // its label: see table.Route

	count [NumGuardEvents]atomic.Uint64

	Waiting, Misses atomic.Int64 // now: gets that are held; misses whose set is awaited

	lease atomic.Int64 // as rebuilds were seen to need it; 0: as configured
	slow  atomic.Int64 // what slow rebuilds take

	mu              sync.Mutex
	fadedAt         int64         // when lease was lowered last
	usual           time.Duration // what a rebuild takes
	won, filled     int           // of the last wins that have come to an end
	unheld          bool          // too few of them were filled: nobody is held
	waited, rebuilt Histogram
}

// GuardSnapshot are the numbers of a route that need a lock.
type GuardSnapshot struct {
	Waited, Rebuilt Histogram
}

// Snapshot copies the histograms.
func (g *Guard) Snapshot() GuardSnapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GuardSnapshot{g.waited, g.rebuilt}
}

// TookTooLong learns from a set that was refused when its miss was age old: rebuilds
// take longer than the lease, which becomes twice that age, and no more than most.
func (g *Guard) TookTooLong(age, most time.Duration, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease.Store(int64(min(2*age, most)))
	g.fadedAt = now
}

// Lease is how long a rebuild may take: as learned, but not less than least.
func (g *Guard) Lease(least time.Duration) time.Duration {
	return max(least, time.Duration(g.lease.Load()))
}

// Won counts a win. What was learned of the lease fades by a tenth a minute.
func (g *Guard) Won(now int64) {
	g.Count(GuardWin)
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

// Rebuilt learns how long a rebuild took.
func (g *Guard) Rebuilt(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rebuilt.Observe(int64(took))
	slow := g.slow.Load()
	g.slow.Store(max(int64(took), slow-slow/64))
	g.usual += (took - g.usual) / 8
}

// Slow is what slow rebuilds of the route take.
func (g *Guard) Slow() time.Duration { return time.Duration(g.slow.Load()) }

// Usual is what a rebuild of the route takes.
func (g *Guard) Usual() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.usual
}

// Waited counts a get that was held for ns nanoseconds.
func (g *Guard) Waited(ns int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waited.Observe(ns)
}

// Ended learns that a win has come to its end, filled or not: where less than half
// of the last hundred were filled, holding gets helps nobody.
func (g *Guard) Ended(filled bool) {
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

// Holds says whether gets of the route may be held.
func (g *Guard) Holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.unheld
}
