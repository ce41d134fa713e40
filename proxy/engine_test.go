package proxy

// Parts of the engine that conversations do not reach.

import "testing"

// TestHoldListStaysSmall: while there is always a client whose answers wait,
// the list must not keep all that ever waited.
func TestHoldListStaysSmall(t *testing.T) {
	var h holdList
	var last *Session
	for i := int64(1); i <= 100_000; i++ {
		s := &Session{holdUntil: i}
		h.add(s, i)
		if last != nil {
			last.holdUntil = 0 // flushed
		}
		last = s
		if got := h.due(); got != i {
			t.Fatalf("due at %d, want %d", got, i)
		}
	}
	if len(h.list) > 1000 {
		t.Errorf("%d entries for one client that waits", len(h.list))
	}
}
