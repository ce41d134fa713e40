package loop

// Reloads of a proxy that runs.

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"ringside/proxy"
)

// TestSwapWakes: loops that nothing else wakes take up the first table, and the
// next, and connect to the servers that these want connections to.
func TestSwapWakes(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Loops = 2
		wanted := func() (*proxy.Table, *net.TCPListener) {
			server, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { server.Close() })
			tab := table(server.Addr().String())
			tab.Pools[0].Preconnect = true
			tab.Pools[0].Timeouts = proxy.Timeouts{Connect: time.Hour, Request: time.Hour, Deadline: time.Hour}
			return tab, server.(*net.TCPListener)
		}
		first, before := wanted()
		p := proxy.NewProxy(first, "test", slog.New(slog.NewTextHandler(t.Output(), nil)))
		d, err := New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Shutdown(context.Background()) })
		all := func(what string, server *net.TCPListener) {
			t.Helper()
			server.SetDeadline(time.Now().Add(20 * time.Second))
			for i := range p.Engines() {
				c, err := server.Accept()
				if err != nil {
					t.Fatalf("%d of %d loops have taken up the %s table: %v", i, len(p.Engines()), what, err)
				}
				t.Cleanup(func() { c.Close() })
			}
		}
		all("first", before)
		next, after := wanted()
		p.Swap(next)
		all("next", after)
	})
}
