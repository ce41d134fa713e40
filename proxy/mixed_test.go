package proxy_test

// Tests of how much a loop handles of many clients with different requests between reading one client's get and sending it.

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// load is the input that one of many clients repeats. unit is the length of one request in it; 0: its requests are large. Large requests
// are not counted, and their bytes count when they are read.
type load struct {
	text []byte
	unit int
}

func repeated(line string) load {
	return load{bytes.Repeat([]byte(line), 1+300_000/len(line)), len(line)}
}

// busyLoop has clients with loads, and a client that sends a get in each wakeup.
type busyLoop struct {
	*conversation.Harness
	senders  []*sender
	loads    []load
	victim   *conversation.Endpoint
	mark     string // the key of the victim's current get
	sent     func() // called when a server receives that get
	received int    // bytes that the server has received
}

// handledBytes returns how many bytes of the clients with loads the engine has handled so far, and how many requests.
func (b *busyLoop) handledBytes() (total, requests int) {
	for i, c := range b.senders {
		if c.actor.Link == nil || c.actor.Link.End.(*client.Session).Quitting { // closed because of limits.memory
			continue
		}
		n := int(c.actor.Link.BytesIn)
		if in := c.actor.Link.In; in != nil && b.loads[i].unit > 0 {
			n -= in.Len()
		}
		if total += n; b.loads[i].unit > 0 {
			requests += n / b.loads[i].unit
		}
	}
	return total, requests
}

// newBusyLoop returns an engine with a client for each of loads, count times. more has lines for the harness.
func newBusyLoop(t *testing.T, count int, loads []load, memory int64, more ...string) *busyLoop {
	b := &busyLoop{Harness: conversation.New(t)}
	b.Quiet = true
	b.Pool([]string{"main", "servers=s1", "queue=1000000", "gets=single"})
	for _, line := range more {
		b.Line(line)
	}
	b.Table.Limits.Line, b.Table.Limits.Memory, b.Table.Limits.Clients = 1<<20, memory, 5000
	b.Endpoints["s1"] = &conversation.Endpoint{Name: "s1", Serve: func(requests []byte) (reply []byte) {
		if b.sent != nil && bytes.Contains(requests, []byte(b.mark+"\r\n")) {
			b.sent()
			b.sent = nil
		}
		b.received += len(requests)
		for line := range strings.Lines(string(requests)) {
			switch line {
			case "version\r\n":
				reply = append(reply, "VERSION 1.6.18\r\n"...)
			case "stats settings\r\n":
				reply = append(reply, "END\r\n"...)
			}
		}
		return reply
	}}
	b.Begin()
	b.Engine.Tune = link.Tune{} // otherwise requests wait for replies, and here there are none
	for i := range count * len(loads) {
		what := loads[i%len(loads)]
		b.loads = append(b.loads, what)
		b.senders = append(b.senders, &sender{actor: b.Endpoint(fmt.Sprintf("c%d", i)), request: what.text})
	}
	b.victim = b.Endpoint("cvictim")
	if len(more) > 0 { // the listener has users
		b.Wakeup(func() { b.Engine.Bytes(b.victim.Link, []byte("set x 0 0 3\r\na b\r\n")) })
	}
	return b
}

