package stats

// This file has the counters of a route: hits and misses of its keys, and outcomes of its commands.

import (
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// Requests counts commands by command and outcome.
type Requests [wire.NumOps][NumOutcomes]uint64

// KeyCounts counts the keys requested by get, gets, gat, gats and mg.
type KeyCounts struct{ KeysHit, KeysMissed, KeysFailed uint64 }

// Count counts a read. keys is the number of keys that it requested, and hits the number of keys
// that it found. failed means that a server failed. It is then unknown which of the missing keys
// exist, so they count as failed.
func (c *KeyCounts) Count(keys, hits int, failed bool) {
	c.KeysHit += uint64(hits)
	switch missed := keys - hits; {
	case missed <= 0:
	case failed:
		c.KeysFailed += uint64(missed)
	default:
		c.KeysMissed += uint64(missed)
	}
}

// HitShare returns the fraction of the requested keys that were found, from 0 to 1. It returns
// false if no key was requested.
func (c *KeyCounts) HitShare() (share float64, known bool) {
	n := c.KeysHit + c.KeysMissed + c.KeysFailed
	return float64(c.KeysHit) / float64(max(n, 1)), n > 0
}

// RouteName identifies a route by its listener, label and pool.
type RouteName struct {
	Listener string // network and address of the listener
	Route    string // label of the route; see table.Route
	Pool     string
}

// RouteCounters is what one engine has counted for one route. If a read has keys of several routes,
// the command counts for the route of its first key. Each key counts for its own route.
type RouteCounters struct {
	Requests Requests
	KeyCounts
	Near   NearCounts          // counts of the near cache, if the route has one
	Misses *missreason.Account // miss reasons of the route; nil: they are not recorded
}

// Add adds the counts of o to into, except Misses, which all loops share.
func (into *RouteCounters) Add(o *RouteCounters) { sumUp(into, o) }

// AddRoute adds what one engine has counted for a route, to the route and to the total of all
// routes. The Counters of the engine do not include these counts.
func (s *Snapshot) AddRoute(name RouteName, c *RouteCounters) {
	Entry(&s.Routes, name).Add(c)
	s.RouteCounters.Add(c)
}

// Entry returns the entry of a key in a map. It creates the map and the entry if they are missing.
func Entry[K comparable, V any](of *map[K]*V, key K) *V {
	if *of == nil {
		*of = map[K]*V{}
	}
	v := (*of)[key]
	if v == nil {
		v = new(V)
		(*of)[key] = v
	}
	return v
}

// Report appends lines with the route's counters to a reply to `stats routes`.
func (c *RouteCounters) Report(r *Report) {
	c.KeyCounts.Report(r)
	c.Near.Report(r)
	c.Requests.Report(r)
}

// Figures returns the numbers of keys. Their metric is m, with the result as its last label.
func (c *KeyCounts) Figures(m *Metric) []Figure {
	return []Figure{{m, "hit", "keys_hit", c.KeysHit}, {m, "miss", "keys_missed", c.KeysMissed}, {m, "failed", "keys_failed", c.KeysFailed}}
}

// Report appends the numbers of keys that hit, missed and failed. It also appends the hit rate in
// percent if keys were requested.
func (c *KeyCounts) Report(r *Report) {
	r.Figures(c.Figures(nil))
	if share, known := c.HitShare(); known {
		r.Percent("hit_percent", share)
	}
}

// Report appends the number of commands for each command and outcome, without zeros.
func (c *Requests) Report(r *Report) {
	for op := range wire.NumOps {
		for o, n := range c[op] {
			if n > 0 {
				r.Count("requests:"+op.String()+":"+Outcome(o).String(), n)
			}
		}
	}
}
