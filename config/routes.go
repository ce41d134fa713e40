package config

// This file answers questions about a route's keys and pools, for the checks of routes.

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/replicate"
)

const (
	maxCounterTTL  = 30 * 24 * time.Hour // longest lifetime of a counter: memcached interprets a larger expiry as a Unix time
	presetCache    = "cache"             // preset of a route with data that can be lost
	presetCounters = "counters"          // preset of a route with data that should not be lost
	presetSessions = "sessions"          // preset of a route with data that must not be lost
	maxCopies      = replicate.Max       // maximum number of replicas of a key; each write is sent to all of them
	thisHost       = "localhost"
)

// counts reports whether the route creates counters or buffers increments.
func (r *Route) counts() bool { return r.Autocreate != nil || r.Buffer != nil }

// mustLast reports whether the data of the route must survive the loss of one server.
func (r *Route) mustLast() bool { return r.Preset == presetCounters || r.Preset == presetSessions }

// routes iterates over all routes of f: first the routes of the file, then the routes of each
// listener.
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

// decide completes the replication settings of the route. It clears them if the route keeps only
// one replica of each key.
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

// to returns the names of the route's pools. With several pools, the pool with the primary is the
// first.
func (r *Route) to() []string {
	if len(r.Pools) > 0 {
		return r.Pools
	}
	return []string{r.Pool}
}

// copiesIn returns the routes that keep replicas in the pool.
func (f *File) copiesIn(pool string) []*Route { return f.look().copies[pool] }

// taker returns the most specific of the routes that match key, or nil if no route matches.
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

// keys returns a text for people that describes which keys belong to the route.
func (r *Route) keys() string {
	if r.Match != "" {
		return fmt.Sprintf("the match %q", r.Match)
	}
	return fmt.Sprintf("the prefix %q", r.Prefix)
}

// pool returns the pool with that name, or nil if the file has none.
func (f *File) pool(name string) *Pool {
	if i, ok := f.look().pools[name]; ok {
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

// shownKey formats an example key for people. The key is one that keyOfBoth returned.
func shownKey(key string) string { return quote(strings.ReplaceAll(key, filler, "…")) }
