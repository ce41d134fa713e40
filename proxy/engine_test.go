package proxy_test

// Tests that conversations can't express: parts of the engine, streams cut at every
// byte, and a hot path without allocations.

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy"
	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// TestHoldListStaysSmall checks that the list does not keep old entries while there is
// always a client with delayed answers.
func TestHoldListStaysSmall(t *testing.T) {
	var h client.HoldList
	var last *client.Session
	for i := int64(1); i <= 100_000; i++ {
		s := &client.Session{HoldUntil: i}
		h.Add(s, i)
		if last != nil {
			last.HoldUntil = 0 // flushed
		}
		last = s
		if got := h.Due(); got != i {
			t.Fatalf("due at %d, want %d", got, i)
		}
	}
	if len(h.List) > 1000 {
		t.Errorf("%d entries for one client that waits", len(h.List))
	}
}

// TestMemoryOfWholeBodies checks that values count towards limits.memory even if they
// arrive in one read with their command, so that nothing waits for them.
func TestMemoryOfWholeBodies(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"memory=1000000"})
	s.Begin()
	s.Endpoint("s1").Mode = "hangs"
	set := []byte("set a1 0 0 60000 noreply\r\n" + strings.Repeat("x", 60000) + "\r\n")
	for _, c := range hogs(s, 100) {
		s.Wakeup(func() { s.Engine.Bytes(c.Link, set) })
		if c.State != "" {
			t.Errorf("the client is %s", c.State)
		}
	}
	if held := s.Engine.Buffers.Held; held > 1_200_000 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestMemoryOfQueues checks that requests which a server does not read count towards
// the limit, however small their values are. They are rejected so that requests to
// other servers still succeed.
func TestMemoryOfQueues(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1,s2"})
	s.SetLimits([]string{"memory=1000000"})
	s.Begin()
	s.Endpoint("s1").Mode = "hangs"
	c, other := s.Endpoint("c1"), s.Endpoint("c2")
	set := []byte("set a1 0 0 2000\r\n" + strings.Repeat("x", 2000) + "\r\n")
	const sets = 2000
	for range sets {
		s.Wakeup(func() { s.Engine.Bytes(c.Link, set) })
		if c.State != "" {
			t.Fatalf("the client is %s", c.State)
		}
	}
	if held := s.Proxy.HeldMemory(); held > 1_000_000 || held != s.Engine.Buffers.Held {
		t.Errorf("%d bytes are held, and %d booked", s.Engine.Buffers.Held, held)
	}
	for what, n := range map[string]int{
		"SERVER_ERROR out of memory: limits.memory is reached, and server s1 does not take what is sent to it\r\n": 1000,
		"STORED\r\n": 0,
	} {
		if got := strings.Count(c.Got.String(), what); got < n || n == 0 && got > 0 {
			t.Errorf("the client has got %d times %q", got, what)
		}
	}
	s.Wakeup(func() { s.Engine.Bytes(other.Link, []byte("set a2 0 0 1\r\nx\r\n")) })
	s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s2").Link, []byte("STORED\r\n")) })
	if got := other.Got.String(); got != "STORED\r\n" {
		t.Errorf("another client has got %q", got)
	}
	if s.Engine.Count.NoMemory+s.Engine.ByAddress["tcp s1"].Count.Shed < sets/2 {
		t.Error("what was refused is not counted")
	}
	if n := s.Engine.Count.TooLarge; n != 0 {
		t.Errorf("%d values are counted as too long", n)
	}
}

// TestSmallValuesAtTheMemoryLimit checks that a small value is stored when limits.memory is reached, and a large value
// is rejected. The client that uses most of the memory is closed.
func TestSmallValuesAtTheMemoryLimit(t *testing.T) {
	for size, want := range map[int]string{
		50:     "STORED\r\n",
		20_000: "SERVER_ERROR out of memory storing object\r\n",
	} {
		s := conversation.New(t)
		s.Pool([]string{"main", "servers=s1"})
		s.SetLimits([]string{"memory=1000000"})
		s.Begin()
		hoard, c := s.Endpoint("c1"), s.Endpoint("c2")
		s.Line("c1 full")
		for range 5 {
			s.Line("c1 > get a1")
			s.Line("s1 < get a1")
			s.Line("s1 > VALUE a1 0 60000\\r\\n\\")
			s.Line("s1 >* 60000 x")
			s.Line("s1 > \\r\\nEND")
		}
		s.Engine.Trim()
		s.Wakeup(func() { s.Engine.Buffers.Hold(int(s.Engine.FreeMemory()) - 10) })
		s.Wakeup(func() {
			s.Engine.Bytes(c.Link, []byte(fmt.Sprintf("add a1 0 0 %d\r\n%s\r\n", size, strings.Repeat("x", size))))
		})
		if server := s.Endpoint("s1"); server.Got.Len() > 0 {
			s.Wakeup(func() { s.Engine.Bytes(server.Link, []byte("STORED\r\n")) })
		}
		if got := c.Got.String(); got != want || hoard.State != "aborted" {
			t.Errorf("%d bytes: the client has got %q, want %q; the other client is %q", size, got, want, hoard.State)
		}
	}
}

