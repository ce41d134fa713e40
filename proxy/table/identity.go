package table

// This file finds out which pools of two tables are the same.

import (
	"slices"
	"strconv"
)

// Inherit sets the ID of each pool that has none. A pool keeps the ID of the pool with its name in
// the table old. If old has no such pool, but exactly one pool with the same servers whose name is
// gone, a reload has renamed that pool, so its ID stays. old is nil at the start of the process.
func (t *Table) Inherit(old *Table) {
	taken := map[string]bool{}
	if old == nil {
		old = &Table{}
	}
	for _, p := range t.Pools {
		if was := old.pool(p.Name); was != nil && p.ID == "" {
			p.ID = was.ID
		}
		taken[p.ID] = true
	}
	for _, p := range t.Pools {
		if p.ID != "" {
			continue
		}
		var renamed []*Pool
		for _, was := range old.Pools {
			if t.pool(was.Name) == nil && !taken[was.ID] && sameServers(was, p) {
				renamed = append(renamed, was)
			}
		}
		if len(renamed) == 1 {
			p.ID = renamed[0].ID
		}
		for n := 2; p.ID == ""; n++ { // another pool may have had this name first, and another name now
			if id := p.Name; !taken[id] {
				p.ID = id
			} else if id += "\x00" + strconv.Itoa(n); !taken[id] {
				p.ID = id
			}
		}
		taken[p.ID] = true
	}
}

// pool returns the pool with a name; nil: there is none.
func (t *Table) pool(name string) *Pool {
	for _, p := range t.Pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// sameServers reports whether the pools p and q have the same servers, in any order.
func sameServers(p, q *Pool) bool {
	addresses := func(p *Pool) (list []string) {
		for _, s := range p.Servers {
			list = append(list, s.Network+" "+s.Address)
		}
		slices.Sort(list)
		return list
	}
	return slices.Equal(addresses(p), addresses(q))
}
