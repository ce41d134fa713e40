//go:build linux

package load

// This file has the target of the load: one address, or several servers on which the load places
// the keys itself.

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"ringside/ketama"
	"ringside/ring"
)

// Target says where the load sends its requests.
type Target struct {
	Addr    string   // address of the target, IP:PORT or unix:/path; empty: the load sends each request to the server of its key
	Servers []string // addresses of the servers, IP:PORT, if Addr is empty; keys are placed by ketama, as libmemcached and nutcracker do it
}

// aim is a parsed Target: the addresses to connect to, and the server of each key.
type aim struct {
	lanes []at            // addresses to which each client connects
	owner []uint8         // by number of the key: index of the server that has the key; nil: there is only one address
	from  []unix.Sockaddr // by client: local address of its connections if it reconnects often; nil: the kernel chooses the address
}

// at is the parsed address of a server.
type at struct {
	text   string
	family int
	to     unix.Sockaddr
	local  bool        // the address is in 127.0.0.0/8, where a client can use any number of local addresses
	server ring.Server // the address, as ketama hashes it
}

func parseAt(text string) (at, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return at{text, unix.AF_UNIX, &unix.SockaddrUnix{Name: path}, false, ring.Server{Path: path}}, nil
	}
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return at{}, fmt.Errorf("address %q: use IP:PORT, such as 127.0.0.1:11211, or unix:/path", text)
	}
	ip, port := addr.Addr(), int(addr.Port())
	server := ring.Server{Host: ip.String(), Port: port}
	if ip.Is4() {
		return at{text, unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}, ip.IsLoopback(), server}, nil
	}
	return at{text, unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: ip.As16()}, false, server}, nil
}

// lanes returns the addresses to which each client connects: one address, or those of all servers.
func (t Target) lanes() ([]at, error) {
	addrs := t.Servers
	if t.Addr != "" {
		addrs = []string{t.Addr}
	}
	if len(addrs) == 0 || len(addrs) > maxLanes {
		return nil, fmt.Errorf("%d addresses: use one, or up to %d servers", len(addrs), maxLanes)
	}
	var all []at
	for _, text := range addrs {
		a, err := parseAt(text)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// maxLanes limits the number of servers, because the index of a key's server is stored in a byte.
const maxLanes = 100

// owners returns the index of the server of each key, placed by the ketama of nutcracker.
func (d *data) owners(lanes []at) ([]uint8, error) {
	var servers []ring.Server
	for _, a := range lanes {
		servers = append(servers, a.server)
	}
	circle, err := ketama.Twemproxy.Circle(servers)
	if err != nil {
		return nil, err
	}
	owner := make([]uint8, d.count)
	for i := range owner {
		owner[i] = uint8(circle.At(d.key(i), ring.MD5.Sum(d.key(i)), 0))
	}
	return owner, nil
}
