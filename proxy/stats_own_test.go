package proxy_test

// Tests of statistics over several loops. Each engine has a goroutine, so that the race
// detector sees what happens with a driver.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"ringside/proxy"
	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/ring"
)

// hive is several engines of one proxy, each on its own goroutine, with clients and
// with servers that reply by a function.
type hive struct {
	t      *testing.T
	proxy  *proxy.Proxy
	loops  []*proxy.Engine
	events []chan func(e *proxy.Engine)
	answer func(command string) string // "": no reply
}

// bee is a client of a hive, or the connection to a server.
type bee struct {
	name string
	got  chan string // bytes that a client received, piece by piece
	link *link.Link
}

func (b *bee) Peer() string { return b.name }

func (b *bee) Unread() int { return 0 }

func (b *bee) Unsent() int { return 0 }

// newHive starts the loops. A server with the name dead refuses connections.
func newHive(t *testing.T, loops int, answer func(command string) string, servers ...string) *hive {
	pool := &table.Pool{Name: "main", Connections: 1, QueueLimit: 100,
		Place:        ring.Placement{Hash: func([]byte) uint64 { return 0 }, Ring: conversation.ByDigit(len(servers))},
		Timeouts:     table.Timeouts{Connect: time.Minute, Request: time.Minute, Deadline: time.Minute},
		RetryBackoff: table.Backoff{First: time.Minute, Max: time.Minute}}
	for _, s := range servers {
		pool.Servers = append(pool.Servers, table.Target{Name: s, Network: "tcp", Address: s + ":11211", Weight: 1})
	}
	h := &hive{t: t, answer: answer}
	h.proxy = proxy.NewProxy(&table.Table{
		Limits:    conversation.Limits(),
		Pools:     []*table.Pool{pool},
		Listeners: []table.Listener{{Network: "tcp", Address: "[::]:11211", Routes: []table.Route{{Pool: pool}}}},
	}, "0.1", slog.New(slog.NewTextHandler(t.Output(), nil)))
	h.proxy.PID = 4711
	for i := range loops {
		e := h.proxy.NewEngine(link.DefaultTune)
		events, ended := make(chan func(*proxy.Engine), 1000), make(chan struct{})
		e.Post = func(f func(*proxy.Engine)) { events <- f }
		h.loops, h.events = append(h.loops, e), append(h.events, events)
		go func() {
			defer close(ended)
			for f := range events {
				e.Begin(int64(i+1)*int64(time.Hour), conversation.Wall(0))
				f(e)
				for effects := e.End(); len(effects) > 0; effects = e.End() {
					for _, x := range effects {
						h.effect(e, x)
					}
				}
			}
		}()
		t.Cleanup(func() { close(events); <-ended })
	}
	return h
}

func (h *hive) effect(e *proxy.Engine, x link.Effect) {
	l := x.Link
	switch x.Kind {
	case link.Dial:
		if _, address := l.Server().Target(); strings.HasPrefix(address, "dead") {
			e.Closed(l, errors.New("connection refused"))
			return
		}
		l.Sock = &bee{name: "server", link: l}
		e.Up(l)
	case link.Write:
		var text strings.Builder
		for _, b := range l.Pending(nil) {
			text.Write(b)
		}
		e.Wrote(l, text.Len(), false)
		b := l.Sock.(*bee)
		if b.got != nil {
			b.got <- text.String()
			return
		}
		for command := range strings.Lines(text.String()) {
			if a := h.answer(strings.TrimSpace(command)); a != "" {
				e.Bytes(l, []byte(a))
			}
		}
	}
}

// on runs f on loop i and waits for it.
func (h *hive) on(i int, f func(e *proxy.Engine)) {
	done := make(chan struct{})
	h.events[i] <- func(e *proxy.Engine) {
		f(e)
		close(done)
	}
	<-done
}

func (h *hive) client(loop int, name string) *bee {
	b := &bee{name: name, got: make(chan string, 1000)}
	h.on(loop, func(e *proxy.Engine) { b.link = e.Accepted("tcp", "[::]:11211", b) })
	return b
}

// ask sends command and returns the answer up to its last line.
func (h *hive) ask(loop int, b *bee, command, last string) string {
	h.on(loop, func(e *proxy.Engine) { e.Bytes(b.link, []byte(command+"\r\n")) })
	var got strings.Builder
	for !strings.HasSuffix(got.String(), last) {
		got.WriteString(<-b.got)
	}
	return got.String()
}

