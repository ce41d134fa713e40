package live

// This file describes where keys are: the pool, its ring, and the place of one key on the ring.

import (
	"encoding/binary"
	"encoding/json"

	"ringside/proxy/table"
	"ringside/ring"
)

// Topo describes a pool as the configuration has it: its servers and routes.
type Topo struct {
	Gen          uint64       `json:"gen"`
	Pool         string       `json:"pool"`
	Pools        []string     `json:"pools"` // names of all pools of the configuration
	Distribution string       `json:"distribution"`
	Failover     string       `json:"failover"`
	Servers      []TopoServer `json:"servers"`
	Routes       []TopoRoute  `json:"routes"` // routes that store keys in this pool

	Brief map[string]string `json:"brief,omitempty"` // short names of the servers of all pools, for those that have a shorter one

	Orders map[string]Question `json:"orders"` // what an operator is asked before each order for a server
}

// TopoServer describes a server of a pool as the configuration has it.
type TopoServer struct {
	Name   string  `json:"name"`
	Addr   string  `json:"addr"`
	Weight int     `json:"weight"`
	Host   string  `json:"host"`
	Share  float64 `json:"share"`           // fraction of all hashes that belong to the server, 0 to 1
	Joins  bool    `json:"joins,omitempty"` // true if the pool does not use the server before its servers change
}

// TopoRoute describes a route that stores keys in a pool.
type TopoRoute struct {
	Prefix   string `json:"prefix"`
	Match    string `json:"match,omitempty"` // pattern of the keys, if the route has no prefix
	Replicas int    `json:"replicas"`
}

// topoOf describes a pool of the table t. gen is the number of the configuration.
func topoOf(t *table.Table, pool *table.Pool, gen uint64) *Topo {
	is := &Topo{Gen: gen, Pool: pool.Name, Distribution: pool.Distribution, Failover: pool.Failover.Mode.String(), Routes: []TopoRoute{}}
	for _, p := range t.Pools {
		is.Pools = append(is.Pools, p.Name)
	}
	is.Brief = briefNames(t.Pools)
	seen := map[TopoRoute]bool{}
	for _, l := range t.Listeners {
		for _, r := range l.Routes {
			one := TopoRoute{r.Prefix, r.Match, replicasOf(&r, pool)}
			if one.Replicas > 0 && !seen[one] {
				seen[one] = true
				is.Routes = append(is.Routes, one)
			}
		}
	}
	shares := hashShares(pool)
	for i, s := range pool.Servers {
		is.Servers = append(is.Servers, TopoServer{s.Name, Address(s), s.Weight, s.Host, shares[i], false})
	}
	for _, s := range pool.Newcomers() {
		is.Servers = append(is.Servers, TopoServer{s.Name, Address(s), s.Weight, s.Host, 0, true})
	}
	is.Orders = is.questions(lossOf(t, pool))
	return is
}

// RingBytes encodes a pool's ring for the dashboard. It contains the length of a JSON text, the
// text, the points, and the owner of each point. The length, points and owners have 32 bits each,
// little-endian. The JSON text is padded with spaces so that the points are aligned.
func RingBytes(pool *table.Pool) []byte {
	d := ring.Draw(pool.Place.Ring)
	head, _ := json.Marshal(map[string]any{"kind": d.Kind, "n": max(len(d.Owners), len(d.At)), "before": d.Before}) // Marshal cannot fail for these types
	for len(head)%4 != 0 {
		head = append(head, ' ')
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(head)))
	b = append(b, head...)
	for _, p := range d.At {
		b = binary.LittleEndian.AppendUint32(b, p)
	}
	for _, o := range d.Owners {
		b = binary.LittleEndian.AppendUint32(b, uint32(o))
	}
	return b
}

// Routed describes where one key is stored. It has what ringside route prints, and what the
// dashboard needs to draw the key on the ring.
type Routed struct {
	table.Planned
	Place  uint32 `json:"place"`          // position of the key's hash on the ring; only if the ring has points
	Order  []int  `json:"order"`          // indexes of the servers that have the key, in the order in which they are used; the owner is first
	Copies int    `json:"keep"`           // number of replicas of the key
	Points []int  `json:"points"`         // for each server in Order, the index of its first point after the key, in search order
	Hops   []int  `json:"hops,omitempty"` // buckets that jump hash visits for the key, of which the last one has the key; empty for other distributions
}

// RouteOf returns where the key is stored for requests on the listener l.
func RouteOf(l *table.Listener, limits *table.Limits, key []byte) *Routed {
	p := l.Plan(key)
	is := &Routed{Planned: p.JSON(p.Nowhere(limits, true)), Copies: 1, Order: []int{}, Points: []int{}}
	if is.Error != "" || p.Owner < 0 {
		return is
	}
	is.Order = append([]int{p.Owner}, p.Successors...)
	if len(p.Copies) > 0 {
		is.Copies, is.Order = len(p.Copies), is.Order[:0]
		for _, m := range p.Copies {
			if m.Pool == p.Pool {
				is.Order = append(is.Order, m.Server)
			}
		}
	} else if len(p.Substitutes) > 0 && p.Substitutes[0].Pool == p.Pool { // the substitute servers in their real order, because a rebuilt ring may order servers differently
		is.Order = is.Order[:1]
		for _, m := range p.Substitutes {
			is.Order = append(is.Order, m.Server)
		}
	}
	is.Order = is.Order[:min(len(is.Order), 8)]
	d := ring.Draw(p.Pool.Place.Ring)
	is.Place = d.Place(p.Pool.Place.Ring, p.Hash)
	if d.Kind == "points" && p.Hit.Of > 0 {
		for _, server := range is.Order {
			is.Points = append(is.Points, firstPoint(&d, p.Hit.Index-1, server))
		}
	}
	if j, ok := p.Pool.Place.Ring.(*ring.Jump); ok {
		is.Hops = j.Hops(p.Hash)
	}
	return is
}

// firstPoint returns the index of the first point of a server. The search starts at the index `at`
// and has the same direction as a search for a key.
func firstPoint(d *ring.Drawing, at, server int) int {
	step, n := 1, len(d.Owners)
	if d.Before {
		step = n - 1
	}
	for range n {
		if int(d.Owners[at]) == server {
			return at
		}
		at = (at + step) % n
	}
	return at
}
