// Package ring says which server of a list owns a key.
//
// A placement is two pure things: a Hash, which turns the hashed part of a key
// into a number, and a Ring, which turns that number into a server. One hash
// per key serves the owner, the fallbacks, the copies and the sampling, so it
// is computed once and handed on.
//
// The rings are few: a Circle of 32-bit points, a Wide circle of 128-bit
// points, a Table looked up by remainder, Jump, Ch3 and two kinds of
// rendezvous. What makes one client differ from another (labels, rounding,
// order, key hash, what it does about a dead server) is given to them by the
// packages ketama, modulo and config.
//
// Where the hash is dear, a Memo remembers the owners of keys for one loop.
//
// Every ring answers "and whom next?": by the client's own walk where the
// client has one, else by a rule of ours that names every server once and
// spreads a dead server's keys over all others. A client that rebuilds its
// ring without the dead servers is built again over the live ones and put
// behind Live.
package ring

// The contract: a hash, a ring, and the two questions an operator asks of it.

import "fmt"

// Hash turns the hashed part of a key into a number. Most clients use 32 bits
// of it; the rest is then zero. It must be pure and must not keep the key.
type Hash func(key []byte) uint64

// Ring says which server owns a key. It is immutable and safe for concurrent
// use.
type Ring interface {
	// Len is the number of servers in the list, live or not.
	Len() int

	// At returns the index of a server for key, whose hash is h: n = 0 is the
	// owner; n = 1, 2… are the servers this rule asks next when the earlier
	// ones are dead, in its order, which may name a server twice. -1 is the
	// end of the order. key is what was hashed; only rules that hash again
	// (rendezvous, clients that rehash key and try number) look at it.
	At(key []byte, h uint64, n int) int
}

// Hit is what a hash hit before it led to a server. The zero Hit is nothing.
type Hit struct {
	Kind  string // "point", "bucket", "entry" or "score"
	Value string // of a point or a score, in hexadecimal
	Index int    // of a point, counted from 1; of a bucket or an entry, from 0
	Of    int    // how many there are; 0 for a score
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

// Explainer is a Ring that can say what a hash hit before it led to a server:
// "point 79117e47", "bucket 357 of 1024".
type Explainer interface {
	Explain(key []byte, h uint64) Hit
}

// Sharer is a Ring that knows which share of all hashes each server owns. The
// shares add up to 1. Those of circles and tables are exact for the range of
// the key hash; those of jump, Ch3 and rendezvous are what the rule aims at.
type Sharer interface {
	Shares() []float64
}
