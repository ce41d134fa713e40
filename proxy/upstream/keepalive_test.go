package upstream_test

// Tests of dead connections that a conversation file can't express.

import (
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// TestEffectsAreNotResent checks that only plain reads are sent again when a connection is
// replaced. Requests with a side effect must not run twice.
func TestEffectsAreNotResent(t *testing.T) {
	for _, c := range []struct {
		request string
		resent  bool
	}{
		{"get a1", true},
		{"gets a1", true},
		{"get a1 b1", true},
		{"gat 10 a1", false},
		{"gats 10 a1", false},
		{"mg a1 v", false}, // its bytes can't be rebuilt
		{"mg a1 v N30", false},
		{"mg a1 v T30", false},
		{"mg a1 v E5", false},
		{"ma a1", false},
		{"md a1", false},
		{"incr a1 1", false},
		{"touch a1 10", false},
		{"delete a1", false},
	} {
		s := conversation.New(t)
		s.Quiet, s.Release = true, "1.6.45"
		s.Line("pool main servers=s1 get_errors=error")
		s.Line("c1 > get a1")
		s.Line("s1 < get a1")
		s.Line("s1 > END")
		s.Line("c1 < END")
		s.Line("wait 1s")
		s.Line("c1 > " + c.request)
		s.Line("s1 < " + c.request)
		s.Line("wait 500ms")
		sum := snapshot(s)
		if got := sum.ReadsResent > 0; got != c.resent {
			t.Errorf("%s: sent again: %v", c.request, got)
		}
		if sum.DeadByRequest != 1 || sum.WentDown != 0 {
			t.Errorf("%s: %d connections were found dead, %d outages", c.request, sum.DeadByRequest, sum.WentDown)
		}
		if c.resent {
			s.Line("s1 < " + c.request)
		} else if got := s.Endpoint("s1").Got.String(); got != "" {
			t.Errorf("%s: the server has got %q", c.request, got)
		}
	}
}

// snapshot returns the counters of the only server.
func snapshot(s *conversation.Harness) *stats.ServerSnapshot {
	sum := &stats.Snapshot{}
	s.Engine.Snapshot(sum)
	for _, srv := range sum.Servers {
		return srv
	}
	return nil
}

// errand is an Asker that only records the failure.
type errand struct{ failed string }

func (e *errand) Answered(_ int, r *upstream.Result) { e.failed = r.Why }

// TestDedicatedPing checks that a dedicated connection gets pings too, and is opened again.
func TestDedicatedPing(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1 keepalive=30s preconnect=true")
	s.Line("c1 > get a1")
	s.Line("s1 < get a1")
	s.Line("s1 > END")
	s.Line("c1 < END")
	var srv *upstream.Server
	for _, one := range s.Engine.ByAddress {
		srv = one
	}
	limit := &table.Timeouts{Request: time.Second, Deadline: time.Second}
	asks := &errand{}
	ask := func() {
		s.Wakeup(func() { s.Engine.Ask(srv.DedicatedConn(7), asks, 0, limit, []byte("mn\r\n"), true) })
	}
	ask()
	s.Line("s1 < mn")
	s.Line("s1 > MN")
	s.Line("wait 30s")
	s.Line("s1 < version")
	s.Line("s1' < version")
	s.Line("s1' > VERSION 1.6.18")
	ask()
	s.Line("s1 < mn")
	s.Line("wait 500ms")
	if asks.failed == "" {
		t.Error("what was asked on the dead connection has no answer yet")
	}
	asks.failed = ""
	ask()
	s.Line("s1 < mn")
	s.Line("s1 > MN")
	if sum := snapshot(s); asks.failed != "" || sum.DeadByPing != 1 || sum.WentDown != 0 {
		t.Errorf("failed: %q; %d connections were found dead, %d outages", asks.failed, sum.DeadByPing, sum.WentDown)
	}
}
