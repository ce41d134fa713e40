package live

// This file describes where keys are: the pool, its ring, and one key on it.

import (
	"encoding/binary"
	"encoding/json"

	"ringside/proxy/table"
	"ringside/ring"
)

// Topo describes a pool as configured in the table.
type Topo struct {
	Gen          uint64       `json:"gen"`
	Pool         string       `json:"pool"`
	Pools        []string     `json:"pools"` // names of all pools
	Distribution string       `json:"distribution"`
	Failover     string       `json:"failover"`
	Servers      []TopoServer `json:"servers"`
	Routes       []TopoRoute  `json:"routes"` // routes to the pool
}

// TopoServer describes a server of a pool.
type TopoServer struct {
	Name   string  `json:"name"`
	Addr   string  `json:"addr"`
	Weight int     `json:"weight"`
	Host   string  `json:"host"`
	Share  float64 `json:"share"` // fraction of all hashes, 0 to 1
}

// TopoRoute describes a route to a pool.
type TopoRoute struct {
	Prefix   string `json:"prefix"`
	Match    string `json:"match,omitempty"` // set instead of prefix
	Replicas int    `json:"replicas"`
}

// topoOf describes a pool of t.
func topoOf(t *table.Table, pool *table.Pool, gen uint64) *Topo {
	is := &Topo{Gen: gen, Pool: pool.Name, Distribution: pool.Distribution, Failover: pool.Failover.Mode.String(), Routes: []TopoRoute{}}
	for _, p := range t.Pools {
		is.Pools = append(is.Pools, p.Name)
	}
	shares := hashShares(pool)
	for i, s := range pool.Servers {
		is.Servers = append(is.Servers, TopoServer{s.Name, Address(s), s.Weight, s.Host, shares[i]})
	}
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
	return is
}

// RingBytes encodes a pool's ring for the dashboard. It contains the length of the
// JSON, the JSON, the points and then their owners. Lengths, points and owners have 32
// bits each, little-endian. The JSON is padded with spaces so that the points are
// aligned.
func RingBytes(pool *table.Pool) []byte {
	d := ring.Draw(pool.Place.Ring)
	head, _ := json.Marshal(map[string]any{"kind": d.Kind, "n": max(len(d.Owners), len(d.At)), "before": d.Before}) // can't fail for these types
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

// Routed describes where one key is stored: the output of ringside route, and what the
// dashboard needs to draw it on the ring.
type Routed struct {
	table.Planned
	Place  uint32 `json:"place"`          // position of the hash on a ring of points
	Order  []int  `json:"order"`          // servers of the pool in the order in which they are used; the owner is first
	Copies int    `json:"keep"`           // number of replicas
	Points []int  `json:"points"`         // for each entry of Order, the index of its first point in search order
	Hops   []int  `json:"hops,omitempty"` // steps of jump hash
}

// RouteOf returns where key is stored, for requests on a listener.
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
	} else if len(p.Substitutes) > 0 && p.Substitutes[0].Pool == p.Pool { // the substitute servers, in case a rebuilt ring orders them differently
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

// firstPoint returns the first point of a server. It starts at the point with the index
// `at`, in the direction in which the ring is searched.
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
