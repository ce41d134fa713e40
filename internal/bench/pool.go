//go:build linux

package bench

// This file starts the memcached servers of the proxies.

import (
	"context"
	"fmt"
)

// Pool is a set of memcached servers: their addresses, and the processes that serve these
// addresses.
type Pool struct {
	Addrs     []string
	Processes []*child
}

// StartPool starts the given number of memcached processes, each with the given number of ports.
// Consecutive addresses belong to different processes.
func (s *Starter) StartPool(ctx context.Context, memcached string, processes, ports int, cpus []int) (Pool, error) {
	var p Pool
	addrs := make([][]string, ports)
	for i := range processes {
		free, err := freePorts(ports)
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

// StartMemcached starts a memcached on the given ports.
func (s *Starter) StartMemcached(ctx context.Context, memcached, name string, ports, cpus []int) (*child, error) {
	path, err := lookPath(memcached)
	if err != nil {
		return nil, err
	}
	// A memcached opens its ports in order. When the last port is open, all ports are.
	return s.Spawn(ctx, name, path, memcachedArgs(ports...), ports[len(ports)-1], cpus)
}

// Stop stops all processes of p.
func (p Pool) Stop() {
	for _, c := range p.Processes {
		c.Stop()
	}
}
