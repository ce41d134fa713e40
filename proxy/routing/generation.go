package routing

// This file binds a table to one loop: its listeners and routes to the loop's servers.

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"ringside/proxy/health"
	"ringside/proxy/near"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/watch/missreason"
	"ringside/replicate"
	"ringside/ring"
)

// Listener contains the routes of one listening address. It survives reloads; its routes
// are replaced.
type Listener struct {
	Name     string       // network and address of the listener, with a space between them
	Routes   []Route      // sorted by the number of literal bytes, the most specific route first
	prefixes []Route      // the same as Routes, if all have a plain prefix, which needs only a comparison; nil if a route has a Match
	Pools    []*BoundPool // the pools of the routes, including gutters
	Users    *table.Users // the users that may log in; nil: no login is needed

	Certificates bool // clients need a certificate

	suffixes []string // separators after which clients append tags to a key

	InOrder bool // a pool has multiget_order: request, so values are sent in the order of the requested keys
	Tagged  bool // a route has tags on its values
	Moves   bool // a pool moves keys between servers or keeps replicas
}

// Route sends keys to a pool.
type Route struct {
	Listener string // the name of the route's listener
	Prefix   string
	Match    string        // pattern of the whole key, used instead of Prefix; empty: Prefix applies
	label    string        // name of the route in metrics: see table.Route.Label
	keys     table.Pattern // the keys that the route matches
	Strip    string        // prefix that is removed from keys sent to servers; empty: none
	*BoundPool

	GetErrors bool           // a read gets an error instead of a miss if the server can't reply
	Timeouts  table.Timeouts // timeouts of the route's commands

	Autocreate *table.Autocreate    // how incr and decr create a missing counter; nil: they do not
	Buffer     *table.Buffer        // how long increments are buffered; nil: they are not buffered
	Count      *stats.RouteCounters // counters of this loop for the route's commands; the counters survive reloads

	Copies replicate.Policy // number and placement of replicas; Copies.Copies is 0 without replication, and 1 while keys of a route with one copy take part in a handover: see HandOver
	Also   []*BoundPool     // other pools with one replica each; nil: all replicas are in BoundPool
	Prefer *BoundPool       // the pool with the replica that reads use first; nil: BoundPool
	Zone   string           // the zone of this instance: replicas there are nearest

	Guard *RouteGuard // stampede protection of the route; nil: none
	Tags  *RouteTags  // tag settings of the route; nil: its values have no tags

	Keeps *table.NearSettings // which values the near cache stores; nil: none
	Near  *near.Store         // the near cache of this loop; nil: none

	Features Features // which features serve the route's commands
	mayTask  bool     // false if special can't return true: a cheap first check for NeedsTask, which runs for every command
}

// RouteTags has the tag settings of a route, its tag counters, and the tags that clients have
// named for its keys.
type RouteTags struct {
	*table.TagSettings
	Learned *stats.TagStats
	Command bool // the route's keys name tags to invalidate, not values
}

// RouteGuard has the settings of the stampede protection of a route, with its counters and the
// measured times of rebuilds.
type RouteGuard struct {
	*table.GuardSettings
	Learned *stats.GuardStats
}

// Unbound returns a route without servers, for a command that is only refused. Its parameters
// are settings of a route that belongs to another loop; no loop changes them.
func Unbound(pool *table.Pool, guard *RouteGuard, getErrors bool) *Route {
	return &Route{BoundPool: &BoundPool{Pool: pool}, Guard: guard, GetErrors: getErrors, Count: new(stats.RouteCounters)}
}

// Features is a set of features that serve the commands of a route. Each is a bit.
type Features uint8

// The features.
const (
	Replicated Features = 1 << iota // keys have replicas
	Counted                         // missing counters are created, or increments are buffered
	Guarded                         // stampede protection
	TagNames                        // the route's keys name tags to invalidate, not values
	Tagged                          // the route's values have tags
	Near                            // values are kept in the near cache
	Direct                          // a read may be sent to one server without a task, although other commands need tasks

	FeatureSets = 1 << iota // number of sets
)

