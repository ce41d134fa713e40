package config

// This file contains the settings of routes and their replicas: the keys of a route, its preset,
// and the checks that replicas can be kept apart and equal.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/replicate"
)

func defaultBuffer() table.Buffer {
	return table.Buffer{Every: time.Second, Keys: 10_000, Keep: 10 * time.Second}
}

// defaultRoute returns a route with default settings. By default, a read that misses on one replica
// asks the others, because a restart, an eviction or a late delete removes a key from one replica
// only.
func defaultRoute() Route {
	return Route{Copies: replicate.Policy{ReadThrough: true, RepairRate: 1000}}
}

// usePreset sets the settings of the route that its preset determines. decideConsistency and
// decideFlush set those of the pool.
func (r *Route) usePreset() {
	loud := true
	switch r.Preset {
	case presetCache:
		r.GetErrors = new(bool)
		r.Guard = defaultGuard()
	case presetCounters:
		r.GetErrors = &loud // SERVER_ERROR for a read that fails; after a miss, a client would restart the counter
		r.Copies.Copies = 2
		r.Autocreate = &table.Autocreate{}
	case presetSessions:
		r.GetErrors = &loud
		r.Copies.Copies = 2
	}
}

func routeValue() value[Route] {
	type r = Route
	preset := set("preset", "kind of data. cache: can be lost; with a guard. counters: should not be lost; two replicas, autocreate, no flush_all. sessions: must not be lost; two replicas, errors instead of misses, short leases. Settings of the route override it",
		words(presetCache, presetCounters, presetSessions), func(r *r) *string { return &r.Preset })
	setPreset := preset.read
	preset.read = func(d *document, n *node, path string, to *Route) {
		setPreset(d, n, path, to)
		to.usePreset()
	}
	v := fresh(defaultRoute(), group(defaultRoute(),
		preset, // the preset is read first, so that other keys of the route override its settings
		set("prefix", "keys that begin with this; all keys unless set", prefixText(), func(r *r) *string { return &r.Prefix }),
		set("match", "instead of prefix: a pattern of the whole key; * is any bytes, also none. The route that spells out most of a key wins",
			visible("a pattern of keys", maxName), func(r *r) *string { return &r.Match }),
		set("pool", "name of the pool for these keys", text("the name of a pool"), func(r *r) *string { return &r.Pool }),
		set("pools", "instead of pool: names of pools that each keep a replica; the first is the primary",
			listOf(text("the name of a pool"), 2), func(r *r) *[]string { return &r.Pools }),
		set("prefer", "which of pools is read first; the first one unless set", text("the name of a pool"), func(r *r) *string { return &r.Prefer }),
		set("strip_prefix", "remove the prefix from keys that are sent to servers", yesNo(), func(r *r) *bool { return &r.Strip }),
		set("get_errors", "reply to a read if its server cannot reply: a miss, or SERVER_ERROR; the pool's unless set",
			optional(getErrors()), func(r *r) **bool { return &r.GetErrors }),
		set("deadline_total", "time from a client's command to the last byte of its reply, or off; the pool's unless set",
			optional(duration(0, time.Hour)), func(r *r) **time.Duration { return &r.Total }),
		set("replicas", "how many servers of the pool keep each key, or all of them", replicas(), func(r *r) *int { return &r.Copies.Copies }),
		set("replicas_on", "where replicas of a key are: on different hosts, in different zones, or only on different servers",
			named(replicate.Apart.String, replicate.Hosts, replicate.Zones, replicate.Servers), func(r *r) *replicate.Apart { return &r.Copies.Apart }),
		set("read", "which replica a read asks: the first, one in the zone of the instance (nearest), each in turn (spread), or all at once (fastest)",
			named(replicate.Read.String, replicate.First, replicate.Nearest, replicate.Spread, replicate.Fastest), func(r *r) *replicate.Read { return &r.Copies.Read }),
		set("ack", "how many replicas on servers that are up must store a write before it is acknowledged; the removal of a key always needs all of them",
			named(replicate.Ack.String, replicate.AckOne, replicate.AckQuorum, replicate.AckAll), func(r *r) *replicate.Ack { return &r.Copies.Ack }),
		set("read_through", "whether a miss asks the other replicas; a miss on a server that has just rejoined always does",
			yesNo(), func(r *r) *bool { return &r.Copies.ReadThrough }),
		set("autocreate", "whether incr and decr create a missing counter: off, on, or its initial value and lifetime", autocreateValue(), func(r *r) **table.Autocreate { return &r.Autocreate }),
		set("buffer", "add up increments in Ringside and send them together; clients then get estimates", bufferValue(), func(r *r) **table.Buffer { return &r.Buffer }),
		set("repair", "keys per second that are copied to one server that lacks them, or off; the highest value of several routes applies", orOff(wholeNumber("off, or a whole number between 1 and 1000000", 1, 1_000_000)), func(r *r) *int { return &r.Copies.RepairRate }),
		set("guard", "let one client at a time rebuild a missing value while the others wait. hide: no guard here, but understand the items of instances that have one",
			guardValue(), func(r *r) *Guard { return &r.Guard }),
		set("tags", "let clients invalidate groups of values. read: no tags here, but understand the values of instances that have them", tagsValue(), func(r *r) *Tags { return &r.Tags }),
		set("near", "cache values of hot keys in Ringside for a moment; writes by other instances are visible that much later", nearValue(), func(r *r) *Near { return &r.Near }),
	))
	read := v.read
	v.read = func(d *document, n *node, path string, to *Route) {
		read(d, n, path, to)
		if (n.kind == mapping || n.empty()) && d.where[&to.Pool] == nil && d.where[&to.Pools] == nil {
			d.failAt(n, "%s.pool is missing: the name of the pool that gets them", path)
		}
	}
	v.schema["type"] = "object"
	v.schema["oneOf"] = []any{schema{"required": []any{"pool"}}, schema{"required": []any{"pools"}}}
	return v
}

