package upstream_test

// A line that is not exactly one request does not reach a server.

import (
	"strings"
	"testing"

	"ringside/internal/memnode"
	"ringside/proxy/conversation"
	"ringside/proxy/upstream"
)

type outcomes struct {
	answers *[]string
}

func (h outcomes) Answered(_ int, r *upstream.Result) {
	*h.answers = append(*h.answers, strings.TrimRight(string(r.Bytes), "\r\n"))
}

func TestUnfitLines(t *testing.T) {
	const unfit = "CLIENT_ERROR too many flags, or too long a line, for this route, which adds flags of its own"
	for _, line := range []string{
		"get a1\r\nflush_all\r\n",
		"ms a1 0 " + strings.Repeat("F0 ", 20) + "\r\n\r\n",
		"ms a1 9 Fx\r\nflush_all\r\n",
		"set a1 0 0 9\r\nflush_all",
		"get " + strings.Repeat("a", 251) + "\r\n",
		"md a1 " + strings.Repeat(" ", 2048) + "\r\n",
		"get a1",
		"",
		"\r\n",
	} {
		s := conversation.New(t)
		s.Quiet = true
		s.Line("pool main servers=s1")
		s.Begin()
		node, err := memnode.New(memnode.Options{Version: "1.6.18"})
		if err != nil {
			t.Fatal(err)
		}
		server := node.Line()
		s.Endpoint("s1").Serve = server.Do
		s.Line("c1 > set a1 0 0 1\\r\\nx")
		s.Line("wait 2ms")
		var answers []string
		s.Wakeup(func() {
			srv := s.Engine.Servers.List[0]
			c, _, _ := srv.Pick(1, false)
			ask := func(line string) {
				s.Engine.Servers.Ask(c, outcomes{&answers}, 0, &s.Pools["main"].Timeouts, []byte(line), false)
			}
			ask("get a1\r\n")
			ask(line)
			ask("get a1\r\n")
		})
		s.Line("wait 2ms")
		if got, want := strings.Join(answers, "|"), unfit+"|VALUE a1 0 1\r\nx\r\nEND|VALUE a1 0 1\r\nx\r\nEND"; got != want {
			t.Errorf("%.60q: %q", line, got)
		}
		if !strings.Contains(string(server.Do([]byte("stats\r\n"))), "STAT cmd_flush 0\r\n") {
			t.Errorf("%.60q: the server was flushed", line)
		}
	}
}
