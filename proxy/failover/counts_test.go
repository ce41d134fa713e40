package failover_test

import (
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/stats"
)

// TestRefusalsAreCounted checks that a command that a suspect server can't serve is counted
// as refused at that server, also if it is a substitute server.
func TestRefusalsAreCounted(t *testing.T) {
	for _, test := range []struct{ pool, key, suspect, server string }{
		{"pool main servers=s1,s2 failover=rehash", "a1", "s1 is SUSPECT", "s1"},
		{"pool main servers=s1,s2 failover=rehash", "a1", "s1 is LEAVING", "s1"},
	} {
		s := conversation.New(t)
		s.Line(test.pool)
		s.Line(test.suspect)
		s.Line("c1 > set " + test.key + ` 0 0 1\r\nA`)
		s.Line("wait 100ms")
		var sum stats.Snapshot
		s.Engine.Servers.AddTo(&sum)
		for _, srv := range sum.Servers {
			if want := srv.Target.Name == test.server; (srv.Refused == 1) != want {
				t.Errorf("%s: %d refused at %s", test.suspect, srv.Refused, srv.Target.Name)
			}
		}
	}
}
