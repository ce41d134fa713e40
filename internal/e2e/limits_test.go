package e2e

// This file tests the limits and the reply that a client gets at each.

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestLimitClients(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 1))+"limits: {clients: 2}\n")
		// The connection that checked that ringside is ready may not be closed yet.
		eventually(t, "no client is there", func() bool { return r.metric(t, "ringside_client_connections") == 0 })
		one, two := dial(t, r.address), dial(t, r.address)
		one.store("a", "1")
		two.holds("a", "1")
		if said := dial(t, r.address).closed(); said != "ERROR Too many open connections\r\n" {
			t.Errorf("the third client got %q", said)
		}
		one.holds("a", "1")
		two.Close()
		eventually(t, "there is room again", func() bool { return r.metric(t, "ringside_client_connections") < 2 })
		dial(t, r.address).holds("a", "1")
	})
}

func TestLimitKeyLineValue(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 1)
		r := startRingside(t, driver, front(servers)+"limits: {line: 4KiB, value: 1000}\n")
		client := dial(t, r.address)
		direct := dial(t, servers[0].address)

		client.store(strings.Repeat("k", 250), "x")
		long := strings.Repeat("k", 251)
		client.ask("get "+long, "CLIENT_ERROR bad command line format")
		client.ask("delete "+long, "CLIENT_ERROR bad command line format")

		client.store("a", strings.Repeat("v", 1000))
		if answer := client.set("a", strings.Repeat("v", 1001)); answer != "SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside" {
			t.Errorf("a value over the limit got %q", answer)
		}
		direct.misses("a") // the old value is deleted, as by memcached
		client.store("a", "1")
		client.ask("ms a 1001\r\n"+strings.Repeat("v", 1001), "SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside")
		direct.misses("a")
		client.store("a", "2")
		client.holds("a", "2")

		// A complete line that is too long, and one without an end.
		keys := strings.Repeat(" a", 3000)
		client.send("get" + keys + "\r\n")
		if answer := client.line(); !strings.HasPrefix(answer, "CLIENT_ERROR ") && !strings.HasPrefix(answer, "SERVER_ERROR ") && answer != "ERROR" {
			t.Errorf("a line over the limit got %q", answer)
		}
		endless := dial(t, r.address)
		endless.send("get" + keys)
		if said := endless.closed(); !strings.Contains(said, "ERROR") {
			t.Errorf("a line that never ends got %q", said)
		}
		dial(t, r.address).holds("a", "2")
	})
}

// TestLimitQueue checks that a server's queue is bounded and that requests above the
// bound are rejected.
func TestLimitQueue(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver, "queue: 5", "get_errors: error", "timeouts: {request: 10m, deadline: 10m}")
		c.servers[0].pause(t)
		client := dial(t, c.address)
		for range 8 {
			client.send("get " + c.of(0)[0] + "\r\n")
		}
		second := dial(t, c.address)
		eventually(t, "the queue is full", func() bool {
			return c.metric(t, fmt.Sprintf("ringside_server_requests_refused_total{address=%q,reason=\"queue_full\",server=%q}", c.servers[0].address, c.servers[0].address)) >= 3
		})
		c.blames(t, second.set(c.of(0)[0], "x"), 0)
		second.store(c.of(1)[0], "x")
		c.servers[0].resume(t)
		for range 5 {
			if found, end := client.values(); len(found) != 1 || end != "END" {
				t.Fatalf("a request in the queue got %v and %s", found, end)
			}
		}
		for range 3 {
			c.blames(t, client.line(), 0)
		}
		client.holds(c.of(0)[0], valueOf(c.of(0)[0]))
	})
}

func TestLimitIdle(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 1))+"limits: {idle: 500ms}\n")
		for end := time.Now().Add(patience); ; { // until a client sends its request in time
			client := dial(t, r.address)
			io.WriteString(client, "set a 0 0 1\r\n1\r\n") // the connection may be closed
			said := client.closed()
			if said == "STORED\r\n" {
				break
			} else if said != "" || time.Now().After(end) {
				t.Fatalf("a client that stores and is silent then got %q", said)
			}
		}
		if got := r.metric(t, `ringside_client_connections_closed_total{reason="idle"}`); got < 1 {
			t.Errorf("%v clients were counted as closed for silence", got)
		}
	})
}