// TestMemoryThatNobodyCanGive checks that nothing more is accepted while none of the
// used memory can be freed, until memory is available again.
func TestMemoryThatNobodyCanGive(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1", "get_errors=error"})
	s.SetLimits([]string{"memory=1000000"})
	s.Begin()
	c := s.Endpoint("c1")
	ask := func(request, want string) {
		t.Helper()
		s.Now += int64(proxy.ReliefWait)
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(request)) })
		if got := c.Got.String(); got != want {
			t.Errorf("%q: got %q, want %q", request, got, want)
		}
		c.Got.Reset()
	}
	s.Wakeup(func() { s.Engine.Buffers.Hold(2_000_000) })
	ask("get a1\r\n", "SERVER_ERROR out of memory: limits.memory is reached\r\n")
	ask("add a1 0 0 1\r\nx\r\n", "SERVER_ERROR out of memory storing object\r\n")
	ask("mn\r\n", "MN\r\n")
	s.Wakeup(func() { s.Engine.Buffers.Hold(-2_000_000) })
	ask("get a1\r\n", "")
	s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s1").Link, []byte("END\r\n")) })
	if got := c.Got.String(); got != "END\r\n" {
		t.Errorf("got %q", got)
	}
}

// TestSplit cuts client streams and the replies at every byte. What the client gets
// must not depend on the cuts.
func TestSplit(t *testing.T) {
	frames := func(answers bool, texts ...string) (all string) {
		for _, text := range texts {
			all += string(conversation.New(t).Frame(text, answers))
		}
		return all
	}
	for _, c := range []struct{ name, requests, answers, want string }{
		{
			"text",
			"get a1\r\nset b1 0 0 3\r\nxyz\r\nget a1 c1 d1\r\nmg a1 v k Oq\r\nmn\r\nms b1 2 q\r\nhi\r\nincr n1 2\r\nfoo\r\nget miss1\r\n",
			"VALUE a1 0 1\r\nA\r\nEND\r\nSTORED\r\nVALUE a1 0 1\r\nA\r\nVALUE c1 0 2\r\nCC\r\nEND\r\nVA 1 ka1 Oq\r\nA\r\nHD\r\n7\r\nEND\r\n",
			"VALUE a1 0 1\r\nA\r\nEND\r\nSTORED\r\nVALUE a1 0 1\r\nA\r\nVALUE c1 0 2\r\nCC\r\nEND\r\nVA 1 ka1 Oq\r\nA\r\nMN\r\n7\r\nERROR\r\nEND\r\n",
		}, {
			"binary",
			frames(false, "get #1 k=a1", "set #2 k=b1 x=5,60 v=x\\r\\nyz", "getkq #3 k=c1", "getk #4 k=d\\n1", "noop #5", "setq #6 k=b1 x=0,0 v=hi",
				"incr #7 k=n1 xx=2,10 x=60", "verbosity #8 x=1 v=more", "gat #9 k=a1 x=5 v=surplus", "appendq #10 k=b1 v=!", "getq #11 k=e1", "deleteq #12 k=b1"),
			"VALUE a1 5 1 7\r\nA\r\nEND\r\nHD c8\r\nVALUE c1 0 2 9\r\nCC\r\nEND\r\nEN\r\nHD\r\nVA 1 c10\r\n9\r\nVA 1 f5 c7\r\nA\r\nNS\r\nEND\r\nNOT_FOUND\r\n",
			frames(true, "get #1 cas=7 x=5 v=A", "set #2 cas=8", "getkq #3 cas=9 x=0 k=c1 v=CC", "getk #4 status=1 k=d\\n1", "noop #5",
				"incr #7 cas=10 v=\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x09", "verbosity #8 status=0x81 v=Unknown\\x20command",
				"gat #9 cas=7 x=5 v=A", "appendq #10 status=5 v=Not\\x20stored.", "deleteq #12 status=1 v=Not\\x20found"),
		},
	} {
		play := func(cutRequest, cutAnswer int) string {
			s := conversation.New(t)
			s.Pool([]string{"main", "servers=s1"})
			s.Begin()
			s.Engine.Tune.HoldDue = 0 // everything is sent before the replies arrive
			client := s.Endpoint("c1")
			for _, part := range []string{c.requests[:cutRequest], c.requests[cutRequest:]} {
				if part != "" {
					s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte(part)) })
				}
			}
			srv := s.Endpoint("s1")
			for _, part := range []string{c.answers[:cutAnswer], c.answers[cutAnswer:]} {
				if part != "" {
					s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte(part)) })
				}
			}
			s.Now += int64(10 * time.Millisecond)
			s.Wakeup(func() {})
			return client.Got.String()
		}
		if got := play(len(c.requests), len(c.answers)); got != c.want {
			t.Fatalf("%s, whole: got %q, want %q", c.name, got, c.want)
		}
		for i := range c.requests {
			if got := play(i, len(c.answers)); got != c.want {
				t.Fatalf("%s, requests cut at %d: got %q", c.name, i, got)
			}
		}
		for i := range c.answers {
			if got := play(len(c.requests), i); got != c.want {
				t.Fatalf("%s, answers cut at %d: got %q", c.name, i, got)
			}
		}
	}
}

