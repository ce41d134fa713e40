package proxy_test

// Tests of large requests that arrive faster than servers accept them.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
	"ringside/proxy/upstream"
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
		if bytes.HasPrefix(b, []byte("delete ")) && end > 0 { // of a value that was rejected
			a.Got.Next(end)
			out.WriteString("NOT_FOUND\r\n")
			continue
		}
		if n, _ := fmt.Sscanf(string(b[:end]), "ms %s %d c", &key, &size); n == 2 && len(b) >= end+size+2 { // of a binary client
			a.Got.Next(end + size + 2)
			out.WriteString("HD c1\r\n")
			continue
		}
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

// TestLargeRequestsAfterOthersLeft checks that a client with a large request is served although many clients that waited before it
// have disconnected.
func TestLargeRequestsAfterOthersLeft(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8000000"})
	s.Begin()
	set := []byte("set a1 0 0 300000\r\n" + strings.Repeat("x", 300000) + "\r\n")
	s.Wakeup(func() { s.Engine.Buffers.Hold(5_000_000) })
	before := hogs(s, 20)
	for _, c := range before {
		if feed(s, c, set); !c.Paused {
			t.Fatal("a client does not wait")
		}
	}
	for _, c := range before[1:] { // the first one stays, and so the others stay in the list
		s.Line(c.Name + " resets")
	}
	c := s.Endpoint("c100")
	rest := feed(s, c, set)
	if !c.Paused {
		t.Fatal("the last client does not wait")
	}
	s.Wakeup(func() { s.Engine.Buffers.Hold(-5_000_000) })
	for round := 0; len(rest) > 0 && round < 1000; round++ {
		s.Now += int64(10 * time.Millisecond)
		rest = feed(s, c, rest)
	}
	s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s1").Link, []byte("STORED\r\n")) })
	if got := c.Got.String(); len(rest) > 0 || got != "STORED\r\n" {
		t.Errorf("the client has %d bytes left and got %q", len(rest), got)
	}
}

// counted is a client's session, with the number of times that its input was parsed.
type counted struct {
	*client.Session
	parsed int
}

func (c *counted) Parse() { c.parsed++; c.Session.Parse() }

// TestLittleIsCopied checks how many bytes are copied while a value of 1 MB arrives, before it is passed on as a whole.
func TestLittleIsCopied(t *testing.T) {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.Begin()
	c := s.Endpoint("c1")
	copied, in := 0, (*link.Chunk)(nil)
	for rest := []byte("set k1 0 0 1000000\r\n" + strings.Repeat("v", 1_000_000) + "\r\n"); len(rest) > 0; {
		n := min(len(rest), len(s.Engine.Space(c.Link)))
		s.Wakeup(func() { s.Engine.Bytes(c.Link, rest[:n]) })
		if rest = rest[n:]; c.Link.In != nil && c.Link.In != in {
			in = c.Link.In
			copied += in.Len()
		}
	}
	if copied > 400_000 {
		t.Errorf("%d bytes are copied", copied)
	}
}

// TestBufferGrows checks that the input buffer of a client which sends a large value grows with what has arrived. Its
// input is parsed and copied only when the buffer grows.
func TestBufferGrows(t *testing.T) {
	const size = 1_000_000
	for _, part := range []int{1, 1000, 20_000, 100_000} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet = true
			s.Pool([]string{"main", "servers=s1"})
			s.Begin()
			c := s.Endpoint("c1")
			end := &counted{Session: c.Link.End.(*client.Session)}
			c.Link.End = end
			set := []byte(fmt.Sprintf("set k1 0 0 %d noreply\r\n%s\r\n", size, strings.Repeat("v", size)))
			if part == 1 {
				set = set[:40_000]
			}
			for at := 0; at < len(set); at += part {
				s.Wakeup(func() { s.Engine.Bytes(c.Link, set[at:min(at+part, len(set))]) })
				if c.Link.In == nil {
					continue
				}
				got, held := min(at+part, len(set)), len(c.Link.In.Data)
				if held > max(1<<10, 8*got) {
					t.Fatalf("the buffer has %d bytes after %d have arrived", held, got)
				}
			}
			if most := 10 + 40; end.parsed > most { // 40: until the end of the line has arrived
				t.Errorf("the input was parsed %d times, want at most %d", end.parsed, most)
			}
			if n := bytes.Count(s.Endpoint("s1").Got.Bytes(), []byte("v")); part > 1 && n < size {
				t.Errorf("the server has got %d bytes", n)
			}
		})
	}
}

