package client

// What a command counts when it has its answer, over all and for its routes.

import (
	"cmp"
	"slices"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// tally is what an exchange counts when it has its answer.
type tally struct {
	Keys, Hits int                  // of a read: how many were asked for, and were there
	asked      int                  // how many of its keys have a route, so far
	Route      *stats.RouteCounters // of its key, or of the first of its keys that has a route; nil: none has, or it is no more
	several    *shares              // of a read whose keys have several routes; nil: they have one
}

// shares are the parts of a read by the route of their keys. Its requests to servers
// are of one share each.
type shares struct{ list []share }

type share struct {
	route      *stats.RouteCounters
	keys, hits int
	failed     bool // some server could not say whether it has one of these keys
}

// NoShare is the share of keys that have no route.
const NoShare = -1

// Share says which share of the read x its next key is of: that of the route which
// count counts.
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

// shareOfSeveral is Share for a read whose keys have several routes; so many were
// before this one.
func (x *Exchange) shareOfSeveral(count *stats.RouteCounters, before int) int32 {
	if x.several == nil {
		x.several = x.e.freeShares.take()
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

// RouteOf is what counts the keys of that share.
func (x *Exchange) RouteOf(share int32) *stats.RouteCounters {
	if x.several != nil {
		return x.several.list[share].route
	}
	return cmp.Or(x.Route, &x.e.Count.RouteCounters)
}

// ForgetRoute counts what was counted of a route that is no more for the loop, and so
// what its commands in flight will count.
func (e *Clients) ForgetRoute(c *stats.RouteCounters) {
	own := &e.Count.RouteCounters
	own.Add(c)
	for s := range e.Sessions {
		for x := s.Head; x != nil; x = x.Next {
			if x.Route == c {
				x.Route = nil
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

// Hit counts a key that was there, of that share.
func (x *Exchange) Hit(share int32) { x.hit(share, 1) }

func (x *Exchange) hit(share int32, n int) {
	x.Hits += n
	if x.several != nil {
		x.several.list[share].hits += n
	}
}

// observe counts a command that has its answer.
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

// observeBatch counts quiet gets, as commands of the first one's route.
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
