package guard

// This file defines Miss: what the guard remembers of the misses of a key that clients got, and
// that no set has followed yet.

import (
	"container/list"
	"slices"
	"strconv"
	"sync/atomic"

	"ringside/proxy/routing"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
)

// Miss describes the misses of one key that no set has followed yet. All of them belong to one
// client connection, or to the whole process: see Scope.
type Miss struct {
	KeyMisses
	missOrigin // the item that the newest miss has seen
	key
	Client *missClient // the client connection that got the misses; nil: the misses belong to the whole process
	Hash   uint64
	Win    *leaseRecord        // the lease of the newest miss; nil: the client that got the newest miss is not the lease holder
	Route  *routing.RouteGuard // route of the newest miss

	waiting []*task.Task  // sets of the key that wait until an earlier set of the key is done (Busy)
	aged    *list.Element // place in missTable.aged; nil: the record is Busy
	owned   *list.Element // place in the list of the Miss records of one client connection; nil: it is in no such list
}

// missOrigin describes the item that a get found before its client got a miss: the server of the
// item, its process, and the state of the item.
type missOrigin struct {
	itemPlace
	Via         upstream.ConnEpoch // epoch of the server connection on which the item's cas arrived
	Placeholder bool               // the item is a placeholder, so it has no old value that could be served
	Left        int32              // TTL of a value at the time At, in seconds, if the route serves stale values; 0: no value, no TTL, or no stale values
	At          int64              // when the get was sent, on the loop's clock
	tagsRead
}

// tagsRead has the versions of the key's tags that were known when the client got its oldest miss
// without a set. A rebuild is stored with these versions, never with newer ones.
type tagsRead struct {
	Known stamp.Known // versions of the key's tags on the server of the key
	First uint64      // the cas of the item that the get found before the miss; 0: unknown
}

// itemPlace is the server of a key, and the key's name on this server. It is valid until the
// phase of this server, or of the key's own server, changes.
type itemPlace struct {
	Server *upstream.Server
	Name   string // name of the key on the server
	Gen    uint64 // changes when the health phase of the key's own server or of Server changes

	Copied bool   // the key has several replicas
	Moves  bool   // the key has one copy and moves, and Server is its new owner
	Seal   uint64 // XOR of a cas of Server and the token that clients see for this cas; 0: not known, or the key has one replica and does not move
}

// inSteps reports whether commands on the key are steps that other packages serve. Only these know which
// servers to ask.
func (p itemPlace) inSteps() bool { return p.Copied || p.Moves }

// missClient identifies a client connection that may get misses. All loops share it.
type missClient struct {
	ID     uint64
	Shared atomic.Bool // the client has sent a request before it had the reply to its previous request

	entries atomic.Int64  // number of Miss records of the client, on all loops
	keys    atomic.Uint64 // 64-bit filter of the hashes of the keys that the client has a Miss of; it may have false positives
}

// Reachable reports whether a set with the cas of the item o can only replace this same item. The
// set is sent on the connection c to the server `here`. Reachable returns false if another item
// on that server may have the same cas.
func (o *missOrigin) Reachable(here itemPlace, c *upstream.Conn) bool {
	if o.Copied || here.Copied { // the cas token identifies the server and its process, so nothing else must be compared
		return o.Copied == here.Copied
	}
	return o.itemPlace == here && c != nil && c.IsSameProcess(o.Via)
}

// same reports whether the items o and p were seen in the same process of one server. If the key
// has several replicas, the cas token identifies the process, so the result is true.
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

// Expects reports whether the client may have a miss, without a set since, of a key with this
// hash. Any loop may call it.
func (c *missClient) Expects(hash uint64) bool {
	return c.keys.Load()&bitOf(hash) != 0
}

// HasMisses reports whether the client may have a miss that none of its sets has followed yet.
func (c *missClient) HasMisses() bool { return c.keys.Load() != 0 }

// Idle clears the filter that Expects reads, if the client has no Miss record. It must be called
// while the client has no get in flight.
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

// leaseRecord is a lease that was granted to a client: the client is expected to rebuild the
// value.
type leaseRecord struct {
	Strike bool // this lease counts when the guard decides whether clients never fill the key: see strikes.Won
	at     int64
	route  *routing.RouteGuard
	over   bool
}

// End ends the lease, and counts for the statistics whether a set of the key has arrived (came).
// A second call does nothing.
func (w *leaseRecord) End(came bool) {
	if w != nil && !w.over {
		w.over = true
		w.route.Learned.Ended(came)
	}
}