// check lets all clients send in each of several wakeups, and checks what was handled of them between reading and sending the get of the
// victim. In each event before and after that get, clients connect too.
func (b *busyLoop) check(rounds, connects int) {
	const keys, size = 2*client.RoundKeys + 2*client.TurnKeys, 2*client.RoundBytes + 2*client.TurnBytes
	t, largest := b.T, 0
	for _, l := range b.loads {
		if l.unit == 0 {
			largest = max(largest, len(l.text))
		}
	}
	for round := range rounds {
		b.Now += int64(time.Millisecond)
		b.Engine.Begin(b.Now, conversation.Wall(b.Now))
		feed := func(c *sender) {
			event(b.Harness, func() {
				for i := 0; i < 4 && c.actor.Link != nil && !c.actor.Paused && !c.actor.Link.Stalled; i++ {
					n := min(len(c.request)-c.sent, len(b.Engine.Space(c.actor.Link)))
					b.Engine.Bytes(c.actor.Link, c.request[c.sent:c.sent+n])
					c.sent = (c.sent + n) % len(c.request)
				}
				for range connects {
					a := &conversation.Endpoint{Name: "cfresh"}
					a.Link = b.Engine.Accepted("tcp", "here", a)
					b.Engine.Bytes(a.Link, []byte("version\r\n"))
				}
			})
		}
		half := len(b.senders) / 2
		for _, c := range b.senders[:half] {
			feed(c)
		}
		b.mark = fmt.Sprintf("mark%d1", round)
		bytesBefore, before := b.handledBytes()
		receivedBefore := b.received
		var after, bytesAfter, received int
		done := false
		b.sent = func() { received = b.received; bytesAfter, after = b.handledBytes(); done = true }
		event(b.Harness, func() { b.Engine.Bytes(b.victim.Link, []byte("get "+b.mark+"\r\n")) })
		for _, c := range slices.Concat(b.senders[half:], b.senders[:half]) {
			if !done {
				feed(c)
			}
		}
		b.End()
		if !done {
			t.Fatalf("round %d: the get was not sent", round)
		}
		if n := after - before; n > keys {
			t.Errorf("round %d: %d requests of others were handled before the get was sent, want at most %d", round, n, keys)
		}
		if n := received - receivedBefore; n > size+2*largest {
			t.Errorf("round %d: %d bytes of others were sent before the get, want at most %d", round, n, size+2*largest)
		}
		if n := bytesAfter - bytesBefore; n > size {
			t.Errorf("round %d: %d bytes of others were handled before the get was sent, want at most %d", round, n, size)
		}
	}
}

// TestStreamsBound checks the bound for all that Ringside answers itself, rejects or discards.
func TestStreamsBound(t *testing.T) {
	long := strings.Repeat("x", 1500)
	for _, what := range []struct {
		name  string
		loads []load
		more  []string
	}{
		{name: "unknown commands", loads: []load{repeated("nonsense\r\n")}},
		{name: "long unknown commands", loads: []load{repeated("nonsense " + long + "\r\n")}},
		{name: "empty lines", loads: []load{repeated("\r\n")}},
		{name: "HTTP", loads: []load{repeated("GET / HTTP/1.1\r\n"), repeated("Host: x\r\n"), repeated("POST / HTTP/1.1\r\nHost: x\r\n\r\n")}},
		{name: "invalid keys", loads: []load{repeated("get " + strings.Repeat("k", 300) + "\r\n"), repeated("delete " + strings.Repeat("k", 300) + "\r\n")}},
		{name: "invalid arguments", loads: []load{repeated("incr k1 x\r\n"), repeated("touch k1\r\n"), repeated("set k1 0 0 -1\r\n")}},
		{name: "rejected values", loads: []load{repeated("set " + strings.Repeat("k", 300) + " 0 0 5\r\nvalue\r\n")}},
		{name: "mn", loads: []load{repeated("mn\r\n")}},
		{name: "me", loads: []load{repeated("me k1\r\n"), repeated("me k1 b\r\n")}},
		{name: "noreply", loads: []load{repeated("set k1 0 0 1 noreply\r\nv\r\n"), repeated("delete k1 noreply\r\n"), repeated("ms k1 1 q\r\nv\r\n")}},
		{name: "verbosity", loads: []load{repeated("verbosity 1\r\n"), repeated("verbosity 1 noreply\r\n")}},
		{name: "watch", loads: []load{repeated("watch fetchers\r\n"), repeated("lru_crawler metadump all\r\n")}},
		{name: "quiet binary", loads: []load{repeated("\x80\x09\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02" + strings.Repeat("\x00", 12) + "k1"), repeated("\x80\x0a" + strings.Repeat("\x00", 22))}},
		{name: "unknown binary", loads: []load{repeated("\x80\x7f" + strings.Repeat("\x00", 22)), repeated("\x80\x7f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80" + strings.Repeat("\x00", 12+128))}},
		{name: "logins", loads: []load{repeated("\x80\x21\x00\x05\x00\x00\x00\x00\x00\x00\x00\x0a" + strings.Repeat("\x00", 12) + "PLAIN\x00a\x00bx"), repeated("\x80\x20" + strings.Repeat("\x00", 22))}},
		{name: "commands without login", loads: []load{repeated("get k1\r\n"), repeated("set k1 0 0 1\r\nv\r\n")}, more: []string{"users a:b"}},
		{name: "logins of users", loads: []load{repeated("\x80\x21\x00\x05\x00\x00\x00\x00\x00\x00\x00\x09" + strings.Repeat("\x00", 12) + "PLAIN\x00a\x00b"), repeated("\x80\x20" + strings.Repeat("\x00", 22))}, more: []string{"users a:b"}},
	} {
		t.Run(what.name, func(t *testing.T) {
			newBusyLoop(t, 64/len(what.loads), what.loads, 1<<30, what.more...).check(8, 0)
		})
	}
}

