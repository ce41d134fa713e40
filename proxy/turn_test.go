package proxy_test

// Tests of how much other work a loop does between reading a client's request and
// sending it.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// hogs returns n clients that send the load.
func hogs(s *conversation.Harness, n int) (list []*conversation.Endpoint) {
	for i := range n {
		list = append(list, s.Endpoint(fmt.Sprintf("c%d", i)))
	}
	return list
}

// event is one event of a driver's wakeup. The driver sends the requests when the round
// is over.
func event(s *conversation.Harness, f func()) {
	f()
	if s.Engine.Spent() {
		s.End()
		s.Engine.Begin(s.Now, conversation.Wall(s.Now))
	}
}

// twoReplicas returns an engine with a route of replicated keys on two servers.
func twoReplicas(t *testing.T, more ...string) *conversation.Harness {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool(append([]string{"main", "servers=s1,s2", "queue=1000000", "gets=single", "deadline=2s"}, more...))
	for _, line := range []string{"route - main copies=2 through repair=0", "s1 runs 7", "s2 runs 8"} {
		s.Line(line)
	}
	return s
}

// manyKeys returns a get of n keys of the only server.
func manyKeys(n int) []byte { return []byte("get" + strings.Repeat(" k1", n) + "\r\n") }

// between returns how many keys and bytes of other clients a server received before
// the text mark.
func between(t *testing.T, srv *conversation.Endpoint, before int, mark string) (keys, bytesOf int) {
	got := srv.Got.Bytes()[before:]
	at := bytes.Index(got, []byte(mark))
	if at < 0 {
		t.Fatalf("%q was not sent", mark)
	}
	return bytes.Count(got[:at], []byte(" ")), at
}

// TestTurnsBound checks the bound on work for other clients between reading one
// client's get and sending it. It is at most two rounds and two turns, in keys and in
// bytes, and two command lines that are only parsed.
func TestTurnsBound(t *testing.T) {
	const keys, size = 2*client.RoundKeys + 2*client.TurnKeys, 2*client.RoundBytes + 2*client.TurnBytes
	var tags []string // the tags of a key
	for i := range 16 {
		tags = append(tags, fmt.Sprintf("t%d{n}", i))
	}
	for _, what := range []struct {
		name string
		text []byte
	}{
		{"gets with 16 tags", bytes.Repeat([]byte("get t:k1\r\n"), 20_000)},
		{"gets of many keys with 16 tags", bytes.Repeat([]byte("get"+strings.Repeat(" t:k1 t:j1 t:l1 t:m1", 250)+"\r\n"), 30)},
		{"gets of 100,000 keys", bytes.Repeat(manyKeys(100_000), 3)},
		{"gets of 20 keys", bytes.Repeat(manyKeys(20), 4000)},
		{"gets of one key", bytes.Repeat([]byte("get k1\r\n"), 20_000)},
		{"sets of 100 kB", bytes.Repeat([]byte("set k1 0 0 100000\r\n"+strings.Repeat("v", 100_000)+"\r\n"), 5)},
		{"sets of 5 MB", []byte("set k1 0 0 5000000\r\n" + strings.Repeat("v", 5_000_000) + "\r\n")},
		{"sets of 5 MB, binary", conversation.New(t).Frame("set #1 k=k1 x=0,0 v="+strings.Repeat("v", 5_000_000), false)},
		{"sets of 10 MB, which are rejected", []byte("set k1 0 0 10000000\r\n" + strings.Repeat("v", 10_000_000) + "\r\n")},
	} {
		t.Run(what.name, func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet = true
			s.Pool([]string{"main", "servers=s1", "queue=1000000", "gets=single"})
			s.Line("route t: main tags=t:{n}>" + strings.Join(tags, "+"))
			s.Line("route - main")
			s.Table.Limits.Line, s.Table.Limits.Memory, s.Table.Limits.Clients = 1<<20, 1<<30, 10_000
			s.Begin()
			s.Engine.Tune = link.Tune{} // otherwise requests wait for replies, and here there are none
			clients := 40
			if strings.HasSuffix(what.name, "tags") { // each has few reads in flight before it has a reply
				clients = 160
			}
			list, victim, srv := hogs(s, clients), s.Endpoint("cvictim"), s.Endpoint("s1")
			s.Wakeup(func() { s.Engine.Bytes(victim.Link, []byte("get k1\r\n")) })
			srv.Got.Reset()
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("END\r\n")) })
			victim.Got.Reset()
			rest := make([][]byte, len(list))
			for i := range rest {
				rest[i] = what.text
			}
			for round := range 12 {
				s.Now += int64(time.Millisecond)
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				mark, before := fmt.Sprintf("get mark%d1\r\n", round), srv.Got.Len()
				waits, came := false, 0 // whether the get was read and not sent yet, and how many bytes of others were read meanwhile
				feed := func(i int) {
					if a := list[i]; len(rest[i]) > 0 && !a.Paused {
						n := min(len(rest[i]), 4*64<<10) // one event brings this much
						event(s, func() { s.Engine.Bytes(a.Link, rest[i][:n]) })
						rest[i] = rest[i][n:]
						if waits = waits && !bytes.Contains(srv.Got.Bytes()[before:], []byte(mark)); waits {
							came += n
						}
					}
				}
				for i := range list[:clients/2] {
					feed(i)
				}
				read := srv.Got.Len()
				event(s, func() { s.Engine.Bytes(victim.Link, []byte(mark)) })
				waits = true
				for i := range list[clients/2:] {
					feed(clients/2 + i)
				}
				s.End()
				if came > size && strings.HasPrefix(what.name, "sets") {
					t.Fatalf("round %d: %d bytes of others were read before the get was sent, want at most %d", round, came, size)
				}
				k, b := between(t, srv, max(read, before), mark)
				if strings.HasSuffix(what.name, "tags") { // requests for versions have more words than keys
					got := srv.Got.Bytes()[max(read, before):]
					k = bytes.Count(got[:bytes.Index(got, []byte(mark))], []byte("\n"))
				}
				if k > keys || b > size {
					t.Fatalf("round %d: %d keys and %d bytes of others came between, want at most %d and %d", round, k, b, keys, size)
				}
			}
			if !s.Engine.HasBacklog() && !strings.HasPrefix(what.name, "sets") && srv.Got.Len() < 40*client.ShareKeys {
				t.Error("the others were not served at all")
			}
		})
	}
}

