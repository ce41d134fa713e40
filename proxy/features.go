package proxy

// This file combines the features of routes.

import (
	"ringside/proxy/failover"
	"ringside/proxy/routing"
	"ringside/proxy/task"
)

// handlers returns the handlers of tasks, by the features of a route. A task passes through the
// handlers of its route's features in this order:
//
//	near cache      a read that waits for the refresh of a value
//	names of tags   every task
//	guard           every task, unless its client uses the guard's meta flags, or the server is too old
//	counters        a command on a route with a buffer, and an increment that may create its counter
//	replicas        every task, on routes with replicas
//	single copy     every task, on routes without replicas
//
// Each handler serves the task or passes it to the next one. Package config rejects combinations
// that have no meaning, such as a guard with counters.
func (e *Engine) handlers() (list [routing.FeatureSets]task.Handler) {
	for i := range list {
		has := func(f routing.Features) bool { return routing.Features(i)&f != 0 }
		var h task.Handler = failover.SingleCopy{}
		if has(routing.Replicated) {
			h = &e.Replicator
		}
		if has(routing.Counted) {
			h = e.Counters.Over(h)
		}
		if has(routing.Guarded) {
			h = e.guards.Over(h)
		}
		if has(routing.TagNames) {
			h = e.tags
		}
		if has(routing.Near) {
			h = nearHandler{e.near, h}
		}
		list[i] = h
	}
	return list
}
