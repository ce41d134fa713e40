package routing

// A table as one loop has taken it up: its routes tied to its servers.

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/near"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/watch/why"
	"ringside/replicate"
	"ringside/ring"
)

// Listener is what the clients of one address see. It outlives reloads; its routes
// don't.
type Listener struct {
	Name     string       // network and address
	Routes   []Route      // those that spell out most of a key first
	prefixes []Route      // Routes, if none of them has a Match: then they need no more than a comparison each
	Pools    []*BoundPool // that its keys may be in, gutters included
	Users    *table.Users // who may use it; nil: everybody

	suffixes []string // behind which clients name tags

	InOrder bool // one of the pools wants multi-gets answered in order
	Tagged  bool // one of the routes has tags
	Moves   bool // one of the pools moves keys or keeps copies of them
	Counts  bool // one of the routes makes counters that are missing
}

// Route sends keys to a pool.
type Route struct {
	Listener string // its listener's name
	Prefix   string
	Match    string        // in place of Prefix: see table.Route
	label    string        // see table.Route
	keys     table.Pattern // that it wants
	Strip    string        // what the servers don't see of the key: the prefix, or nothing
	*BoundPool

	GetErrors bool           // a read whose server can't answer gets an error, not a miss
	Timeouts  table.Timeouts // of its commands

	Autocreate *table.Autocreate    // of incr and decr: what becomes of a missing key; nil: it stays missing
	Buffer     *table.Buffer        // of incr: how long increments wait; nil: they don't
	Count      *stats.RouteCounters // what this loop has counted of its commands; it outlives reloads

	Copies replicate.Policy // how many of each key, and how; its Copies is 0 if there is only one
	Also   []*BoundPool     // the pools that keep a copy each beside BoundPool; nil: all copies are in that
	Prefer *BoundPool       // the pool whose copy is read first; nil: BoundPool's
	Zone   string           // Ringside's own: copies there are nearest
	Direct bool             // a get may ask one copy without a task

	Guard *Guard // nil: it is not guarded
	Tags  *Tags  // nil: its values have no tags

	Keeps *table.Near // which values are kept in Ringside; nil: none
	Near  *near.Store // those that this loop keeps; nil: none

	mayTask bool // see NeedsTask; all of that would cost every command
}

// Tags is how values of a route are tied to tags, and what it has counted and
// learned of that.
type Tags struct {
	*table.Tags
	Learned *stats.Tags
	Command bool // it is no route to values: its keys name tags
}

// Guard is how a route guards against simultaneous rebuilding, and what it has
// counted and learned of that.
type Guard struct {
	*table.Guard
	Learned *stats.Guard
}

// OneLoop says that one loop leads all commands on a key of the route that take
// tasks: what it knows of the key is in one place then.
func (rt *Route) OneLoop() bool {
	return rt.Copies.Copies != 0 || rt.Guard != nil || rt.Buffer != nil
}

// BoundPool is a pool of the table and, by the same index, its servers as the
// engine has them.
type BoundPool struct {
	Pool    *table.Pool
	Servers []*upstream.Server
	Owners  *ring.Memo // finds the server that a key belongs to, by its index

	Refusals []string // error lines of servers that a person has ordered away, by the same index; nil: there are none

	// Of a pool whose keys move or that keeps copies; nil of others.
	View          *health.View       // what the pool's keeper has decided
	GutterServers []*upstream.Server // the servers of its gutter
	Walk          ring.Ring          // its ring, each server once
	Gutter        ring.Ring          // the gutter's ring, each server once
}

// Member is a server of the pool or, behind them, of its gutter.
func (bp *BoundPool) Member(i int) *upstream.Server {
	if n := len(bp.Servers); i >= n {
		return bp.GutterServers[i-n]
	}
	return bp.Servers[i]
}

// Learned is what routes have counted and learned so far, by label.
type Learned interface {
	Guarded(label string) *stats.Guard
	Tagged(label string) *stats.Tags
	Misses(label string) *why.Account
}

