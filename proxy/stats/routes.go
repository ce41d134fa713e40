package stats

// What is counted by route: the share of hits of each, and whose commands fail.

import (
	"ringside/proxy/watch/why"
	"ringside/proxy/wire"
)

// Requests counts commands by what they were and how they ended.
type Requests [wire.NumOps][NumOutcomes]uint64

func (into *Requests) add(o *Requests) {
	for op := range o {
		for out, n := range o[op] {
			into[op][out] += n
		}
	}
}

// KeyCounts counts the keys that were asked for, by get, gets, gat, gats and mg.
type KeyCounts struct{ KeysHit, KeysMissed, KeysFailed uint64 }

// Count counts a read of so many keys, of which hits were there. Where a server
// could not say, failed, nobody can know which of the others are true misses.
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

// HitShare is the part of the keys that were there, from 0 to 1; false if none was
// asked for.
func (c *KeyCounts) HitShare() (share float64, known bool) {
	n := c.KeysHit + c.KeysMissed + c.KeysFailed
	return float64(c.KeysHit) / float64(max(n, 1)), n > 0
}

// RouteName says which route is meant.
type RouteName struct {
	Listener string // network and address
	Route    string // its label: see table.Route
	Pool     string
}

// RouteCounters is what one engine has counted of the commands on keys of one route.
// A read of keys of several routes is a command of the first one's, and its keys count
// in each.
type RouteCounters struct {
	Requests Requests
	KeyCounts
	Near   NearCounts   // of a route that keeps values in Ringside
	Misses *why.Account // why its keys miss; nil: nobody looks
}

// Add counts what o has counted too.
func (into *RouteCounters) Add(o *RouteCounters) {
	into.Requests.add(&o.Requests)
	into.KeyCounts.add(&o.KeyCounts)
	into.Near.Add(&o.Near)
}

// AddRoute adds what an engine has counted of a route, which is not in the engine's
// Counters.
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

// Report appends the lines of stats routes that say what came of the route's keys.
func (c *RouteCounters) Report(r *Report) {
	c.KeyCounts.Report(r)
	c.Near.Report(r)
	c.Requests.Report(r)
}

// Report appends the number of keys by what came of them, and the share of hits in
// percent once there is one.
func (c *KeyCounts) Report(r *Report) {
	r.Count("keys_hit", c.KeysHit)
	r.Count("keys_missed", c.KeysMissed)
	r.Count("keys_failed", c.KeysFailed)
	if share, known := c.HitShare(); known {
		r.Percent("hit_percent", share)
	}
}

// Report appends the number of commands by what they were and how they ended.
func (c *Requests) Report(r *Report) {
	for op := range wire.NumOps {
		for o, n := range c[op] {
			if n > 0 {
				r.Count("requests:"+op.String()+":"+Outcome(o).String(), n)
			}
		}
	}
}