// TestAnnouncedValues checks that clients which only announce large values use little memory, so that another client can
// store such values.
func TestAnnouncedValues(t *testing.T) {
	const memory, size = 8 << 20, 1_000_000
	for _, first := range []int{10, 2000, 30_000} {
		for _, protocol := range []string{"text", "binary"} {
			t.Run(fmt.Sprint(protocol, first), func(t *testing.T) {
				s := conversation.New(t)
				s.Quiet = true
				s.Pool([]string{"main", "servers=s1"})
				s.SetLimits([]string{fmt.Sprintf("memory=%d", memory), "clients=1000"})
				s.Begin()
				begins := []byte(fmt.Sprintf("set k1 0 0 %d\r\n%s", size, strings.Repeat("v", first)))
				if protocol == "binary" {
					begins = s.Frame("set #1 k=k1 x=0,0 v="+strings.Repeat("v", size), false)[:40+first]
				}
				list := hogs(s, 500_000/max(first, 2000))
				for _, c := range list {
					s.Wakeup(func() { s.Engine.Bytes(c.Link, begins) })
				}
				if held, sent := s.Engine.Buffers.Held, len(list)*len(begins); held > int64(max(5*sent, len(list)<<11)) {
					t.Errorf("%d bytes are held after %d have arrived", held, sent)
				}
				v, honest := &storing{actor: s.Endpoint("s1")}, s.Endpoint("chonest")
				for i := range 20 {
					s.Now += int64(time.Millisecond)
					rest := []byte(fmt.Sprintf("set k1 0 0 %d\r\n%s\r\n", size, strings.Repeat("v", size)))
					for range 100 {
						if rest = feed(s, honest, rest); len(rest) == 0 {
							break
						}
					}
					v.step(s)
					if v.stored != i+1 {
						t.Fatalf("%d values are stored of %d; %d bytes are held", v.stored, i+1, s.Engine.Buffers.Held)
					}
				}
				for _, c := range list {
					if c.State != "" || c.Got.Len() > 0 {
						t.Fatalf("a client is %q and has got %q", c.State, c.Got.String())
					}
				}
			})
		}
	}
}

// TestHalfSentValues checks that limits.memory is kept when 1,000 clients stop in the middle of large values.
func TestHalfSentValues(t *testing.T) {
	const memory, size, clients = 64 << 20, 1_000_000, 1000
	for _, first := range []int{17_000, 70_000, 280_000} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet = true
			s.Pool([]string{"main", "servers=s1"})
			s.SetLimits([]string{fmt.Sprintf("memory=%d", memory), "clients=1000"})
			s.Begin()
			list, rest := hogs(s, clients), make([][]byte, clients)
			for i := range rest {
				rest[i] = []byte(fmt.Sprintf("set k1 0 0 %d\r\n%s", size, strings.Repeat("v", first)))
			}
			for range 40 { // longer than large requests wait for memory
				s.Now += int64(100 * time.Millisecond)
				for i, c := range list {
					if len(rest[i]) > 0 && c.State == "" {
						rest[i] = feed(s, c, rest[i])
					}
					if held := s.Engine.Buffers.Held; held > memory {
						t.Fatalf("%d bytes are held, more than limits.memory", held)
					}
				}
			}
		})
	}
}

// TestIdleHoarders checks that at limits.memory clients are closed that hold memory and do not send the rest of their
// requests, rather than a client with more memory that does.
func TestIdleHoarders(t *testing.T) {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8388608"})
	s.Begin()
	set := []byte(fmt.Sprintf("set k1 0 0 %d\r\n%s\r\n", 200_000, strings.Repeat("v", 200_000)))
	for _, c := range hogs(s, 12) {
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("add k1 0 0 100000\r\n"+strings.Repeat("v", 60_000))) })
	}
	honest, rest := s.Endpoint("chonest"), set
	for round := 0; round < 10_000 && len(rest) > 0 && honest.State == ""; round++ {
		s.Now += int64(time.Millisecond)
		if round == 25 { // another part of Ringside needs memory
			s.Wakeup(func() { s.Engine.Buffers.Hold(6_500_000) })
		}
		s.Wakeup(func() {
			if n := min(len(rest), 60_000); !honest.Paused && round%10 == 0 {
				s.Engine.Bytes(honest.Link, rest[:n])
				rest = rest[n:]
			}
		})
	}
	if n := bytes.Count(s.Endpoint("s1").Got.Bytes(), []byte("v")); s.Engine.Count.MemoryClosed == 0 || honest.State != "" || n != 200_000 {
		t.Errorf("%d clients were closed; the other client is %q and has sent a value of %d bytes", s.Engine.Count.MemoryClosed, honest.State, n)
	}
}

