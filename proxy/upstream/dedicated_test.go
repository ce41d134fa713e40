package upstream_test

import (
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// heard is an upstream.Asker that keeps why its request has failed.
type heard struct{ why string }

func (h *heard) Answered(_ int, r *upstream.Result) { h.why = r.Why }

// TestDedicatedConnFails checks that a server is not down because a connection for a task of Ringside itself can't be
// made: its connections for clients' requests work.
func TestDedicatedConnFails(t *testing.T) {
	for _, c := range []struct{ server, then, why string }{
		{"s1 refuses", "wait 1ms", "connection refused"},
		{"s1 hangs", "wait 5s", "no connection within the connect timeout"},
		{"s1 silent", "wait 5s", "no answer"},
		{"s1 silent", `s1 > ERROR Too many open connections`, "its first reply is ERROR Too many open connections"},
		{"s1 silent", `s1 > WHAT?`, "sent an invalid reply to version"},
	} {
		s := conversation.New(t)
		for _, line := range []string{"pool main servers=s1 get_errors=error", "c1 > get a1", "s1 < get a1", "s1 > END", "c1 < END", c.server} {
			s.Line(line)
		}
		is := &heard{}
		limit := table.Timeouts{Connect: time.Second, Request: 9 * time.Second, Deadline: 9 * time.Second, Total: 9 * time.Second}
		s.Wakeup(func() {
			e := s.Engine
			e.Ask(e.List[0].DedicatedConn(7), is, 0, &limit, []byte("mg x v\r\n"), true)
		})
		s.Line(c.then)
		if srv := s.Engine.List[0]; srv.Down || !strings.Contains(is.why, c.why) {
			t.Errorf("%s, %s: down: %t; the request has failed because %q", c.server, c.then, srv.Down, is.why)
		}
	}
}
