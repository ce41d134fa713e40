package guard

// The state of the misses of one key in one scope, besides the KeyMisses.

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
	KeyMisses
	missOrigin // of the newest miss
	key
	Client *missClient // owner of the scope; nil: the scope is the process
	Hash   uint64
	Win    *leaseRecord        // the lease of the newest miss; nil: its client is not the lease holder
	Route  *routing.RouteGuard // of the newest miss

	waiting       []func() // sets that wait until Busy ends
	older, next   *Miss    // list of the entries that are not Busy, ordered by Last or by the end of Busy
	before, after *Miss    // list of the misses of one missClient
	listed, owned bool     // whether it is in the list older, next; and in the list before, after
}

// missOrigin is the item that a miss has seen, and the server process that it is in.
type missOrigin struct {
	itemPlace
	Via         upstream.ConnEpoch // connection epoch of the cas
	Placeholder bool               // the item is a placeholder without an old value
	Left        int32              // on a route with stale: the TTL of the value at the time At, in seconds; 0: the item is deleted or a placeholder
	At          int64              // when the get was sent
	tagsRead
}

// tagsRead is the versions of the key's tags that were known at the oldest outstanding miss. A
// rebuild is stored with these versions, never with newer ones.
type tagsRead struct {
	Known stamp.Known // versions of the key's tags
	First uint64      // the cas of the item that this miss has seen
}

// itemPlace is the server of a key and the key's name there. It is valid until the phase of that
// server, or of the key's own server, changes.
type itemPlace struct {
	Server *upstream.Server
	Name   string // name of the key on the server
	Gen    uint64 // changes when the health phase of the key's own server or of Server changes

	Copied bool   // the key has several replicas
	Seal   uint64 // if Copied: XOR of a cas and its token, valid for this server only
}

// missClient is a client connection. All loops share it.
type missClient struct {
	ID     uint64
	Shared atomic.Bool // the client has sent a request before it had the reply to its previous one

	entries atomic.Int64  // number of the client's entries on all loops
	keys    atomic.Uint64 // filter of the hashes of the client's keys; it may have false positives
}

// Reachable reports whether a request that is sent on c to the place here, with the cas of o, can
// only change the item that the miss has seen. It returns false if the same cas may belong to
// another item there.
func (o *missOrigin) Reachable(here itemPlace, c *upstream.Conn) bool {
	if o.Copied || here.Copied { // the token identifies the server and its process
		return o.Copied == here.Copied
	}
	return o.itemPlace == here && c != nil && c.IsSameProcess(o.Via)
}

// same reports whether both items were seen on the same server, in the same process.
func (o *missOrigin) same(p *missOrigin) bool {
	if o.Copied || p.Copied {
		return o.Copied == p.Copied
	}
	return o.itemPlace == p.itemPlace && o.Via.Same(p.Via)
}

// differ reports whether r and o have different versions of a tag.
func (r *tagsRead) differ(o *tagsRead) bool {
	return slices.ContainsFunc(r.Known, func(v stamp.Version) bool {
		cas, ok := o.Known.Of(v.Tag)
		return ok && cas != v.Cas
	})
}

// formatCas formats a cas as it is sent to servers.
func formatCas(n uint64) string { return strconv.FormatUint(n, 10) }

// Expects reports whether the client may have an outstanding miss of a key with that
// hash. Any loop may call it.
func (c *missClient) Expects(hash uint64) bool {
	return c.keys.Load()&bitOf(hash) != 0
}

// HasMisses reports whether the client may have outstanding misses.
func (c *missClient) HasMisses() bool { return c.keys.Load() != 0 }

// Idle clears the filter of Expects if the client has no outstanding miss. It must be
// called while the client has no get in flight.
func (c *missClient) Idle() {
	if c.keys.Load() != 0 && c.entries.Load() == 0 {
		c.keys.Store(0)
	}
}

func bitOf(hash uint64) uint64 { return 1 << (hash >> 58) }

func (c *missClient) count(n int64, hash uint64) {
	if c.entries.Add(n); n > 0 {
		c.keys.Or(bitOf(hash))
	}
}

// leaseRecord is a lease: the client of a miss is expected to rebuild.
type leaseRecord struct {
	Strike bool // the lease was counted as a strike: see neverFilledKeys.Won
	at     int64
	route  *routing.RouteGuard
	over   bool
}

// End counts, once for each lease, whether a set of the key has arrived.
func (w *leaseRecord) End(came bool) {
	if w != nil && !w.over {
		w.over = true
		w.route.Learned.Ended(came)
	}
}