// TestHugeFrames checks frames with a length of 4 GiB. Nothing of them is kept,
// whatever their opcode. The client gets its answer as soon as the length is known.
func TestHugeFrames(t *testing.T) {
	for _, c := range []struct{ frame, answer, says string }{
		{"set #1 k=a1 x=0,0", "set #1 status=3 v=Too\\x20large.", "DELETED\r\n"},
		{"setq #1 k=a1 x=0,0", "setq #1 status=3 v=Too\\x20large.", "DELETED\r\n"},
		{"append #1 k=a1", "append #1 status=3 v=Too\\x20large.", ""},
		{"verbosity #1 k=a1", "verbosity #1 status=0x81 v=Unknown\\x20command", ""},
		{"touch #1 k=a1 x=5", "touch #1 cas=7 x=5", "HD f5 c7\r\n"},
		{"get #1 k=a1", "get #1 status=4 v=Invalid\\x20arguments", ""},
	} {
		s := conversation.New(t)
		s.Pool([]string{"main", "servers=s1"})
		s.Begin()
		client := s.Endpoint("c1")
		b := s.Frame(c.frame, false)
		binary.BigEndian.PutUint32(b[8:], 1<<32-1)
		s.Wakeup(func() { s.Engine.Bytes(client.Link, b) })
		if c.says != "" {
			s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("s1").Link, []byte(c.says)) })
		}
		if got, want := client.Got.String(), string(s.Frame(c.answer, true)); got != want {
			t.Errorf("%s: got %q, want %q", c.frame, got, want)
		}
		more := make([]byte, 64<<10)
		for range 100 {
			if client.State == "" {
				s.Wakeup(func() { s.Engine.Bytes(client.Link, more) })
			}
		}
		if s.Engine.Buffers.Held > 1<<20 {
			t.Errorf("%s: %d bytes are held", c.frame, s.Engine.Buffers.Held)
		}
	}
}

