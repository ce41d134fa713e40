package config

// What a route says about its keys and pools. The checks of routes use it.

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/replicate"
)

const (
	maxCounterTTL  = 30 * 24 * time.Hour // memcached interprets a larger expiry as a Unix time
	presetCache    = "cache"             // the data can be lost
	presetCounters = "counters"          // the data should not be lost
	presetSessions = "sessions"          // the data must not be lost
	maxCopies      = replicate.Max       // replicas of a key; each write is sent to all of them
	thisHost       = "localhost"
)

// counts reports whether the route creates counters or buffers increments.
func (r *Route) counts() bool { return r.Autocreate.On || r.Buffer != nil }

// mustLast reports whether the data of the route must survive the loss of one server.
func (r *Route) mustLast() bool { return r.Preset == presetCounters || r.Preset == presetSessions }

// routes iterates over all routes of f: those of the file, then those of each listener.
func (f *File) routes() iter.Seq[*Route] {
	return func(yield func(*Route) bool) {
		for i := range f.Routes {
			if !yield(&f.Routes[i]) {
				return
			}
		}
		for i := range f.Listen {
			for j := range f.Listen[i].Routes {
				if !yield(&f.Listen[i].Routes[j]) {
					return
				}
			}
		}
	}
}

// decide completes the replication policy of the route. A route that keeps one copy of each
// key has the zero Policy.
func (r *Route) decide() {
	c := &r.Copies
	switch {
	case len(r.Pools) > 0:
		c.Copies = len(r.Pools)
	case c.Copies == replicate.All:
		c.Apart = replicate.Servers
	case c.Copies <= 1:
		*c = replicate.Policy{}
	}
}

// Copied reports whether keys that begin with prefix have replicas, according to the routes of
// the first listener.
func (f *File) Copied(prefix string) bool {
	routes := f.Routes
	if len(f.Listen) > 0 && f.Listen[0].Routes != nil {
		routes = f.Listen[0].Routes
	}
	r := taker(routes, prefix+filler)
	return r != nil && r.Copies.Copies != 0
}

// to returns the pools of r, that of the primary first.
func (r *Route) to() []string {
	if len(r.Pools) > 0 {
		return r.Pools
	}
	return []string{r.Pool}
}

// copiesIn returns the routes that keep replicas in the pool.
func (f *File) copiesIn(pool string) (list []*Route) {
	for r := range f.routes() {
		if r.Copies.Copies != 0 && slices.Contains(r.to(), pool) {
			list = append(list, r)
		}
	}
	return list
}

// taker returns the most specific route that matches key, or nil if none does.
func taker(routes []Route, key string) (best *Route) {
	most := -1
	for i := range routes {
		if p := routes[i].pattern(); p.Takes([]byte(key)) && p.Literal() > most {
			best, most = &routes[i], p.Literal()
		}
	}
	return best
}

// pattern returns the pattern of the route's keys.
func (r *Route) pattern() table.Pattern {
	return (&table.Route{Prefix: r.Prefix, Match: r.Match}).Pattern()
}

// keys describes the keys of the route, for people.
func (r *Route) keys() string {
	if r.Match != "" {
		return fmt.Sprintf("the match %q", r.Match)
	}
	return fmt.Sprintf("the prefix %q", r.Prefix)
}

// pool returns the pool of that name, or nil if there is none.
func (f *File) pool(name string) *Pool {
	if i := slices.IndexFunc(f.Pools, func(p Pool) bool { return p.Name == name }); i >= 0 {
		return &f.Pools[i]
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shownKey formats a key that keyOfBoth returned, for people.
func shownKey(key string) string { return quote(strings.ReplaceAll(key, filler, "…")) }
