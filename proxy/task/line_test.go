package task_test

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/upstream"
)

// TestStepsPerCommand checks that the work for one command does not grow with the number of commands
// that its client has sent before. The work is counted in keys that are hashed.
func TestStepsPerCommand(t *testing.T) {
	hashed := func(n int, reply string) (perCommand float64) {
		s := conversation.New(t)
		s.Quiet = true
		s.Line("limits in_flight=100000")
		s.Line("pool main servers=s1 queue=100000")
		s.Line("route - main guard=wait:0s")
		s.Line("c1 > get x1")
		s.Line(`s1 < mg x1 f v c N10 k`)
		s.Line(`s1 > VA 1 kx1 f0 c1\r\nA`)
		s.Line(`c1 < VALUE x1 0 1\r\nA\r\nEND`)
		steps := 0
		s.Proxy.Hash = func(key []byte) uint64 { steps++; return conversation.Hash(key) }
		var gets strings.Builder
		for i := range n {
			fmt.Fprintf(&gets, "get %d-1\r\n", i)
		}
		client, server := s.Endpoints["c1"], s.Endpoints["s1"]
		s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte(gets.String())) })
		for i := 0; i < n && server.Got.Len() > 0; {
			var answers []byte
			for range strings.Count(server.Got.String(), "mg ") {
				answers = fmt.Appendf(answers, reply, i)
				i++
			}
			server.Got.Reset()
			answers = conversation.AddOpaques(server.Link.End.(*upstream.Conn), answers)
			s.Wakeup(func() { s.Engine.Bytes(server.Link, answers) })
		}
		if got := strings.Count(s.Endpoints["c1"].Got.String(), "END\r\n"); got != n {
			t.Fatalf("the client has %d of %d replies", got, n)
		}
		return float64(steps) / float64(n)
	}
	for _, reply := range []string{"VA 0 k%d-1 f0 c1 W\r\n\r\n", "VA 1 k%d-1 f0 c1\r\nA\r\n"} {
		few, many := hashed(4, reply), hashed(2000, reply)
		t.Logf("%q: %.1f keys are hashed per command, with many commands %.1f", reply, few, many)
		if many > 2*few+4 {
			t.Errorf("%q: %.1f keys are hashed per command, with many commands %.1f", reply, few, many)
		}
	}
}
