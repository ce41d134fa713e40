package e2e

// This file checks that a short or always full request queue does not stop a server from
// rejoining or serving.

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"ringside/internal/testenv"
)

// short returns a kind of pool with request queues that are shorter than the requests of
// a flush.
func short(driver string) kind {
	k := moving[0]
	k.driver, k.more = driver, []string{"queue: 3"}
	k.timeouts, k.eject = unhurriedReturn, "eject_after: {refused: 500ms, silent: 1m}"
	return k
}

// TestFailoverReturnWithShortQueue checks that a server rejoins with one flush.
func TestFailoverReturnWithShortQueue(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 3)
		o := &outing{servers: servers, ringsides: []*ringside{startRingside(t, driver, short(driver).config(servers))}}
		client := dial(t, o.ringsides[0].address)
		for _, key := range names("key", 30) {
			client.store(key, "1")
		}
		servers[0].Kill()
		o.allSay(t, serverName(0), "OUT")
		servers[0].restart(t)
		o.allSay(t, serverName(0), "IN")
		if flushes := dial(t, servers[0].address).stats("")["cmd_flush"]; flushes != "1" {
			t.Errorf("%s flushes", flushes)
		}
	})
}

// TestFailoverOverload keeps the queues full. Many requests are rejected, but no server
// may be considered down.
func TestFailoverOverload(t *testing.T) {
	testenv.OnlyFull(t, "TestTurnsBound of proxy and TestStorm of proxy/loop cover overload")
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 3)
		k := short(driver)
		r := startRingside(t, driver, k.config(servers))
		var refused, silent atomic.Int64
		stop := make(chan struct{})
		const clients = 20
		done := make(chan error, clients)
		for i := range clients {
			go func() { done <- flood(t, r.address, i, stop, &refused, &silent) }()
		}
		doubted := func() bool { return strings.Contains(r.Output(), "server state changed") }
		for _, s := range servers {
			direct := dial(t, s.address)
			eventually(t, "a server is pinged, while clients are refused", func() bool {
				pings, _ := strconv.Atoi(direct.stats("")["cmd_get"]) // the clients send only touch, so all gets are pings
				return doubted() || pings > 20 && refused.Load() > 10_000
			})
		}
		close(stop)
		for range clients {
			if err := <-done; err != nil && !t.Failed() {
				t.Error(err)
			}
		}
		if doubted() {
			t.Error("overload was taken for an outage")
		}
		if silent.Load() > refused.Load()/1000 {
			t.Errorf("%d requests were not answered in time, and %d refused", silent.Load(), refused.Load())
		}
	})
}

// flood sends batches of a hundred requests until stop is closed. It counts those that
// were rejected, and those that a server did not answer in time, which happens if it gets
// no CPU.
func flood(t testing.TB, address string, i int, stop chan struct{}, refused, silent *atomic.Int64) error {
	c := dial(t, address)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		var all strings.Builder
		for n := range 100 {
			fmt.Fprintf(&all, "touch key%d-%d 0\r\n", i, n)
		}
		if _, err := c.Write([]byte(all.String())); err != nil {
			return err
		}
		for range 100 {
			line, err := c.r.ReadString('\n')
			switch {
			case err != nil:
				return err
			case strings.Contains(line, "requests waiting"):
				refused.Add(1)
			case strings.Contains(line, "did not answer within"):
				silent.Add(1)
			case line != "NOT_FOUND\r\n":
				return fmt.Errorf("got %q", line)
			}
		}
	}
}
