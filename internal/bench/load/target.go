//go:build linux

package load

// This file has the target of the load: one address, or several servers on which the load places
// the keys itself.

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
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
	local  bool // the address is in 127.0.0.0/8, where a client can use any number of local addresses
}

func parseAt(text string) (at, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return at{text: text, family: unix.AF_UNIX, to: &unix.SockaddrUnix{Name: path}}, nil
	}
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return at{}, fmt.Errorf("address %q: use IP:PORT, such as 127.0.0.1:11211, or unix:/path", text)
	}
	if addr.Addr().Is4() {
		return at{text, unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}, addr.Addr().IsLoopback()}, nil
	}
	return at{text: text, family: unix.AF_INET6, to: &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}}, nil
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

// owners returns the index of the server of each key. It uses ketama. Each server has 40 labels
// with four points each, and a key belongs to the first point at or after its hash.
func (d *data) owners(servers []string) []uint8 {
	type point struct {
		at     uint32
		server uint8
	}
	var circle []point
	for i, name := range servers {
		for n := range 40 {
			sum := md5.Sum(fmt.Appendf(nil, "%s-%d", strings.TrimSuffix(name, ":11211"), n))
			for b := 0; b < len(sum); b += 4 {
				circle = append(circle, point{binary.LittleEndian.Uint32(sum[b:]), uint8(i)})
			}
		}
	}
	slices.SortStableFunc(circle, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	owner := make([]uint8, d.count)
	for i := range owner {
		sum := md5.Sum(d.key(i))
		h := binary.LittleEndian.Uint32(sum[:])
		owner[i] = circle[sort.Search(len(circle), func(p int) bool { return circle[p].at >= h })%len(circle)].server
	}
	return owner
}