// TestUnreadClientsAreClosed checks that clients which hold half of limits.memory and read 100 bytes per second are closed while another
// client waits with a large value, but not a slow client that reads 10 KB per second.
func TestUnreadClientsAreClosed(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8000000"})
	s.Begin()
	value := []byte("VALUE k1 0 900000\r\n" + strings.Repeat("v", 900_000) + "\r\nEND\r\n")
	var list []*conversation.Endpoint
	for i := range 6 {
		c := s.Endpoint(fmt.Sprintf("c%d", i))
		list = append(list, c)
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get k1\r\n")) })
		c.Full = true
		for name, a := range s.Endpoints {
			if name[0] == 's' && bytes.Contains(a.Got.Bytes(), []byte("get k1")) {
				a.Got.Reset()
				s.Wakeup(func() { s.Engine.Bytes(a.Link, value) })
			}
		}
	}
	slow := list[0]
	began, c := s.Now, s.Endpoint("cother")
	rest := feed(s, c, []byte("set a1 0 0 300000\r\n"+strings.Repeat("x", 300_000)+"\r\n"))
	if !c.Paused {
		t.Fatal("the client does not wait")
	}
	for i := 0; c.Paused && i < 1000; i++ {
		s.Now += int64(10 * time.Millisecond)
		s.Line(fmt.Sprintf("c0 unsent %d", 1_000_000-100*i))
		for _, c := range list[1:] {
			s.Line(fmt.Sprintf("%s unsent %d", c.Name, 100_000-i)) // too slowly
		}
		s.Wakeup(func() {})
	}
	for range 100 {
		rest = feed(s, c, rest)
	}
	s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s1").Link, []byte("STORED\r\n")) })
	if got := c.Got.String(); got != "STORED\r\n" {
		t.Errorf("the client has got %q, and %d bytes are left", got, len(rest))
	}
	if n := s.Engine.Count.UnreadClosed; n == 0 || slow.State != "" {
		t.Errorf("%d clients were closed after %v; the slow one is %q", n, time.Duration(s.Now-began), slow.State)
	}
	if s.Engine.Count.WaitedForMemory == 0 {
		t.Error("no wait is counted")
	}
}

// TestLargeSetsOfTasks checks how many large sets are in progress, and that all are stored, if clients send them
// faster than the servers of a route with replicas store them.
func TestLargeSetsOfTasks(t *testing.T) {
	const clients, size = 40, 1_000_000
	s := twoReplicas(t)
	s.Table.Limits.Memory = 1 << 30
	s.Begin()
	servers := []*storing{{actor: s.Endpoint("s1")}, {actor: s.Endpoint("s2")}}
	for _, v := range servers {
		v.actor.Full = true
	}
	list, rest := hogs(s, clients), make([][]byte, clients)
	for i := range rest {
		rest[i] = []byte(fmt.Sprintf("set key%d 0 0 %d\r\n%s\r\n", i%2+1, size, strings.Repeat("v", size)))
	}
	stored := func() (n int) {
		for _, c := range list {
			n += strings.Count(c.Got.String(), "STORED\r\n")
		}
		return n
	}
	for round := 0; stored() < clients; round++ {
		if round == 1000 {
			t.Fatalf("%d of %d values are stored", stored(), clients)
		}
		s.Now += int64(time.Millisecond)
		for i, c := range list {
			rest[i] = feed(s, c, rest[i])
		}
		tasks := 0
		for c := range s.Engine.Sessions {
			tasks += c.Tasks
		}
		if tasks > 8 {
			t.Fatalf("round %d: %d large sets are in progress", round, tasks)
		}
		for _, v := range servers {
			if round > 30 {
				v.step(s)
				continue
			}
			v.actor.Full = false // at first, the servers receive the sets and do not reply
			s.Wakeup(func() { s.Send(v.actor) })
			v.actor.Full = true
		}
	}
	if n := s.Engine.ByAddress["tcp s1"].Conns[0].TaskBytes; n != 0 || s.Engine.HasLarge() {
		t.Errorf("%d bytes are counted after the last reply; clients wait: %t", n, s.Engine.HasLarge())
	}
}