// TestMixedLoadBound checks the bound for clients that wait for memory, new clients, large sets of all protocols, and very long reads together.
func TestMixedLoadBound(t *testing.T) {
	const size = 1_000_000
	value := strings.Repeat("v", size)
	loads := []load{
		{text: []byte(fmt.Sprintf("set k1 0 0 %d\r\n%s\r\n", size, value))},
		{text: []byte(fmt.Sprintf("set k1 0 0 %d noreply\r\n%s\r\n", size, value))},
		{text: []byte(fmt.Sprintf("ms k1 %d\r\n%s\r\n", size, value))},
		{text: []byte(conversation.New(t).Frame("set #1 k=k1 x=0,0 v="+value, false))},
		{text: manyKeys(100_000)},
		repeated("get k1\r\n"),
		repeated("version\r\n"),
	}
	b := newBusyLoop(t, 6, loads, 64<<20)
	set := []byte(fmt.Sprintf("set w1 0 0 %d\r\n%s\r\n", size, value))
	for i := range 500 { // these wait for memory
		c := &sender{actor: b.Endpoint(fmt.Sprintf("c9%03d", i)), request: set}
		c.sent = 20_000
		b.Wakeup(func() { b.Engine.Bytes(c.actor.Link, set[:c.sent]) })
		b.senders, b.loads = append(b.senders, c), append(b.loads, load{text: set})
	}
	b.check(20, 64)
}

// replying is a server with several connections. It sends a limited number of bytes in each step, the same on all of its connections
// that wait for replies.
type replying struct {
	*conversation.Harness
	node  *memnode.Node
	lines map[*conversation.Endpoint]*sizedLine
	sent  map[*conversation.Endpoint]int // bytes that were sent on each connection
}

// step sends about n bytes.
func (v *replying) step(n int) {
	const piece = 32 << 10
	for busy := true; busy && n > 0; {
		busy = false
		for _, name := range slices.Sorted(maps.Keys(v.Endpoints)) {
			a := v.Endpoints[name]
			if name[0] != 's' || a.Link == nil || a.Paused {
				continue
			}
			l := v.lines[a]
			if l == nil {
				l = &sizedLine{Line: v.node.Line()}
				v.lines[a] = l
			}
			for n := wholeRequest(a.Got.Bytes()); n > 0 && len(l.owed) == 0; n = wholeRequest(a.Got.Bytes()) {
				l.owed = append(l.owed[:0], l.Do(a.Got.Next(n))...)
			}
			if m := min(len(l.owed), piece); m > 0 {
				b := l.owed[:m]
				l.owed = l.owed[m:]
				n, v.sent[a], busy = n-m, v.sent[a]+m, true
				v.Wakeup(func() { v.Engine.Bytes(a.Link, b) })
			}
		}
	}
}

