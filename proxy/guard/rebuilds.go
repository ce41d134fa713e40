package guard

// This file remembers rebuilds that have not ended: which gets wait for them, and which keys clients do
// not rebuild, because they are not in the database or too large, or because the lease holder has ended
// or is slow.

import (
	"maps"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/routing"
)

// rebuilds has what a loop remembers of rebuilds that have not ended, by the name of the key: see
// rule.key.
type rebuilds map[string]*rebuild

// rebuild is what a loop remembers of a key: the leases that were granted since the last set of the key,
// the lease holder that other clients wait for, and the gets that wait.
type rebuild struct {
	strikes
	holder string // cas of the item with the lease; empty: no get has waited for the lease holder
	since  int64  // when the first get on this loop began to wait for the lease holder
	poll   *poll  // the gets that wait; nil: none
}

// strikes counts the leases of a key that were granted without a set in between.
type strikes struct {
	wins  int
	last  int64 // time of the last lease
	until int64 // until this time gets of the key do not wait
}

// maxWatched limits how many keys without waiting gets a loop remembers.
const maxWatched = 4096

// Unfilled is how many leases of a key in a row must end without a set before gets of the key
// stop waiting.
const Unfilled = 2

// rebuildOf returns what the loop remembers of a key, so that the caller can change it.
func (g *Guard) rebuildOf(key string) *rebuild {
	s := g.rebuilds[key]
	if s == nil {
		if len(g.rebuilds)-len(g.polls) >= maxWatched {
			maps.DeleteFunc(g.rebuilds, func(_ string, s *rebuild) bool { return s.poll == nil })
		}
		s = &rebuild{}
		g.rebuilds[key] = s
	}
	return s
}

// fill says whether a command was a set, so that the key does not count as one that clients never fill.
type fill uint8

const (
	noSet   fill = iota
	refused      // a set has arrived, and was not stored
	filled       // a server has stored the value of a set, so the rebuild has ended
)

// wrote records the end of a write of the key. The poll of the key starts at once, because the write may
// have changed the key.
func (g *Guard) wrote(key string, f fill) {
	s := g.rebuilds[key]
	if s == nil {
		return
	}
	if f != noSet {
		s.strikes = strikes{}
	}
	if f == filled {
		s.holder, s.since = "", 0
	}
	if q := s.poll; q == nil {
		g.rebuilds.tidy(key, s)
	} else if q.again = true; !q.asking {
		q.nextAt = g.Now
		g.Soon(link.GuardTimer)
	}
}

// tidy removes the entry s of the key if it has nothing to remember.
func (n rebuilds) tidy(key string, s *rebuild) {
	if *s == (rebuild{}) {
		delete(n, key)
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

// Overdue reports whether the lease holder of an item with this cas has stored no value for the
// time of a lease. The time counts from the first get on this loop that waits for the lease
// holder.
func (s *rebuild) Overdue(rt *routing.RouteGuard, cas []byte, now int64) bool {
	return s != nil && s.holder == string(cas) && now-s.since > int64(time.Second)*leaseSeconds(rt)
}
