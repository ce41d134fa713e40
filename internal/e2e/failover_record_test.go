package e2e

// This file tests the view record: flushed, deleted, rejected by a server, not understood
// by a server, and read by an instance that starts or reloads during an outage.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

const viewRecord = "__rs_view__:main"

// TestFailoverFlush flushes all servers and deletes view records, with all servers up and
// with one out.
func TestFailoverFlush(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 2, k, startLasting(t, 3))
		const gone = 1
		client := dial(t, o.ringsides[1].address)
		flush := func(name string) {
			t.Helper()
			was := o.total()
			o.flushed(func() bool {
				answer := client.question("flush_all")
				if answer != "OK" {
					t.Errorf("%s: flush_all: %s", name, answer)
				}
				return answer == "OK"
			})
			o.calm(t, 50)
			o.sound(t)
			t.Logf("%s: %v", name, o.total().minus(was))
		}
		deleteFrom := func(name string, servers ...int) {
			t.Helper()
			was := o.total()
			for _, i := range servers {
				c := dial(t, o.servers[i].address)
				if answer := c.question("delete " + viewRecord); answer != "DELETED" {
					t.Errorf("%s: delete the record on server %d: %s", name, i, answer)
				}
			}
			for _, i := range servers {
				c := dial(t, o.servers[i].address)
				eventually(t, "the record is back", func() bool { found, _ := c.get(viewRecord); return len(found) == 1 })
			}
			o.calm(t, 50)
			o.sound(t)
			t.Logf("%s: %v", name, o.total().minus(was))
		}
		flush("flush while all is well")
		deleteFrom("one record deleted while all is well", 0)
		deleteFrom("all records deleted while all is well", 0, 1, 2)

		o.servers[gone].leave(t)
		o.allSay(t, serverName(gone), "OUT")
		o.calm(t, 50)
		flush("flush while a server is out")
		deleteFrom("one record deleted while a server is out", 0)
		deleteFrom("all records deleted while a server is out", 0, 2)
		for i, r := range o.ringsides {
			if phase := r.phase(serverName(gone)); phase != "OUT" {
				t.Errorf("after all this ringside %d says that the server is %s", i, phase)
			}
		}
		o.servers[gone].comeBack(t)
		o.allSay(t, serverName(gone), "RETURN")
		flush("flush while a server comes back")
		o.settled(t)
		o.end(t)
	})
}

// TestFailoverWithoutFlush uses servers that reject flush_all. The keys of a server that
// rejoins get other names, so its old values can't be read any more.
func TestFailoverWithoutFlush(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startLasting(t, 3, "-F"))
		at := owners(t, o.servers, o.kept)
		const gone = 1
		s := o.servers[gone]
		well := 0 // number of values on the other servers
		for _, i := range at {
			if i != gone {
				well++
			}
		}
		for range 2 {
			s.leave(t)
			o.allSay(t, serverName(gone), "OUT")
			o.calm(t, 50)
			s.comeBack(t)
			o.settled(t)
			o.ringsides[0].logged(t, "it rejects flush_all, so its old keys are no longer used")
			if n := o.keeps(t, at, gone); n != 0 {
				t.Errorf("%d values from before are back", n)
			}
			// On a slow machine a get may miss once, because its reply came too late.
			eventually(t, "the values of the other servers are there", func() bool { return o.keeps(t, at, 0)+o.keeps(t, at, 2) == well })
			client := dial(t, o.ringsides[0].address)
			for key, i := range at {
				if i == gone {
					client.store(key, valueOf(key))
					client.holds(key, valueOf(key))
				}
			}
		}
		// An instance that starts now must learn the names before it serves.
		plain := names("kept", 60)
		for range 3 {
			r := startRingside(t, driver, k.config(o.servers))
			client := dial(t, r.address)
			for _, key := range plain {
				if found, end := client.get(key); at[key] == gone && end == "END" && found[key] != valueOf(key) {
					t.Errorf("a ringside that has just started says %q of %s", found[key], key)
				}
			}
			r.Kill()
		}
		o.end(t)
	})
}

// TestFailoverStart starts an instance while a server is out but replies again. The
// instance must not read from that server, because its values are old.
func TestFailoverStart(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startLasting(t, 3))
		at := owners(t, o.servers, o.kept)
		const gone = 1
		o.servers[gone].leave(t)
		o.allSay(t, serverName(gone), "OUT")
		o.ringsides[0].steer(t, "POST", "/control/servers/"+serverName(gone)+"/drain?pool=main", "")
		o.calm(t, 50)
		client := dial(t, o.ringsides[0].address)
		var moved []string
		for key, i := range at {
			if i == gone {
				client.store(key, "new value of "+key)
				moved = append(moved, key)
			}
		}
		o.servers[gone].comeBack(t)
		o.ringsides[0].logged(t, `server=s1 from=suspect to=up`)
		for range 5 {
			r := startRingside(t, driver, k.config(o.servers))
			client := dial(t, r.address)
			for _, key := range moved {
				if found, end := client.get(key); end == "END" && found[key] != "new value of "+key {
					t.Errorf("a ringside that has just started says %q of %s", found[key], key)
				}
			}
			eventually(t, "it has learnt", func() bool { found, _ := client.get(moved[0]); return found[moved[0]] == "new value of "+moved[0] })
			r.Kill()
		}
		o.end(t)
	})
}

