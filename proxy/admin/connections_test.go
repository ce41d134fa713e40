package admin

import (
	"net"
	"net/http"
	"testing"
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