// server answers gets with a value for each key, a limited number of keys at a time.
type server struct {
	actor *conversation.Endpoint
	owed  []string // keys, and "" at the end of a line
	size  int      // length of a value; 0: 1
}

// serve answers up to n keys.
func (v *server) serve(s *conversation.Harness, n int) {
	got := v.actor.Got.Bytes()
	end := bytes.LastIndexByte(got, '\n') + 1
	for line := range strings.Lines(string(got[:end])) {
		v.owed = append(v.owed, strings.Fields(line)[1:]...)
		v.owed = append(v.owed, "")
	}
	v.actor.Got.Next(end)
	var out bytes.Buffer
	for len(v.owed) > 0 && n > 0 {
		if key := v.owed[0]; key == "" {
			out.WriteString("END\r\n")
		} else {
			size := max(v.size, 1)
			fmt.Fprintf(&out, "VALUE %s 0 %d\r\n%s\r\n", key, size, strings.Repeat("v", size))
			n--
		}
		v.owed = v.owed[1:]
	}
	if out.Len() > 0 {
		s.Wakeup(func() { s.Engine.Bytes(v.actor.Link, out.Bytes()) })
	}
}

// TestBurst lets 1,500 clients read many keys each at the same time, from servers that
// answer 200,000 keys per second each. All clients must get all values, and no server
// may be considered down. Another client that reads one key at a time must get each
// within its deadline.
func TestBurst(t *testing.T) {
	clients, keys := 1500, 300
	if testenv.Full() {
		keys = 5000
	}
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1,s2", "get_errors=error", "queue=65536"})
	s.Table.Limits.Clients, s.Table.Limits.Memory = 2000, 4<<30
	s.Begin()
	request := "get"
	for i := range keys {
		request += fmt.Sprintf(" key%d:%d", i, 1+i%2)
	}
	list, small := hogs(s, clients), s.Endpoint("csmall")
	s.Engine.Begin(s.Now, conversation.Wall(s.Now))
	for _, a := range list {
		event(s, func() { s.Engine.Bytes(a.Link, []byte(request+"\r\n")) })
	}
	s.End()
	servers := []*server{{actor: s.Endpoint("s1")}, {actor: s.Endpoint("s2")}}
	asked, longest := int64(0), int64(0)
	left, values := clients, make([]int, clients)
	for step := 0; left > 0; step++ {
		if step > 100_000 {
			t.Fatalf("%d clients have no answer", left)
		}
		if small.Got.Len() > 0 || asked == 0 {
			if asked > 0 && small.Got.String() != "VALUE small1 0 1\r\nv\r\nEND\r\n" {
				t.Fatalf("the small client has got %q", small.Got.String())
			}
			small.Got.Reset()
			longest = max(longest, s.Now-asked*min(1, asked)-s.Now*(1-min(1, asked)))
			asked = s.Now
			s.Wakeup(func() { s.Engine.Bytes(small.Link, []byte("get small1\r\n")) })
		}
		s.Now += int64(5 * time.Millisecond)
		s.Wakeup(func() {})
		for _, v := range servers {
			v.serve(s, 1000)
		}
		left = 0
		for i, a := range list {
			got := a.Got.Bytes()
			if len(got) == 0 && values[i] < 0 {
				continue
			}
			values[i] += bytes.Count(got, []byte("VALUE "))
			if bytes.Contains(got, []byte("ERROR")) {
				t.Fatalf("client %d has got %.80q", i, got)
			}
			if bytes.HasSuffix(got, []byte("\r\nEND\r\n")) {
				if values[i] != keys {
					t.Fatalf("client %d has got %d values of %d", i, values[i], keys)
				}
				values[i] = -1
			} else {
				left++
			}
			a.Got.Reset()
		}
	}
	t.Logf("the longest wait of the small client was %v", time.Duration(longest))
	for _, srv := range s.Engine.List {
		if srv.Count.WentDown+srv.Count.TimedOut+srv.Count.Failed > 0 {
			t.Errorf("server %s: %d times down, %d timeouts, %d failures", srv.Label(), srv.Count.WentDown, srv.Count.TimedOut, srv.Count.Failed)
		}
	}
	if s.Engine.More != 0 {
		t.Errorf("%d keys are counted as in flight when none is", s.Engine.More)
	}
}

