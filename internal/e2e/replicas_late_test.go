package e2e

// This file tests late writes: a write of one instance arrives at all servers of its key after
// another instance has stored a newer value. The newer value must survive.

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
	proxywire "ringside/proxy/wire"
)

// tardy is a TCP proxy in front of the servers that can delay requests. After hold, it delays
// each connection that sends the held word: it reads that data and all later data of the
// connection, but forwards them only after letGo. For the sender, the data are acknowledged.
type tardy struct {
	mu   sync.Mutex
	word []byte
	free chan struct{}  // closed by letGo
	held sync.WaitGroup // delayed connections that have not forwarded the word yet
	n    int            // connections delayed since hold
}

func (d *tardy) hold(word string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.word, d.free, d.n = []byte(word), make(chan struct{}), 0
}

// letGo forwards the delayed data, and returns the number of delayed connections.
func (d *tardy) letGo() int {
	d.mu.Lock()
	d.word = nil
	close(d.free)
	d.mu.Unlock()
	d.held.Wait()
	return d.n
}

// holds returns the channel to wait for before b is forwarded. It returns nil if b is not to be
// delayed.
func (d *tardy) holds(b []byte) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.word == nil || !bytes.Contains(b, d.word) {
		return nil
	}
	d.held.Add(1)
	d.n++
	return d.free
}

// before starts a listener that forwards to the server with the address `to`, and returns its own
// address.
func (d *tardy) before(t testing.TB, to string) (address string) {
	t.Helper()
	return testenv.Serve(t, ownHost(), func(client net.Conn) {
		if server, err := net.Dial("tcp", to); err == nil {
			go d.deliver(client, server)
			carryAll(server, client)
		}
	})
}

// carryAll copies data from one connection to the other until either fails.
func carryAll(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// deliver forwards data from the client to the server. It delays data that d holds, and continues
// to read from the client during the delay.
func (d *tardy) deliver(client, server net.Conn) {
	defer server.Close()
	pieces := make(chan []byte, 1000)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 64<<10)
			n, err := client.Read(b)
			if err != nil {
				return
			}
			pieces <- b[:n]
		}
	}()
	for b := range pieces {
		free := d.holds(b)
		if free != nil {
			<-free
		}
		server.Write(b)
		if free != nil {
			time.Sleep(10 * time.Millisecond) // time for the server to read it
			d.held.Done()
		}
	}
}

func TestLateSetsOnCopiesLoseNothingNewer(t *testing.T) {
	t.Parallel()
	rounds(t, testTolerance, func(t testing.TB) {
		arriveLate(t, "tardy", false, 6, func(c *conn, key string) string { return c.set(key, "tardy") })
	})
}

// TestLateDeletesOnCopiesLoseNothingNewer delays the tombstones of deletes. With consistency
// strict, a delete replaces the value that it has read with a tombstone. A late tombstone must
// not replace a newer value.
func TestLateDeletesOnCopiesLoseNothingNewer(t *testing.T) {
	t.Parallel()
	rounds(t, testTolerance, func(t testing.TB) {
		arriveLate(t, " F"+proxywire.TombstoneFlags+" ", true, 3, func(c *conn, key string) string { return c.question("delete " + key) })
	})
}

// arriveLate does the following for n keys. It sends a write through one instance and delays the
// data that contain word, so the write fails. It then stores a newer value through another
// instance, and forwards the delayed data. The newer value must remain. If exists is set, all
// keys exist before; otherwise every second one does.
func arriveLate(t testing.TB, word string, exists bool, n int, send func(c *conn, key string) string) {
	var way tardy
	servers := startMemcacheds(t, 3)
	for i, s := range servers {
		servers[i] = &memcached{address: way.before(t, s.address)}
	}
	config := front(servers,
		"timeouts: {connect: 1s, request: 500ms, deadline: 2s}",
		"failover: {ping: 100ms, lease: 900ms, eject_after: 5s}") + "routes:\n  - {pool: main, preset: sessions, replicas_on: server}\n"
	cut, other := startRingside(t, "auto", config), startRingside(t, "auto", config)
	cutOff, through := dial(t, cut.address), dial(t, other.address)
	for i, key := range names("late", n) {
		stores := func(value string) {
			eventually(t, "a set is stored", func() bool { return through.set(key, value) == "STORED" })
		}
		if exists || i%2 == 0 { // otherwise the key is new
			stores("old")
		}
		eventually(t, "both serve the key", func() bool {
			_, end := cutOff.get(key)
			return end == "END"
		})
		way.hold(word)
		if answer := send(cutOff, key); !strings.HasPrefix(answer, "SERVER_ERROR ") {
			t.Fatalf("a write that does not arrive: %s", answer)
		}
		stores("newer")
		if n := way.letGo(); n == 0 {
			t.Fatal("nothing was late")
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for name, c := range map[string]*conn{"the one that was cut off": cutOff, "the other one": through} {
				found, last := c.get(key)
				if value, ok := found[key]; ok && value != "newer" || !ok && last == "END" {
					t.Fatalf("%s through %s: %q, %s; want what was stored last", key, name, found, fmt.Sprint(last))
				}
			}
		}
	}
}
