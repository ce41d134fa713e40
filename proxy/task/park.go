package task

// This file implements parked commands: they wait until a server changes its phase.

import (
	"time"

	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
)

// parkedTask is a task that waits until servers change their phases, or until the ejected
// servers are known.
type parkedTask struct {
	t      *Task
	phases func() uint64 // a function with a result that changes when the task may continue: the phases of a pool, for example
	was    uint64        // the result of phases when the task was parked
	until  int64         // end of the wait: nanoseconds on the loop's clock
}

// Park keeps t until the result of phases changes, the clock reaches the time `until`, or a reload replaces t's route (see
// newer). If too many tasks are parked, t fails, and the next task in the line of its key may begin.
func (e *Tasks) Park(t *Task, until int64, phases func() uint64) {
	if len(e.Parked) >= maxParked {
		t.Fail("too many writes wait for a server that is being ejected", stats.QueueFull)
		e.Unclaim(t)
		return
	}
	e.Parked = append(e.Parked, parkedTask{t, phases, phases(), until})
	e.At(link.ParkedTimer, min(until, e.Now+ParkedLook))
}

const (
	maxParked = 10_000 // maximum number of parked tasks of one loop

	// ParkedLook is the interval at which parked tasks check the phases.
	ParkedLook = int64(10 * time.Millisecond)
)

// Unpark starts the parked tasks if their phases or routes have changed or their wait has ended, in the
// order in which they were parked. Then it fails the tasks that have waited in a line until
// their deadline.
func (e *Tasks) Unpark() {
	list := e.Parked
	e.Parked = nil
	for _, p := range list {
		if p.phases() == p.was && e.Now < p.until && p.t.newer() == nil {
			e.Parked = append(e.Parked, p)
			e.At(link.ParkedTimer, min(p.until, e.Now+ParkedLook))
			continue
		}
		e.start(p.t)
	}
	e.expire() // done last, because starting a parked task may have given a task in a line its turn
}

// newer returns the route that serves t's key now, if t's route belongs to a table that was replaced since t began, and the
// new one has the same features; else nil.
func (t *Task) newer() *routing.Route {
	rt := t.Route
	if rt == nil || rt.BoundPool == nil || !rt.Retired || t.x == nil && t.step == nil {
		return nil
	}
	l := t.Loop.Listeners[rt.Listener]
	if l == nil {
		return nil
	}
	now := l.Fitting(append([]byte(rt.Strip), t.Key...))
	if now == nil || now.Strip != rt.Strip || now.Features != rt.Features || now.Pool.Name != rt.Pool.Name {
		return nil
	}
	return now
}