func aServer(command string) string {
	switch command {
	case "version":
		return "VERSION 1.6.18\r\n"
	case "stats":
		return "STAT threads 4\r\nSTAT curr_items 2\r\nEND\r\n"
	}
	return "ERROR\r\n"
}

// have fails unless every line of want, a regular expression, matches a line of got.
func have(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !regexp.MustCompile(`(?m)^STAT ` + w + "\r$").MatchString(got) {
			t.Errorf("no line %q in\n%s", w, got)
		}
	}
}

func TestStatsThreads(t *testing.T) {
	h := newHive(t, 3, aServer, "a", "b", "dead")
	got := h.ask(1, h.client(1, "192.0.2.1:1000"), "stats", "END\r\n")
	if want := "STAT threads 3\r\nSTAT curr_items 4\r\nSTAT ringside_servers 3\r\nSTAT ringside_servers_missing 1\r\nEND\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStatsProxy(t *testing.T) {
	h := newHive(t, 3, aServer, "a")
	first, second := h.client(0, "192.0.2.1:1000"), h.client(2, "192.0.2.1:1001")
	h.ask(0, first, "version", "\r\n")
	h.ask(2, second, "version\r\nversion", "VERSION 1.6.18\r\nVERSION 1.6.18\r\n")
	h.ask(2, second, "nonsense", "ERROR\r\n")
	got := h.ask(0, first, "stats proxy", "END\r\n")
	have(t, got, "pid 4711", `uptime \d+`, `time \d{10}`, "version 0.1", "loops 3", "max_connections 100", "curr_connections 2",
		"total_connections 2", "rejected_connections 0", "requests_in_flight 1", "keys_hit 0", "limit_buffer_bytes 268435456",
		"requests:version:ok 3", "requests:bad:client_error 1")
	h.ask(0, first, "stats proxy", "END\r\n")
	have(t, h.ask(2, second, "stats proxy", "END\r\n"), "requests:stats:ok 2", `latency:stats:p50_us \d+`, `latency:stats:p99_us \d+`)
}

func TestStatsServers(t *testing.T) {
	h := newHive(t, 2, aServer, "a", "dead")
	first, second := h.client(0, "192.0.2.1:1000"), h.client(1, "192.0.2.1:1001")
	h.ask(0, first, "stats", "END\r\n")
	h.ask(1, second, "stats", "END\r\n")
	h.ask(1, second, "stats", "END\r\n")
	got := h.ask(0, first, "stats servers", "END\r\n")
	have(t, got, "server:1:name a", "server:1:address a:11211", "server:1:pools main", "server:1:weight 1", "server:1:state up",
		"server:1:version 1.6.18", "server:1:connections 2", "server:1:waiting 0", "server:1:requests 3", "server:1:failed 0",
		"server:1:timed_out 0", "server:1:refused 0", "server:1:undone 0", "server:1:undo_lost 0", "server:1:zombies 0", "server:1:dials 2", `server:1:latency_p99_us \d+`,
		"server:2:name dead", "server:2:state down", `server:2:why server dead \(dead:11211\) is down: connection refused`, "server:2:loops_down 2",
		"server:2:version unknown", "server:2:connections 0", "server:2:requests 2", "server:2:failed 2", "server:2:refused 1")
	if strings.Contains(got, "server:1:why") || strings.Contains(got, "server:3:") {
		t.Error(got)
	}
}

// TestStatsServerErrors checks that a SERVER_ERROR of a server to a client's command is
// counted for it.
func TestStatsServerErrors(t *testing.T) {
	h := newHive(t, 2, func(command string) string {
		switch command {
		case "get k1", "delete k1":
			return "SERVER_ERROR out of memory\r\n"
		}
		return aServer(command)
	}, "a")
	first, second := h.client(0, "192.0.2.1:1000"), h.client(1, "192.0.2.1:1001")
	h.ask(0, first, "get k1", "\r\n")
	h.ask(0, first, "delete k1", "\r\n")
	h.ask(1, second, "delete k1", "\r\n")
	have(t, h.ask(0, first, "stats servers", "END\r\n"), "server:1:server_errors 3", "server:1:failed 0")
}

