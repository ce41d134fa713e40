//go:build linux

package load

// What the load is put on: one address, or servers among which it places keys itself.

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

// Target is what the load is put on.
type Target struct {
	Addr    string   // IP:PORT or unix:/path; empty: the load asks the owner of each key itself
	Servers []string // IP:PORT, among which ketama places keys as libmemcached and nutcracker do
	Apart   string   // one of Servers: reads of its keys are told apart
}

// aim is a Target with its addresses parsed and the owner of each key worked out.
type aim struct {
	lanes []at            // what each client connects to
	owner []uint8         // by key: which of the servers has it; nil: none are known
	apart int             // the server whose keys are told apart; -1: none
	from  []unix.Sockaddr // by client: where its visits come from; nil: the kernel says
}

// at is an address that can be connected to.
type at struct {
	text   string
	family int
	to     unix.Sockaddr
	local  bool // 127.0.0.0/8, which gives a client as many addresses as it wants
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

// lanes are the addresses that each client has a connection to.
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

// maxLanes is how many servers clients ask themselves: an owner is kept in a byte.
const maxLanes = 100

// owners says which server has each key: ketama, where 40 labels for each server give
// four points each, and a key belongs to the first point that is not before its own.
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
