// Package ring says which server of a list owns a key.
//
// A placement is two pure things: a Hash, which turns the hashed part of a key
// into a number, and a Ring, which turns that number into a server. One hash
// per key serves the owner, the fallbacks, the copies and the sampling, so it
// is computed once and handed on.
package ring

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
