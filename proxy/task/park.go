package task

// Commands that wait for a phase.

import (
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
)

// parked is a write that waits for the next phase.
type parkedTask struct {
	t       *Task
	phases  func() uint64 // changes when one does
	changed uint64        // what it was
}

// Park keeps t until phases changes, or its time is over.
func (e *Tasks) Park(t *Task, phases func() uint64) {
	if len(e.Parked) >= maxParked {
		t.Fail("too many writes wait for a server that is being left", stats.Crowded)
		return
	}
	e.Parked = append(e.Parked, parkedTask{t, phases, phases()})
	e.At(link.ParkedTimer, min(t.Deadline, e.Now+ParkedLook))
}

const (
	maxParked  = 10_000
	ParkedLook = int64(10 * time.Millisecond) // between looks at the phases for those who wait
)

// Unpark leads the writes whose pools have changed, in their order.
func (e *Tasks) Unpark() {
	list := e.Parked
	e.Parked = nil
	for _, p := range list {
		if p.phases() == p.changed && e.Now < p.t.Deadline {
			e.Parked = append(e.Parked, p)
			e.At(link.ParkedTimer, min(p.t.Deadline, e.Now+ParkedLook))
			continue
		}
		e.lead(p.t)
	}
}
