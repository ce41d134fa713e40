package stats

// The counters of a route: hits and misses of its keys, and outcomes of its commands.

import (
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// Requests counts commands by kind and outcome.
type Requests [wire.NumOps][NumOutcomes]uint64

func (into *Requests) add(o *Requests) {
	for op := range o {
		for out, n := range o[op] {
			into[op][out] += n
		}
	}
}

// KeyCounts counts the keys requested by get, gets, gat, gats and mg.
type KeyCounts struct{ KeysHit, KeysMissed, KeysFailed uint64 }

// Count counts a read of keys keys that found hits of them. If a server failed, it is
// unknown which of the other keys are true misses, so they count as failed.
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

func (c *KeyCounts) add(o *KeyCounts) {
	c.KeysHit += o.KeysHit
	c.KeysMissed += o.KeysMissed
	c.KeysFailed += o.KeysFailed
}

// HitShare returns the fraction of keys that were found, from 0 to 1. It returns false
// if no key was requested.
func (c *KeyCounts) HitShare() (share float64, known bool) {
	n := c.KeysHit + c.KeysMissed + c.KeysFailed
	return float64(c.KeysHit) / float64(max(n, 1)), n > 0
}

// RouteName identifies a route.
type RouteName struct {
	Listener string // network and address
	Route    string // the label of the route: see table.Route
	Pool     string
}

// RouteCounters is what one engine has counted for commands on the keys of one route. A
// read with keys of several routes counts as a command of the first key's route. Each
// key counts in its own route.
type RouteCounters struct {
	Requests Requests
	KeyCounts
	Near   NearCounts          // of a route with a near cache
	Misses *missreason.Account // why reads of the route miss; nil: not recorded
}

// Add adds the counts of o.
func (into *RouteCounters) Add(o *RouteCounters) {
	into.Requests.add(&o.Requests)
	into.KeyCounts.add(&o.KeyCounts)
	into.Near.Add(&o.Near)
}

// AddRoute adds the counters that one engine has for a route. The engine's own Counters
// do not include them.
func (s *Snapshot) AddRoute(name RouteName, c *RouteCounters) {
	if s.Routes == nil {
		s.Routes = map[RouteName]*RouteCounters{}
	}
	sum := s.Routes[name]
	if sum == nil {
		sum = new(RouteCounters)
		s.Routes[name] = sum
	}
	sum.Add(c)
	s.RouteCounters.Add(c)
}

// Report appends the route's counters as lines of stats routes.
func (c *RouteCounters) Report(r *Report) {
	c.KeyCounts.Report(r)
	c.Near.Report(r)
	c.Requests.Report(r)
}

// Report appends the number of keys by result, and the hit rate in percent once there
// is one.
func (c *KeyCounts) Report(r *Report) {
	r.Count("keys_hit", c.KeysHit)
	r.Count("keys_missed", c.KeysMissed)
	r.Count("keys_failed", c.KeysFailed)
	if share, known := c.HitShare(); known {
		r.Percent("hit_percent", share)
	}
}

// Report appends the number of commands by kind and outcome.
func (c *Requests) Report(r *Report) {
	for op := range wire.NumOps {
		for o, n := range c[op] {
			if n > 0 {
				r.Count("requests:"+op.String()+":"+Outcome(o).String(), n)
			}
		}
	}
}
