package table

// This file computes hashes of a table, which instances compare to detect different
// configurations.

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"ringside/replicate"
)

// Print returns a hash of t's pools and routes. Two instances with the same hash send every
// key to the same servers and treat it alike. The hash does not cover settings that can differ
// between instances: listen addresses, zone, preferred pool, near cache and limits. While servers change, it is the
// hash of the list that the configuration requires, not of the one in use.
func (t *Table) Print() uint64 {
	h := fnv.New64a()
	for _, p := range t.Pools {
		f := p.Failover
		gutter := ""
		if f.Gutter != nil {
			gutter = f.Gutter.Name
		}
		f.Gutter = nil
		list, mode := p.Required(), p.Resize
		if p.Next != nil {
			mode = p.ResizeLater
		}
		fmt.Fprintf(h, "pool %q %q %+v %+v %q %v %v %v\n", p.Name, list.Place.Fingerprint, list.Servers, f, gutter, p.GetErrors, p.DenyFlush, p.Timeouts)
		if f := p.Fill; f != nil {
			fmt.Fprintf(h, "fill %v %v", f.From.List().Print(), f.Remember)
		}
		if mode != ResizePlain {
			fmt.Fprintf(h, "resize %v %v %v", mode, p.ResizeUsual, list.Print())
		}
	}
	for _, l := range t.Listeners {
		for i := range l.Routes {
			l.Routes[i].print(h)
		}
	}
	fmt.Fprintf(h, "%q", t.TagCommand)
	return h.Sum64()
}

// PrintCopies returns a hash of the routes that keep replicas in p, and of the pools of these
// routes. Two instances with the same hash keep each replica on the same servers. It returns
// 0 if no route keeps replicas in p.
func (t *Table) PrintCopies(p *Pool) uint64 {
	var lines []string // sorted before hashing, because the listeners of instances can differ
	for _, l := range t.Listeners {
		for i := range l.Routes {
			r := &l.Routes[i]
			pools := append([]*Pool{r.Pool}, r.Also...)
			if !r.KeepsReplicas() || !slices.Contains(pools, p) {
				continue
			}
			line := fmt.Sprintf("route %q %v %d %v", r.Label(), r.Strip, r.Copies.Copies, r.Copies.Apart)
			for _, p := range pools {
				line += fmt.Sprintf(" %q", p.Name)
				lines = append(lines, p.printServers(r.Copies.Apart))
			}
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return 0
	}
	slices.Sort(lines)
	h := fnv.New64a()
	for _, line := range slices.Compact(lines) {
		fmt.Fprintln(h, line)
	}
	return max(h.Sum64(), 1)
}

// printServers returns a text that determines which servers of p keep which keys. apart says in
// what two replicas of a key must differ: host, zone or address.
func (p *Pool) printServers(apart replicate.Apart) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %q %q", p.Name, p.Place.Fingerprint)
	for i := range p.Servers {
		s := &p.Servers[i]
		fmt.Fprintf(&b, " %q %q %d %q", s.Name, s.Network+" "+s.Address, s.Weight, s.Apart(apart))
	}
	return b.String()
}

func (r *Route) print(h io.Writer) {
	fmt.Fprintf(h, "route %q %q %v %+v", r.Label(), r.Pool.Name, r.Strip, r.Copies)
	for _, p := range r.Also {
		fmt.Fprintf(h, " also %q", p.Name)
	}
	if r.Autocreate != nil {
		fmt.Fprintf(h, " autocreate %+v", *r.Autocreate)
	}
	if r.Buffer != nil {
		fmt.Fprintf(h, " buffer %+v", *r.Buffer)
	}
	if r.GetErrors != nil {
		fmt.Fprintf(h, " errors %v", *r.GetErrors)
	}
	if r.Total != nil {
		fmt.Fprintf(h, " total %v", *r.Total)
	}
	if r.Guard != nil {
		fmt.Fprintf(h, " guard %+v", *r.Guard)
	}
	if g := r.Tags; g != nil {
		fmt.Fprintf(h, " tags %+v %q %q %v", g.Namespace, g.Prefix, g.Suffix, g.Read)
		for _, p := range g.Patterns {
			fmt.Fprintf(h, " pattern %+v", *p)
		}
	}
	fmt.Fprintln(h)
}