// setFeatures sets Features and mayTask from the other fields of the route. Without a guard, a buffer,
// a keeper and a pool to fill from, no command needs a task.
func (rt *Route) setFeatures() {
	rt.Features = 0
	rt.mayTask = rt.Guard != nil || rt.View != nil || rt.Buffer != nil || rt.Source != nil
	for _, f := range []struct {
		has     bool
		feature Features
	}{
		{rt.Copies.Copies != 0, Replicated},
		{rt.Autocreate != nil || rt.Buffer != nil, Counted},
		{rt.Guard != nil, Guarded},
		{rt.Tags != nil && rt.Tags.Command, TagNames},
		{rt.Tags != nil && !rt.Tags.Command, Tagged},
		{rt.Keeps != nil, Near},
		{rt.readsDirectly(), Direct},
	} {
		if f.has {
			rt.Features |= f.feature
		}
	}
}

// HandOver makes rt, a route with one copy, take part in a handover of replicated keys: package replication serves its commands, by the
// policy p where a key still has replicas. If p has no replicas, that ends.
func (rt *Route) HandOver(p replicate.Policy) {
	if rt.Copies = p; p.Copies != 0 {
		rt.Copies.Copies = 1
	}
	rt.setFeatures()
}

// HasOneCopy reports whether the keys of rt have one copy.
func (rt *Route) HasOneCopy() bool { return !rt.Copies.Several() && len(rt.Also) == 0 }

// Overlaps reports whether keys may match rt and also o, a route of another routing table.
func (rt *Route) Overlaps(o *Route) bool {
	if rt.Match != "" || o.Match != "" {
		return true
	}
	return strings.HasPrefix(rt.Prefix, o.Prefix) || strings.HasPrefix(o.Prefix, rt.Prefix)
}

// OneLoop reports whether one loop runs all tasks on a key of the route, so that all
// state of the key is in one place.
func (rt *Route) OneLoop() bool {
	return rt.Copies.Copies != 0 || rt.Guard != nil || rt.Buffer != nil
}

// BoundPool is a pool of the table with the engine's servers, in the same order.
type BoundPool struct {
	Pool    *table.Pool
	Servers []*upstream.Server
	Owners  *ring.Memo // finds the index of the server that owns a key
	Retired bool       // a reload, or a change of the servers, has replaced the pool: View is not updated any more

	Refusals []string // why an operator has drained a server or taken it down, as an error line, by server index; empty: the server is in use. nil: all servers are

	Source *BoundPool // the pool from which this one fills, which only has Pool and Servers; nil: none

	// The fields from View to GutterAt are not set unless the pool moves keys between servers or
	// keeps replicas.
	View          *health.View       // the decisions of the pool's keeper
	GutterServers []*upstream.Server // the servers of the gutter
	Next          *BoundPool         // the pool as it becomes when its list Next is in force; nil: there is no such list
	Joining       []*upstream.Server // in mode ResizeWarm, the servers that only Next has; the view has them after Servers
	Indexes       []int              // set in Next, in mode ResizeWarm: the indexes of Servers in View; nil: they are the same
	Walk          ring.Ring          // the pool's ring, each server once
	Gutter        ring.Ring          // the gutter's ring, each server once
	GutterAt      int                // the index in View of the first server of the gutter
}

// Server returns the server with the index i in View. Indexes after the pool's own servers are those of the servers
// that join it, and then those of its gutter. A pool has both if a reload sets mode gutter while keys move.
func (bp *BoundPool) Server(i int) *upstream.Server {
	switch n := len(bp.Servers); {
	case i < n:
		return bp.Servers[i]
	case i < n+len(bp.Joining):
		return bp.Joining[i-n]
	default:
		return bp.GutterServers[i-bp.GutterAt]
	}
}

// Learned returns, by route label, what routes have counted and learned so far.
type Learned interface {
	Guarded(label string) *stats.GuardStats
	Tagged(label string) *stats.TagStats
	Misses(label string) *missreason.Account
}