// autocreateValue describes the setting autocreate: on, off, or a mapping.
func autocreateValue() value[*table.Autocreate] {
	type a = table.Autocreate
	return either(
		wordOr("a mapping of its settings", option[*a]{"on", &a{}}, option[*a]{"off", nil}),
		optional(group(a{},
			set("initial", "value before the incr that creates the counter, and after a decr that creates it", integer[uint64](0, math.MaxInt), func(a *a) *uint64 { return &a.Initial }),
			set("ttl", "lifetime in whole seconds, or off: unlimited", duration(0, maxCounterTTL), func(a *a) *time.Duration { return &a.TTL }))))
}

// bufferValue describes the setting buffer, a mapping. If a route does not have it, its value is
// nil, and increments do not wait.
func bufferValue() value[*table.Buffer] {
	type b = table.Buffer
	return optional(fresh(defaultBuffer(), group(defaultBuffer(),
		set("every", "time between two sends of a counter, plus or minus a tenth; a crash of this instance loses at most that", duration(100*time.Millisecond, time.Minute), func(b *b) *time.Duration { return &b.Every }),
		set("answer", "reply to an increment that waits. estimate: the last value of the server plus what was added here since. last: the last value of the server",
			oneOf(option[bool]{"estimate", false}, option[bool]{"last", true}), func(b *b) *bool { return &b.Last }),
		set("keys", "counters with waiting increments at the same time; increments of others are sent at once", integer(1, 1_000_000), func(b *b) *int { return &b.Keys }),
		set("keep", "how long increments wait for a server that is down; then they are dropped, and counted", duration(100*time.Millisecond, time.Hour), func(b *b) *time.Duration { return &b.Keep }))))
}

func replicas() value[int] {
	v := wholeNumber(fmt.Sprintf("all, or a whole number between 1 and %d", maxCopies), 1, maxCopies)
	v.schema = anyOf(v.schema, schema{"const": "all"})
	v.show = func(n int) any {
		if n == replicate.All {
			return "all"
		}
		return max(1, n)
	}
	return depends(before(v, func(_ *document, n *node, _ string, to *int) bool {
		if n.text == "all" {
			*to = replicate.All
		}
		return n.text == "all"
	}))
}

