package proxy

// Parts of the engine that conversations do not reach.

import (
	"strings"
	"testing"
)

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

// TestMemoryOfWholeBodies: values that come with their command in one read are
// held against limits.memory too, though nobody had to wait for them.
func TestMemoryOfWholeBodies(t *testing.T) {
	s := newStage(t)
	s.pool([]string{"main", "servers=s1"})
	s.limits([]string{"memory=1000000"})
	s.begin()
	s.actor("s1").mode = "hangs"
	c := s.actor("c1")
	set := []byte("set a1 0 0 60000 noreply\r\n" + strings.Repeat("x", 60000) + "\r\n")
	for range 100 {
		s.wakeup(func() { s.e.Bytes(c.link, set) })
	}
	if held := s.e.pool.held; held > 1_200_000 {
		t.Errorf("%d bytes are held", held)
	}
	if c.state != "" {
		t.Errorf("the client is %s", c.state)
	}
}