// Bind gives l the routes of a new table. bound has the pools of that; command is
// what invalidates tags. It returns what was counted of routes that are no more.
func (l *Listener) Bind(routes []table.Route, bound map[*table.Pool]*BoundPool, learned Learned, command string) (gone []*stats.RouteCounters) {
	counts := map[stats.RouteName]*stats.RouteCounters{}
	for i := range l.Routes {
		counts[l.Routes[i].Name()] = l.Routes[i].Count
	}
	l.Routes, l.Pools, l.suffixes, l.InOrder, l.Moves, l.Counts = nil, nil, nil, false, false, false
	var tagged *Route
	for _, r := range routes {
		made := Route{Listener: l.Name, Prefix: r.Prefix, Match: r.Match, label: r.Label(), keys: r.Pattern(), BoundPool: bound[r.Pool], GetErrors: r.Pool.GetErrors, Timeouts: r.Pool.Timeouts, Zone: r.Zone}
		if made.Count = counts[made.Name()]; made.Count == nil {
			made.Count = new(stats.RouteCounters)
		}
		delete(counts, made.Name())
		if r.GetErrors != nil {
			made.GetErrors = *r.GetErrors
		}
		if r.Total != nil {
			made.Timeouts.Total = *r.Total
		}
		if r.KeepsCopies() {
			made.Copies = r.Copies
			made.Copies.Copies = cmp.Or(made.Copies.Copies, 1)
		}
		for _, p := range r.Also {
			made.Also = append(made.Also, bound[p])
		}
		made.Autocreate, made.Buffer, made.Count.Misses = r.Autocreate, r.Buffer, learned.Misses(r.Label())
		l.Counts = l.Counts || r.Autocreate != nil
		made.setMayTask()
		made.Prefer, made.Keeps = bound[r.Prefer], r.Near
		if r.Guard != nil {
			made.Guard = &Guard{Guard: r.Guard, Learned: learned.Guarded(r.Label())}
		}
		if r.Tags != nil {
			made.Tags = &Tags{Tags: r.Tags, Learned: learned.Tagged(r.Label())}
			tagged = &made
			if s := r.Tags.Suffix; s != "" && !slices.Contains(l.suffixes, s) {
				l.suffixes = append(l.suffixes, s)
			}
		}
		if r.Strip {
			made.Strip = r.Prefix
		}
		made.Direct = made.readsDirectly()
		l.Routes = append(l.Routes, made)
		l.InOrder = l.InOrder || r.Pool.InOrder
		for _, bp := range append([]*BoundPool{made.BoundPool}, made.Also...) {
			l.addPool(bp)
			if g := bp.Pool.Failover.Gutter; g != nil {
				l.addPool(bound[g])
			}
		}
	}
	slices.SortStableFunc(l.Routes, func(a, b Route) int { return cmp.Compare(b.keys.Literal(), a.keys.Literal()) })
	if l.Tagged = tagged != nil; l.Tagged {
		r := tagged.command(command)
		if r.Count = counts[r.Name()]; r.Count == nil {
			r.Count = new(stats.RouteCounters)
		}
		delete(counts, r.Name())
		l.Routes = slices.Insert(l.Routes, 0, r) // before those with a match that spell out more
	}
	if l.prefixes = l.Routes; slices.ContainsFunc(l.Routes, func(r Route) bool { return r.Match != "" }) {
		l.prefixes = nil
	}
	return slices.Collect(maps.Values(counts))
}

// command is the route, beside the tagged route rt, of the keys that name tags.
func (rt *Route) command(prefix string) Route {
	names := table.Route{Prefix: prefix}
	made := Route{Listener: rt.Listener, Prefix: prefix, label: names.Label(), keys: names.Pattern(), BoundPool: rt.BoundPool, GetErrors: rt.GetErrors, Timeouts: rt.Timeouts,
		Guard: rt.Guard, Tags: &Tags{Tags: rt.Tags.Tags, Learned: rt.Tags.Learned, Command: true}}
	made.setMayTask()
	return made
}

// setMayTask sets mayTask by what the route itself has: without a buffer or a view no command
// needs a task.
func (rt *Route) setMayTask() { rt.mayTask = rt.View != nil || rt.Buffer != nil }

// Name is what the route is known by over reloads.
func (rt *Route) Name() stats.RouteName {
	return stats.RouteName{Listener: rt.Listener, Route: rt.label, Pool: rt.Pool.Name}
}

