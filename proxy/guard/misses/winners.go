package misses

// Winners that have not come back yet.

import (
	"time"

	"ringside/proxy/guard/item"
	"ringside/proxy/routing"
)

// Winners are those whom clients wait for, by the hash of their key.
type Winners map[uint64]winner

type winner struct {
	cas   string
	since int64
}

// Overdue says that who is to rebuild an item of that cas has not come back for a lease,
// as this loop has seen it.
func (w Winners) Overdue(rt *routing.Guard, hash uint64, cas []byte, now int64) bool {
	is := w[hash]
	return is.cas == string(cas) && now-is.since > int64(time.Second)*item.Lease(rt)
}

// New notes whom a client waits for, and says whether nobody did before.
func (w Winners) New(hash uint64, cas []byte, now int64) bool {
	if w[hash].cas == string(cas) {
		return false
	}
	if len(w) >= MaxWatched {
		clear(w)
	}
	w[hash] = winner{string(cas), now}
	return true
}