func TestStatsConns(t *testing.T) {
	silent := func(command string) string {
		if command == "stats" {
			return ""
		}
		return aServer(command)
	}
	h := newHive(t, 2, silent, "a")
	asking, waiting, half := h.client(0, "192.0.2.1:1000"), h.client(0, "[2001:db8::1]:2000"), h.client(1, "192.0.2.1:3000")
	h.on(0, func(e *proxy.Engine) { e.Bytes(waiting.link, []byte("stats\r\n")) })
	h.on(1, func(e *proxy.Engine) { e.Bytes(half.link, []byte("set a 0 0 100\r\nabc")) })
	got := h.ask(0, asking, "stats conns", "END\r\n")
	want := `STAT 1:addr tcp:192.0.2.1:1000
STAT 1:listen_addr tcp6:[::]:11211
STAT 1:state conn_parse_cmd
STAT 1:secs_since_last_cmd 0
STAT 2:addr tcp6:[2001:db8::1]:2000
STAT 2:listen_addr tcp6:[::]:11211
STAT 2:state conn_io_queue
STAT 2:secs_since_last_cmd 0
STAT 3:addr tcp:192.0.2.1:3000
STAT 3:listen_addr tcp6:[::]:11211
STAT 3:state conn_nread
STAT 3:secs_since_last_cmd 0
END
`
	if got != strings.ReplaceAll(want, "\n", "\r\n") {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// TestStatsOfAClientThatLeaves checks that the other loops may report after the client
// has disconnected.
func TestStatsOfAClientThatLeaves(t *testing.T) {
	h := newHive(t, 2, aServer, "a")
	for _, command := range []string{"stats conns", "stats proxy", "stats servers"} {
		leaves, stays := h.client(0, "192.0.2.1:1000"), h.client(0, "192.0.2.1:1001")
		release := make(chan struct{})
		h.events[1] <- func(*proxy.Engine) { <-release }
		h.on(0, func(e *proxy.Engine) {
			e.Bytes(leaves.link, []byte(command+"\r\n"))
			e.Bytes(stays.link, []byte(command+"\r\nversion\r\n"))
		})
		h.on(0, func(e *proxy.Engine) { e.Closed(leaves.link, errors.New("connection reset by peer")) })
		close(release)
		var got strings.Builder
		for !strings.HasSuffix(got.String(), "END\r\nVERSION 1.6.18\r\n") {
			got.WriteString(<-stays.got)
		}
		h.on(0, func(e *proxy.Engine) {
			if !e.Idle() || len(leaves.got) > 0 {
				t.Errorf("%s: idle %v, %d answers to nobody", command, e.Idle(), len(leaves.got))
			}
		})
	}
}

// TestGatherBound checks that the servers' replies are collected while limits.memory
// has room, and that all are freed after they were passed on.
func TestGatherBound(t *testing.T) {
	items := strings.Repeat("ITEM k [1 b; 0 s]\r\n", 1000)
	h := newHive(t, 1, func(command string) string {
		if command == "stats cachedump 1 0" {
			return items + "END\r\n"
		}
		return aServer(command)
	}, "a", "b")
	c := h.client(0, "192.0.2.1:1000")
	for _, try := range []struct {
		room int64
		want string
	}{
		{1 << 20, items + items + "END\r\n"},
		{1 << 10, "SERVER_ERROR no server replied (2 asked): server a (a:11211): no room for its answer: out of memory: limits.memory is reached\r\n"},
	} {
		var before int64
		h.on(0, func(e *proxy.Engine) {
			e.Trim()
			before = e.Buffers.Held
			e.Buffers.Held = e.Limits.Memory - try.room
		})
		if got := h.ask(0, c, "stats cachedump 1 0", try.want[len(try.want)-5:]); got != try.want {
			t.Errorf("with room for %d bytes: %.200q, want %.200q", try.room, got, try.want)
		}
		h.on(0, func(e *proxy.Engine) {
			e.Trim()
			if got := e.Buffers.Held - (e.Limits.Memory - try.room); got != 0 {
				t.Errorf("%d bytes are still held", got)
			}
			e.Buffers.Held = before
		})
	}
}

// TestGatheredIsDropped checks that gathered replies use no memory while a server does not end its own reply, after the
// client has left. A reply that is discarded for lack of memory uses none either. Later bytes of the server are discarded.
func TestGatheredIsDropped(t *testing.T) {
	lines := strings.Repeat("STAT items:1:number 1\r\n", 1000)
	for _, try := range []struct {
		name  string
		room  int64 // memory that limits.memory leaves to the rest of the reply; 0: enough
		leave bool
	}{
		{name: "client that leaves", leave: true},
		{name: "no memory", room: 1000},
	} {
		s := conversation.New(t)
		for _, line := range []string{"pool main servers=s1,s2", "c1 > stats items", "s1 < stats items", "s2 < stats items"} {
			s.Line(line)
		}
		e := s.Engine
		e.Trim()
		before := e.Buffers.Held
		send := func(server, b string) { s.Wakeup(func() { e.Bytes(s.Endpoint(server).Link, []byte(b)) }) }
		check := func(when string) {
			t.Helper()
			if e.Trim(); e.Buffers.Held > before {
				t.Errorf("%s, %s: %d bytes of replies are still held", try.name, when, e.Buffers.Held-before)
			}
		}
		if try.leave {
			send("s1", lines+"END\r\n")
		}
		send("s2", lines)
		if held := e.Buffers.Held - before; held < int64(len(lines)) {
			t.Errorf("%s: %d bytes held, want at least the %d of a reply", try.name, held, len(lines))
		}
		if try.leave {
			s.Line("c1 resets")
		} else {
			n := int(e.FreeMemory() - try.room)
			s.Wakeup(func() {
				e.Buffers.Hold(n)
				e.Bytes(s.Endpoint("s2").Link, []byte(lines))
				e.Buffers.Hold(-n)
			})
		}
		check("reply not ended")
		send("s2", lines)
		check("more of the reply")
		if send("s2", "END\r\n"); try.leave {
			s.Line("c2 > get a2\\r\\nget a1")
			s.Line("s2 < get a2")
			s.Line("s1 < get a1")
		} else {
			send("s1", lines+"END\r\n")
			s.Line("c1 < STAT items:1:number 1\\r\\nEND")
		}
	}
}

// TestMergeInSteps checks that a loop merges long stats replies in steps, each in a wakeup of its own, and that it
// counts the memory.
func TestMergeInSteps(t *testing.T) {
	const lines = 10 * client.TurnKeys
	var prefixes, sums, items strings.Builder
	for i := range lines {
		fmt.Fprintf(&prefixes, "PREFIX p%d get 1 hit 2 set 3 del 4\r\n", i)
		fmt.Fprintf(&sums, "PREFIX p%d get 2 hit 4 set 6 del 8\r\n", i)
		fmt.Fprintf(&items, "ITEM k%d [1 b; 0 s]\r\n", i)
	}
	h := newHive(t, 1, func(command string) string {
		switch command {
		case "stats detail dump":
			return prefixes.String() + "END\r\n"
		case "stats cachedump 1 0":
			return items.String() + "END\r\n"
		}
		return aServer(command)
	}, "a", "b")
	var posted []func(*proxy.Engine)
	h.on(0, func(e *proxy.Engine) { e.Post = func(f func(*proxy.Engine)) { posted = append(posted, f) } })
	frame := func(key string) string {
		return "\x80\x10\x00" + string(rune(len(key))) + "\x00\x00\x00\x00\x00\x00\x00" + string(rune(len(key))) + strings.Repeat("\x00", 12) + key
	}
	head := func(key, value int) string {
		b := []byte("\x81\x10\x00" + string(rune(key)) + strings.Repeat("\x00", 20))
		binary.BigEndian.PutUint32(b[8:], uint32(key+value))
		return string(b)
	}
	detail := sums.String() + "END\r\n"
	end := head(0, 0)
	answerListing := "SERVER_ERROR another client lists keys with stats at the moment: try again\r\n"
	for _, try := range []struct {
		name, command, want string
		steps               int
		leaves              bool
		room                int64 // memory that limits.memory leaves to the merge; 0: enough
	}{
		{"detail dump", "stats detail dump\r\n", detail, 4 * lines, false, 0}, // a line with two values counts twice
		{"cachedump", "stats cachedump 1 0\r\n", items.String() + items.String() + "END\r\n", 2 * lines, false, 0},
		{"binary detail dump", frame("detail dump"), head(len("detailed"), len(detail)) + "detailed" + detail + end, 4 * lines, false, 0},
		{"client that leaves", "stats detail dump\r\n", "", 0, true, 0},
		{"no memory", "stats detail dump\r\n", "SERVER_ERROR no room to merge the replies of the servers: out of memory: limits.memory is reached\r\n", 0, false, 1 << 20},
	} {
		c, other := h.client(0, "192.0.2.1:1000"), h.client(0, "192.0.2.1:1001")
		var held, before int64
		h.on(0, func(e *proxy.Engine) {
			e.Trim()
			held = e.Buffers.Held
			e.Bytes(c.link, []byte(try.command))
		})
		h.on(0, func(e *proxy.Engine) {
			if before = e.Buffers.Held; try.room > 0 {
				e.Buffers.Hold(int(e.FreeMemory() - try.room))
			}
			if try.leaves {
				e.Closed(c.link, errors.New("connection reset by peer"))
			}
		})
		h.ask(0, other, "version", "\r\n")
		if got := h.ask(0, other, "stats detail dump", "\r\n"); got != answerListing {
			t.Fatalf("%s: %q during the merge, want %q", try.name, got, answerListing)
		}
		var got strings.Builder
		receive := func() (n int) {
			for len(c.got) > 0 {
				b := <-c.got
				n += strings.Count(b, "\n")
				got.WriteString(b)
			}
			return n
		}
		receive()
		for i := 0; ; i++ {
			var list []func(*proxy.Engine)
			h.on(0, func(e *proxy.Engine) {
				if list, posted = posted, nil; i > 0 && len(list) > 0 && strings.HasSuffix(try.name, "detail dump") && e.Buffers.Held <= before {
					t.Errorf("%s: %d bytes held, %d before the merge", try.name, e.Buffers.Held, before)
				}
				for _, f := range list {
					f(e)
				}
			})
			h.on(0, func(*proxy.Engine) {}) // waits for the effects of the wakeup
			if n := receive(); n > client.TurnKeys+1 && !strings.HasPrefix(try.name, "binary") {
				t.Fatalf("%s: %d lines in one wakeup", try.name, n)
			}
			if len(list) == 0 {
				if i < try.steps/client.TurnKeys-1 {
					t.Errorf("%s: %d steps, want at least %d", try.name, i, try.steps/client.TurnKeys-1)
				}
				break
			}
		}
		if got.String() != try.want {
			t.Errorf("%s: %.200q, want %.200q", try.name, got.String(), try.want)
		}
		h.on(0, func(e *proxy.Engine) {
			if !try.leaves {
				e.Closed(c.link, io.EOF)
			}
			e.Closed(other.link, io.EOF)
			e.Trim()
			if try.room == 0 && e.Buffers.Held > held {
				t.Errorf("%s: %d bytes are still held", try.name, e.Buffers.Held-held)
			}
		})
	}
}

// TestMemoryOfAnotherLoop checks that a loop which needs memory makes the loop that
// uses the most close its largest client.
func TestMemoryOfAnotherLoop(t *testing.T) {
	h := newHive(t, 2, aServer, "a")
	slow, other := h.client(0, "192.0.2.1:1000"), h.client(1, "192.0.2.2:1000")
	h.on(0, func(e *proxy.Engine) {
		slow.link.Full = true
		slow.link.Out.Append(&e.Buffers, make([]byte, 200<<20))
	})
	h.on(1, func(e *proxy.Engine) { e.Buffers.Hold(100 << 20) })
	h.on(1, func(e *proxy.Engine) {})
	h.on(0, func(e *proxy.Engine) {
		if len(e.Sessions) != 0 || e.Count.MemoryClosed != 1 {
			t.Errorf("%d clients, %d closed", len(e.Sessions), e.Count.MemoryClosed)
		}
	})
	h.on(1, func(e *proxy.Engine) {
		if len(e.Sessions) != 1 || e.MemoryFull {
			t.Errorf("the other loop has %d clients; full: %v", len(e.Sessions), e.MemoryFull)
		}
	})
	if got := h.ask(1, other, "version", "\r\n"); !strings.HasPrefix(got, "VERSION") {
		t.Errorf("another client got %q", got)
	}
}

func TestQuantile(t *testing.T) {
	var h stats.Histogram
	for range 98 {
		h.Observe(int64(100 * time.Microsecond))
	}
	h.Observe(int64(time.Second))
	h.Observe(int64(time.Second))
	for _, c := range []struct {
		q    float64
		true time.Duration
	}{{0.50, 100 * time.Microsecond}, {0.99, time.Second}, {0.999, time.Second}} {
		if got := h.Quantile(c.q); got < uint64(c.true) || got > uint64(c.true)*5/4 {
			t.Errorf("quantile %v: %v, want about %v", c.q, time.Duration(got), c.true)
		}
	}
}

func TestSocketName(t *testing.T) {
	for _, c := range [][3]string{
		{"tcp", "192.0.2.1:1", "tcp:192.0.2.1:1"},
		{"tcp", "[::1]:1", "tcp6:[::1]:1"},
		{"unix", "/run/ringside.sock", "unix:/run/ringside.sock"},
		{"unix", "unix", "unix:"},
		{"", "-", "tcp:-"},
	} {
		if got := proxy.SocketName(c[0], c[1]); got != c[2] {
			t.Errorf("socketName(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
