package proxy

import (
	"fmt"
	"testing"

	"ringside/proxy/copies"
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
	m := &s.e.Ledgers["main"].Members[0]
	m.Dirty, m.StaleKeys, m.DeleteQueue, m.CopyQueue = replicate.NewDirtyKeys(copies.DirtyKeys), nil, nil, nil
	const kept = 100 // keys that stay
	for i := range 10 * copies.DirtyKeys {
		key := fmt.Appendf(nil, "key%d", i%kept)
		m.MissedWrite(uint64(i%kept), key, key, true)
		key = fmt.Appendf(nil, "passing%d", i)
		m.MissedWrite(uint64(kept+i), key, key, true)
		m.Clean(uint64(kept + i))
		m.Lost(&s.e.Copies, copies.StaleKey{Hash: uint64(2*kept + i%kept), Key: []byte("copied"), Through: true})
	}
	if n := len(m.DeleteQueue); n > 2*copies.DirtyKeys {
		t.Errorf("%d keys are queued to be deleted, want at most %d", n, 2*copies.DirtyKeys)
	}
	if n := len(m.CopyQueue); n > 2*copies.DirtyKeys {
		t.Errorf("%d keys are queued to be copied, want at most %d", n, 2*copies.DirtyKeys)
	}
	for what, queue := range map[copies.StaleState][]*copies.StaleKey{copies.ToDelete: m.DeleteQueue, copies.ToCopy: m.CopyQueue} {
		live := 0
		for _, l := range queue {
			if m.Is(l, what) {
				live++
			}
		}
		if live != kept {
			t.Errorf("state %d: %d keys are queued, want %d", what, live, kept)
		}
	}
}