func (d *document) checkCopies(f *File, r *Route) {
	c := &r.Copies
	d.checkPools(f, r)
	if c.Copies == 0 {
		if n := d.where[&c.Copies]; n != nil && n.text != "1" || d.where[&r.Pools] != nil || d.where[&r.Preset] != nil && r.Preset == "" {
			return // the wrong replicas, pools or preset are already recorded as an error
		}
		for _, s := range []struct {
			name  string
			field any
		}{{"replicas_on", &c.Apart}, {"read", &c.Read}, {"ack", &c.Ack}, {"read_through", &c.ReadThrough}, {"repair", &c.RepairRate}} {
			if n := d.where[s.field]; n != nil {
				d.failAt(n, "%s has no effect: the route keeps one replica of a key; give it replicas: 2, pools, or preset: counters or sessions, or leave this out", s.name)
			}
		}
		return
	}
	if n := d.where[&c.Apart]; n != nil && c.Copies == replicate.All {
		d.failAt(n, "replicas_on has no effect with replicas: all, which keeps a replica on every server")
	}
	switch {
	case c.Read == replicate.Nearest && f.Zone == "":
		d.failAt(d.place(&c.Read, r), "read: nearest needs zone at the top of the file: the zone this instance is in")
	case c.Read == replicate.Fastest && d.where[&c.ReadThrough] != nil && c.ReadThrough:
		d.failAt(d.place(&c.ReadThrough), "read_through has no effect with read: fastest, which asks all replicas at once")
	}
	if len(r.Pools) > 0 {
		d.checkCopiesOverPools(f, r)
	} else if p := f.pool(r.Pool); p != nil {
		d.checkCopiesInPool(p, r)
	}
}

// checkPools checks the settings pool and pools of a route, and the setting prefer, which names the
// pool to read first.
func (d *document) checkPools(f *File, r *Route) {
	exists := func(name string, n *node) {
		if name != "" && len(f.Pools) > 0 && f.pool(name) == nil {
			names := f.poolNames()
			d.failAt(n, "there is no pool %s%s; pools here: %s", quote(name), didYouMean(name, names), strings.Join(names, ", "))
		}
	}
	exists(r.Pool, d.place(&r.Pool))
	for i := range r.Pools {
		exists(r.Pools[i], d.place(&r.Pools[i]))
		if r.Pools[i] != "" && slices.Contains(r.Pools[:i], r.Pools[i]) {
			d.failAt(d.place(&r.Pools[i]), "%s is listed twice in pools; each pool keeps one replica", quote(r.Pools[i]))
		}
	}
	pools := d.where[&r.Pools]
	switch {
	case d.where[&r.Pool] != nil && pools != nil:
		d.failAt(pools, "a route has a pool, or pools that each keep a replica, not both")
	case pools != nil && d.where[&r.Copies.Copies] != nil:
		d.failAt(d.place(&r.Copies.Copies), "replicas has no place beside pools, which says that there is a replica in each")
	}
	switch n := d.where[&r.Prefer]; {
	case n == nil || r.Prefer == "":
	case pools == nil:
		d.failAt(n, "prefer needs pools to choose from")
	case !slices.Contains(r.Pools, r.Prefer):
		d.failAt(n, "prefer must be %s, one of pools, not %s%s", list(r.Pools), quote(r.Prefer), didYouMean(r.Prefer, r.Pools))
	case r.Copies.Read != replicate.First:
		d.failAt(n, "prefer has no effect with read: %s; leave one of them out", r.Copies.Read)
	}
}

// checkCopiesInPool rejects a route that wants more replicas than its pool can store on different
// servers, hosts or zones.
func (d *document) checkCopiesInPool(p *Pool, r *Route) {
	c := &r.Copies
	if slices.ContainsFunc(p.Servers, func(s Server) bool { return s.Address.Network == "" }) || len(p.Servers) == 0 {
		return // a missing address and an empty list of servers are already recorded as errors
	}
	at, servers := d.place(&c.Copies, &r.Preset, r), p.addresses()
	wants := fmt.Sprintf("replicas: %d", c.Copies)
	if d.where[&c.Copies] == nil {
		wants = fmt.Sprintf("preset: %s keeps %d replicas, which", r.Preset, c.Copies)
	}
	switch {
	case c.Copies == replicate.All && servers == 1:
		d.failAt(at, "replicas: all needs a pool of at least two servers; pools.%s has one", p.Name)
		return
	case c.Copies == replicate.All && servers > maxCopies:
		d.failAt(at, "replicas: all would be %d replicas in pools.%s; at most %d are kept", servers, p.Name, maxCopies)
		return
	case c.Copies > servers:
		d.failAt(at, "%s is more than pools.%s has servers: at most %d", wants, p.Name, servers)
		return
	case d.lacksZone(p, r):
		return
	}
	first := map[Address]*Server{}
	for i := range p.Servers {
		s := &p.Servers[i]
		switch other := first[s.Address]; {
		case other == nil:
			first[s.Address] = s
		case other.apart(c.Apart) != s.apart(c.Apart): // one address has two hosts or zones; it stores only one replica of a key, so some keys would have too few
			d.failAt(d.place(s), "pools.%s has %s as %s in %s %s, and as %s in %s %s: an address is one place, or some keys would have one replica too few",
				p.Name, s.Address.Address, s.label(), c.Apart, s.apart(c.Apart), other.label(), c.Apart, other.apart(c.Apart))
			return
		}
	}
	if n := len(distinct(p.Servers, c.Apart)); c.Copies > n && c.Apart != replicate.Servers {
		in := map[replicate.Apart]string{replicate.Hosts: "on", replicate.Zones: "in"}[c.Apart]
		d.failAt(d.place(&c.Apart, &c.Copies, &r.Preset, r), "%d replicas can't be %s different %ss: the servers of pools.%s are %s %s; lower replicas, add servers elsewhere, or set replicas_on: server on the route where one machine is enough",
			c.Copies, in, c.Apart, p.Name, in, count(n, c.Apart.String()))
	}
}

