package proxy_test

// Tests of how much a loop handles of many clients with different requests between reading one client's get and sending it.

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
