package near_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// nearStage returns a harness with one client and a route that keeps values.
func nearStage(t *testing.T, route string) *conversation.Harness {
	s := conversation.New(t)
	s.Quiet = true
	s.Line("pool main servers=s1")
	s.Line("route - main " + route)
	s.Begin()
	s.Endpoint("c1")
	return s
}

// told returns and clears the text that an endpoint has received.
func told(s *conversation.Harness, a *conversation.Endpoint) string {
	text := a.Got.String()
	a.Got.Reset()
	return text
}

// TestNearAllocatesNothing checks that kept values are served without an allocation, in all
// dialects.
func TestNearAllocatesNothing(t *testing.T) {
	frame := func(text string) string { return string(new(conversation.Harness).Frame(text, false)) }
	value := strings.Repeat("v", 100)
	for _, c := range []struct{ name, request, answer string }{
		{"get", "get a1\r\n", "VALUE a1 5 100\r\n" + value + "\r\nEND\r\n"},
		{"get of many", "get" + strings.Repeat(" a1", 20) + "\r\n", strings.Repeat("VALUE a1 5 100\r\n"+value+"\r\n", 20) + "END\r\n"},
		{"mg", "mg a1 v f k Oab\r\n", "VA 100 f5 ka1 Oab\r\n" + value + "\r\n"},
		{"binary", frame("get k=a1"), "VALUE a1 5 100 7\r\n" + value + "\r\nEND\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := nearStage(t, "near=10s")
			client := s.Endpoint("c1")
			s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte(c.request)) })
			s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s1").Link, []byte(c.answer)) })
			told(s, s.Endpoint("s1"))
			sent := 0
			request := []byte(c.request)
			allocs := testing.AllocsPerRun(200, func() {
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				s.Engine.Bytes(client.Link, request)
				for effects := s.Engine.End(); len(effects) > 0; effects = s.Engine.End() {
					for _, x := range effects {
						if x.Kind == link.Write {
							sent += x.Link.Out.Size
							s.Engine.Wrote(x.Link, x.Link.Out.Size, false)
						}
					}
				}
				s.Now += int64(time.Millisecond)
			})
			if allocs != 0 || sent < 200*100 {
				t.Errorf("%v allocations a request, %d bytes sent", allocs, sent)
			}
			if asked := told(s, s.Endpoint("s1")); asked != "" {
				t.Errorf("the server was asked %q", asked)
			}
		})
	}
}

// TestNearKeepsHotKeys checks that only keys that are read often are kept. They must stay hot
// although reads of them no longer reach a server.
func TestNearKeepsHotKeys(t *testing.T) {
	s := nearStage(t, "near=1s:hot")
	s.Engine.Watch.Left = 0
	client, asked := s.Endpoint("c1"), map[string]int{}
	for i := range 20_000 { // two every millisecond, for ten seconds
		key := "hot1"
		if i%2 == 1 {
			key = fmt.Sprintf("k%d:1", i%4000)
		}
		s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte("get "+key+"\r\n")) })
		if srv := s.Endpoint("s1"); srv.Got.Len() > 0 {
			asked[key]++
			told(s, srv)
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("VALUE "+key+" 0 1\r\nv\r\nEND\r\n")) })
		}
		if got := told(s, client); got != "VALUE "+key+" 0 1\r\nv\r\nEND\r\n" {
			t.Fatalf("%s: %q", key, got)
		}
		s.Now += int64(500 * time.Microsecond)
	}
	if n := asked["hot1"]; n > 60 {
		t.Errorf("the hot key was asked for %d times in ten seconds", n)
	}
	delete(asked, "hot1")
	for key, n := range asked {
		if n != 5 {
			t.Errorf("%s was asked for %d times of 5", key, n)
		}
	}
}

// TestNearRefills reads one key continuously. Its server must get one read every three quarters of
// the ttl, one at a time, even if the reply takes longer than the rest of the ttl. Every served
// value must have been requested less than a ttl ago.
func TestNearRefills(t *testing.T) {
	const ttl = 100 * time.Millisecond
	for _, takes := range []time.Duration{2 * time.Millisecond, 60 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			s := nearStage(t, "near=100ms")
			client := s.Endpoint("c1")
			var sent []int64   // time of each read
			var given int      // number of reads that have their reply
			var asked []int64  // times of requests to the server
			var owed []int64   // times of those without a reply yet
			for range 50_000 { // one every 20 µs, for a second
				sent = append(sent, s.Now)
				s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte("get a1\r\n")) })
				srv := s.Endpoint("s1")
				for range strings.Count(told(s, srv), "get a1") {
					asked, owed = append(asked, s.Now), append(owed, s.Now)
				}
				for len(owed) > 0 && s.Now >= owed[0]+int64(takes) {
					text := fmt.Sprintf("%013d", owed[0])
					owed = owed[1:]
					s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("VALUE a1 0 13\r\n"+text+"\r\nEND\r\n")) })
				}
				for _, line := range strings.Split(told(s, client), "\r\n") {
					var when int64
					if n, _ := fmt.Sscanf(line, "%d", &when); n == 1 {
						if age := time.Duration(sent[given] - when); age >= ttl {
							t.Fatalf("a read got a value that had been asked for %v before", age)
						}
						given++
					}
				}
				s.Now += int64(20 * time.Microsecond)
			}
			first := 0 // before the first reply every read asks the server
			for _, at := range asked {
				if at <= asked[0]+int64(takes+time.Millisecond) {
					first++
				}
			}
			if n := len(asked) - first; n > 14 || n < 10 || given < 45_000 {
				t.Errorf("asked %d times, and then %d; %d answers", first, n, given)
			}
		})
	}
}