// Bind replaces the routes of l by those of a new table. bound maps the table's pools
// to the engine's, and command is the key prefix that invalidates tags. Bind returns
// the counters of routes that no longer exist.
func (l *Listener) Bind(routes []table.Route, bound map[*table.Pool]*BoundPool, learned Learned, command string) (gone []*stats.RouteCounters) {
	counts := map[stats.RouteName]*stats.RouteCounters{}
	for i := range l.Routes {
		counts[l.Routes[i].Name()] = l.Routes[i].Count
	}
	l.Routes, l.Pools, l.suffixes, l.InOrder, l.Moves = nil, nil, nil, false, false
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
		if r.KeepsReplicas() {
			made.Copies = r.Copies
			made.Copies.Copies = cmp.Or(made.Copies.Copies, 1)
		}
		for _, p := range r.Also {
			made.Also = append(made.Also, bound[p])
		}
		made.Autocreate, made.Buffer, made.Count.Misses = r.Autocreate, r.Buffer, learned.Misses(r.Label())
		made.Prefer, made.Keeps = bound[r.Prefer], r.Near
		if r.Guard != nil {
			made.Guard = &RouteGuard{GuardSettings: r.Guard, Learned: learned.Guarded(r.Label())}
		}
		if r.Tags != nil {
			made.Tags = &RouteTags{TagSettings: r.Tags, Learned: learned.Tagged(r.Label())}
			names := made
			tagged = &names
			if r.Pool.Unknown { // there are no values
				made.Tags = nil
			}
			if s := r.Tags.Suffix; s != "" && !slices.Contains(l.suffixes, s) {
				l.suffixes = append(l.suffixes, s)
			}
		}
		if r.Strip {
			made.Strip = r.Prefix
		}
		made.setFeatures()
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
		l.Routes = slices.Insert(l.Routes, 0, r) // inserted first, so that it also wins over routes with a more specific match
	}
	if l.prefixes = l.Routes; slices.ContainsFunc(l.Routes, func(r Route) bool { return r.Match != "" }) {
		l.prefixes = nil
	}
	return slices.Collect(maps.Values(counts))
}

// command returns the route for the keys that invalidate tags of the tagged route rt.
func (rt *Route) command(prefix string) Route {
	names := table.Route{Prefix: prefix}
	made := Route{Listener: rt.Listener, Prefix: prefix, label: names.Label(), keys: names.Pattern(), BoundPool: rt.BoundPool, GetErrors: rt.GetErrors, Timeouts: rt.Timeouts,
		Guard: rt.Guard, Tags: &RouteTags{TagSettings: rt.Tags.TagSettings, Learned: rt.Tags.Learned, Command: true}}
	made.setFeatures()
	return made
}

// Name returns the name by which the route's counters are found again after a reload.
func (rt *Route) Name() stats.RouteName {
	return stats.RouteName{Listener: rt.Listener, Route: rt.label, Pool: rt.Pool.Name}
}

// AddTo adds the counters of the routes to a snapshot of all loops.
func (l *Listener) AddTo(into *stats.Snapshot) {
	for i := range l.Routes {
		into.AddRoute(l.Routes[i].Name(), l.Routes[i].Count)
	}
}

// addPool adds a pool of a route, unless l has it already.
func (l *Listener) addPool(bp *BoundPool) {
	if !slices.Contains(l.Pools, bp) {
		l.Pools = append(l.Pools, bp)
		l.Moves = l.Moves || bp.View != nil
	}
}

// Route returns the route of key, if every route of the listener has a plain prefix. If it
// returns nil, the caller must call Fitting. Route is small enough to be inlined.
func (l *Listener) Route(key []byte) *Route {
	for i := range l.prefixes {
		r := &l.prefixes[i]
		if r.Prefix == "" || len(key) >= len(r.Prefix) && string(key[:len(r.Prefix)]) == r.Prefix { // a route without a prefix is checked first, because most routes have none and the check needs no call
			return r
		}
	}
	return nil
}

