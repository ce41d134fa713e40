package task

// Commands that wait for a phase.

import (
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
)

// parkedTask is a task that waits until servers have other phases, or until it is known
// who is out.
type parkedTask struct {
	t      *Task
	phases func() uint64 // another number when what it waits for may be there
	was    uint64        // the number when it was parked
	until  int64         // it does not wait longer: nanoseconds on the loop's clock
}

// Park keeps t until phases changes, or the moment until has come. If too many wait
// already t fails, and gives up the line of its key, where others may stand behind it.
func (e *Tasks) Park(t *Task, until int64, phases func() uint64) {
	if len(e.Parked) >= maxParked {
		t.Fail("too many writes wait for a server that is being left", stats.Crowded)
		e.Unclaim(t, KeyLine(t.Hash))
		return
	}
	e.Parked = append(e.Parked, parkedTask{t, phases, phases(), until})
	e.At(link.ParkedTimer, min(until, e.Now+ParkedLook))
}

const (
	maxParked = 10_000 // tasks that wait on one loop

	// ParkedLook is the time between looks at the phases for tasks that wait.
	ParkedLook = int64(10 * time.Millisecond)
)

// Unpark leads the tasks for which the phases have changed, or whose time is over, in
// the order in which they were parked; and it fails those that have waited in a line
// until their deadline.
func (e *Tasks) Unpark() {
	list := e.Parked
	e.Parked = nil
	for _, p := range list {
		if p.phases() == p.was && e.Now < p.until {
			e.Parked = append(e.Parked, p)
			e.At(link.ParkedTimer, min(p.until, e.Now+ParkedLook))
			continue
		}
		e.lead(p.t)
	}
	e.expire() // last: who waits for one of those may have its turn now
}