// TestLargeBinarySets checks that large requests of binary clients wait for their server.
func TestLargeBinarySets(t *testing.T) {
	const clients, size = 20, 1_000_000
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.Table.Limits.Memory = 1 << 30
	s.Begin()
	list := hogs(s, clients)
	s.Wakeup(func() { s.Engine.Bytes(list[0].Link, []byte(s.Frame("get #1 k=k1", false))) })
	srv := s.Endpoint("s1")
	srv.Got.Reset()
	s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("END\r\n")) })
	srv.Full = true
	frame := []byte(s.Frame("set #2 k=k1 x=0,0 v="+strings.Repeat("v", size), false))
	for _, c := range list {
		rest := frame
		for range 100 {
			rest = feed(s, c, rest)
		}
	}
	conn := s.Engine.ByAddress["tcp s1"].Conns[0]
	if n := conn.Out.Size; n < size || n > 3*size {
		t.Errorf("%d bytes wait for the server", n)
	}
	srv.Full = false
	for range 5 * clients {
		s.Now += int64(time.Millisecond)
		s.Wakeup(func() { s.Send(srv) })
	}
	if n := bytes.Count(srv.Got.Bytes(), []byte("v")); n < clients*size {
		t.Errorf("the server has got %d bytes", n)
	}
}

// TestSlowReadersStay checks that at limits.memory clients are closed that do not read, rather than a slow client that reads and has
// sent its last request earlier.
func TestSlowReadersStay(t *testing.T) {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8000000"})
	s.Begin()
	value := []byte("VALUE k1 0 900000\r\n" + strings.Repeat("v", 900_000) + "\r\nEND\r\n")
	list := hogs(s, 7)
	for _, c := range list {
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get k1\r\n")) })
		c.Full = true
		for name, a := range s.Endpoints {
			if name[0] == 's' && bytes.Contains(a.Got.Bytes(), []byte("get k1")) {
				a.Got.Reset()
				s.Wakeup(func() { s.Engine.Bytes(a.Link, value) })
			}
		}
		s.Now += int64(100 * time.Millisecond)
	}
	s.Now += int64(time.Second)
	s.Wakeup(func() { s.Engine.Wrote(list[0].Link, 1000, true) })
	s.Now += int64(100 * time.Millisecond)
	s.Wakeup(func() { s.Engine.Buffers.Hold(2_000_000) })
	if n := s.Engine.Count.MemoryClosed; n == 0 || list[0].State != "" {
		t.Errorf("%d clients were closed; the one that reads is %q", n, list[0].State)
	}
}

// TestSetAfterLargeValue checks that a client can store the value of a key that it has missed, although a large value has arrived
// since. The client then uses another connection, which did not exist at the time of the miss.
func TestSetAfterLargeValue(t *testing.T) {
	for _, features := range []string{"guard=wait:0s", "tags=k{n}>x"} {
		t.Run(features, func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet = true
			s.Pool([]string{"main", "servers=s1,s2"})
			s.Line("route - main " + features)
			s.Begin()
			c := s.Endpoint("c1")
			cas := 4
			var all []string
			// run sends a request of the client, and answers what the servers receive until they receive nothing more.
			run := func(request string, size int) string {
				c.Got.Reset()
				s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(request)) })
				for again := true; again; {
					again = false
					for name, e := range s.Endpoints {
						if name[0] != 's' || e.Got.Len() == 0 {
							continue
						}
						got := e.Got.String()
						e.Got.Reset()
						again = true
						var reply strings.Builder
						for line := range strings.Lines(got) {
							words := strings.Fields(line)
							switch {
							case len(words) < 2:
							case words[0] == "mg" && strings.HasPrefix(words[1], "k1"):
								cas++
								fmt.Fprintf(&reply, "VA 0 f0 c%d kk1 W\r\n\r\n", cas)
							case words[0] == "mg" && words[1] == "b1":
								fmt.Fprintf(&reply, "VA %d f0 c3 kb1\r\n%s\r\n", size, strings.Repeat("v", size))
							case words[0] == "mg":
								reply.WriteString("HD c2\r\n")
							case words[0] == "ms":
								all = append(all, name+": "+line)
								if reply.WriteString("HD"); slices.Contains(words, "c") {
									reply.WriteString(" c100")
								}
								reply.WriteString("\r\n")
							}
						}
						s.Wakeup(func() {
							s.Engine.Bytes(e.Link, conversation.AddOpaques(e.Link.End.(*upstream.Conn), []byte(reply.String())))
						})
					}
				}
				return c.Got.String()
			}
			if got := run("get k1\r\n", 0); got != "END\r\n" {
				t.Fatalf("the client has got %q", got)
			}
			run("get b1\r\n", 1_000_000)
			if got := run("set k1 0 0 1\r\nx\r\n", 0); got != "STORED\r\n" {
				t.Errorf("the client has got %q; the servers have got %q", got, all)
			}
		})
	}
}

