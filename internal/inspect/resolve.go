package inspect

// This file warns about server names that resolve to several addresses.

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"ringside/proxy/table"
)

// resolveWithin is the time limit for all name look-ups of one `ringside check`. A name that is
// not resolved in time is not reported, because the configuration may be for another machine.
const resolveWithin = 2 * time.Second

// ambiguousServers returns a warning for each server name in the table t that resolves to several
// IPv4 addresses or several IPv6 addresses.
func ambiguousServers(ctx context.Context, t *table.Table, lookUp func(ctx context.Context, host string) ([]netip.Addr, error)) []string {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	var hosts []string
	warnings := map[string]string{}
	for _, p := range t.Pools {
		for _, s := range p.Servers {
			host, port, err := net.SplitHostPort(s.Address)
			if _, failed := netip.ParseAddr(host); s.Network == "unix" || err != nil || failed == nil {
				continue
			}
			if _, known := warnings[s.Address]; !known {
				warnings[s.Address] = ""
				hosts = append(hosts, host+":"+port)
			}
		}
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, address := range hosts {
		wait.Go(func() {
			host, port, _ := net.SplitHostPort(address)
			addrs, err := lookUp(ctx, host)
			if is := table.AmbiguousAddresses(addrs); err == nil && is != "" {
				mu.Lock()
				defer mu.Unlock()
				warnings[address] = fmt.Sprintf("the server name %s has several addresses (%s): instances may use different ones for the same keys; write each address as a server of its own (%s), or a name for each server",
					host, is, net.JoinHostPort(addrs[0].Unmap().String(), port)+", …")
			}
		})
	}
	wait.Wait()
	var list []string
	for _, address := range hosts {
		if w := warnings[address]; w != "" {
			list = append(list, w)
		}
	}
	return list
}

func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
