package guard

// This file remembers lease holders that have not filled their key yet.

import (
	"time"

	"ringside/proxy/routing"
)

// leaseHolders has the lease holders that other clients wait for, by the hash of the key.
type leaseHolders map[uint64]leaseHolder

type leaseHolder struct {
	cas   string
	since int64
}

// Overdue reports whether the lease holder of an item with this cas has stored no value for the
// time of a lease. The time counts from the first get on this loop that waits for the lease
// holder.
func (w leaseHolders) Overdue(rt *routing.RouteGuard, hash uint64, cas []byte, now int64) bool {
	is := w[hash]
	return is.cas == string(cas) && now-is.since > int64(time.Second)*leaseSeconds(rt)
}

// New records that a get waits for the lease holder of an item with this cas. It returns true for
// the first such get.
func (w leaseHolders) New(hash uint64, cas []byte, now int64) bool {
	if w[hash].cas == string(cas) {
		return false
	}
	if len(w) >= maxWatched {
		clear(w)
	}
	w[hash] = leaseHolder{string(cas), now}
	return true
}
