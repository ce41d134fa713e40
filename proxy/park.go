package proxy

// Commands that wait for a phase.

import "time"

// parked is a write that waits for the next phase.
type parked struct {
	t       *task
	phases  func() uint64 // changes when one does
	changed uint64        // what it was
}

// park keeps t until phases changes, or its time is over.
func (e *Tasks) park(t *task, phases func() uint64) {
	if len(e.parked) >= maxParked {
		t.fail("too many writes wait for a server that is being left", Crowded)
		return
	}
	e.parked = append(e.parked, parked{t, phases, phases()})
	e.at(parkedTimer, min(t.deadline, e.now+parkedLook))
}

const (
	maxParked  = 10_000
	parkedLook = int64(10 * time.Millisecond) // between looks at the phases for those who wait
)

// unpark leads the writes whose pools have changed, in their order.
func (e *Tasks) unpark() {
	list := e.parked
	e.parked = nil
	for _, p := range list {
		if p.phases() == p.changed && e.now < p.t.deadline {
			e.parked = append(e.parked, p)
			e.at(parkedTimer, min(p.t.deadline, e.now+parkedLook))
			continue
		}
		e.lead(p.t)
	}
}