// TestReportsInTurn lets many clients request statistics of the loop at the same time. One
// reply is made after the other, and between two of them the loop handles other events.
func TestReportsInTurn(t *testing.T) {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.Begin()
	var posted []func(*proxy.Engine)
	s.Engine.Post = func(f func(*proxy.Engine)) { posted = append(posted, f) }
	list := hogs(s, 20)
	commands := []string{"conns", "proxy", "routes", "servers"}
	for i, a := range list {
		what := commands[i%len(commands)]
		s.Wakeup(func() { s.Engine.Bytes(a.Link, []byte(strings.Repeat("stats "+what+"\r\n", 5))) })
	}
	replies := func() (n int) {
		for _, a := range list {
			n += bytes.Count(a.Got.Bytes(), []byte("END\r\n"))
		}
		return n
	}
	s.Wakeup(func() { s.Engine.Closed(list[3].Link, errors.New("connection reset by peer")) }) // its request is dropped
	for before := 0; len(posted) > 0; before = replies() {
		run := posted
		posted = nil
		if len(run) > 1 {
			t.Fatalf("%d functions are posted at once, want one", len(run))
		}
		s.Wakeup(func() { run[0](s.Engine) })
		if n := replies() - before; n > 1 {
			t.Fatalf("%d replies in one wakeup, want at most one", n)
		}
	}
	if got, want := replies(), 19*5; got != want {
		t.Errorf("%d replies, want %d", got, want)
	}
}

