package table

// This file finds out which pools of two tables are the same.

import (
	"slices"
	"strconv"
	"strings"
)

// Inherit sets the ID of each pool that has none. Pools with the same servers and placement have the
// same ID, because a key is the same item in all of them. In this order, a pool gets the ID of
//
//   - a pool of the table old with the same servers and placement,
//   - the pool of old with its name, as when a server is added,
//   - the only pool of old with most of its servers whose name is gone: it was renamed, and its servers
//     or its placement have changed, too.
//
// Otherwise it gets a new one. old is nil at the start of the process.
func (t *Table) Inherit(old *Table) {
	if old == nil {
		old = &Table{}
	}
	before := map[string]string{} // the IDs of the pools of old, by what they serve
	for _, was := range old.Pools {
		before[was.serves()] = was.ID
	}
	ids, taken := map[string]string{}, map[string]bool{} // ids: the IDs of the pools of t, by what they serve; taken: the IDs that pools of t have
	for _, p := range t.Pools {
		if id, ok := before[p.serves()]; ok {
			ids[p.serves()], taken[id] = id, true
		}
	}
	for _, p := range t.Pools {
		if p.ID != "" {
			continue
		}
		what := p.serves()
		if ids[what] == "" {
			ids[what] = p.newID(t, old, taken)
			taken[ids[what]] = true
		}
		p.ID = ids[what]
	}
}

// newID returns the ID of p if no pool of old has the same servers and placement. taken are the IDs
// that other pools of t have.
func (p *Pool) newID(t, old *Table, taken map[string]bool) string {
	if was := old.Pool(p.Name); was != nil && !taken[was.ID] {
		return was.ID
	}
	var renamed []*Pool
	for _, was := range old.Pools {
		if t.Pool(was.Name) == nil && !taken[was.ID] && sharesServers(was, p) {
			renamed = append(renamed, was)
		}
	}
	if len(renamed) == 1 {
		return renamed[0].ID
	}
	used := func(id string) bool {
		return taken[id] || slices.ContainsFunc(old.Pools, func(was *Pool) bool { return was.ID == id })
	}
	id := p.Name
	for n := 2; used(id); n++ { // another pool had this name first
		id = p.Name + "\x00" + strconv.Itoa(n)
	}
	return id
}

// serves identifies the servers of p in their order, and its placement.
func (p *Pool) serves() string {
	var b strings.Builder
	b.WriteString(p.Place.Fingerprint)
	for _, s := range p.Servers {
		b.WriteString("\x00" + s.Network + " " + s.Address)
	}
	return b.String()
}

// Pool returns the pool with a name; nil: there is none.
func (t *Table) Pool(name string) *Pool {
	for _, p := range t.Pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// sharesServers reports whether most servers of the pools p and q are the same.
func sharesServers(p, q *Pool) bool {
	same := 0
	for _, s := range p.Servers {
		if slices.ContainsFunc(q.Servers, s.SameAddress) {
			same++
		}
	}
	return 2*same > max(len(p.Servers), len(q.Servers))
}
