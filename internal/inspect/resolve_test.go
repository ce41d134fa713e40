package inspect

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"ringside/proxy/table"
)

// TestAmbiguousServers checks that check warns about a name of several servers, once, and
// not about a name with one address of each family or one that does not resolve.
func TestAmbiguousServers(t *testing.T) {
	var servers []table.Target
	for _, host := range []string{"many", "both", "none", "many", "10.0.0.9"} {
		servers = append(servers, table.Target{Network: "tcp", Address: host + ":11211"})
	}
	servers = append(servers, table.Target{Network: "unix", Address: "/run/many"})
	list := ambiguousServers(t.Context(), &table.Table{Pools: []*table.Pool{{Servers: servers}}}, func(_ context.Context, host string) (list []netip.Addr, err error) {
		texts, ok := map[string][]string{"many": {"10.0.0.2", "10.0.0.1"}, "both": {"10.0.0.3", "fd00::3"}}[host]
		if !ok {
			return nil, errors.New("no such host")
		}
		for _, text := range texts {
			list = append(list, netip.MustParseAddr(text))
		}
		return list, nil
	})
	if len(list) != 1 || !strings.Contains(list[0], "the server name many has several addresses (10.0.0.1, 10.0.0.2)") {
		t.Errorf("warnings: %q", list)
	}
}

// TestSameServers checks that check warns about two names of one server in a pool.
func TestSameServers(t *testing.T) {
	pool := func(name string, hosts ...string) *table.Pool {
		p := &table.Pool{Name: name}
		for _, host := range hosts {
			p.Servers = append(p.Servers, table.Target{Network: "tcp", Name: host, Address: host + ":11211"})
		}
		return p
	}
	list := sameServers(t.Context(), &table.Table{Pools: []*table.Pool{pool("a", "one", "10.0.0.1", "two", "none", "pod"), pool("b", "10.0.0.2", "10.0.0.3")}},
		map[string]string{"pod:11211": "10.0.0.2:11211"}, func(_ context.Context, host string) ([]netip.Addr, error) {
			text, ok := map[string]string{"one": "::ffff:10.0.0.1", "two": "10.0.0.2"}[host]
			if !ok {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr(text)}, nil
		})
	if len(list) != 2 || !strings.Contains(list[0], "pool a: the servers one and 10.0.0.1 are both at 10.0.0.1:11211") || !strings.Contains(list[1], "pool a: the servers two and pod are both at 10.0.0.2:11211") {
		t.Errorf("warnings: %q", list)
	}
}