// TestPieces checks that a multi-key read is sent in pieces and answered as a whole. It
// may have commands before and after it, and keeps the order of the request if the pool
// requires it.
func TestPieces(t *testing.T) {
	for _, order := range []string{"gets=single", "ordered=true"} {
		s := conversation.New(t)
		s.Pool([]string{"main", "servers=s1", order})
		s.Begin()
		c, v := s.Endpoint("c1"), &server{actor: s.Endpoint("s1")}
		want := "VALUE first1 0 1\r\nv\r\nEND\r\n"
		request := "get first1\r\nget"
		for i := range 5000 {
			request += fmt.Sprintf(" k%d:1", i)
			want += fmt.Sprintf("VALUE k%d:1 0 1\r\nv\r\n", i)
		}
		request += "\r\nget last1\r\nmn\r\n"
		want += "END\r\nVALUE last1 0 1\r\nv\r\nEND\r\nMN\r\n"
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(request)) })
		rounds := 0
		for v.actor = s.Endpoint("s1"); v.actor.Got.Len() > 0 || len(v.owed) > 0; rounds++ {
			v.serve(s, 1<<20)
			if n := len(v.owed); n > client.TurnKeys+64 {
				t.Fatalf("%d keys were asked at once", n)
			}
		}
		if got := c.Got.String(); got != want {
			t.Errorf("%s: %d bytes %.200q, want %d", order, len(got), got, len(want))
		}
		if want := 1 + 5000/client.TurnKeys; rounds < want {
			t.Errorf("%d rounds, want at least %d", rounds, want)
		}
	}
}

// TestPiecesOfTasks reads many keys, each of which needs a task because the first replica misses. A piece
// has at most client.TaskKeys keys. Each piece has the whole deadline.
func TestPiecesOfTasks(t *testing.T) {
	s := twoReplicas(t, "get_errors=error")
	c, first, second := s.Endpoint("c1"), s.Endpoint("s1"), s.Endpoint("s2")
	s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get k1\r\n")) })
	for _, srv := range []*conversation.Endpoint{first, second} {
		s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("END\r\n")) })
		srv.Got.Reset()
	}
	c.Got.Reset()
	const keys = 5 * client.TaskKeys / 2
	s.Wakeup(func() { s.Engine.Bytes(c.Link, manyKeys(keys)) })
	for _, want := range []int{client.TaskKeys, client.TaskKeys, client.TaskKeys / 2} {
		for _, srv := range []*conversation.Endpoint{first, second} {
			s.Wakeup(func() {}) // the client's next turn
			n := bytes.Count(srv.Got.Bytes(), []byte("k1"))
			if n != want {
				t.Fatalf("a server got %d keys at once, want %d", n, want)
			}
			srv.Got.Reset()
			s.Now += int64(400 * time.Millisecond)
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, bytes.Repeat([]byte("END\r\n"), n)) })
		}
	}
	if got := c.Got.String(); got != "END\r\n" {
		t.Errorf("the client got %q", got)
	}
}

// TestTasksBound checks how many tasks start in one wakeup. Many clients read keys that the first replica
// does not have, so its replies start a task for each key. Another client's get is sent in the next
// wakeup, before most of these tasks start. A client that pipelines sets of replicated keys gets
// client.TaskKeys of them in one wakeup.
func TestTasksBound(t *testing.T) {
	s := twoReplicas(t)
	innocent, first, second := s.Endpoint("c900"), s.Endpoint("s1"), s.Endpoint("s2")
	answer := func(srv *conversation.Endpoint) (keys int) {
		keys = bytes.Count(srv.Got.Bytes(), []byte("get k1"))
		srv.Got.Reset()
		s.Engine.Bytes(srv.Link, bytes.Repeat([]byte("END\r\n"), keys))
		return keys
	}
	wakeup := func(f func()) {
		s.Engine.Begin(s.Now, conversation.Wall(s.Now))
		f()
		s.End()
	}
	const clients = 3 * client.RoundTasks / client.TaskKeys
	all := hogs(s, clients)
	s.Wakeup(func() {
		for _, c := range all {
			s.Engine.Bytes(c.Link, manyKeys(2*client.TaskKeys))
		}
	})
	asked := 0
	wakeup(func() { asked = answer(first) })
	if want := clients * client.TaskKeys; asked != want {
		t.Fatalf("the first replica was asked for %d keys, want %d: client.TaskKeys of each client", asked, want)
	}
	started := func() int { return bytes.Count(second.Got.Bytes(), []byte("get k1")) }
	if n := started(); n != client.RoundTasks || !s.Engine.HasBacklog() {
		t.Errorf("%d tasks have started in one wakeup, want %d", n, client.RoundTasks)
	}
	wakeup(func() { s.Engine.Bytes(innocent.Link, []byte("get other1\r\n")) })
	if n := started(); n > 2*client.RoundTasks || !bytes.Contains(append(first.Got.Bytes(), second.Got.Bytes()...), []byte("get other1")) {
		t.Errorf("after %d tasks, another client's get has not been sent", n)
	}
	s.Wakeup(func() {})
	if n := started(); n != asked {
		t.Errorf("%d tasks have started, want %d", n, asked)
	}

	writer := s.Endpoint("c901")
	second.Got.Reset()
	first.Got.Reset()
	wakeup(func() {
		var sets bytes.Buffer
		for i := range 1000 {
			fmt.Fprintf(&sets, "set n%d 0 0 1\r\n1\r\n", i)
		}
		s.Engine.Bytes(writer.Link, sets.Bytes())
	})
	if n := bytes.Count(append(first.Got.Bytes(), second.Got.Bytes()...), []byte(" 0 0 1\r\n")); n == 0 || n > 3*(client.TaskKeys+1) {
		t.Errorf("%d sets were sent in one wakeup", n)
	}
}

