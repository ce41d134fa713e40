package replication

// This file decides by which routing table replicated keys are served during a
// reload. The reload moves keys to other servers, and one instance after the other
// applies it.
//
// All instances pass through these stages. Package health/barrier decides when, so
// that two instances are never more than one stage apart:
//
//	stage     keys are served by        a key that gets other replicas
//	waiting   the former routing table  is served as usual: other instances may not have the new table yet
//	pausing   the former routing table  may be read where it is, but not written, touched or copied; in package barrier the stages Pausing and Decided, and before them Withheld
//	moving    the new routing table     all pools are Done; the key is moved away from its former servers before anything is decided about it
//
// So no instance writes by the new routing table while another one writes by the
// former. A read that has started in the pause repairs nothing, whenever it ends,
// because a key that it has missed may have moved. A routing table that arrives while
// other instances may be in another stage waits for them.
//
// A key with one copy has one holder, so the same stages apply if a route gets replicas or loses
// them. Its pool takes part from the reload to the end of the handover (Replicator.involve), and so does a
// pool that a route no longer names. While keys are served by one copy, package failover serves them, as at an instance without the new
// table (serveOneCopy).
//
// # Limits
//
// All this is true only if an instance sees the other instances. It knows them by the view
// records: see package health.
//
// An instance that was restarted reads the former lists of servers from the servers, where each
// instance stores them (Replicator.learn). It knows neither former routes nor how many replicas
// they had. If it was started with a further list, its pool first uses the list of its peers (table.Table.Join). So it is
// like one that was started with that list, and is then reloaded.

import (
	"slices"

	"ringside/proxy/health/barrier"
)

// handover is a handover in progress: a reload moves replicated keys to other servers.
type handover struct {
	Formers []*arrangement // the arrangements of former routing tables: their servers may still have keys. The oldest is first
	Serving *arrangement   // the arrangement in Formers by which keys are still served; nil: keys are served by the present routing table
	paused  bool           // the stage pausing: keys that get other replicas must not be written
	ended   bool           // this loop has moved all its keys; other loops may not
}

const maxFormers = 4 // number of former arrangements that are remembered

// newHandover returns the handover from the arrangement `before` to that of a new routing table.
// The parameter `was` is the handover in progress at that time, or nil. tooMany reports that the
// oldest former arrangement was dropped, because only maxFormers are kept.
func newHandover(before *arrangement, was *handover) (h *handover, tooMany bool) {
	h = &handover{Serving: before}
	if was != nil && !was.ended {
		h.Formers = slices.DeleteFunc(was.Formers, func(a *arrangement) bool { return a.Print == before.Print })
		if was.Serving != nil {
			h.Serving = was.Serving
		}
	}
	if h.Formers = append(h.Formers, before); len(h.Formers) > maxFormers {
		h.Formers, tooMany = h.Formers[1:], true
	}
	return h, tooMany
}

// Proceed enters the next stage if all instances have reached it, and reports whether the stage
// has changed. pools has the stage of each pool. While one pool is Waiting, no key pauses. Keys
// move only when all pools are Done, because then no instance is Waiting in any pool. withheld reports
// that keys must pause in any case: see barrier.Status.Withheld.
func (h *handover) Proceed(pools []barrier.Stage, withheld bool) bool {
	waits, done := false, true
	for _, p := range pools {
		waits = waits || p == barrier.Waiting
		done = done && p == barrier.Done
	}
	switch was := h.paused; {
	case h.Serving == nil:
		return false
	case done:
		h.Serving, h.paused = nil, false
		return true
	default:
		h.paused = withheld || !waits
		return was != h.paused
	}
}

// texts returns the server lists of a pool by the arrangement `present` and by the former ones, as texts: see
// health.View.SetFormers. h may be nil: no handover is in progress.
func (h *handover) texts(pool string, present *arrangement) (list [][]byte) {
	if h == nil {
		return nil
	}
	last := h.Serving
	formers := slices.DeleteFunc(slices.Clone(h.Formers), func(a *arrangement) bool { return a == last })
	for _, a := range slices.Concat([]*arrangement{present}, formers, []*arrangement{last}) {
		if a != nil {
			text := a.text(pool)
			if text == nil {
				return nil
			}
			list = append(list, text)
		}
	}
	return list
}

// Pauses reports whether keys that are about to move to other replicas must not be changed now. h
// may be nil: no handover is in progress.
func (h *handover) Pauses() bool { return h != nil && h.paused }

// Moving reports whether keys are moved to their new replicas now. h may be nil: no handover is
// in progress.
func (h *handover) Moving() bool { return h != nil && h.Serving == nil }
