package misses

// Keys that are never filled: not found in the database, or too large. Their gets are not
// held, because each would wait in vain.

import (
	"time"

	"ringside/proxy/guard/item"
	"ringside/proxy/routing"
)

// NeverFilled counts the wins of keys since their last set, by the hash of the key.
type NeverFilled map[uint64]*strikes

// strikes are wins of a key without a set.
type strikes struct {
	wins  int
	last  int64 // when the last of them was
	until int64 // until then its gets are not held
}

// MaxWatched bounds what is remembered of keys by their hash alone. A key that shares a
// hash is not held, which does no harm.
const MaxWatched = 4096

// Unfilled is how many wins in a row without a set show that a key is not filled.
const Unfilled = 2

// Won counts a win of a key. It reports whether the win is a strike: one within the lease
// of the win before it is not, because the first client may still be at work.
func (n NeverFilled) Won(hash uint64, rt *routing.Guard, now int64) (strike bool) {
	s := n.of(hash)
	lease := int64(time.Second) * item.Lease(rt)
	strike = s.wins == 0 || now-s.last >= max(lease-int64(time.Second), lease/2) // servers count whole seconds
	if strike {
		s.add(1, rt, now)
	}
	s.last = now
	return strike
}

// Strike counts n strikes of a key, or takes some back.
func (n NeverFilled) Strike(hash uint64, count int, rt *routing.Guard, now int64) {
	if n[hash] != nil || count > 0 {
		n.of(hash).add(count, rt, now)
	}
}

func (n NeverFilled) of(hash uint64) *strikes {
	s := n[hash]
	if s == nil {
		if len(n) >= MaxWatched {
			clear(n)
		}
		s = &strikes{}
		n[hash] = s
	}
	return s
}

func (s *strikes) add(count int, rt *routing.Guard, now int64) {
	if s.wins += count; s.wins > Unfilled {
		s.until = now + int64(time.Second)*item.Lease(rt)
	}
}

// Has reports whether a key's gets are not to be held.
func (n NeverFilled) Has(hash uint64, now int64) bool {
	s := n[hash]
	return s != nil && s.until > now
}
