// Package ring finds the server of a list that owns a key.
//
// A placement has two pure parts. A Hash turns the hashed part of a key into a
// number. A Ring turns that number into a server. The hash of a key is computed
// once per request and passed on: the owner, the fallback servers, the replicas and
// the sampling all use it.
//
// There are few kinds of ring: a Circle of 32-bit points, a Wide circle of 128-bit
// points, a Table indexed by hash mod n, Jump, Ch3, and two kinds of rendezvous
// hashing (Mcrouter, Pymemcache). Clients differ in labels, rounding, server order,
// key hash, and what they do when a server is dead. The packages ketama, modulo and
// config pass these differences in as parameters.
//
// If a hash is expensive, a Memo caches the owners of keys for one event loop.
//
// Every ring also names the next servers to try. If the client has its own rule,
// the ring follows it. Otherwise the ring names each other server once and spreads
// a dead server's keys over all of them. Some clients rebuild their ring without
// the dead servers. For these, the caller builds a ring of the live servers and
// wraps it in Live.
package ring

// This file contains the interfaces of a hash and a ring, and two optional interfaces
// that describe a ring to an operator.

import "fmt"

// Hash computes a number from the hashed part of a key. Most clients use a 32-bit hash,
// in which the upper 32 bits are zero. A Hash must be pure and must not retain key.
type Hash func(key []byte) uint64

// Ring maps a key to its owner and to the servers that are tried after the owner. A
// Ring is immutable and safe for concurrent use.
type Ring interface {
	// Len returns the number of servers in the list, including dead ones.
	Len() int

	// At returns the index of a server for a key with the hash h. n = 0 is the owner. n
	// = 1, 2… are the next servers, which are tried if the earlier ones are dead. The
	// same server may occur twice. -1 is the end of this order. The parameter key is
	// the hashed part of the key. Only rules that compute further hashes read it:
	// rendezvous, and clients that hash the key with the number of the try.
	At(key []byte, h uint64, n int) int
}

// Hit describes what a lookup found on the ring: a point, a bucket, a table entry or a
// score. The zero Hit means that nothing was found.
type Hit struct {
	Kind  string // "point", "bucket", "entry" or "score"; empty: nothing was found
	Value string // the point or the score in hexadecimal; empty for a bucket or an entry
	Index int    // index of the point, counted from 1; or of the bucket or entry, counted from 0
	Of    int    // number of all points, buckets or entries of the ring; 0 for a score
}

func (h Hit) String() string {
	switch {
	case h.Kind == "":
		return ""
	case h.Of == 0:
		return h.Kind + " " + h.Value
	case h.Value == "":
		return fmt.Sprintf("%s %d of %d", h.Kind, h.Index, h.Of)
	}
	return fmt.Sprintf("%s %s (%d of %d)", h.Kind, h.Value, h.Index, h.Of)
}

// Explainer is a Ring that can describe what a lookup of a hash finds, for example
// "point 79117e47" or "bucket 357 of 1024".
type Explainer interface {
	Explain(key []byte, h uint64) Hit
}

// Sharer is a Ring that can compute which share of all hashes each server owns. The
// shares add up to 1. For circles and tables, the shares are exact for the range of the
// key hash. For Jump, Ch3 and rendezvous they are the ideal shares, which real hashes
// only approximate.
type Sharer interface {
	Shares() []float64
}
