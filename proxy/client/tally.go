package client

// This file updates the counters of a finished command: those of the loop and of the command's
// routes.

import (
	"cmp"
	"slices"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// tally has what an exchange counts when it ends.
type tally struct {
	Keys, Hits int                  // number of keys that a read requests, and number of keys that it has found
	asked      int                  // number of the command's keys with a route, so far
	Route      *stats.RouteCounters // counters of the route of the command's key, or of its first key with a route; the loop's counters if the route was removed; nil: no key has a route
	several    *shares              // the keys of a read by route, if they have several routes; nil: all have the same route
}

// shares divides the keys of a read by route. Each of its requests to servers belongs to one
// share.
type shares struct{ list []share }

type share struct {
	route      *stats.RouteCounters
	keys, hits int
	failed     bool // a request for some keys of this route has failed
}

// NoShare is the share of keys without a route.
const NoShare = -1

// Share returns the share of the next key of the read x. count has the counters of its route.
func (x *Exchange) Share(count *stats.RouteCounters) int32 {
	before := x.asked
	if before == 0 {
		x.Route = count
	}
	x.asked++
	if x.Route == count && x.several == nil {
		return 0
	}
	return x.shareOfSeveral(count, before)
}

// shareOfSeveral returns the share of the next key of x, a read with keys of several routes.
// `before` is the number of keys of x that were divided before.
func (x *Exchange) shareOfSeveral(count *stats.RouteCounters, before int) int32 {
	if x.several == nil {
		x.several = x.e.freeShares.Take()
		x.several.list = append(x.several.list[:0], share{x.Route, before, x.Hits, x.trouble != "" && x.trouble != NoRoute})
	}
	list := x.several.list
	i := slices.IndexFunc(list, func(s share) bool { return s.route == count })
	if i < 0 {
		i = len(list)
		list = append(list, share{route: count})
	}
	list[i].keys++
	x.several.list = list
	return int32(i)
}

// RouteOf returns the counters for the keys of the given share.
func (x *Exchange) RouteOf(share int32) *stats.RouteCounters {
	if x.several != nil {
		return x.several.list[share].route
	}
	return cmp.Or(x.Route, &x.e.Count.RouteCounters)
}

// ForgetRoute adds the counters of a removed route to those of the loop. Commands in flight on
// that route are counted there, too.
func (e *Clients) ForgetRoute(c *stats.RouteCounters) {
	own := &e.Count.RouteCounters
	own.Add(c)
	for s := range e.Sessions {
		for x := s.Head; x != nil; x = x.Next {
			if x.Route == c { // replaced by own and not by nil, because a share without counters could not be counted
				x.Route = own
			}
			if x.several == nil {
				continue
			}
			for i := range x.several.list {
				if share := &x.several.list[i]; share.route == c {
					share.route = own
				}
			}
		}
	}
}

// Hit counts a key of the given share as found.
func (x *Exchange) Hit(share int32) { x.hit(share, 1) }

func (x *Exchange) hit(share int32, n int) {
	x.Hits += n
	if x.several != nil {
		x.several.list[share].hits += n
	}
}

// observe counts a command that has ended.
func (x *Exchange) observe() {
	c := x.Route
	if c == nil {
		c = &x.e.Count.RouteCounters
	}
	c.Requests[x.Op][x.Outcome]++
	x.e.Count.Latency[x.Op].Observe(x.e.Now - x.Start)
	switch {
	case x.Op < wire.Get || x.Op > wire.Gats:
	case x.several != nil:
		x.several.observe()
	default:
		if x.dialect == wire.Meta && x.Outcome == stats.Hit {
			x.Hits = 1
		}
		c.KeyCounts.Count(x.Keys, x.Hits, x.trouble != "")
	}
}

func (s *shares) observe() {
	for _, s := range s.list {
		s.route.KeyCounts.Count(s.keys, s.hits, s.failed)
	}
}

// observeBatch counts the quiet gets of a batch. All count as commands on the route of the
// first key.
func (x *Exchange) observeBatch() {
	c := cmp.Or(x.Route, &x.e.Count.RouteCounters)
	o := stats.Miss
	if x.trouble != "" || x.Outcome == stats.ClientFault {
		o = x.Outcome
	}
	c.Requests[x.Op][stats.Hit] += uint64(x.Hits)
	c.Requests[x.Op][o] += uint64(x.Keys - x.Hits)
	x.e.Count.Latency[x.Op].ObserveSeveral(x.Keys, x.e.Now-x.Start)
	if x.several != nil {
		x.several.observe()
	} else {
		c.KeyCounts.Count(x.Keys, x.Hits, x.trouble != "")
	}
}
