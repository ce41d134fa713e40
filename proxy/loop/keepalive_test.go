package loop

// Idle connections that no longer work, on real sockets and with both drivers.

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
)

// TestKeepalive checks that a ping finds a dead connection without any request, again and again.
// The server replies only to the first line of each connection.
func TestKeepalive(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, o Options) {
		pings := make(chan string, 100)
		tab := tableOf(testenv.Serve(t, "127.0.0.1", func(c net.Conn) {
			lines := bufio.NewScanner(c)
			for n := 0; lines.Scan(); n++ {
				if n == 0 {
					c.Write([]byte("VERSION 1.6.18\r\n"))
					continue
				}
				select {
				case pings <- lines.Text():
				default:
				}
			}
		}))
		pool := tab.Pools[0]
		pool.Preconnect, pool.Keepalive, pool.Timeouts.Request = true, 50*time.Millisecond, 200*time.Millisecond
		p := proxy.NewProxy(tab, "test", slog.New(slog.NewTextHandler(t.Output(), nil)))
		d, err := New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Shutdown(context.Background()) })
		for end := time.Now().Add(testenv.Hang); ; time.Sleep(10 * time.Millisecond) {
			sum, err := p.Snapshot()
			if err != nil {
				continue // the loop gets no CPU time
			}
			var dead uint64
			for _, srv := range sum.Servers {
				dead += srv.DeadByPing
			}
			if dead >= 2 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d connections were found dead", dead)
			}
		}
		if got := <-pings; got != "version" {
			t.Errorf("the ping is %q", got)
		}
	})
}
