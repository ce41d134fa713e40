package task

// This file reports what clients wait for, other than a server's reply.

import (
	"cmp"
	"time"

	"ringside/proxy/stats"
)

// Waits reports each client with a command that is parked, or that waits in a line for other
// commands on its key.
func (e *Tasks) Waits(tell func(client uint64, w stats.Wait)) {
	for _, p := range e.Parked {
		why := cmp.Or(p.t.WaitReason, "the servers to report which of them are in use")
		tell(p.t.Asker, stats.Wait{Phase: stats.Phase, For: e.age(p.t), Why: why})
	}
	for _, l := range e.Lines {
		for _, t := range l.queue {
			tell(t.Asker, stats.Wait{Phase: stats.Order, For: e.age(t), Why: "commands before it on its key"})
		}
	}
}

// age returns how long the client has waited for t.
func (e *Tasks) age(t *Task) time.Duration {
	return t.Route.Timeouts.Deadline - time.Duration(t.Deadline-e.Now)
}
