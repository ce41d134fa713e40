package replicate

// Choosing a key's members: who may hold its copies, and whether a pool has
// room for them.

import "fmt"

// Place is where a server stands.
type Place struct {
	Host string
	Zone string // empty: not known
}

// Same reports whether two servers share what copies must not share. A server
// whose zone is not known shares it with its own host only.
func (a Apart) Same(x, y Place) bool {
	switch {
	case a == Servers:
		return false
	case a == Zones && x.Zone != "" && y.Zone != "":
		return x.Zone == y.Zone
	default:
		return x.Host == y.Host
	}
}

// Members appends to dst the first n servers of an order that may all stand
// beside each other. order(i) is the i-th server to try, -1 at the end; same
// reports whether two may not both hold a copy. All is as many as there are. There may
// be fewer than n, and are never more than Max.
func Members(dst []int, order func(i int) int, n int, same func(a, b int) bool) []int {
	if n == All || n > Max {
		n = Max
	}
	start := len(dst)
next:
	for i := 0; len(dst)-start < n; i++ {
		s := order(i)
		if s < 0 {
			break
		}
		for _, chosen := range dst[start:] {
			if chosen == s || same(chosen, s) {
				continue next
			}
		}
		dst = append(dst, s)
	}
	return dst
}

// Check reports why a pool with servers in these places can't hold the copies
// that p asks for, and what would be allowed. If it returns nil, every key finds
// as many members as there are copies.
func (p Policy) Check(pool string, servers []Place) error {
	n := p.Copies
	switch {
	case n < All:
		return fmt.Errorf("%d copies: must be 1 to %d, or all", n, Max)
	case n > Max:
		return fmt.Errorf("%d copies: at most %d are possible", n, Max)
	case n == All && len(servers) > Max:
		return fmt.Errorf("pool %s has %d servers: at most %d copies are possible, so not all", pool, len(servers), Max)
	case n == All || n <= 1:
		return nil
	case n > len(servers):
		return fmt.Errorf("only %s in pool %s: not enough for %d copies", count(len(servers), "server"), pool, n)
	}
	hosts, zones := map[string]bool{}, map[string]bool{}
	for _, s := range servers {
		hosts[s.Host] = true
		zones[s.Zone] = true
		if p.Apart == Zones && s.Zone == "" {
			return fmt.Errorf("server %s of pool %s has no zone: copies_on: zone needs one for each, or use copies_on: host", s.Host, pool)
		}
	}
	switch {
	case p.Apart == Zones && len(zones) < n && len(hosts) >= n:
		return fmt.Errorf("only %s in pool %s: %d copies need copies_on: host", count(len(zones), "zone"), pool, n)
	case p.Apart == Zones && len(zones) < n:
		return fmt.Errorf("only %s in pool %s: %d copies need copies_on: server", count(len(zones), "zone"), pool, n)
	case p.Apart == Hosts && len(hosts) < n:
		return fmt.Errorf("only %s in pool %s: %d copies need copies_on: server", count(len(hosts), "host"), pool, n)
	}
	return nil
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}