// TestLargeRepliesBound lets clients pipeline reads of values of 1 MB. They read slowly or not at all, and new ones come. Beside them,
// other clients read small values, one at a time. On the connection to the server, at most the replies come before a small one that a client
// may have in flight, and none of a large value when the size of values has been known for a while. All buffers stay within
// limits.memory, and clients that read are not closed.
func TestLargeRepliesBound(t *testing.T) {
	const size, memory = 1_000_000, 64 << 20
	frame := conversation.New(t).Frame("get #1 k=big1", false)
	texts := []string{"get big1\r\n", "mg big1 v\r\n", "get big1 other1 big1\r\n", string(frame), "get g:big1\r\n", "gets big1\r\n", "mg g:big1 v t\r\n"}
	s := conversation.New(t)
	s.Quiet, s.ShowOpaques = true, true
	s.Pool([]string{"main", "servers=s1"})
	s.Line("route g: main guard=wait:1s")
	s.Line("route - main")
	s.Table.Limits.Memory = memory
	s.Begin()
	node, err := memnode.New(memnode.Options{MaxItem: 4 << 20, Now: func() time.Time { return time.Unix(conversation.Wall(s.Now), 0) }})
	if err != nil {
		t.Fatal(err)
	}
	fill := node.Line()
	for _, key := range []string{"big1", "g:big1"} {
		fill.Do([]byte(fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, size, strings.Repeat("v", size))))
	}
	fill.Do([]byte("set small1 0 0 5\r\nsmall\r\nset g:small1 0 0 5\r\nsmall\r\n"))
	v := &replying{Harness: s, node: node, lines: map[*conversation.Endpoint]*sizedLine{}, sent: map[*conversation.Endpoint]int{}}
	type honest struct {
		*conversation.Endpoint
		key    string
		before map[*conversation.Endpoint]int
		on     *conversation.Endpoint
		served int
	}
	var small []*honest
	ask := func(h *honest) {
		h.before, h.on = maps.Clone(v.sent), nil
		s.Wakeup(func() { s.Engine.Bytes(h.Link, []byte("get "+h.key+"\r\n")) })
		for name, a := range s.Endpoints {
			if name[0] == 's' && a.Link != nil && bytes.Contains(a.Got.Bytes(), []byte(h.key)) {
				h.on = a
			}
		}
	}
	for i := range 6 {
		small = append(small, &honest{Endpoint: s.Endpoint(fmt.Sprintf("csmall%d", i)), key: []string{"small1", "g:small1"}[i%2]})
		ask(small[i])
	}
	v.step(1 << 20)
	var large []*conversation.Endpoint
	read := map[*conversation.Endpoint]int{}
	add := func() {
		i := len(large)
		c := s.Endpoint(fmt.Sprintf("c%d", i))
		large = append(large, c)
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(strings.Repeat(texts[i%len(texts)], 50))) })
	}
	add()
	longest, later, held := 0, 0, int64(0)
	for step := range 1000 {
		s.Now += int64(time.Millisecond)
		s.Wakeup(func() {})
		if step > 200 && step%20 == 0 {
			add()
		}
		for i, c := range large {
			c.Full = true
			if i%3 > 0 && (step+i)%8 == 0 && c.State == "" && c.Link != nil { // it reads
				c.Full = false
				s.Wakeup(func() { s.Send(c) })
			}
			read[c] += c.Got.Len()
			c.Got.Reset()
		}
		v.step(512 << 10)
		held = max(held, s.Engine.Buffers.Held)
		for _, h := range small {
			got := h.Got.String()
			if !strings.HasSuffix(got, "END\r\n") && !strings.Contains(got, "ERROR") && h.State == "" {
				continue
			}
			if want := fmt.Sprintf("VALUE %s 0 5\r\nsmall\r\nEND\r\n", h.key); got != want {
				t.Fatalf("step %d: %s has got %q", step, h.Name, got)
			}
			if h.on != nil {
				n := v.sent[h.on] - h.before[h.on]
				if longest = max(longest, n); step > 200 {
					later = max(later, n)
				}
			}
			h.served++
			h.Got.Reset()
			ask(h)
		}
	}
	for _, h := range small {
		if h.served < 500 {
			t.Errorf("%s has got %d replies in 1000 steps", h.Name, h.served)
		}
	}
	if longest > s.Table.Limits.Output+size || later > link.BigSpan {
		t.Errorf("%d bytes of others came before a small value, and later %d", longest, later)
	}
	if held > memory {
		t.Errorf("%d bytes are in use", held)
	}
	for i, c := range large {
		if i%3 > 0 && (c.State != "" || i < 20 && read[c] < size) {
			t.Errorf("a client that reads is %q, and has got %d bytes", c.State, read[c])
		}
	}
}
