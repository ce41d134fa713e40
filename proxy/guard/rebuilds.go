package guard

// This file remembers which keys clients do not rebuild: because they are not in the database or too
// large, or because the lease holder has ended or is slow.

import (
	"time"

	"ringside/proxy/routing"
)

// rebuilds has, by the hash of the key, what a loop remembers of rebuilds that have not ended. If two keys
// share a hash, gets of both do not wait, which does no harm.
type rebuilds map[uint64]*rebuild

// rebuild is what a loop remembers of a key: the leases that were granted since the last set of the key,
// and the lease holder that other clients wait for.
type rebuild struct {
	strikes
	holder string // cas of the item with the lease; empty: no get has waited for the lease holder
	since  int64  // when the first get on this loop began to wait for the lease holder
}

// strikes counts the leases of a key that were granted without a set in between.
type strikes struct {
	wins  int
	last  int64 // time of the last lease
	until int64 // until this time gets of the key do not wait
}

// maxWatched limits how many keys a loop remembers.
const maxWatched = 4096

// Unfilled is how many leases of a key in a row must end without a set before gets of the key
// stop waiting.
const Unfilled = 2

// Of returns what the loop remembers of a key, so that the caller can change it.
func (n rebuilds) Of(hash uint64) *rebuild {
	s := n[hash]
	if s == nil {
		if len(n) >= maxWatched {
			clear(n)
		}
		s = &rebuild{}
		n[hash] = s
	}
	return s
}

// Filled records that a set of the key has arrived, so the key does not count as one that clients never
// fill.
func (n rebuilds) Filled(hash uint64) {
	if s := n[hash]; s != nil {
		s.strikes = strikes{}
	}
}

// Won counts the grant of a lease, and reports whether the grant is a strike. The first grant since the
// last set of the key is one. A later grant is a strike if the previous lease holder had the time of a
// lease and has stored nothing. Before that time it may still be rebuilding.
func (s *strikes) Won(rt *routing.RouteGuard, now int64) (strike bool) {
	lease := int64(time.Second) * leaseSeconds(rt)
	strike = s.wins == 0 || now-s.last >= max(lease-int64(time.Second), lease/2) // one second less than a lease is enough, because servers count whole seconds
	if strike {
		s.Add(1, rt, now)
	}
	s.last = now
	return strike
}

// Add adds count to the strikes. A negative count removes strikes.
func (s *strikes) Add(count int, rt *routing.RouteGuard, now int64) {
	if s.wins = max(s.wins+count, 0); s.wins > Unfilled {
		s.until = now + int64(time.Second)*leaseSeconds(rt)
	}
}

// NeverFilled reports whether gets of a key should not wait, because clients do not fill it.
func (n rebuilds) NeverFilled(hash uint64, now int64) bool {
	s := n[hash]
	return s != nil && s.until > now
}

// Overdue reports whether the lease holder of an item with this cas has stored no value for the
// time of a lease. The time counts from the first get on this loop that waits for the lease
// holder.
func (n rebuilds) Overdue(rt *routing.RouteGuard, hash uint64, cas []byte, now int64) bool {
	s := n[hash]
	return s != nil && s.holder == string(cas) && now-s.since > int64(time.Second)*leaseSeconds(rt)
}
