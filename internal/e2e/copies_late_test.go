package e2e

// What a ringside has sent comes to all servers of a key late, when another ringside has
// stored a newer value: that stays.

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	proxywire "ringside/proxy/wire"
)

// tardy stands before servers. While it holds a word, a connection on which that word
// comes delivers it, and all behind it, only when it is let go, though it has acknowledged
// it.
type tardy struct {
	mu   sync.Mutex
	word []byte
	free chan struct{} // closed when the word is let go
	held sync.WaitGroup
	n    int // connections that were held
}

func (d *tardy) hold(word string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.word, d.free, d.n = []byte(word), make(chan struct{}), 0
}

// letGo delivers what was held, and says on how many connections that was.
func (d *tardy) letGo() int {
	d.mu.Lock()
	d.word = nil
	close(d.free)
	d.mu.Unlock()
	d.held.Wait()
	return d.n
}

// holds says whether b is held, and what lets it go.
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

// before is the address at which d stands before a server.
func (d *tardy) before(t testing.TB, to string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ownHost(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go d.deliver(client, server)
			go func() {
				carryAll(server, client)
				client.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// carryAll brings what comes from one end to the other.
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

// deliver brings what the client sends to the server, late if it is held.
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
			time.Sleep(10 * time.Millisecond) // the server has read it
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

// A delete with strict is late by its placeholder, which takes the place of what the delete
// has seen.
func TestLateDeletesOnCopiesLoseNothingNewer(t *testing.T) {
	t.Parallel()
	rounds(t, testTolerance, func(t testing.TB) {
		arriveLate(t, " F"+proxywire.MarkFlags+" ", true, 3, func(c *conn, key string) string { return c.question("delete " + key) })
	})
}

// arriveLate sends what word is in through a Ringside that is cut off then, a newer set through
// another one, and lets the first arrive; that for n keys. exists says that they are there before.
func arriveLate(t testing.TB, word string, exists bool, n int, send func(c *conn, key string) string) {
	var way tardy
	servers := startMemcacheds(t, 3)
	for i, s := range servers {
		servers[i] = &memcached{address: way.before(t, s.address)}
	}
	config := front(servers,
		"timeouts: {connect: 1s, request: 500ms, deadline: 2s}",
		"failover: {ping: 100ms, lease: 900ms, eject_after: 5s}") + "routes:\n  - {pool: main, preset: sessions, copies_on: server}\n"
	cut, other := startRingside(t, "auto", config), startRingside(t, "auto", config)
	cutOff, through := dial(t, cut.address), dial(t, other.address)
	for i, key := range names("late", n) {
		stores := func(value string) {
			eventually(t, "a set is stored", func() bool { return through.set(key, value) == "STORED" })
		}
		if exists || i%2 == 0 { // else it is a new key
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
