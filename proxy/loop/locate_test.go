package loop

// Tests of servers that are not at their address in the table, and of the address of a client's connection.

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ringside/internal/testenv"
	"ringside/proxy/table"
)

// TestLocate moves a server to another address. Connections to the old one are closed, and a refused
// connection is reported with the address in the table.
func TestLocate(t *testing.T) {
	first, second := memcached(t), memcached(t)
	each(t, func(t *testing.T, o Options) {
		var mu sync.Mutex
		at, refused := testenv.FreeAddress(t, "127.0.0.1"), 0
		o.Locate = func(address string) string {
			mu.Lock()
			defer mu.Unlock()
			if address != "mc-0@main:0" {
				t.Errorf("located %s", address)
			}
			return at
		}
		o.Refused = func(address string) {
			mu.Lock()
			defer mu.Unlock()
			refused++
		}
		tab := tableOf("mc-0@main:0")
		tab.Pools[0].Preconnect = true
		_, d := startDriver(t, o, tab)
		c, err := testenv.Dial(d.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		key := strings.ReplaceAll(t.Name(), " ", "_")
		reaches := func(address string) bool {
			fmt.Fprintf(c, "set %s 0 0 %d\r\n%s\r\n", key, len(address), address)
			var b [100]byte
			if n, err := c.Read(b[:]); err != nil || string(b[:n]) != "STORED\r\n" {
				return false
			}
			s, err := testenv.Dial(address)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			fmt.Fprintf(s, "get %s\r\nquit\r\n", key)
			is, _ := io.ReadAll(s)
			return strings.Contains(string(is), "\r\n"+address+"\r\n")
		}
		testenv.Eventually(t, "it is refused", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return refused > 0
		})
		for _, address := range []string{first, second, first} {
			mu.Lock()
			at = address
			mu.Unlock()
			d.Redial(map[string]bool{"mc-0@main:0": true, "other": true})
			testenv.Eventually(t, "writes reach "+address, func() bool { return reaches(address) })
		}
		d.Redial(map[string]bool{"other": true})
		if !reaches(first) {
			t.Error("the connection to another server was closed")
		}
	})
}

// TestConfigGetCluster checks that ElastiCache clients get the address to which they are connected.
func TestConfigGetCluster(t *testing.T) {
	server := memcached(t)
	each(t, func(t *testing.T, o Options) {
		tab := tableOf(server)
		socket := filepath.Join(t.TempDir(), "s")
		tab.Listeners = append(tab.Listeners, table.Listener{Network: "unix", Address: socket, Routes: tab.Listeners[0].Routes})
		_, d := startDriver(t, o, tab)
		at := d.Addrs()[0].String()
		host, port, _ := net.SplitHostPort(at)
		nodes := fmt.Sprintf("1\n%s|%s|%s\n", host, host, port)
		for to, want := range map[string]string{at: fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(nodes), nodes), socket: "ERROR\r\n"} {
			c, err := testenv.Dial(to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprint(c, "config get cluster\r\nquit\r\n")
			if is, err := io.ReadAll(c); err != nil || string(is) != want {
				t.Errorf("%s: %q, %v; want %q", to, is, err, want)
			}
		}
	})
}
