package routing_test

// Tests of the replicas of a key and of the substitute servers of its owner.

import (
	"fmt"
	"slices"
	"testing"

	"ringside/proxy/table"
	"ringside/replicate"
	"ringside/ring"
)

// planned returns a pool in which the last digit of a key selects the server that owns
// it. The next servers of a key follow in the order of the list.
func planned(name string, hosts ...string) *table.Pool {
	var all []int
	p := &table.Pool{Name: name}
	for i, host := range hosts {
		all = append(all, i)
		p.Servers = append(p.Servers, table.Target{Name: fmt.Sprint(name, i), Network: "tcp", Address: fmt.Sprint(name, i), Host: host, Zone: host[:1]})
	}
	p.Place = ring.Placement{
		Hash: func(key []byte) uint64 { return uint64(key[len(key)-1] - '0') },
		Ring: ring.NewTable(len(hosts), all, ring.TableOptions{Next: true}),
	}
	return p
}

func named(list []table.PoolServer) (names []string) {
	for _, m := range list {
		names = append(names, m.Target().Name)
	}
	return names
}

func TestPlan(t *testing.T) {
	a, b := planned("a", "x1", "x1", "x2", "y1"), planned("b", "z1", "z2", "z3")
	twins := planned("t", "x1", "x2", "x3")
	twins.Servers[1].Address = twins.Servers[0].Address
	rehash, rebuilt, gutter := planned("r", "x1", "x2", "x3"), planned("n", "x1", "x2", "x3", "x4", "x5"), planned("g", "x1", "x2")
	rehash.Failover.Mode = table.Rehash
	gutter.Failover.Mode, gutter.Failover.Gutter = table.Gutter, b
	rebuilt.Failover.Mode = table.Rehash
	rebuilt.Without = func(out []bool) (ring.Ring, error) { // the last server that is in owns every key
		for i := len(out) - 1; i >= 0; i-- {
			if !out[i] {
				return ring.NewTable(len(out), []int{i}, ring.TableOptions{}), nil
			}
		}
		return ring.NewTable(len(out), nil, ring.TableOptions{}), nil
	}
	for _, c := range []struct {
		name            string
		route           table.Route
		key             string
		copies, interim []string
	}{
		{"one copy", table.Route{Pool: a}, "k1", nil, nil},
		{"the next host", table.Route{Pool: a, Copies: replicate.Policy{Copies: 2}}, "k0", []string{"a0", "a2"}, nil},
		{"the next host, from the second on the first", table.Route{Pool: a, Copies: replicate.Policy{Copies: 3}}, "k1", []string{"a1", "a2", "a3"}, nil},
		{"the next server", table.Route{Pool: a, Copies: replicate.Policy{Copies: 2, Apart: replicate.Servers}}, "k0", []string{"a0", "a1"}, nil},
		{"the next zone", table.Route{Pool: a, Copies: replicate.Policy{Copies: 2, Apart: replicate.Zones}}, "k0", []string{"a0", "a3"}, nil},
		{"around the end", table.Route{Pool: a, Copies: replicate.Policy{Copies: 2}}, "k3", []string{"a3", "a0"}, nil},
		{"all", table.Route{Pool: a, Copies: replicate.Policy{Copies: replicate.All, Apart: replicate.Servers}}, "k2", []string{"a2", "a3", "a0", "a1"}, nil},
		{"one address is one server", table.Route{Pool: twins, Copies: replicate.Policy{Copies: 2, Apart: replicate.Servers}}, "k0", []string{"t0", "t2"}, nil},
		{"one address is one server, whatever hosts its names have", table.Route{Pool: twins, Copies: replicate.Policy{Copies: 2}}, "k0", []string{"t0", "t2"}, nil},
		{"several pools", table.Route{Pool: a, Also: []*table.Pool{b}, Copies: replicate.Policy{Copies: 2}}, "k3", []string{"a3", "b0"}, nil},
		{"rehash", table.Route{Pool: rehash}, "k1", nil, []string{"r2", "r0"}},
		{"replicas have no substitute server", table.Route{Pool: rehash, Copies: replicate.Policy{Copies: 2}}, "k1", []string{"r1", "r2"}, nil},
		{"a ring built again", table.Route{Pool: rebuilt}, "k3", nil, []string{"n4", "n2", "n1"}},
		{"gutter", table.Route{Pool: gutter}, "k1", nil, []string{"b1", "b2", "b0"}},
		{"what is stripped counts nowhere", table.Route{Prefix: "9", Strip: true, Pool: rehash}, "9k2", nil, []string{"r0", "r1"}},
	} {
		l := table.Listener{Routes: []table.Route{c.route}}
		p := l.Plan([]byte(c.key))
		if got := named(p.Copies); !slices.Equal(got, c.copies) {
			t.Errorf("%s: copies on %v, want %v", c.name, got, c.copies)
		}
		if got := named(p.Substitutes); !slices.Equal(got, c.interim) {
			t.Errorf("%s: %v stand in, want %v", c.name, got, c.interim)
		}
		if len(p.Copies) > 0 && p.Copies[0] != (table.PoolServer{Pool: p.Pool, Server: p.Owner}) {
			t.Errorf("%s: %v decides, %d owns", c.name, p.Copies[0].Target().Name, p.Owner)
		}
	}
}