// Fitting returns the route of key, or nil if no route matches it. It works with any
// routes.
func (l *Listener) Fitting(key []byte) *Route {
	for i := range l.Routes {
		if r := &l.Routes[i]; r.keys.Takes(key) {
			return r
		}
	}
	return nil
}

// CutAt returns the position in key where the tags that a client appended begin. It
// returns len(key) if there are none. The key without the tags must match a route with
// tags and this suffix.
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

// Each calls f for every server of l, once per address. p is the first pool that allows
// requests to the server. If none does, refusal is the reason.
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
		for _, srv := range p.Joining {
			if _, ok := found[srv]; !ok && p.View.Moves() {
				order = append(order, srv)
				found[srv] = place{pool: p.Pool}
			}
		}
	}
	for _, srv := range order {
		f(srv, found[srv].pool, found[srv].refusal)
	}
}

// EachInUse calls f for every server that has keys of l now, once per address. It skips servers
// that are out in every pool of l that contains them. It adds the gutter servers that are not
// out, in pools in which some server is not IN, and the servers that keys move to.
func (l *Listener) EachInUse(f func(srv *upstream.Server, p *table.Pool, refusal string)) {
	used := map[*upstream.Server]bool{}
	for _, p := range l.Pools {
		for i, srv := range p.Servers {
			used[srv] = used[srv] || p.View == nil || p.View.Phase(i) != health.Out
		}
		for i, srv := range p.Joining {
			used[srv] = used[srv] || p.View.Phase(len(p.Servers)+i) != health.Out
		}
	}
	l.Each(func(srv *upstream.Server, p *table.Pool, refusal string) {
		if used[srv] {
			f(srv, p, refusal)
		}
	})
	for _, p := range l.Pools {
		for _, srv := range p.Incoming() {
			if _, done := used[srv]; !done {
				used[srv] = true
				f(srv, p.Pool, "")
			}
		}
	}
	for _, p := range l.Pools {
		if p.View == nil || p.View.AllIn() {
			continue
		}
		for i, srv := range p.GutterServers {
			if _, done := used[srv]; !done && p.View.Phase(p.GutterAt+i) != health.Out {
				used[srv] = true
				f(srv, p.Pool.Failover.Gutter, "")
			}
		}
	}
}

// Outdated reports whether the instances use another server list of a pool of l than this one has.
func (l *Listener) Outdated() bool {
	return slices.ContainsFunc(l.Pools, (*BoundPool).Outdated)
}

// KeysMove reports whether keys move with their values between servers of a pool of l.
func (l *Listener) KeysMove() bool {
	return slices.ContainsFunc(l.Pools, func(p *BoundPool) bool { return p.Pool.Resize == table.ResizeWarm && p.View != nil && p.View.Moves() })
}

// Unknown reports whether the servers of a pool of l are not known yet.
func (l *Listener) Unknown() bool {
	return slices.ContainsFunc(l.Pools, func(p *BoundPool) bool { return p.Pool.Unknown })
}

// DeniesFlush reports whether a pool of l rejects flush_all.
func (l *Listener) DeniesFlush() bool {
	return slices.ContainsFunc(l.Pools, func(p *BoundPool) bool { return p.Pool.DenyFlush })
}

// HasReplicas reports whether a route of the table t keeps replicas in a pool of l.
func (l *Listener) HasReplicas(t *table.Table) bool {
	return slices.ContainsFunc(l.Pools, func(p *BoundPool) bool { return p.Pool.Copied(t) })
}

// HasReplicasOn reports whether rt keeps replicas in bp.
func (rt *Route) HasReplicasOn(bp *BoundPool) bool {
	return rt.Copies.Copies != 0 && (rt.BoundPool == bp || slices.Contains(rt.Also, bp))
}

// Refusal returns why an operator keeps server i from getting requests of this pool, or
// "".
func (p *BoundPool) Refusal(i int) string {
	if p.Refusals == nil {
		return ""
	}
	return p.Refusals[i]
}