// TestWork checks that a large value counts as as much work as several requests, whether it is read or stored, and
// a small one as one request.
func TestWork(t *testing.T) {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.Begin()
	c := s.Endpoint("c1")
	s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get k1\r\n")) }) // connects
	v := s.Endpoint("s1")
	s.Wakeup(func() { s.Engine.Bytes(v.Link, []byte("END\r\n")) })
	large := strings.Repeat("v", 4*link.BigSpan)
	for _, step := range []struct {
		request, reply string
		want           uint64
	}{
		{"get k1\r\n", "VALUE k1 0 1\r\nv\r\nEND\r\n", 1},
		{"get k1\r\n", fmt.Sprintf("VALUE k1 0 %d\r\n%s\r\nEND\r\n", len(large), large), 5},
		{fmt.Sprintf("set k1 0 0 %d\r\n%s\r\n", len(large), large), "STORED\r\n", 5},
	} {
		before := s.Engine.Work()
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(step.request)) })
		s.Wakeup(func() { s.Engine.Bytes(v.Link, []byte(step.reply)) })
		if got := s.Engine.Work() - before; got != step.want {
			t.Errorf("%.10q: the work of %d requests, want %d", step.request, got, step.want)
		}
	}
}

// sender is a client that sends requests at its own pace. Its kernel accepts up to 128 KiB that Ringside has not read.
type sender struct {
	actor   *conversation.Endpoint
	request []byte
	rate    int    // bytes that the client sends in 10 ms
	sent    int    // bytes of request that the client has sent
	pending []byte // those that Ringside has not read
	done    bool   // the last call has sent the end of request
}

// send sends up to n bytes, and starts again after the end of the request. Ringside reads what it wants to read.
func (c *sender) send(s *conversation.Harness, n int) {
	n = min(n, len(c.request)-c.sent, 128<<10-len(c.pending))
	c.pending = append(c.pending, c.request[c.sent:c.sent+n]...)
	c.sent += n
	if c.sent == len(c.request) {
		c.sent, c.done = 0, true
	}
	c.pending = feed(s, c.actor, c.pending)
	c.actor.Sent = len(c.pending)
}

// TestSlowSenders checks how long a client with a large set waits for memory while 500 others send sets of that size slowly.
func TestSlowSenders(t *testing.T) {
	const clients, size, memory = 500, 250_000, 64 << 20
	for _, protocol := range []string{"text", "binary"} {
		for _, what := range []struct {
			name  string
			first []int // numbers of bytes that clients send at once
			then  []int // numbers of bytes that they send after that, in each 10 ms
		}{
			{"stop", []int{100, 17_000, 35_000, 70_000, 150_000}, []int{0}},
			{"1 KB/s", []int{20_000, 100_000}, []int{10}},
			{"10 to 90 KB/s", []int{17_000}, []int{100, 300, 500, 700, 900}},
			{"100 KB/s", []int{17_000}, []int{1000}},
			{"500 KB/s", []int{17_000}, []int{5000}},
		} {
			t.Run(protocol+" "+what.name, func(t *testing.T) {
				s := conversation.New(t)
				s.Quiet = true
				s.Pool([]string{"main", "servers=s1"})
				s.SetLimits([]string{fmt.Sprintf("memory=%d", memory), "clients=1000"})
				s.Begin()
				set := []byte(fmt.Sprintf("set k1 0 0 %d\r\n%s\r\n", size, strings.Repeat("v", size)))
				request := set
				if protocol == "binary" {
					request = []byte(s.Frame("set #1 k=k1 x=0,0 v="+strings.Repeat("v", size), false))
				}
				rnd := rand.New(rand.NewPCG(1, 1))
				one := func(list []int) int { return list[rnd.IntN(len(list))] }
				var list []*sender
				for _, c := range hogs(s, clients) {
					list = append(list, &sender{actor: c, request: request, rate: one(what.then)})
				}
				for _, c := range list {
					for n := one(what.first); n > 0; n -= 64 << 10 {
						c.send(s, min(n, 64<<10))
					}
				}
				honest := &sender{actor: s.Endpoint("chonest"), request: set}
				began := s.Now
				for stored := 0; stored < 3; {
					s.Now += int64(10 * time.Millisecond)
					for _, c := range list {
						c.send(s, c.rate)
					}
					if honest.done {
						honest.send(s, 0)
					} else {
						honest.send(s, size)
					}
					for name, a := range s.Endpoints {
						if name[0] == 's' {
							(&storing{actor: a}).step(s)
						}
					}
					waited := time.Duration(s.Now - began)
					most := 6 * time.Second
					if stored > 0 { // the values of most slow clients were rejected, so their next ones go last
						most = 2 * time.Second
					}
					if waited > most {
						t.Fatalf("set %d: the client waits for %v; %d bytes are held", stored, waited, s.Engine.Buffers.Held)
					}
					if got := honest.actor.Got.String(); got == "STORED\r\n" {
						stored, began, honest.done = stored+1, s.Now, false
						honest.actor.Got.Reset()
					} else if got != "" {
						t.Fatalf("the client has got %.100q", got)
					}
				}
			})
		}
	}
}

