package admin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestConnectionsOfOneHost lets one host open very many connections. Connections of other hosts stay
// open, and their new ones are served, health probes also while all connections of that host are handled.
func TestConnectionsOfOneHost(t *testing.T) {
	all := &connections{}
	open := func(host string) *connection {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		c := &connection{Conn: near, all: all, host: host}
		all.changed(c, http.StateNew)
		return c
	}
	monitor := open("monitor") // it waits longest
	for range maxConnections + 50 {
		open("flood")
	}
	if !all.open[monitor] || monitor.spare {
		t.Error("a connection of another host was closed")
	}
	if c := open("second monitor"); !all.open[c] || c.spare {
		t.Error("another host serves only health probes, although connections of the flood wait")
	}
	for c := range all.open {
		c.setHandled(true)
	}
	probe := open("probe")
	for range 3 * spareConnections {
		if c := open("flood"); all.open[c] && !c.spare {
			t.Error("a connection of the flood is no spare")
		}
	}
	if !all.open[probe] {
		t.Error("the probe's connection was closed")
	}
	if n := len(all.open); n > MostConnections {
		t.Errorf("%d connections", n)
	}
}

// TestProbeOfFloodingHost checks that a health probe is served although its host opens many more connections before the probe is complete.
func TestProbeOfFloodingHost(t *testing.T) {
	s := New(running(), Options{})
	address := serve(t, s, "tcp", "127.0.0.1:0")
	connect := func() net.Conn {
		c, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		probe := connect()
		io.WriteString(probe, "GET "+path+" HTTP/1.1\r\n")
		testenv.Eventually(t, "the first line of the probe is read", func() bool {
			s.conns.mu.Lock()
			defer s.conns.mu.Unlock()
			for c := range s.conns.open {
				if c.probe && c.RemoteAddr().String() == probe.LocalAddr().String() {
					return true
				}
			}
			return false
		})
		before := s.Closed()
		for range 2 * maxConnections {
			io.WriteString(connect(), "GET /metrics HTTP/1.1\r\n")
		}
		testenv.Eventually(t, "connections are closed", func() bool { return s.Closed() >= before+maxConnections })
		io.WriteString(probe, "Host: 127.0.0.1\r\n\r\n")
		if r, err := http.ReadResponse(bufio.NewReader(probe), nil); err != nil {
			t.Errorf("%s: %v", path, err)
		} else if r.Body.Close(); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

// TestUnreadSpares checks which spare is closed for a new one. A connection of which nothing was read may be a health probe. So one
// with another request is closed before it, and no other connection replaces it in the first moment.
func TestUnreadSpares(t *testing.T) {
	all := &connections{}
	open := func() *connection {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		c := &connection{Conn: near, all: all, host: "flood"}
		all.changed(c, http.StateNew)
		return c
	}
	for range maxConnections {
		open().setHandled(true)
	}
	var spares []*connection
	add := func() { spares = append(spares, open()) }
	for range spareConnections {
		add()
	}
	for _, c := range spares[spareConnections/2:] {
		c.note([]byte("GET /metrics"))
	}
	for range spareConnections / 2 {
		add()
	}
	for i, c := range spares {
		if want := i < spareConnections/2 || i >= spareConnections; all.open[c] != want {
			t.Errorf("spare %d is open: %t, want %t", i, all.open[c], want)
		}
	}
	for range 3 * spareConnections {
		before := map[*connection]time.Time{}
		for c := range all.open {
			before[c] = c.since
		}
		add()
		for c, since := range before {
			if !all.open[c] && time.Since(since) < readGrace {
				t.Fatalf("a spare was closed after %v", time.Since(since))
			}
		}
	}
}
