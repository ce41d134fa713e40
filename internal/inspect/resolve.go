package inspect

// This file warns about server names that resolve to several addresses, or to that of another server.

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"ringside/proxy/table"
)

// ambiguousServers returns a warning for each server name in the table t that resolves to several
// IPv4 addresses or several IPv6 addresses.
func ambiguousServers(ctx context.Context, t *table.Table, lookUp func(ctx context.Context, host string) ([]netip.Addr, error)) []string {
	return eachServer(ctx, t, func(ctx context.Context, s table.Target, _ *table.Pool) string {
		host, port, err := net.SplitHostPort(s.Address)
		if _, noAddress := netip.ParseAddr(host); s.Network == "unix" || err != nil || noAddress == nil {
			return ""
		}
		addrs, err := lookUp(ctx, host)
		is := table.AmbiguousAddresses(addrs)
		if err != nil || is == "" {
			return ""
		}
		return fmt.Sprintf("the server name %s has several addresses (%s): instances may use different ones for the same keys; write each address as a server of its own (%s), or a name for each server",
			host, is, net.JoinHostPort(addrs[0].Unmap().String(), port)+", …")
	})
}

// SameServers returns a warning for each server in the table t that is at the same address as an earlier
// one of its pool, such as a host name and its IP address. dial has the addresses of servers that are not at
// their address in the table. Names that do not resolve in time are ignored.
func SameServers(ctx context.Context, t *table.Table, dial map[string]string) []string {
	return sameServers(ctx, t, dial, lookUp)
}

func sameServers(ctx context.Context, t *table.Table, dial map[string]string, lookUp func(ctx context.Context, host string) ([]netip.Addr, error)) (list []string) {
	var lock sync.Mutex
	places := map[string][]netip.AddrPort{} // by the address in the table
	slots := make(chan struct{}, 8)         // limits how many names are looked up at the same time
	eachServer(ctx, t, func(ctx context.Context, s table.Target, _ *table.Pool) string {
		host, port, err := net.SplitHostPort(cmp.Or(dial[s.Address], s.Address))
		if s.Network == "unix" || err != nil {
			return ""
		}
		ip, err := netip.ParseAddr(host)
		ips := []netip.Addr{ip}
		if err != nil {
			slots <- struct{}{}
			ips, err = lookUp(ctx, host)
			<-slots
		}
		lock.Lock()
		defer lock.Unlock()
		for _, ip := range ips {
			if at, failed := netip.ParseAddrPort(net.JoinHostPort(ip.Unmap().String(), port)); err == nil && failed == nil {
				places[s.Address] = append(places[s.Address], at)
			}
		}
		return ""
	})
	for _, p := range t.Pools {
		first := map[netip.AddrPort]string{} // the label of the first server at an address
		for _, s := range p.Servers {
			for _, at := range places[s.Address] {
				before, known := first[at]
				if !known {
					first[at] = s.Name
					continue
				}
				w := fmt.Sprintf("pool %s: the servers %s and %s are both at %s: one server counts as two, so it gets two shares of the keys, and may keep two replicas of one key; list it once", p.Name, before, s.Name, at)
				if before != s.Name && !slices.Contains(list, w) {
					list = append(list, w)
				}
			}
		}
	}
	return list
}

func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
