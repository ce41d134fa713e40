//go:build linux

package bench

// The memcached servers behind the proxies.

import (
	"context"
	"fmt"
)

// pool is the addresses that a proxy is given and the processes that serve them.
type pool struct {
	addrs     []string
	processes []*child
}

// startPool starts so many memcached, each on so many ports; neighbours in the
// list of addresses are different processes.
func (b *bench) startPool(ctx context.Context, processes, ports int) (pool, error) {
	var p pool
	addrs := make([][]string, ports)
	for i := range processes {
		free, err := freePorts(ports)
		if err != nil {
			p.stop()
			return pool{}, err
		}
		server, err := b.startMemcached(ctx, fmt.Sprintf("server%d", i+1), free)
		if err != nil {
			p.stop()
			return pool{}, err
		}
		p.processes = append(p.processes, server)
		for at, port := range free {
			addrs[at] = append(addrs[at], fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	for _, row := range addrs {
		p.addrs = append(p.addrs, row...)
	}
	return p, nil
}

// startMemcached starts a server on the load's CPUs.
func (b *bench) startMemcached(ctx context.Context, name string, ports []int) (*child, error) {
	path, err := lookPath(b.Memcached)
	if err != nil {
		return nil, err
	}
	// It opens its ports in their order: the last says that all are open.
	return b.spawn(ctx, name, path, memcachedArgs(ports...), ports[len(ports)-1], b.LoadCPUs)
}

func (p pool) stop() {
	for _, c := range p.processes {
		c.stop()
	}
}
