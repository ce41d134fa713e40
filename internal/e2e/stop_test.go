package e2e

// This file tests SIGTERM and SIGINT: Ringside completes the requests in flight, then
// ends.

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// refuses waits until new connections are refused.
func (r *ringside) refuses(t testing.TB) {
	t.Helper()
	eventually(t, "ringside stops accepting", func() bool {
		c, err := dialError(r.address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

func TestStopAnswersWhatIsInFlight(t *testing.T) {
	for _, sign := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sign.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, driver string) {
				servers := startMemcacheds(t, 1)
				r := startRingside(t, driver, front(servers, "timeouts: {request: 10m, deadline: 10m}")+"limits: {drain: 10m}\n")
				value := strings.Repeat("v", 100_000)
				client, idle := dial(t, r.address), dial(t, r.address)
				client.store("a", value)
				idle.misses("b")

				servers[0].pause(t)
				client.send("get a\r\nget a b\r\nset c 0 0 1\r\nx\r\n")
				eventually(t, "the requests are in flight", func() bool { return r.metric(t, "ringside_requests_in_flight") >= 3 })
				r.signal(t, sign)
				r.refuses(t)
				if rest := idle.closed(); rest != "" {
					t.Errorf("an idle client got %s", brief(rest))
				}
				servers[0].resume(t)
				client.expect("VALUE a 0 100000\r\n" + value + "\r\nEND\r\n")
				client.expect("VALUE a 0 100000\r\n" + value + "\r\nEND\r\n")
				client.expect("STORED\r\n")
				if rest := client.closed(); rest != "" {
					t.Errorf("after the answers came %s", brief(rest))
				}
				if status := r.wait(t); status != 0 {
					t.Errorf("exit status %d", status)
				}
			})
		})
	}
}

func TestStopUnderTraffic(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 3)))
		f := startTraffic(t, r.address, 20, tolerance{closing: true})
		r.signal(t, syscall.SIGTERM)
		if status := r.wait(t); status != 0 {
			t.Errorf("exit status %d", status)
		}
		f.halt(t)
	})
}

// stopWaiting sends SIGTERM to a ringside while its server holds a request in flight
// without a reply. drain is limits.drain of the configuration.
func stopWaiting(t testing.TB, driver, drain string) *ringside {
	servers := startMemcacheds(t, 1)
	r := startRingside(t, driver, front(servers, "timeouts: {request: 10m, deadline: 10m}")+"limits: {drain: "+drain+"}\n")
	client := dial(t, r.address)
	client.store("a", "1")
	servers[0].pause(t)
	client.send("get a\r\n")
	eventually(t, "the request is in flight", func() bool { return r.metric(t, "ringside_requests_in_flight") >= 1 })
	r.signal(t, syscall.SIGTERM)
	return r
}

func TestStopGivesUpAfterItsBound(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		if status := stopWaiting(t, driver, "100ms").wait(t); status != 0 {
			t.Errorf("exit status %d", status)
		}
	})
}

// TestOneStopToldTwice sends the signal twice, as timeout(1) does: to the process and to
// its process group.
func TestOneStopToldTwice(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		testenv.Undisturbed(t, 5, 100*time.Millisecond, func() error { // signals within half a second count as one
			r := stopWaiting(t, driver, "100ms")
			r.Cmd.Process.Signal(syscall.SIGTERM)
			if status := r.wait(t); status != 0 {
				return fmt.Errorf("exit status %d", status)
			}
			return nil
		})
	})
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := stopWaiting(t, driver, "10m")
		r.refuses(t)
		if !r.Running() {
			t.Fatal("ringside ended with a request in flight, long before its bound")
		}
		eventually(t, "a second signal counts as one", func() bool {
			r.Cmd.Process.Signal(syscall.SIGTERM) // signals shortly after the first are ignored
			return !r.Running()
		})
		if status := r.wait(t); status != 1 {
			t.Errorf("exit status %d; what was asked to end at once has not ended well", status)
		}
	})
}
