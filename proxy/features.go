package proxy

// This file combines the features of routes.

import (
	"ringside/proxy/failover"
	"ringside/proxy/guard"
	"ringside/proxy/routing"
	"ringside/proxy/task"
)

// serve sets how commands are served, by the features of their route. A task passes through the
// handlers of its route's features in this order:
//
//	near cache      a read that waits for the refresh of a value
//	names of tags   every task
//	guard           every task, unless its client uses the guard's meta flags, or the server is too old
//	counters        a command on a route with a buffer, and an increment that may create its counter
//	replicas        every task, on routes with replicas
//	moving          every task on a key that moves, on routes without replicas
//	single copy     every other task on routes without replicas
//
// Each handler serves the task or passes it to the next one. Package config rejects combinations
// that have no meaning, such as a guard with counters.
//
// A text read on a route with the feature Direct begins without a task (task.Read), at the server of
// the key if the route has a guard, and else at one of the replicas.
func (e *Engine) serve() {
	for i := range routing.FeatureSets {
		has := func(f routing.Features) bool { return routing.Features(i)&f != 0 }
		var h task.Handler = e.Replicator.OneCopy(failover.SingleCopy{})
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
		e.Handlers[i] = h
		switch {
		case !has(routing.Direct):
		case has(routing.Tagged):
			e.reads[i] = e.tags
		case has(routing.Guarded):
			e.reads[i] = &guard.Reader{Guard: e.guards}
		default:
			e.reads[i] = e.DirectReads()
		}
	}
}
