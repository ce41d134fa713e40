package e2e

// This file tests a stranger: another memcached, which has run for a long time and has
// other values, at the address of a server that ended.

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// door is an address whose server can be changed.
type door struct {
	address string
	listen  net.Listener
	mu      sync.Mutex
	conns   []net.Conn
}

// open forwards connections at the address to server.
func (d *door) open(t testing.TB, server string) {
	t.Helper()
	listen, err := net.Listen("tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	d.listen, d.address = listen, listen.Addr().String()
	testenv.ServeOn(t, listen, func(from net.Conn) {
		to, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conns = append(d.conns, from, to)
		d.mu.Unlock()
		carry := func(a, b net.Conn) { io.Copy(a, b); a.Close(); b.Close() }
		go carry(from, to)
		carry(to, from)
	})
}

// shut closes all connections and stops listening.
func (d *door) shut() {
	d.listen.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.Close()
	}
	d.conns = nil
}

func TestStranger(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		// If a server gets no CPU, its last reply may be too long ago. The stranger may
		// then not have run for longer than that, and looks like a restarted server.
		rounds(t, 2*time.Second, func(t testing.TB) { meetStranger(t, driver) })
	})
}

func meetStranger(t testing.TB, driver string) {
	servers := startMemcacheds(t, 3)
	stranger := startMemcached(t)
	entrance := &door{address: net.JoinHostPort(ownHost(), "0")}
	entrance.open(t, servers[0].address)
	seen := append([]*memcached{{address: entrance.address}}, servers[1:]...)
	config := front(seen, "failover: {mode: rehash, ping: 100ms, lease: 600ms, eject_after: 30s, consistency: strict}", unhurriedReturn)
	r := startRingside(t, driver, config)
	client := dial(t, r.address)
	other := dial(t, stranger.address)
	keys := make([]string, 60)
	for i := range keys {
		keys[i] = fmt.Sprintf("key:%d", i)
		eventually(t, "a server takes values", func() bool { return client.set(keys[i], "ours") == "STORED" })
		other.store(keys[i], "theirs")
	}
	time.Sleep(processLead) // so that the stranger has run for longer than the time since the server's last reply

	entrance.shut()
	eventually(t, "the server is missed", func() bool { return !r.calm() })
	entrance.open(t, stranger.address)
	theirs := func() (n int) {
		for _, key := range keys {
			if found, _ := client.get(key); found[key] == "theirs" {
				n++
			}
		}
		return n
	}
	eventually(t, "the stranger leaves", func() bool {
		if n := theirs(); n > 0 {
			t.Fatalf("%d values of another memcached are read", n)
		}
		return len(r.went(entrance.address, 0)) > 0
	})
	eventually(t, "it is back", func() bool { return r.phase(entrance.address) == "IN" })
	if n := theirs(); n > 0 {
		t.Errorf("%d values of another memcached are read in the end", n)
	}
	if found, _ := other.get(keys...); len(found) > 0 {
		t.Errorf("the stranger was not emptied: %d", len(found))
	}
}

// processLead is the minimum time that the stranger has run when the server replies for
// the last time.
const processLead = 8 * time.Second

// TestStrangerThatServes restarts a server with its memory, so that its uptime includes
// the time before. Once it is flushed and serves again, no loop may take it for a
// stranger. That includes a loop that sent it nothing during the restart.
func TestStrangerThatServes(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		// If a server gets no CPU for the length of a lease, a strict pool does not use it for that time.
		rounds(t, 400*time.Millisecond, func(t testing.TB) { serveAsStranger(t, driver) })
	})
}

func serveAsStranger(t testing.TB, driver string) {
	servers := startLasting(t, 3)
	r := startRingside(t, driver+", loops: 2", front(servers, "get_errors: error", "failover: {mode: rehash, ping: 100ms, lease: 600ms, eject_after: {refused: 300ms, silent: 15s}, consistency: strict}", unhurriedReturn))
	clients := make([]*conn, 12) // enough for both loops to have some
	for i := range clients {
		clients[i] = dial(t, r.address)
	}
	keys := names("key", 30)
	time.Sleep(processLead) // so that its uptime is longer than the outage
	stored := 0
	eventually(t, "the servers take the values of all clients", func() bool {
		for ; stored < len(clients)*len(keys); stored++ {
			if clients[stored/len(keys)].set(keys[stored%len(keys)], "old") != "STORED" {
				return false
			}
		}
		return true
	})

	servers[1].leave(t)
	eventually(t, "it is out", func() bool { return r.phase(servers[1].address) == "OUT" })
	servers[1].comeBack(t)
	eventually(t, "it is in", func() bool { return r.phase(servers[1].address) == "IN" })
	var failed string // the first set that failed; the other ones could each need the whole deadline to fail
	for i := 0; i < len(clients)*len(keys) && failed == ""; i++ {
		if answer := clients[i/len(keys)].set(keys[i%len(keys)], "new"); answer != "STORED" {
			failed = fmt.Sprintf("client %d sets %s: %s", i/len(keys), keys[i%len(keys)], answer)
		}
	}
	_, log, _ := strings.Cut(r.Output(), "to=RETURN")
	for line := range strings.Lines(log) { // the message "server down" may be logged later, with a count
		if strings.Contains(line, "server state changed") && strings.Contains(line, "another memcached") {
			certain(t)
			t.Errorf("taken for another server after its return:\n%s", log)
		}
	}
	if failed != "" {
		t.Error(failed)
	}
}