// TestClientsTasks checks how many commands that need several requests the clients have in flight. Further
// ones stay in the clients' input, so they use no memory.
func TestClientsTasks(t *testing.T) {
	s := twoReplicas(t)
	const clients, most = 90, 1024 + 90*client.ShareTasks // a task counts as 16 of 16,384 keys until the loop is busy
	first, second := s.Endpoint("s1"), s.Endpoint("s2")
	pipeline := func(c *conversation.Endpoint, command string) {
		s.Wakeup(func() {
			for i := range 3000 {
				s.Engine.Bytes(c.Link, fmt.Appendf(nil, command, i))
			}
		})
		for range 300 {
			s.Wakeup(func() {})
		}
	}
	all := hogs(s, clients)
	for i, c := range all {
		pipeline(c, fmt.Sprintf("set k%d:%%d1 0 0 1\r\n1\r\n", i))
		sets := bytes.Count(append(first.Got.Bytes(), second.Got.Bytes()...), []byte(" 0 0 1\r\n1\r\n")) / 2
		if i == 0 && sets != client.FirstTasks || sets > most {
			t.Fatalf("%d clients have %d sets in flight", i+1, sets)
		}
	}
}

// TestFewTasksFirst checks that the only command of a client does not wait for those that other clients have
// sent before. All keys are missing at the first replica, so its replies start a task for each.
func TestFewTasksFirst(t *testing.T) {
	s := twoReplicas(t)
	first, second, innocent := s.Endpoint("s1"), s.Endpoint("s2"), s.Endpoint("c900")
	const clients = 4 * client.RoundTasks / client.TaskKeys
	all := hogs(s, clients)
	s.Wakeup(func() {
		for _, c := range all {
			s.Engine.Bytes(c.Link, manyKeys(client.TaskKeys))
		}
		s.Engine.Bytes(innocent.Link, []byte("get other1\r\n"))
	})
	for range 8 {
		s.Engine.Begin(s.Now, conversation.Wall(s.Now))
		replies := bytes.Count(first.Got.Bytes(), []byte("get "))
		first.Got.Reset()
		s.Engine.Bytes(first.Link, bytes.Repeat([]byte("END\r\n"), replies))
		s.End()
	}
	got := second.Got.Bytes()
	before, total := bytes.Count(got[:max(0, bytes.Index(got, []byte("get other1")))], []byte("get k1")), bytes.Count(got, []byte("get k1"))
	if total < clients*client.TaskKeys-1 || before == 0 || before > 5*client.RoundTasks/4 {
		t.Errorf("the second replica was asked for the other client's key after %d of %d keys", before, total)
	}
}

