package upstream_test

// Checks of names in replies that would be too long for a conversation file, and of the opaques
// that conversation files omit.

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/stats"
)

// TestManyNames sends a read of so many keys that its line spans several chunks. Each VALUE
// must be checked. The memory for this must be counted, and freed at the end.
func TestManyNames(t *testing.T) {
	for _, lie := range []bool{false, true} {
		s := conversation.New(t)
		s.Line("pool main servers=s1")
		s.Line("c1 > get a1")
		c := s.Endpoint("c1")
		s.Line("s1 < get a1")
		s.Line("s1 > END")
		s.Line("c1 < END")
		used := func() int64 {
			sum := &stats.Snapshot{}
			s.Engine.Snapshot(sum)
			return sum.Memory - sum.Kept
		}
		before := used()
		s.Line("c1 > get b1") // so that the next line starts within a chunk
		var request, answer strings.Builder
		request.WriteString("get")
		for i := range 1000 { // fewer than the keys of a turn, after which the rest would wait
			fmt.Fprintf(&request, " k%d:1", i)
			if i%3 > 0 {
				fmt.Fprintf(&answer, "VALUE k%d:1 0 1\r\nx\r\n", i)
			}
		}
		if lie {
			answer.WriteString("VALUE k7:1 0 1\r\nx\r\n") // a second time
		}
		request.WriteString("\r\n")
		answer.WriteString("END\r\n")
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(request.String())) })
		srv := s.Endpoint("s1")
		srv.Got.Reset()
		if held := used() - before; held < int64(request.Len()) {
			t.Errorf("%d bytes are held for a request of %d", held, request.Len())
		}
		s.Line("s1 > END")
		s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte(answer.String())) })
		if got := srv.State == "aborted"; got != lie {
			t.Errorf("the server lies: %v; its connection is aborted: %v", lie, got)
		}
		if got, want := strings.Count(c.Got.String(), "VALUE "), 666; got != want {
			t.Errorf("the client has got %d values, want %d", got, want)
		}
		c.Got.Reset()
		if held := used(); held > before {
			t.Errorf("%d bytes are held at the end, %d before", held, before)
		}
	}
}

// TestMissesOfOldReleases checks that a miss without O and k is accepted from memcached before
// 1.6.18 only: later releases always send them.
func TestMissesOfOldReleases(t *testing.T) {
	for release, state := range map[string]string{"1.6.13": "", "1.6.17": "", "1.6.18": "aborted", "1.6.45": "aborted"} {
		s := conversation.New(t)
		s.Release = release
		s.Line("pool main servers=s1")
		s.Line(`c1 > mg a1 v O1 k`)
		s.Line("s1 < mg a1 v O1 k")
		s.Line("s1 > EN")
		if got := s.Endpoint("s1").State; got != state {
			t.Errorf("%s: the connection is %q, want %q", release, got, state)
		}
	}
}
