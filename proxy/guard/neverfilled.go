package guard

// This file finds keys that clients never fill, because they are not in the database or too
// large. Gets of these keys do not wait, because no value would arrive.

import (
	"time"

	"ringside/proxy/routing"
)

// neverFilledKeys counts the leases of each key that were granted since the last set of the key,
// by the hash of the key.
type neverFilledKeys map[uint64]*strikes

// strikes counts the leases of a key that were granted without a set in between.
type strikes struct {
	wins  int
	last  int64 // time of the last lease
	until int64 // until this time gets of the key do not wait
}

// maxWatched limits how many keys a loop remembers by their hash, in neverFilledKeys and in
// leaseHolders. If two keys share a hash, gets of both do not wait, which does no harm.
const maxWatched = 4096

// Unfilled is how many leases of a key in a row must end without a set before gets of the key
// stop waiting.
const Unfilled = 2

// Won counts the grant of a lease of a key, and reports whether the grant is a strike. The first
// grant since the last set of the key is one. A later grant is a strike if the previous lease
// holder had the time of a lease and has stored nothing. Before that time it may still be
// rebuilding.
func (n neverFilledKeys) Won(hash uint64, rt *routing.RouteGuard, now int64) (strike bool) {
	s := n.of(hash)
	lease := int64(time.Second) * leaseSeconds(rt)
	strike = s.wins == 0 || now-s.last >= max(lease-int64(time.Second), lease/2) // one second less than a lease is enough, because servers count whole seconds
	if strike {
		s.add(1, rt, now)
	}
	s.last = now
	return strike
}

// AddMiss adds count to the strikes of a key: the leases that were granted without a set in
// between. A negative count removes strikes.
func (n neverFilledKeys) AddMiss(hash uint64, count int, rt *routing.RouteGuard, now int64) {
	if n[hash] != nil || count > 0 {
		n.of(hash).add(count, rt, now)
	}
}

func (n neverFilledKeys) of(hash uint64) *strikes {
	s := n[hash]
	if s == nil {
		if len(n) >= maxWatched {
			clear(n)
		}
		s = &strikes{}
		n[hash] = s
	}
	return s
}

func (s *strikes) add(count int, rt *routing.RouteGuard, now int64) {
	if s.wins += count; s.wins > Unfilled {
		s.until = now + int64(time.Second)*leaseSeconds(rt)
	}
}

// Has reports whether gets of a key should not wait, because clients do not fill it.
func (n neverFilledKeys) Has(hash uint64, now int64) bool {
	s := n[hash]
	return s != nil && s.until > now
}
