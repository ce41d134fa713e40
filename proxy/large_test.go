package proxy_test

// Tests of large requests that arrive faster than servers accept them.

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// storing is a server that reads everything that its socket accepts, and stores each complete set.
// stored counts those of more than one byte.
type storing struct {
	actor  *conversation.Endpoint
	stored int
}

// step lets the socket accept what waits for it, once, and answers the complete sets.
func (v *storing) step(s *conversation.Harness) {
	a := v.actor
	a.Full = false
	s.Wakeup(func() { s.Send(a) })
	a.Full = true
	var out bytes.Buffer
	for b := a.Got.Bytes(); ; b = a.Got.Bytes() {
		end := bytes.IndexByte(b, '\n') + 1
		var key string
		var flags, ttl, size int
		if n, _ := fmt.Sscanf(string(b[:end]), "set %s %d %d %d", &key, &flags, &ttl, &size); n < 4 || len(b) < end+size+2 {
			break
		}
		a.Got.Next(end + size + 2)
		out.WriteString("STORED\r\n")
		if size > 1 {
			v.stored++
		}
	}
	s.Wakeup(func() { s.Engine.Bytes(a.Link, out.Bytes()) })
}

// feed passes the next bytes of rest to the client, as a driver does: not while it is paused or stalled.
func feed(s *conversation.Harness, a *conversation.Endpoint, rest []byte) []byte {
	s.Wakeup(func() {
		for i := 0; i < 4 && len(rest) > 0 && !a.Paused && a.Link != nil && !a.Link.Stalled; i++ {
			n := min(len(rest), len(s.Engine.Space(a.Link)))
			s.Engine.Bytes(a.Link, rest[:n])
			rest = rest[n:]
		}
	})
	return rest
}

// TestLargeRequestsWait checks that clients which send large values faster than servers accept them wait:
// none is closed, no set is rejected, and another client is served meanwhile.
func TestLargeRequestsWait(t *testing.T) {
	const clients, sets, memory = 40, 3, 8 << 20
	for _, size := range []int{20_000, 300_000, 1_000_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet = true
			s.Pool([]string{"main", "servers=s1"})
			s.SetLimits([]string{fmt.Sprintf("memory=%d", memory)})
			s.Begin()
			other := s.Endpoint("cother")
			s.Wakeup(func() { s.Engine.Bytes(other.Link, []byte("get k1\r\n")) })
			v := &storing{actor: s.Endpoint("s1")}
			v.actor.Got.Reset()
			s.Wakeup(func() { s.Engine.Bytes(v.actor.Link, []byte("END\r\n")) })
			other.Got.Reset()
			v.actor.Full = true
			all := hogs(s, clients)
			rest := make([][]byte, clients)
			for i := range rest {
				rest[i] = []byte(strings.Repeat(fmt.Sprintf("set k1 0 0 %d noreply\r\n%s\r\n", size, strings.Repeat("v", size)), sets))
			}
			asked := 0
			for round := 0; v.stored < clients*sets; round++ {
				if round == 2000 {
					t.Fatalf("%d of %d sets are stored", v.stored, clients*sets)
				}
				s.Now += int64(time.Millisecond)
				for i, a := range all {
					rest[i] = feed(s, a, rest[i])
					if held := s.Engine.Buffers.Held; held > memory {
						t.Fatalf("%d bytes are held", held)
					}
				}
				if round%10 == 0 {
					if got := strings.Count(other.Got.String(), "STORED\r\n"); got != asked || other.Got.Len() != 8*asked {
						t.Fatalf("round %d: the other client has got %.200q", round, other.Got.String())
					}
					s.Wakeup(func() { s.Engine.Bytes(other.Link, []byte("set k1 0 0 1\r\nx\r\n")) })
					asked++
				}
				v.step(s)
			}
			for i, a := range all {
				if a.State != "" || len(rest[i]) > 0 || a.Got.Len() > 0 {
					t.Errorf("client %d is %q, has %d bytes left and got %q", i, a.State, len(rest[i]), a.Got.String())
				}
			}
			srv := s.Engine.ByAddress["tcp s1"]
			if n := s.Engine.Count.NoMemory + s.Engine.Count.MemoryClosed + srv.Count.Shed; n > 0 || srv.Down {
				t.Errorf("%d requests were rejected or clients closed; server down: %t", n, srv.Down)
			}
			if s.Engine.HasLarge() {
				t.Error("clients still wait")
			}
		})
	}
}

// TestLargeRequestsDoNotWaitForHoarders checks that large requests wait for a limited time if other clients have the
// memory and do not give it back.
func TestLargeRequestsDoNotWaitForHoarders(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8000000"})
	s.Begin()
	c, set := s.Endpoint("c1"), []byte("set a1 0 0 300000\r\n"+strings.Repeat("x", 300000)+"\r\n")
	s.Wakeup(func() { s.Engine.Buffers.Hold(5_000_000) })
	began := s.Now
	rest := feed(s, c, set)
	if !c.Paused {
		t.Fatal("the client does not wait")
	}
	for at := s.Engine.Next(); c.Paused && at != link.Never; at = s.Engine.Next() {
		s.Now = at
		s.Wakeup(func() {})
	}
	if waited := s.Now - began; waited > int64(10*time.Second) {
		t.Errorf("the client waits for %v", time.Duration(waited))
	}
	for len(rest) > 0 && !c.Paused {
		rest = feed(s, c, rest)
	}
	s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s1").Link, []byte("STORED\r\n")) })
	if got := c.Got.String(); got != "STORED\r\n" {
		t.Errorf("the client has got %q", got)
	}
}
