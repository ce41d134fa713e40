package config

// This file has the setting warm_from: a pool of the file that only says which servers another pool had
// before.

import (
	"fmt"

	"ringside/proxy/table"
)

// isSource reports whether another pool names the pool in warm_from or fill_from.
func (f *File) isSource(name string) bool {
	return name != "" && (f.look().formers[name] || f.look().fills[name])
}

// whyNotSource returns why p can't take values of the pool `name`, which it names in warm_from or fill_from; "": it
// can.
func (f *File) whyNotSource(p *Pool, name string) string {
	from := f.pool(name)
	switch {
	case from == nil:
		return fmt.Sprintf("there is no pool %s%s", quote(name), didYouMean(name, f.poolNames()))
	case from == p:
		return "a pool can't be its own source: name another one"
	case from.Fill.Pool != "" || from.WarmFrom != "":
		return fmt.Sprintf("pools.%s takes values of another pool itself: end that first", name)
	case f.look().gutters[name]:
		return fmt.Sprintf("pools.%s is a gutter, and has only values of outages", name)
	case len(from.Sources) > 0:
		return fmt.Sprintf("pools.%s has discovered servers: list the addresses that they have now, because all instances must use the same", name)
	}
	return ""
}

// checkFormer checks the settings warm_from.
func (d *document) checkFormer(f *File) {
	first := map[string]*Pool{} // the first pool that names a source
	for i := range f.Pools {
		p := &f.Pools[i]
		n, from := d.where[&p.WarmFrom], f.pool(p.WarmFrom)
		if n == nil || p.WarmFrom == "" {
			continue
		}
		other := first[p.WarmFrom]
		if other == nil {
			first[p.WarmFrom] = p
		}
		wrong := f.whyNotSource(p, p.WarmFrom)
		switch fail := func(text string, args ...any) {
			d.failAt(n, "pools.%s.warm_from: "+text, append([]any{p.Name}, args...)...)
		}; {
		case wrong != "":
			fail("%s", wrong)
		case p.Fill.Pool != "":
			fail("%s; remove one of both settings", whyFillIsPlain)
		case other != nil:
			fail("pools.%s is the source of pools.%s already, and its keys can move to one pool only", from.Name, other.Name)
		case f.routed(from.Name):
			fail("a route uses pools.%s, too, so its keys would have two servers: let the route name pools.%s", from.Name, p.Name)
		case p.Resize.Mode != table.ResizeWarm && d.where[&p.Resize.Mode] == nil:
			fail("needs resize: {mode: warm} in pools.%s", p.Name)
		case p.Resize.Mode != table.ResizeWarm:
			if d.where[&p.Resize.Mode].text != table.ResizeWarm.String() { // otherwise the reason is already an error
				fail("needs resize: {mode: warm} in pools.%s", p.Name)
			}
		case p.differentSecurity(from) != "":
			fail("pools.%s and pools.%s have different %s, but the settings of pools.%s are used for all these servers", p.Name, from.Name, p.differentSecurity(from), p.Name)
		}
	}
}

// routed reports whether a route uses the pool.
func (f *File) routed(name string) bool { return len(f.look().routes[name]) > 0 }

// removeFormer moves the pools that warm_from and fill_from name from f.Pools to the field From of the pools, or of
// their Fill, that name them. The file has been checked.
func (f *File) removeFormer() {
	var served []Pool
	for i := range f.Pools {
		p := f.Pools[i]
		if f.isSource(p.Name) {
			continue
		}
		if q := f.pool(p.WarmFrom); q != nil {
			from := *q
			p.From = &from
		}
		if q := f.pool(p.Fill.Pool); q != nil {
			from := *q
			p.Fill.From = &from
		}
		served = append(served, p)
	}
	f.Pools = served
	f.reindex()
}