// AddTo adds what was counted of the routes to what is told of all loops.
func (l *Listener) AddTo(into *stats.Snapshot) {
	for i := range l.Routes {
		into.AddRoute(l.Routes[i].Name(), l.Routes[i].Count)
	}
}

// addPool adds a pool that keys of l may be in, once.
func (l *Listener) addPool(bp *BoundPool) {
	if !slices.Contains(l.Pools, bp) {
		l.Pools = append(l.Pools, bp)
		l.Moves = l.Moves || bp.View != nil
	}
}

// Route finds the route of key, if none has a Match; nil: see Fitting. It is small, so
// that its callers have it inline.
func (l *Listener) Route(key []byte) *Route {
	for i := range l.prefixes {
		r := &l.prefixes[i]
		if r.Prefix == "" || len(key) >= len(r.Prefix) && string(key[:len(r.Prefix)]) == r.Prefix { // most have none: nothing is called for it
			return r
		}
	}
	return nil
}

// Fitting finds the route of key, whatever routes there are; nil if none wants it.
func (l *Listener) Fitting(key []byte) *Route {
	for i := range l.Routes {
		if r := &l.Routes[i]; r.keys.Takes(key) {
			return r
		}
	}
	return nil
}

// CutAt is where the tags begin that a client has put behind a key; at its end, if
// there are none. The route that the key has without them must take such tags.
func (l *Listener) CutAt(key []byte) int {
	for _, suffix := range l.suffixes {
		if i := bytes.Index(key, []byte(suffix)); i > 0 {
			if rt := l.Fitting(key[:i]); rt != nil && rt.Tags != nil && !rt.Tags.Command && rt.Tags.Suffix == suffix {
				return i
			}
		}
	}
	return len(key)
}

// Each calls f for every server behind l, once per address, with the first
// pool that names it and lets it serve; if none does, with why not.
func (l *Listener) Each(f func(srv *upstream.Server, p *table.Pool, refusal string)) {
	type place struct {
		pool    *table.Pool
		refusal string
	}
	found := map[*upstream.Server]place{}
	var order []*upstream.Server
	for _, p := range l.Pools {
		for i, srv := range p.Servers {
			at, ok := found[srv]
			if !ok {
				order = append(order, srv)
			}
			if !ok || at.refusal != "" && p.Refusal(i) == "" {
				found[srv] = place{p.Pool, p.Refusal(i)}
			}
		}
	}
	for _, srv := range order {
		f(srv, found[srv].pool, found[srv].refusal)
	}
}

// EachInUse is Each for the servers that hold keys now: without those that are out
// in every pool behind l that has them, and with the gutters that stand in for some.
func (l *Listener) EachInUse(f func(srv *upstream.Server, p *table.Pool, refusal string)) {
	used := map[*upstream.Server]bool{}
	for _, p := range l.Pools {
		for i, srv := range p.Servers {
			used[srv] = used[srv] || p.View == nil || p.View.Phase(i) != health.Out
		}
	}
	l.Each(func(srv *upstream.Server, p *table.Pool, refusal string) {
		if used[srv] {
			f(srv, p, refusal)
		}
	})
	for _, p := range l.Pools {
		if p.View == nil || p.View.AllIn() {
			continue
		}
		for i, srv := range p.GutterServers {
			if _, done := used[srv]; !done && p.View.Phase(len(p.Servers)+i) != health.Out {
				used[srv] = true
				f(srv, p.Pool.Failover.Gutter, "")
			}
		}
	}
}

// DeniesFlush says whether one of l's pools refuses flush_all.
func (l *Listener) DeniesFlush() bool {
	return slices.ContainsFunc(l.Pools, func(p *BoundPool) bool { return p.Pool.DenyFlush })
}

// CopiesOn says whether rt keeps copies on bp.
func (rt *Route) CopiesOn(bp *BoundPool) bool {
	return rt.Copies.Copies != 0 && (rt.BoundPool == bp || slices.Contains(rt.Also, bp))
}

// Refusal says why a person keeps server i from getting requests of this
// pool; "" if nobody does.
func (p *BoundPool) Refusal(i int) string {
	if p.Refusals == nil {
		return ""
	}
	return p.Refusals[i]
}
