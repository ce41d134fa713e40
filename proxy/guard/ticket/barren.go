package ticket

// Keys that nobody fills: what is not found in the database, what is too large.
// Their gets are not held; each would wait for nothing.

import (
	"time"

	"ringside/proxy/guard/item"
	"ringside/proxy/routing"
)

// Barren are keys of which nobody has used a win, by hash.
type Barren map[uint64]*strikes

// strikes are wins of a key in a row without a set.
type strikes struct {
	wins  int
	until int64 // so long its gets are not held
}

// MaxWatched bounds what is remembered of keys by their hash alone: who shares a
// hash is not held, which costs no more.
const MaxWatched = 4096

// Unfilled is how many wins in a row without a set show that a key is not filled:
// that many have failed, and one more is at work.
const Unfilled = 2

// Strike counts a win of a key, or takes one back.
func (b Barren) Strike(hash uint64, n int, rt *routing.Guard, now int64) {
	s := b[hash]
	switch {
	case s == nil && n < 0:
		return
	case s == nil:
		if len(b) >= MaxWatched {
			clear(b)
		}
		s = &strikes{}
		b[hash] = s
	}
	if s.wins += n; s.wins > Unfilled {
		s.until = now + int64(time.Second)*item.Lease(rt)
	}
}

// Has says that a key's gets are not to be held.
func (b Barren) Has(hash uint64, now int64) bool {
	s := b[hash]
	return s != nil && s.until > now
}