// TestWakeupsBound checks that a wakeup handles a limited number of requests that Ringside answers itself, in one event for
// each of many clients, and that a client with one request is answered before those that wait.
func TestWakeupsBound(t *testing.T) {
	const clients, events = 400, 256
	near := []byte("get" + strings.Repeat(" k1", 1000) + "\r\n")
	for _, what := range []struct {
		name    string
		text    []byte
		reply   string
		replies int // for each client
	}{
		{"version", bytes.Repeat([]byte("version\r\n"), 3000), "VERSION", 3000},
		{"mn", bytes.Repeat([]byte("mn\r\n"), 3000), "MN", 3000},
		{"version of binary clients", bytes.Repeat([]byte("\x80\x0b"+strings.Repeat("\x00", 22)), 3000), "\x81\x0b", 3000},
		{"multi-gets of values that Ringside has", bytes.Repeat(near, 3), "VALUE", 3000},
	} {
		t.Run(what.name, func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet = true
			s.Pool([]string{"main", "servers=s1"})
			s.Line("route - main near=10s")
			s.Table.Limits.Clients, s.Table.Limits.Memory = 2*clients, 1<<30
			s.Begin()
			list, victim, srv := hogs(s, clients), s.Endpoint("cvictim"), s.Endpoint("s1")
			s.Wakeup(func() { s.Engine.Bytes(victim.Link, []byte("get k1\r\n")) })
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("VALUE k1 0 1\r\nv\r\nEND\r\n")) })
			rest, all := slices.Clone(list), 0
			for round := 0; len(rest) > 0 || s.Engine.HasBacklog(); round++ {
				s.Now += int64(time.Millisecond)
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				n := min(len(rest), events)
				for _, c := range rest[:n] {
					event(s, func() { s.Engine.Bytes(c.Link, what.text) })
				}
				rest = rest[n:]
				victim.Got.Reset()
				event(s, func() { s.Engine.Bytes(victim.Link, []byte("version\r\n")) })
				s.End()
				if !strings.HasPrefix(victim.Got.String(), "VERSION") {
					t.Fatalf("wakeup %d: another client got %q", round, victim.Got.String())
				}
				n = 0
				for _, c := range list {
					n += bytes.Count(c.Got.Bytes(), []byte(what.reply))
					c.Got.Reset()
				}
				if most := 3*client.RoundKeys + 2*client.TurnKeys; n > most {
					t.Fatalf("wakeup %d: %d requests are answered, want at most %d", round, n, most)
				}
				all += n
			}
			if want := clients * what.replies; all != want {
				t.Errorf("%d requests are answered, want %d", all, want)
			}
		})
	}
}

// TestLargeReads checks how many large values the clients of a route with replicas have requested at the same time. Their reads
// can't be taken back from the connection, on which other clients wait.
func TestLargeReads(t *testing.T) {
	const size = 1 << 20
	value := []byte(fmt.Sprintf("VALUE k1 0 %d\r\n%s\r\nEND\r\n", size, strings.Repeat("v", size)))
	for _, what := range []struct {
		name    string
		request []byte
		first   int // keys that the first client requests before a reply
	}{
		{"one key at a time", bytes.Repeat([]byte("get k1\r\n"), 500), client.FirstTasks},
		{"many keys at a time", bytes.Repeat(manyKeys(100), 5), client.TaskKeys},
	} {
		t.Run(what.name, func(t *testing.T) {
			s := twoReplicas(t)
			s.Table.Limits.Memory = 1 << 30
			s.Begin()
			list, open := hogs(s, 20), map[*conversation.Endpoint]int{} // open: values that were requested on a connection and not sent
			asked := func() (all int) {
				for name, a := range s.Endpoints {
					if name[0] == 's' {
						if bytes.HasPrefix(a.Got.Bytes(), []byte("stats\r\n")) { // the connection of clients with large values is new
							s.Line(name + " runs 7")
						}
						open[a] += bytes.Count(a.Got.Bytes(), []byte(" k1"))
						all += open[a]
						a.Got.Reset()
					}
				}
				return all
			}
			send := func(c *conversation.Endpoint) {
				s.Wakeup(func() { s.Engine.Bytes(c.Link, what.request) })
				for range 20 {
					s.Wakeup(func() {})
				}
			}
			if send(list[0]); asked() > what.first {
				t.Errorf("the first client has requested %d keys before a reply, want at most %d", asked(), what.first)
			}
			got := 0
			for range 300 {
				asked()
				s.Now += int64(time.Millisecond)
				for a, n := range open {
					if n > 0 {
						open[a]--
						s.Wakeup(func() { s.Engine.Bytes(a.Link, value) })
						break
					}
				}
				got += list[0].Got.Len() / size
				list[0].Got.Reset()
			}
			if asked() > 1 || got != 300 {
				t.Errorf("after %d values, the client has requested %d more", got, asked())
			}
			for _, c := range list[1:] {
				send(c)
			}
			if n := asked(); n > 2*len(list) {
				t.Errorf("%d clients have requested %d values before one arrives", len(list), n)
			}
			for i := range 20 { // these leave before their replies
				c := s.Endpoint(fmt.Sprintf("c%d", 100+i))
				send(c)
				s.Line(c.Name + " full")
			}
			others := s.Endpoints["s1'"] // s1 is the connection of clients with large values, which is newer
			if n := bytes.Count(others.Got.Bytes(), []byte(" k1")); n > 0 {
				t.Errorf("new clients have requested %d values on the connection of others", n)
			}
		})
	}
}