// TestFailoverReload checks that a reload during an outage keeps the phases, with the
// same servers, with one more and with one less.
func TestFailoverReload(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startLasting(t, 3))
		r := o.ringsides[0]
		const gone = 1
		reload := func(config string) {
			t.Helper()
			before := r.metric(t, reloadsDone)
			r.reload(t, config)
			r.reloaded(t, reloadsDone, before)
		}
		o.servers[gone].leave(t)
		o.allSay(t, serverName(gone), "OUT")
		o.calm(t, 50)
		since := len(r.Output())

		o.moved()
		was := o.total()
		reload(k.config(o.servers))
		o.more(t, 200)
		if is := o.total().minus(was); is.lost > 0 {
			t.Errorf("a reload of the same file: %v\n%s", is, o.examples())
		}
		k.more = []string{"queue: 1000"}
		reload(k.config(o.servers))
		o.more(t, 200)
		if is := o.total().minus(was); is.lost > 0 {
			t.Errorf("a reload of another queue: %v\n%s", is, o.examples())
		}
		if went := r.went(serverName(gone), since); len(went) > 0 {
			t.Errorf("reloads made the server %v", went)
		}

		// A reload adds a server while one is out and replies again.
		o.servers[gone].comeBack(t)
		more := append(o.servers[:3:3], startMemcached(t))
		reload(k.config(more))
		o.settled(t)
		o.sound(t)

		// A reload removes a server that is out.
		more[gone].Kill()
		o.allSay(t, serverName(gone), "OUT")
		o.calm(t, 50)
		reload(strings.Replace(k.config(more), fmt.Sprintf("      - {address: %q, name: s1}\n", more[gone].address), "", 1))
		o.calm(t, 50)
		o.end(t)
	})
}

// withoutMeta simulates a memcached before 1.5.19, which does not know meta commands. It
// is a relay that replies to them as such a server does.
type withoutMeta struct {
	*memcached
	behind string // address of the real server

	mu    sync.Mutex
	open  []net.Conn
	alive bool
}

func startWithoutMeta(t testing.TB) *withoutMeta {
	t.Helper()
	real := startMemcached(t)
	w := &withoutMeta{memcached: &memcached{address: freeAddress(t, ownHost()), process: real.process}, behind: real.address}
	w.serve(t)
	return w
}

func (w *withoutMeta) serve(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.alive = true
	w.mu.Unlock()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			if !w.alive {
				c.Close()
				l.Close()
				w.mu.Unlock()
				return
			}
			w.open = append(w.open, c)
			w.mu.Unlock()
			go w.relay(c)
		}
	}()
}

// stop closes all connections. Later ones are closed on accept.
func (w *withoutMeta) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alive = false
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

// relay forwards one command at a time to the real server and waits for its reply.
func (w *withoutMeta) relay(c net.Conn) {
	defer c.Close()
	s, err := dialError(w.behind)
	if err != nil {
		return
	}
	defer s.Close()
	in, out := bufio.NewReader(c), bufio.NewReader(s)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		f := strings.Fields(line)
		if len(f) == 0 || len(f[0]) == 2 && f[0][0] == 'm' { // a meta command: mn, mg, ms …
			if _, err := io.WriteString(c, "ERROR\r\n"); err != nil {
				return
			}
			continue
		}
		request := line
		if size := 0; f[0] == "set" || f[0] == "add" || f[0] == "cas" {
			fmt.Sscan(f[4], &size)
			body := make([]byte, size+2)
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			request += string(body)
		}
		if _, err := io.WriteString(s, request); err != nil {
			return
		}
		for more := true; more; {
			line, err := out.ReadString('\n')
			if err != nil {
				return
			}
			answer := line
			if a := strings.Fields(line); len(a) > 3 && a[0] == "VALUE" {
				size := 0
				fmt.Sscan(a[3], &size)
				body := make([]byte, size+2)
				if _, err := io.ReadFull(out, body); err != nil {
					return
				}
				answer += string(body)
			} else {
				more = len(a) > 0 && a[0] == "STAT"
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
}

// TestFailoverWithoutMeta has a server without meta commands, which cannot hold a view
// record. The pool then moves no keys, whichever server fails.
func TestFailoverWithoutMeta(t *testing.T) {
	eachKind(t, moving[:1], func(t testing.TB, driver string, k kind) {
		old := startWithoutMeta(t)
		servers := append(startMemcacheds(t, 2), old.memcached)
		o := &outing{servers: servers}
		o.ringsides = []*ringside{startRingside(t, driver, k.config(servers))}
		o.textOnly = true
		o.fill(t)
		o.ringsides[0].logged(t, "doesn't know meta commands")
		for _, outage := range []struct {
			gone        int
			begin, heal func()
		}{
			{0, func() { servers[0].Kill() }, func() { servers[0].restart(t) }},
			{2, old.stop, func() { old.serve(t) }},
		} {
			outage.begin()
			o.troubled(t, outage.gone)
			o.more(t, 800)
			if phase := o.ringsides[0].phase(serverName(outage.gone)); phase != "IN" {
				t.Errorf("server %d is %s", outage.gone, phase)
			}
			outage.heal()
			o.settled(t)
		}
		o.end(t)
	})
}
