//go:build linux

package peers

// The memcached servers behind the proxies.

import (
	"context"
	"fmt"
)

// Pool is the addresses that a proxy is given and the processes that serve them.
type Pool struct {
	Addrs     []string
	Processes []*Child
}

// StartPool starts so many memcached, each on so many ports; neighbours in the
// list of addresses are different processes.
func (s *Starter) StartPool(ctx context.Context, memcached string, processes, ports int, cpus []int) (Pool, error) {
	var p Pool
	addrs := make([][]string, ports)
	for i := range processes {
		free, err := FreePorts(ports)
		if err != nil {
			p.Stop()
			return Pool{}, err
		}
		server, err := s.StartMemcached(ctx, memcached, fmt.Sprintf("server%d", i+1), free, cpus)
		if err != nil {
			p.Stop()
			return Pool{}, err
		}
		p.Processes = append(p.Processes, server)
		for at, port := range free {
			addrs[at] = append(addrs[at], fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	for _, row := range addrs {
		p.Addrs = append(p.Addrs, row...)
	}
	return p, nil
}

// StartMemcached starts a server.
func (s *Starter) StartMemcached(ctx context.Context, memcached, name string, ports, cpus []int) (*Child, error) {
	path, err := lookPath(memcached)
	if err != nil {
		return nil, err
	}
	// It opens its ports in their order: the last says that all are open.
	return s.Spawn(ctx, name, path, memcachedArgs(ports...), ports[len(ports)-1], cpus)
}

// Stop ends all its processes.
func (p Pool) Stop() {
	for _, c := range p.Processes {
		c.Stop()
	}
}
