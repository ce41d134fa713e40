package config

// This file has the index of a configuration file. It finds pools by name and by server, and the routes of a pool.

import (
	"slices"

	"ringside/proxy/table"
	"ringside/replicate"
)

// index finds pools and routes of a File by name and by server. A search in all pools for each pool would need quadratic
// time. A pool is its position in File.Pools.
type index struct {
	pools   map[string]int      // the first pool with a name
	formers map[string]bool     // names of pools that another pool names in warm_from
	fills   map[string]bool     // names of pools that another pool names in fill_from
	gutters map[string]bool     // names of pools that are gutters
	routes  map[string][]*Route // the routes of a pool, in the order of File.routes
	copies  map[string][]*Route // the routes that keep replicas in a pool
	at      map[Address][]int   // the pools that list an address; a pool occurs once
	viewers map[string][]int    // the pools that agree about their servers, by the place of a server (see places); a pool occurs once
}

// reindex updates the index of f. It must be called after a change of pools, routes or settings that the index contains.
func (f *File) reindex() {
	x := &index{pools: map[string]int{}, formers: map[string]bool{}, fills: map[string]bool{}, gutters: map[string]bool{},
		routes: map[string][]*Route{}, copies: map[string][]*Route{}, at: map[Address][]int{}, viewers: map[string][]int{}}
	f.index = x
	for r := range f.routes() {
		for i, name := range r.to() {
			if slices.Contains(r.to()[:i], name) {
				continue
			}
			x.routes[name] = append(x.routes[name], r)
			if r.Copies.Copies != 0 {
				x.copies[name] = append(x.copies[name], r)
			}
		}
	}
	for i := range f.Pools {
		p := &f.Pools[i]
		if _, twice := x.pools[p.Name]; !twice {
			x.pools[p.Name] = i
		}
		if p.WarmFrom != p.Name {
			x.formers[p.WarmFrom] = true
		}
		if p.Fill.Pool != p.Name {
			x.fills[p.Fill.Pool] = true
		}
		if p.Failover.Mode == table.Gutter {
			x.gutters[p.Failover.Gutter] = true
		}
		for j := range p.Servers {
			addOnce(x.at, p.Servers[j].Address, i)
		}
	}
	for i := range f.Pools {
		if p := &f.Pools[i]; f.Agrees(p.Name) {
			servers := f.viewed(p)
			for j := range servers {
				for _, place := range servers[j].places() {
					addOnce(x.viewers, place, i)
				}
			}
		}
	}
}

// addOnce adds pool i to the pools of a key, unless it is there. Pools are added in ascending order.
func addOnce[K comparable](to map[K][]int, key K, i int) {
	if list := to[key]; len(list) == 0 || list[len(list)-1] != i {
		to[key] = append(list, i)
	}
}

// places returns the places by which two servers are the same one: the address in the table, and where
// the server is now.
func (s *Server) places() [2]string { return [2]string{s.apart(replicate.Servers), s.place()} }

// look returns the index of f. A File that Parse or Load returned has one already, so that several goroutines can
// look at the same time.
func (f *File) look() *index {
	if f.index == nil {
		f.reindex()
	}
	return f.index
}

// viewersOf returns the pools that agree about their servers and view a server of p. For each pool, it returns the first such
// server of p. The pool p itself may be one of the pools.
func (f *File) viewersOf(p *Pool) map[int]*Server {
	found := map[int]*Server{}
	for i := range p.Servers {
		s := &p.Servers[i]
		if s.Address.Network == "" {
			continue
		}
		for _, place := range s.places() {
			for _, j := range f.look().viewers[place] {
				if found[j] == nil {
					found[j] = s
				}
			}
		}
	}
	return found
}
