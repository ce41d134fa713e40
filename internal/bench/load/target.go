//go:build linux

package load

// The target of the load: one address, or several servers on which it places keys itself.

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

// Target is the target of the load.
type Target struct {
	Addr    string   // IP:PORT or unix:/path; empty: the load sends each request to the server of its key
	Servers []string // IP:PORT; keys are placed with ketama, like libmemcached and nutcracker do
	Apart   string   // one of Servers: reads of its keys are measured separately; empty: none
}

// aim is a Target with parsed addresses and the server of each key.
type aim struct {
	lanes []at            // addresses to which each client connects
	owner []uint8         // by key: index of its server; nil: not used
	apart int             // index of the server that is measured separately; -1: none
	from  []unix.Sockaddr // by client: source address of its visits; nil: chosen by the kernel
}

// at is a parsed address.
type at struct {
	text   string
	family int
	to     unix.Sockaddr
	local  bool // in 127.0.0.0/8, where a client can use any number of source addresses
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

// lanes returns the addresses to which each client connects.
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
	if t.Apart != "" && !slices.Contains(t.Servers, t.Apart) {
		return nil, fmt.Errorf("%s is apart, and not one of the servers %s", t.Apart, strings.Join(t.Servers, ", "))
	}
	return all, nil
}

// maxLanes limits the number of servers, because the index of a key's server is stored in a byte.
const maxLanes = 100

// owners returns the server of each key. It uses ketama: each server has 40 labels with four points
// each, and a key belongs to the first point at or after its hash.
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
