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
	room   bool          // the task waits for room in the queue of a server, and counts as a request in flight: see client.Clients.TaskAsks
}

// Park keeps t until the result of phases changes, the clock reaches the time `until`, or a reload replaces t's route (see
// newer). If too many tasks are parked, t fails, and the next task in the line of its key may begin.
func (e *Tasks) Park(t *Task, until int64, phases func() uint64) {
	if len(e.Parked) >= maxParked {
		t.Fail("too many writes wait for servers that are being ejected or rejoin", stats.QueueFull)
		e.Unclaim(t)
		return
	}
	e.park(parkedTask{t, phases, phases(), until, false})
}

// ParkForRoom keeps t, which has not begun, until full returns "" and the tasks that were parked before have begun, the clock
// reaches t's deadline, or a reload replaces t's route. While many tasks wait for room, each client may have only few: see
// client.RoundTasks. It returns false if too many tasks are parked.
func (e *Tasks) ParkForRoom(t *Task, full func() string) bool {
	if len(e.Parked) >= maxParked {
		return false
	}
	t.queued = true
	e.waitForRoom++
	e.Clients.TaskAsks++
	e.park(parkedTask{t, func() uint64 { return uint64(min(1, len(full()))) }, 1, t.Deadline, true})
	return true
}

// MustQueue reports whether t must wait because other tasks wait for room, and t has not waited yet.
func (e *Tasks) MustQueue(t *Task) bool { return e.waitForRoom > 0 && !t.queued }

func (e *Tasks) park(p parkedTask) {
	e.Parked = append(e.Parked, p)
	e.At(link.ParkedTimer, min(p.until, e.Now+ParkedLook))
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
	full := false // no more tasks that wait for room may start
	for _, p := range list {
		if p.room {
			full = full || p.phases() == p.was
		}
		if (p.room && full || !p.room && p.phases() == p.was) && e.Now < p.until && p.t.newer() == nil {
			e.Parked = append(e.Parked, p)
			e.At(link.ParkedTimer, min(p.until, e.Now+ParkedLook))
			continue
		}
		if p.room {
			e.waitForRoom--
			e.Clients.TaskAsks--
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
