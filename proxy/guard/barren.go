package guard

// Keys that nobody fills: what is not found in the database, what is too large.
// Their gets are not held; each would wait for nothing.

import (
	"time"

	"ringside/proxy/guard/item"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
)

// strikes are wins of a key in a row without a set.
type strikes struct {
	wins  int
	until int64 // so long its gets are not held
}

// maxWatched bounds what is remembered of keys by their hash alone: who shares a
// hash is not held, which costs no more.
const maxWatched = 4096

// unfilled is how many wins in a row without a set show that a key is not filled:
// that many have failed, and one more is at work.
const unfilled = 2

// strike counts a win of a key, or takes one back.
func (g *Guard) strike(hash uint64, n int, rt *routing.Guard) {
	s := g.barren[hash]
	switch {
	case s == nil && n < 0:
		return
	case s == nil:
		if len(g.barren) >= maxWatched {
			clear(g.barren)
		}
		s = &strikes{}
		g.barren[hash] = s
	}
	if s.wins += n; s.wins > unfilled {
		s.until = g.Now + int64(time.Second)*item.Lease(rt)
	}
}

// unfit notes that the value of a key can't be stored.
func (g *Guard) unfit(t *task.Task, l *rule) { g.strike(t.Hash, unfilled+1, l.Guard) }

func (g *Guard) isBarren(t *task.Task, l *rule) bool {
	s := g.barren[t.Hash]
	if s == nil || s.until <= g.Now {
		return false
	}
	l.Learned.Count(stats.GuardBarren)
	return true
}
