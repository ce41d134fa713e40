package loop

// Clients that connect during a shutdown or after their listener was removed.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
)

// TestTooLate checks that a client is reset without a reply if it connects while Ringside stops, or
// to a listener that the table no longer has. The kernel does the same to connections that were not
// accepted when a listener closes. Every client treats that as a server that is down.
func TestTooLate(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		for what, end := range map[string]func(p *proxy.Proxy, d *Driver){
			"stopping": func(_ *proxy.Proxy, d *Driver) { d.engine[0].post((*proxy.Engine).Drain) },
			"no such listener": func(p *proxy.Proxy, _ *Driver) {
				next := tableOf("127.0.0.1:1")
				next.Listeners = nil
				p.SetTable(next)
			},
		} {
			tab := tableOf("127.0.0.1:1")
			p := proxy.NewProxy(tab, "test", slog.New(slog.DiscardHandler))
			d, err := New(p, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Shutdown(context.Background()) })
			commit, err := d.Listen(tab)
			if err != nil {
				t.Fatal(err)
			}
			commit()
			first, err := net.Dial("tcp", d.Addrs()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			first.SetDeadline(time.Now().Add(testenv.Hang))
			if _, err := io.WriteString(first, "mn\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(first, make([]byte, len("MN\r\n"))); err != nil {
				t.Fatal(err)
			}
			end(p, d)
			if rest, err := io.ReadAll(first); len(rest) > 0 || err != nil { // closed: clients that connect from now on are too late
				t.Fatalf("%s: the client that was there got %q, %v", what, rest, err)
			}
			late, err := net.Dial("tcp", d.Addrs()[0].String())
			if errors.Is(err, syscall.ECONNRESET) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			defer late.Close()
			late.SetDeadline(time.Now().Add(testenv.Hang))
			if said, err := io.ReadAll(late); len(said) > 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the client that came too late got %q, %v; want a reset", what, said, err)
			}
		}
	})
}
