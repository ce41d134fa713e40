package live

// This file computes how many replicas keys have in a pool, and how many replicas are left if a
// server is taken out.

import (
	"slices"
	"strings"

	"ringside/proxy/table"
	"ringside/replicate"
)

// ReplicaState describes the replicas of the keys on a server, and what happens to them if the
// server is taken out.
type ReplicaState struct {
	Of      int  `json:"of"`      // number of replicas of a key; if routes differ, the least number
	Left    int  `json:"left"`    // least number of usable replicas that a key on this server has left if the server is taken out
	Repair  bool `json:"repair"`  // true if replicas that are missing are repaired in the background
	Filling bool `json:"filling"` // true if the server has rejoined empty and does not have all its replicas yet

	Lacking string `json:"lacking,omitempty"` // why Left is less than Of - 1: names and states of other servers; empty: it is not less
}

// replicasIn returns how many replicas of a key the routes keep in a pool, and how many are left if
// one of the pool's servers is out. It returns nil if no route replicates keys there. The function
// lacking returns how many other servers of a pool are not up or lack replicas, with reasons for
// some of them. If a route replicates a key to several pools, the key may be on any server of each
// pool. One server that lacks replicas is then as bad as a pool without replicas.
func replicasIn(t *table.Table, pool *table.Pool, lacking func(*table.Pool) (n int, how []string)) (c *ReplicaState) {
	var reasons []string
	for _, l := range t.Listeners {
		for i := range l.Routes {
			r := &l.Routes[i]
			n := replicasOf(r, pool)
			if n < 2 {
				continue
			}
			left := n - 1
			pools := []*table.Pool{pool}
			if len(r.Also) > 0 {
				pools = slices.DeleteFunc(append([]*table.Pool{r.Pool}, r.Also...), func(p *table.Pool) bool { return p == pool })
			}
			for _, p := range pools {
				lack, how := lacking(p)
				if len(r.Also) > 0 {
					lack = min(lack, 1)
				}
				left -= lack
				reasons = append(reasons, how...)
			}
			if c == nil {
				c = &ReplicaState{Of: n, Left: left}
			}
			c.Of, c.Left = min(c.Of, n), max(0, min(c.Left, left))
			c.Repair = c.Repair || r.Copies.RepairRate > 0
		}
	}
	if c != nil {
		slices.Sort(reasons)
		c.Lacking = strings.Join(slices.Compact(reasons), "; ")
	}
	return c
}

// replicasOf returns how many replicas of a key the route r keeps, if at least one of them is in
// the pool. It returns 0 if the route does not use the pool.
func replicasOf(r *table.Route, pool *table.Pool) int {
	switch {
	case r.Pool != pool && !slices.Contains(r.Also, pool):
		return 0
	case len(r.Also) > 0:
		return 1 + len(r.Also)
	case r.Copies.Copies == replicate.All:
		return len(pool.Servers)
	}
	return max(1, r.Copies.Copies)
}
