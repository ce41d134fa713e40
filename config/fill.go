package config

// This file has the setting fill_from: a pool of the file from which another pool fills, and which stays in use.

import (
	"time"

	"ringside/proxy/table"
)

func fillValue() value[Fill] {
	usual := Fill{Rate: 5000, Remember: 24 * time.Hour}
	name := text("the name of a pool")
	return fresh(usual, either(
		through(name, func(f *Fill) *string { return &f.Pool }),
		group(usual,
			must(set("pool", "the entry of pools", name, func(f *Fill) *string { return &f.Pool })),
			set("rate", "reads that each of its servers gets in a second at most, from each instance; beyond that, keys miss. Commands that need the value are not limited. 0: it is not read, but writes are still remembered",
				integer(0, 1_000_000), func(f *Fill) *int { return &f.Rate }),
			set("remember", "how long a write or a delete through this pool hides the value that the other pool has: longer than the values there live",
				after(duration(time.Minute, month), wholeSeconds), func(f *Fill) *time.Duration { return &f.Remember }),
		)))
}

// wholeSeconds rejects a duration that memcached can't have as an expiry.
func wholeSeconds(d *document, n *node, path string, to *time.Duration) {
	if *to%time.Second != 0 {
		d.failAt(n, "%s must be in whole seconds, as memcached has them, not %s", path, short(*to))
	}
}

// whyFillIsPlain is why resize.mode is plain with fill_from.
const whyFillIsPlain = "is not possible with fill_from: a server that gains keys does not know which of them were written"

// checkFill checks the settings fill_from. Such a pool does not inherit resize.mode.
func (d *document) checkFill(f *File) {
	for i := range f.Pools {
		p := &f.Pools[i]
		n := d.where[&p.Fill]
		if n == nil || p.Fill.Pool == "" {
			continue
		}
		from, wrong := f.pool(p.Fill.Pool), f.whyNotSource(p, p.Fill.Pool)
		if at := d.where[&p.Resize.Mode]; p.Resize.Mode != table.ResizePlain {
			if at != nil {
				d.failAt(at, "pools.%s.resize: mode %s %s", p.Name, p.Resize.Mode, whyFillIsPlain)
			}
			p.Resize.Mode = table.ResizePlain
		}
		if at := d.said(&p.Failover.Mode); at != nil && p.Failover.Mode != table.FailFast {
			d.failAt(at, "pools.%s.failover: mode %s is not possible with fill_from: a server that rejoins is flushed, and no longer knows which keys were written; use mode fail_fast while the pool fills", p.Name, p.Failover.Mode)
			continue
		}
		if at := d.where[&p.DenyFlush]; at != nil && at.text != "deny" {
			d.failAt(at, "pools.%s.flush_all: a flushed pool with fill_from would get the values back that %s has: remove fill_from first", p.Name, p.Fill.Pool)
		}
		switch fail := func(text string, args ...any) {
			d.failAt(n, "pools.%s.fill_from: "+text, append([]any{p.Name}, args...)...)
		}; {
		case wrong != "":
			fail("%s", wrong)
		case f.look().formers[from.Name]:
			fail("the keys of pools.%s leave it, because another pool names it in warm_from", from.Name)
		case f.routed(from.Name):
			fail("a route uses pools.%s, too: give fill_from an entry of its own, with the same servers and distribution and another name", from.Name)
		case from.shares(p.Servers) != nil:
			fail("pools.%s has the server %s, too, so it is not another pool", from.Name, from.shares(p.Servers).label())
		case len(f.copiesIn(p.Name)) > 0:
			fail("is not possible in a pool with replicated keys: give them another pool")
		case !f.serves(p.Name):
			fail("is not possible in a gutter, and in the source of another pool")
		default:
			if name := f.featureOf(p); name != "" {
				fail("is not possible with %s on a route of the pool: give this route another pool", name)
			}
		}
	}
}

// featureOf returns the name of a setting of a route of p that does not go with fill_from; "": there is none.
func (f *File) featureOf(p *Pool) string {
	for _, r := range f.look().routes[p.Name] {
		for _, has := range []struct {
			is   bool
			name string
		}{{r.Guard.On, "guard"}, {r.Tags.On, "tags"}, {r.Near.On, "near"}, {r.Buffer != nil, "buffer"}, {r.Autocreate != nil, "autocreate"}} {
			if has.is {
				return has.name
			}
		}
	}
	return ""
}