// TestLargePlainReads checks how many values clients have requested before one arrives, and how many large ones after that, on a route
// without features. Clients that read as fast as values arrive must not delay others with their first requests.
func TestLargePlainReads(t *testing.T) {
	const values = 300
	for _, what := range []struct {
		name    string
		size    int
		request []byte
		most    int // keys in flight of one client after the first reply
	}{
		{"one key at a time", 1 << 20, bytes.Repeat([]byte("get k1\r\n"), values), 1},
		{"many keys at a time", 1 << 20, bytes.Repeat(manyKeys(100), values/100), 1},
		{"values of 100 kB", 100_000, bytes.Repeat([]byte("get k1\r\n"), values), 10},
		{"small values", 100, bytes.Repeat([]byte("get k1\r\n"), values), values},
		{"many small values", 100, bytes.Repeat(manyKeys(100), values/100), values},
	} {
		t.Run(what.name, func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet = true
			s.Pool([]string{"main", "servers=s1", "queue=1000000", "gets=single", "deadline=2s"})
			s.Table.Limits.Memory = 1 << 30
			s.Begin()
			s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("c").Link, []byte("get k1\r\n")) })
			servers := map[*conversation.Endpoint]*server{} // by connection
			serve := func(n int) (owed int) {
				for name, a := range s.Endpoints {
					if name[0] == 's' {
						v := servers[a]
						if v == nil {
							v = &server{actor: a, size: what.size}
							servers[a] = v
						}
						v.serve(s, n)
						for _, key := range v.owed {
							owed += min(1, len(key))
						}
					}
				}
				return owed
			}
			serve(1)
			list := hogs(s, 20)
			send := func(c *conversation.Endpoint) {
				s.Wakeup(func() { s.Engine.Bytes(c.Link, what.request) })
				for range 20 {
					s.Wakeup(func() {})
				}
			}
			if send(list[0]); serve(0) > client.ShareKeys {
				t.Errorf("the first client has requested %d keys before a reply, want at most %d", serve(0), client.ShareKeys)
			}
			got, most, rounds := 0, 0, 0
			for ; got < values && rounds < 2*values; rounds++ {
				s.Now += int64(time.Millisecond)
				owed := serve(1)
				if got += bytes.Count(list[0].Got.Bytes(), []byte("VALUE")); got > client.ShareKeys {
					most = max(most, owed)
				}
				list[0].Got.Reset()
			}
			if most > what.most || got != values {
				t.Errorf("the client has %d values after %d rounds, and then at most %d in flight, want at most %d", got, rounds, most, what.most)
			}
			if what.size < 1<<20 {
				return
			}
			for _, c := range list[1:] {
				send(c)
			}
			if n := serve(0); n > 2*len(list) {
				t.Errorf("%d clients have requested %d values before one arrives", len(list), n)
			}
		})
	}
}

// TestNoreplyIsNotLarge checks that a client that pipelines commands with noreply is not taken for one with large values, so that
// new clients are not paced for ever.
func TestNoreplyIsNotLarge(t *testing.T) {
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1"})
	s.SetLimits([]string{"output=20000"})
	s.Begin()
	asked := func(text, reply string) (n int) {
		for range 100 {
			for name, a := range s.Endpoints {
				if name[0] == 's' {
					k := bytes.Count(a.Got.Bytes(), []byte(text))
					n += k
					a.Got.Reset()
					s.Wakeup(func() { s.Engine.Bytes(a.Link, bytes.Repeat([]byte(reply), k)) })
				}
			}
		}
		return n
	}
	send := func(name, text string) {
		c := s.Endpoint(name)
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(text)) })
	}
	send("c1", strings.Repeat("get a1\r\n", 100))
	if n := asked("get a1\r\n", "VALUE a1 0 40000\r\n"+strings.Repeat("v", 40000)+"\r\nEND\r\n"); n != 100 {
		t.Fatalf("%d values are requested", n)
	}
	for range 4 {
		send("c2", strings.Repeat("set a1 0 0 1 noreply\r\nA\r\n", 100))
		asked("set a1 0 0 1", "STORED\r\n")
		s.Now += int64(4 * time.Second)
		s.Wakeup(func() {})
	}
	send("c3", "get a1 b1 c1\r\n")
	if n := asked("get a1 b1 c1\r\n", "END\r\n"); n != 1 {
		t.Error("a new client is paced")
	}
}

