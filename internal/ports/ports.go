// Package ports chooses ports for the servers that tests and benchmarks start as processes.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

// Free returns n ports on which no process listens, at any address. Until release is called, Free does
// not return them again in any process: each is reserved by a UDP socket on the loopback address. Other
// programs may still take one; the start of the caller's server then reports it.
//
// The ports are below those that the kernel assigns to clients, if it leaves at least 1,000.
// Otherwise a connection of any client could have the port. A client of a dead server could even get
// the server's port as its own, connect to itself, and prevent the server's restart.
func Free(n int) (ports []int, release func(), err error) {
	const lowest = 20000
	below := 32768 // the kernel's default for the lowest port that it assigns to clients
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &below) // the default stays if the text is not a number
	}
	if below < lowest+1000 {
		below = 65536
	}
	var reserved []net.PacketConn
	release = func() {
		for _, c := range reserved {
			c.Close()
		}
	}
	for tries := 0; len(ports) < n; tries++ {
		port := lowest + rand.IntN(below-lowest)
		c, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
				l.Close()
				ports, reserved = append(ports, port), append(reserved, c)
				continue
			}
			c.Close()
		}
		if tries > 100*n {
			release()
			return nil, nil, errors.Join(fmt.Errorf("no free port from %d to %d in %d tries", lowest, below-1, tries), err)
		}
	}
	return ports, release, nil
}
