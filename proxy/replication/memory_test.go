package replication_test

import (
	"fmt"
	"testing"

	"ringside/proxy/conversation"
	"ringside/replicate"
)

// TestMemoryOfRepliesWithoutReader checks that a large reply of a replica uses little memory if no client gets it:
// another replica has replied first, or the client has gone.
func TestMemoryOfRepliesWithoutReader(t *testing.T) {
	const size, most = 200_000, 50_000
	for _, command := range []struct{ sent, asked, head, clientHead, end string }{
		{"get %s", "get %s", "VALUE %s 0 200000", "VALUE %s 0 200000", `\r\nEND`},
		{"mg %s v k", "mg %s v k f", "VA 200000 k%s f0", "VA 200000 k%s", ""},
	} {
		for _, try := range []string{"replied", "gone", "gone, on another loop"} {
			t.Run(command.sent[:3]+try, func(t *testing.T) {
				s := conversation.New(t)
				for _, line := range []string{"loops 2", "pool main servers=s1,s2", "route - main copies=2"} {
					s.Line(line)
				}
				s.Routes[0].Copies.Read = replicate.Fastest
				key := "a1"
				for s.Leader(key) != 1 {
					key = string(key[0]+1) + "1"
				}
				keyed := func(format, text string) { s.Line(fmt.Sprintf(format+text, key)) }
				filler := func(name string, n int) { s.Line(fmt.Sprintf("%s %d x", name, n)) }
				runs := " runs 7"
				read := func() {
					keyed("c2 > ", "get %s")
					for _, server := range []string{"s1", "s2"} {
						if runs != "" {
							s.Line(server + runs)
						}
						keyed(server+" < ", "get %s")
						s.Line(server + " > END")
					}
					s.Line("c2 < END")
				}
				read()
				runs = "" // the servers are identified now
				s.Engine.Trim()
				before := s.Engine.Buffers.Held
				check := func(when string) {
					t.Helper()
					s.Engine.Trim()
					if n := s.Engine.Buffers.Held - before; n > most {
						t.Errorf("%s: %d bytes are held", when, n)
					}
				}
				client, servers := "c1", []string{"s1", "s2"}
				if try == "gone, on another loop" {
					client = "c1/2"
				}
				keyed(client+" > ", command.sent)
				for _, server := range servers {
					keyed(server+" < ", command.asked)
				}
				if try == "replied" {
					servers = servers[1:]
					keyed("s1 > ", command.head+`\r\n\`)
					filler("s1 >*", size)
					s.Line("s1 > " + command.end)
					keyed("c1 < ", command.clientHead)
					filler("c1 <*", size)
					s.Line("c1 < " + command.end)
				} else {
					s.Line(client + " resets")
				}
				check("at first")
				for _, server := range servers {
					keyed(server+" > ", command.head+`\r\n\`)
					filler(server+" >*", size-1000)
					check("before the end of the reply of " + server)
					filler(server+" >*", 1000)
					s.Line(server + " > " + command.end)
					check("after the reply of " + server)
				}
				read()
			})
		}
	}
}