// TestLargeValuesOfClientsThatLeave checks that new clients use other connections than clients with small values after a client has
// requested one large value and has left, before or after the value.
func TestLargeValuesOfClientsThatLeave(t *testing.T) {
	value := []byte("VALUE k1 0 1000000\r\n" + strings.Repeat("v", 1_000_000) + "\r\nEND\r\n")
	for _, replicas := range []bool{false, true} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprint("replicas=", replicas, " before=", before), func(t *testing.T) {
				var s *conversation.Harness
				if replicas {
					s = twoReplicas(t)
				} else {
					s = conversation.New(t)
					s.Quiet = true
					s.Pool([]string{"main", "servers=s1", "gets=single", "get_errors=error"})
				}
				s.Begin()
				ask := func(name string) {
					c := s.Endpoint(name)
					s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get k1\r\n")) })
				}
				ask("c1")
				others := s.Endpoint("s1")
				if before {
					s.Line("c1 resets")
				}
				held := s.Engine.Buffers.Held
				others.Got.Reset()
				s.Wakeup(func() { s.Engine.Bytes(others.Link, value[:900_000]) })
				if n := s.Engine.Buffers.Held - held; before && n > 200_000 {
					t.Errorf("%d bytes are held of a value that no client gets", n)
				}
				s.Wakeup(func() { s.Engine.Bytes(others.Link, value[900_000:]) })
				if !before {
					s.Line("c1 resets")
				}
				ask("c2")
				if others.Got.Len() > 0 {
					t.Errorf("a new client has sent %q on the connection of others", others.Got.String())
				}
			})
		}
	}
}

// TestLargeValuesWithoutPipelining checks that a client with one large value in flight uses other connections than the others, and that a
// client that connects meanwhile uses those of the others as soon as its values are known to be small.
func TestLargeValuesWithoutPipelining(t *testing.T) {
	large := "VALUE k1 0 1000000\r\n" + strings.Repeat("v", 1_000_000) + "\r\nEND\r\n"
	s := conversation.New(t)
	s.Quiet = true
	s.Pool([]string{"main", "servers=s1", "gets=single"})
	s.Begin()
	var others *conversation.Endpoint // the first connection to the server
	// send sends a request of a client, and the server's reply in pieces. It reports whether the request used the first connection.
	send := func(client, request, reply string) bool {
		for _, e := range s.Endpoints {
			e.Got.Reset()
		}
		c := s.Endpoint(client)
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(request)) })
		for name, e := range s.Endpoints {
			if name[0] == 's' && strings.Contains(e.Got.String(), strings.Fields(request)[1]) {
				if others == nil {
					others = e
				}
				for ; reply != ""; reply = reply[min(len(reply), 300_000):] {
					s.Wakeup(func() { s.Engine.Bytes(e.Link, []byte(reply[:min(len(reply), 300_000)])) })
				}
				return e == others
			}
		}
		t.Fatalf("no server has got %q", request)
		return false
	}
	get := func(client, key, reply string) bool { return send(client, "get "+key+"\r\n", reply) }
	get("c1", "k1", large)
	for range 3 {
		if get("c1", "k1", large) {
			t.Error("a client with large values uses the connection of others")
		}
	}
	if get("c2", "j1", "END\r\n") {
		t.Error("the first get of a new client uses the connection of others")
	}
	for range 10 {
		if !get("c2", "j1", "VALUE j1 0 1\r\nv\r\nEND\r\n") {
			t.Error("a client with small values uses the connection of clients with large ones")
		}
	}
	send("c3", "set j1 0 0 1 noreply\r\nv\r\n", "STORED\r\n")
	for range 3 {
		if !send("c3", "set j1 0 0 1 noreply\r\nv\r\n", "STORED\r\n") {
			t.Error("a new client without replies uses the connection of clients with large values")
		}
	}
}