// lacksZone rejects a route with replicas in different zones if a server of the pool p has no zone. It
// reports whether it has recorded that error.
func (d *document) lacksZone(p *Pool, r *Route) bool {
	i := slices.IndexFunc(p.Servers, func(s Server) bool { return s.Address.Network != "" && s.Zone == "" })
	if r.Copies.Apart != replicate.Zones || i < 0 {
		return false
	}
	d.failAt(d.place(&r.Copies.Apart, r), "replicas_on: zone needs the zone of each server; pools.%s has none for %s", p.Name, p.Servers[i].label())
	return true
}

// checkCopiesOverPools rejects a route with several pools if two of them share a server, host or
// zone. Such a route could lose two replicas of a key at once.
func (d *document) checkCopiesOverPools(f *File, r *Route) {
	c := &r.Copies
	if len(r.Pools) > maxCopies {
		d.failAt(d.place(&r.Pools), "%d pools would keep a replica; at most %d are kept", len(r.Pools), maxCopies)
		return
	}
	for i, name := range r.Pools {
		p := f.pool(name)
		if p == nil {
			continue
		}
		if d.lacksZone(p, r) {
			return
		}
		for j := range p.Servers {
			s := &p.Servers[j]
			if s.Address.Network == "" {
				continue
			}
			for _, before := range r.Pools[:i] {
				q := f.pool(before)
				if q == nil || q == p {
					continue
				}
				for _, a := range []replicate.Apart{replicate.Servers, c.Apart} {
					if !distinct(q.Servers, a)[s.apart(a)] {
						continue
					}
					hint := "; set replicas_on: server on the route where one machine is enough"
					if a == replicate.Servers {
						hint = ""
					}
					d.failAt(d.place(&r.Pools), "pools.%s and pools.%s share the %s of %s, so two replicas of a key could be lost at once%s", before, name, a, s.label(), hint)
					return
				}
			}
		}
	}
}

// checkOneTruth rejects two routes to the same key of a server if they keep different replicas, or
// if only one of them has a guard or tags. A write by one route would be invisible to a read by the
// other, or would be read in a different form.
func (d *document) checkOneTruth(f *File) {
	var all [][]Route
	common := false // true: at least one listener has no routes of its own, and uses those of the file
	for i := range f.Listen {
		if l := &f.Listen[i]; l.Routes != nil {
			all = append(all, l.Routes)
		} else {
			common = true
		}
	}
	if common && f.Routes != nil {
		all = append(all, f.Routes)
	}
	d.checkTagCommand(f, all)
	type place struct {
		list []Route
		r    *Route
		i    int // position of the list
	}
	type group struct { // routes that treat the keys of a pool in the same way
		handling handling
		routes   []place
	}
	groups := map[string][]*group{} // by pool
	for i, list := range all {
		for j := range list {
			a := place{list, &list[j], i}
			is := a.r.handling()
			for at, pool := range a.r.to() {
				var own *group
				for _, g := range groups[pool] {
					if g.handling == is {
						own = g
						continue
					}
					for _, b := range g.routes {
						first := slices.IndexFunc(a.r.to(), func(name string) bool { return slices.Contains(b.r.to(), name) })
						if first == at && (a.i != b.i || a.r.Strip || b.r.Strip) { // in one list, a key has one route, unless prefixes are removed
							d.checkSame(a.list, b.list, a.r, b.r)
						}
					}
				}
				if own == nil {
					own = &group{handling: is}
					groups[pool] = append(groups[pool], own)
				}
				own.routes = append(own.routes, a)
			}
		}
	}
}

