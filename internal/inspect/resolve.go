package inspect

// This file warns about server names that resolve to several addresses.

import (
	"context"
	"fmt"
	"net"
	"net/netip"

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

func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