// TestAllocations checks that the hot path does not allocate.
func TestAllocations(t *testing.T) {
	value := strings.Repeat("v", 100)
	frame := func(text string) string { return string(conversation.New(t).Frame(text, false)) }
	for _, c := range []struct{ name, request, answer string }{
		{"tagged get", "get a1\r\n", "HD c5\r\nVA 128 ka1 f1381192775 c7\r\n" + conversation.WithTags("[head 7 x1=5]") + value + "\r\n"},
		{"tagged multi-get", "get a1 b1\r\n", "HD c5\r\nVA 128 ka1 f1381192775 c7\r\n" + conversation.WithTags("[head 7 x1=5]") + value + "\r\nVA 128 kb1 f1381192775 c7\r\n" + conversation.WithTags("[head 7 x1=5]") + value + "\r\n"},
		{"guarded get", "get a1\r\n", "VA 100 ka1 f0 c7 t-1\r\n" + value + "\r\n"},
		{"guarded get, refreshed", "get a1\r\n", "VA 100 ka1 f0 c7 t90 Z\r\n" + value + "\r\n"},
		{"guarded gets", "gets a1\r\n", "VA 100 ka1 f0 c7 t-1\r\n" + value + "\r\n"},
		{"guarded large get", "get a1\r\n", "VA 65536 ka1 f0 c7 t-1\r\n" + strings.Repeat("v", 65536) + "\r\n"},
		{"guarded multi-get", "get a1 b1\r\n", "VA 100 ka1 f0 c7 t-1\r\n" + value + "\r\nVA 100 kb1 f0 c7 t-1\r\n" + value + "\r\n"},
		{"copies get", "get a1\r\n", "VALUE a1 0 100\r\n" + value + "\r\nEND\r\n"},
		{"copies multi-get", "get a1 b1\r\n", "VALUE a1 0 100\r\n" + value + "\r\nEND\r\nVALUE b1 0 100\r\n" + value + "\r\nEND\r\n"},
		{"get", "get a1\r\n", "VALUE a1 0 100\r\n" + value + "\r\nEND\r\n"},
		{"get miss", "get a1\r\n", "END\r\n"},
		{"multi-get", "get a1 b1 c1\r\n", "VALUE a1 0 100\r\n" + value + "\r\nVALUE c1 0 100\r\n" + value + "\r\nEND\r\n"},
		{"set", "set a1 0 0 100\r\n" + value + "\r\n", "STORED\r\n"},
		{"set noreply", "set a1 0 0 100 noreply\r\n" + value + "\r\n", "STORED\r\n"},
		{"mg", "mg a1 v t Oabc k\r\n", "VA 100 t-1 Oabc ka1\r\n" + value + "\r\n"},
		{"mg base64", "mg YTE= b v\r\n", "VA 100\r\n" + value + "\r\n"},
		{"ms", "ms a1 100 T0\r\n" + value + "\r\n", "HD\r\n"},
		{"ms quiet", "ms a1 100 T0 q\r\n" + value + "\r\nmn\r\n", "HD\r\n"},
		{"large get", "get a1\r\n", "VALUE a1 0 65536\r\n" + strings.Repeat("v", 65536) + "\r\nEND\r\n"},
		{"binary get", frame("get k=a1"), "VALUE a1 0 100 7\r\n" + value + "\r\nEND\r\n"},
		{"binary getk", frame("getk k=a1"), "VALUE a1 0 100 7\r\n" + value + "\r\nEND\r\n"},
		{"binary getk miss", frame("getk k=a1"), "END\r\n"},
		{"binary getq", frame("getq k=a1") + frame("noop"), "VALUE a1 0 100 7\r\n" + value + "\r\nEND\r\n"},
		{"binary noop", frame("noop") + frame("get k=a1"), "VALUE a1 0 100 7\r\n" + value + "\r\nEND\r\n"},
		{"binary quiet gets", frame("getkq k=a1") + frame("getq k=b1") + frame("getkq k=c1") + frame("noop"), "VALUE a1 0 100 7\r\n" + value + "\r\nVALUE c1 0 100 8\r\n" + value + "\r\nEND\r\n"},
		{"binary set", frame("set x=0,0 k=a1 v=" + value), "HD c7\r\n"},
		{"binary setq", frame("setq x=5,60 k=a1 v="+value) + frame("noop"), "HD\r\n"},
		{"binary incr", frame("incr xx=1,2 x=60 k=a1"), "VA 2 c7\r\n10\r\n"},
		{"binary large get", frame("get k=a1"), "VALUE a1 0 65537 7\r\n" + strings.Repeat("v", 65537) + "\r\nEND\r\n"},
		{"binary large set", frame("set x=0,0 k=a1 v=" + strings.Repeat("v", 65536)), "HD c7\r\n"},
		{"large set", "set a1 0 0 65536\r\n" + strings.Repeat("v", 65536) + "\r\n", "STORED\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := conversation.New(t)
			copied := strings.HasPrefix(c.name, "copies")
			if s.Pool([]string{"main", map[bool]string{true: "servers=s1,s2", false: "servers=s1"}[copied]}); copied {
				s.Line("route - main copies=2 through")
			}
			if strings.HasPrefix(c.name, "guarded") {
				s.Line("route - main guard=stale:30s,early:4s")
			}
			if strings.HasPrefix(c.name, "tagged") {
				s.Line("route - main tags=suffix,a{n}>x{n},b{n}>x{n}")
			}
			s.Begin()
			client := s.Endpoint("c1")
			request, answer := []byte(c.request), []byte(c.answer)
			s.Wakeup(func() { s.Engine.Bytes(client.Link, request) })
			srv := s.Endpoint("s1")
			if copied {
				s.Line("s1 runs 7")
			}
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, answer) })
			sent := 0
			step := func(l *link.Link, b []byte) {
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				s.Engine.Bytes(l, b)
				for effects := s.Engine.End(); len(effects) > 0; effects = s.Engine.End() {
					for _, x := range effects {
						if x.Kind == link.Write {
							sent += x.Link.Out.Size
							s.Engine.Wrote(x.Link, x.Link.Out.Size, false)
						}
					}
				}
				s.Now += int64(time.Millisecond)
			}
			for _, looks := range []bool{false, true} {
				if looks && c.name == "binary quiet gets" {
					continue // the first get would be sent alone
				}
				allocs := testing.AllocsPerRun(200, func() {
					s.Engine.Watch.Left = 1 << 20
					if looks {
						s.Engine.Watch.Left = 0
					}
					step(client.Link, request)
					step(srv.Link, answer)
				})
				if allocs != 0 {
					t.Errorf("%v allocations a request, want 0; it is looked at: %v", allocs, looks)
				}
			}
			if sent == 0 {
				t.Error("nothing was sent")
			}
		})
	}
}