// handling is how a route treats its keys, as far as all routes to the same key must agree.
type handling struct {
	copies                  int
	apart                   replicate.Apart
	to                      string
	guarded, tags, buffered bool
	stale                   time.Duration
}

func (r *Route) handling() handling {
	return handling{r.Copies.Copies, r.Copies.Apart, strings.Join(r.to(), " "), r.guarded(), r.Tags.On, r.Buffer != nil, r.Guard.Stale}
}

// checkSame rejects the route a from listA and the route b from listB if they lead to the same key of
// a server and treat it differently. listA and listB can be the same list. With different replicas, a
// write by one route would be invisible to a read by the other. A route without a guard or tags would
// return the guard's placeholders as empty values, and the header of a tagged value as a part of the
// value. With different values of guard.stale, one route would treat current values as stale. A route
// without a buffer would not see the increments that wait in Ringside.
func (d *document) checkSame(listA, listB []Route, a, b *Route) {
	x, y := a.handling(), b.handling()
	copies := x.copies != y.copies || x.apart != y.apart || x.to != y.to
	guards := x.guarded != y.guarded || x.stale != y.stale
	tags := x.tags != y.tags && x.guarded == y.guarded
	buffers := x.buffered != y.buffered
	if !(copies || guards || tags || buffers) {
		return
	}
	key, ok := meet(listA, listB, a, b)
	if !ok {
		return
	}
	either := func(second bool) *Route { // the route at which an error is reported
		if second {
			return b
		}
		return a
	}
	strip, of := a.Strip || b.Strip, fmt.Sprintf("the routes for %s and %s", a.keys(), b.keys())
	if copies {
		r := either(b.Copies.Copies != 0)
		at := d.place(&r.Copies.Copies, &r.Preset, &r.Pools, r)
		if strip {
			d.failAt(at, "%s lead to one pool with different replicas, and strip_prefix lets both name the same key there: use another pool, or the same replicas", of)
		} else {
			d.failAt(at, "two listeners keep different replicas of keys such as %s, in one pool: %s", shownKey(key), of)
		}
	}
	if guards {
		r := either(b.guarded() && (!a.guarded() || b.Guard.Stale > a.Guard.Stale))
		at := d.place(&r.Guard.Stale, &r.Guard, &r.Preset, r)
		switch both := a.guarded() && b.guarded(); {
		case both && strip:
			d.failAt(at, "%s lead to one pool with a different guard.stale, and strip_prefix lets both name the same key there, so one takes current values of the other for old ones: use another pool, or the same stale for both", of)
		case both:
			d.failAt(at, "two listeners lead to keys such as %s in one pool with a different guard.stale, so one takes current values of the other for old ones: use the same stale for both", shownKey(key))
		case strip:
			d.failAt(at, "%s lead to one pool, one with a guard and one without, and strip_prefix lets both name the same key there: use another pool, or guard: hide for the other", of)
		default:
			d.failAt(at, "two listeners lead to keys such as %s in one pool, and only one has a guard: use guard: hide for the other", shownKey(key))
		}
	}
	if tags {
		r := either(b.Tags.On)
		d.failAt(d.place(&r.Tags, r), "%s and %s lead to the same keys of one pool, one with tags and one without: use tags: read for the other", a.keys(), b.keys())
	}
	if buffers {
		r := either(b.Buffer != nil)
		d.failAt(d.place(&r.Buffer, r), "%s lead to the same keys of one pool, and only one has a buffer, so the other does not see increments that wait: use another pool, or the same buffer for both", of)
	}
}

// meet reports whether the route a from listA and the route b from listB can lead to the same key
// of a server. That is so if one of them strips its prefix, or if a key matches both. meet returns
// such a key; it is empty if only a stripped prefix makes the names equal.
func meet(listA, listB []Route, a, b *Route) (key string, ok bool) {
	if !slices.ContainsFunc(a.to(), func(p string) bool { return p != "" && slices.Contains(b.to(), p) }) {
		return "", false
	}
	key, ok = keyOfBoth(a.pattern(), b.pattern())
	return key, a.Strip || b.Strip || ok && taker(listA, key) == a && taker(listB, key) == b
}
