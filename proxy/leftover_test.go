package proxy

import (
	"fmt"
	"testing"

	"ringside/replicate"
)

// TestLeftoverQueuesAreBounded: a member misses writes to keys that are repaired
// meanwhile, again and again, while nothing is done with what it has left. What
// is queued is bounded by the keys that can be remembered, and none of those that
// still count is lost.
func TestLeftoverQueuesAreBounded(t *testing.T) {
	s := newStage(t)
	s.line("pool main servers=s1,s2")
	s.line("route - main copies=2")
	s.begin()
	m := &s.e.ledgers["main"].members[0]
	m.dirty, m.left, m.order, m.gone = replicate.NewDirtyKeys(dirtyKeys), nil, nil, nil
	const kept = 100 // keys that stay
	for i := range 10 * dirtyKeys {
		key := fmt.Appendf(nil, "key%d", i%kept)
		m.leave(uint64(i%kept), key, key, true)
		key = fmt.Appendf(nil, "passing%d", i)
		m.leave(uint64(kept+i), key, key, true)
		m.clean(uint64(kept + i))
		m.lost(&s.e.Copies, leftover{hash: uint64(2*kept + i%kept), key: []byte("copied"), through: true})
	}
	if n := len(m.order); n > 2*dirtyKeys {
		t.Errorf("%d keys are queued to be deleted, want at most %d", n, 2*dirtyKeys)
	}
	if n := len(m.gone); n > 2*dirtyKeys {
		t.Errorf("%d keys are queued to be copied, want at most %d", n, 2*dirtyKeys)
	}
	for what, queue := range map[leftState][]*leftover{toDelete: m.order, toCopy: m.gone} {
		live := 0
		for _, l := range queue {
			if m.is(l, what) {
				live++
			}
		}
		if live != kept {
			t.Errorf("state %d: %d keys are queued, want %d", what, live, kept)
		}
	}
}
