package misses

// What is known of the misses of one key in one scope, besides the Entry.

import (
	"slices"
	"strconv"
	"sync/atomic"

	"ringside/proxy/routing"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/upstream"
)

// Miss is the outstanding misses of one key in one scope.
type Miss struct {
	Entry
	Origin // of the newest
	key
	Client *Client // whose scope it is; nil: the process's
	Hash   uint64
	Win    *Win           // of the newest; nil: its client is not the one that rebuilds
	Route  *routing.Guard // of the newest

	waiting     []func() // sets that wait until Busy ends
	older, next *Miss    // in the order of Last; a full table moves those that are Busy to the end
}

// Origin is where a miss has seen its item.
type Origin struct {
	Spot
	Via  upstream.Via // of the cas
	Stub bool         // the item is a placeholder: nothing is left of a value
	At   int64        // when the get was sent
	TagsRead
}

// TagsRead is what was known of the key's tags at the oldest outstanding miss. What is
// stored can't be newer.
type TagsRead struct {
	Known stamp.Known // versions
	First uint64      // the cas that it has seen
}

// Spot is where a key is, in which of its server's lives.
type Spot struct {
	Server *upstream.Server
	Name   string // there
	Gen    uint64 // changes with the phases

	Copied bool   // it is one of several that have the key
	Seal   uint64 // then: between a cas there and its token, which is worth nothing elsewhere
}

// Client is a connection, as all loops see it.
type Client struct {
	ID     uint64
	Shared atomic.Bool // it has had two requests unanswered at once

	entries atomic.Int64  // on all loops
	keys    atomic.Uint64 // a bit for each of their keys, by hash; others may be set too
}

// Reachable reports whether a request at here on c meets the item of o, or none.
func (o *Origin) Reachable(here Spot, c *upstream.Conn) bool {
	if o.Copied || here.Copied { // its token says which life of which server it is of
		return o.Copied == here.Copied
	}
	return o.Spot == here && c != nil && c.Reaches(o.Via)
}

// same reports whether both have seen their items in one life of one server.
func (o *Origin) same(p *Origin) bool {
	if o.Copied || p.Copied {
		return o.Copied == p.Copied
	}
	return o.Spot == p.Spot && o.Via.Same(p.Via)
}

// differ reports whether a tag had another version at one of two misses.
func (r *TagsRead) differ(o *TagsRead) bool {
	return slices.ContainsFunc(r.Known, func(v stamp.Version) bool {
		cas, ok := o.Known.Of(v.Tag)
		return ok && cas != v.Cas
	})
}

// Cas is the cas as servers are sent it.
func Cas(n uint64) string { return strconv.FormatUint(n, 10) }

// Expects reports whether the client may have an outstanding miss of a key with that
// hash. It may be called on any loop.
func (c *Client) Expects(hash uint64) bool {
	return c.keys.Load()&bitOf(hash) != 0
}

// HasMisses reports whether the client may have outstanding misses.
func (c *Client) HasMisses() bool { return c.keys.Load() != 0 }

// Idle clears what Expects knows if the client has no outstanding miss. It must be called
// while no get of the client is on its way.
func (c *Client) Idle() {
	if c.keys.Load() != 0 && c.entries.Load() == 0 {
		c.keys.Store(0)
	}
}

func bitOf(hash uint64) uint64 { return 1 << (hash >> 58) }

func (c *Client) count(n int64, hash uint64) {
	if c.entries.Add(n); n > 0 {
		c.keys.Or(bitOf(hash))
	}
}

// Win is a miss whose client is the one that rebuilds.
type Win struct {
	Strike bool // it counts as one that nobody has filled, until a set comes
	at     int64
	route  *routing.Guard
	over   bool
}

// End counts, once, whether a set of the key has come.
func (w *Win) End(came bool) {
	if w != nil && !w.over {
		w.over = true
		w.route.Learned.Ended(came)
	}
}