// TestSlowSenderAlone checks that a client can store a large value slowly if no other client waits, although much memory is in use, and that
// another one can send a command line slowly.
func TestSlowSenderAlone(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8000000"})
	s.Begin()
	s.Wakeup(func() { s.Engine.Buffers.Hold(3_000_000) })
	c := &sender{actor: s.Endpoint("c1"), request: []byte("set k1 0 0 50000\r\n" + strings.Repeat("x", 50_000) + "\r\n")}
	line := &sender{actor: s.Endpoint("c2"), request: manyKeys(20_000)}
	for !c.done {
		s.Now += int64(10 * time.Millisecond)
		c.send(s, 10)
		line.send(s, 10)
	}
	s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s1").Link, []byte("STORED\r\n")) })
	if got := c.actor.Got.String(); got != "STORED\r\n" || line.actor.State != "" {
		t.Errorf("the client has got %q; the other one is %q", got, line.actor.State)
	}
}

// TestSlowSendersWithReplies checks that clients which send values slowly get an error while another client waits for memory. They are not closed if their
// sockets have not accepted a reply for less than three seconds.
func TestSlowSendersWithReplies(t *testing.T) {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8000000"})
	s.Begin()
	set := []byte("set k1 0 0 900000\r\n" + strings.Repeat("v", 900_000) + "\r\n")
	for _, c := range hogs(s, 14) {
		c.Full = true
		slow := &sender{actor: c, request: append([]byte("version\r\n"), set...)}
		for range 5 {
			slow.send(s, 60_000)
		}
	}
	waits := &sender{actor: s.Endpoint("cwaits"), request: set}
	for range 180 {
		s.Now += int64(10 * time.Millisecond)
		if !waits.done {
			waits.send(s, 128<<10)
		}
		s.Wakeup(func() {})
	}
	if n := &s.Engine.Count; n.NoMemory == 0 || n.UnreadClosed+n.MemoryClosed > 0 {
		t.Errorf("%d values were rejected, %d clients closed", n.NoMemory, n.UnreadClosed+n.MemoryClosed)
	}
}

// TestSlowLines checks that clients which send long command lines slowly are closed while another client waits with a large value, but not
// a client whose bytes Ringside has not read yet.
func TestSlowLines(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=8000000", "line=1000000"})
	s.Begin()
	var list []*sender
	for i, c := range hogs(s, 12) {
		list = append(list, &sender{actor: c, request: manyKeys(200_000)})
		for range 6 {
			list[i].send(s, 60_000)
		}
	}
	honest := &sender{actor: s.Endpoint("chonest"), request: []byte("set k1 0 0 500000\r\n" + strings.Repeat("x", 500_000) + "\r\n")}
	for i := 0; honest.actor.Got.Len() == 0; i++ {
		if s.Now += int64(10 * time.Millisecond); i > 1000 {
			t.Fatal("the client still waits")
		}
		for _, c := range list[1:] {
			c.send(s, 1)
		}
		list[0].actor.Sent = 100_000
		if honest.send(s, 0); !honest.done {
			honest.send(s, 100_000)
		}
		for name, a := range s.Endpoints {
			if name[0] == 's' {
				(&storing{actor: a}).step(s)
			}
		}
	}
	if got := honest.actor.Got.String(); got != "STORED\r\n" || list[0].actor.State != "" || s.Engine.Count.MemoryClosed == 0 {
		t.Errorf("the client has got %q; %d others were closed; the one that is not read is %q", got, s.Engine.Count.MemoryClosed, list[0].actor.State)
	}
}
