package replication

// This file seals cas tokens, so that a token is valid only for the server that
// issued it.
//
// A cas counts the writes of one server process. So other servers assign the same numbers, and the
// same server assigns them again after a restart. The token that a client gets is therefore sealed:
//
//	bits 63-52  unchanged: package failover stores a generation number there, modulo 4096
//	bits 51-0   the server's cas XOR 52 bits derived from the identity of the server
//
// A token that is opened for another identity becomes another number, at random among 2^52.
// So the server itself replies EXISTS (or NOT_FOUND), and the proxy needs to remember
// nothing. No bits are taken from the cas: 52 bits hold 142 years of a million writes per
// second. Sealing a token and adding the generation number can be done in any order as long as
// the server's cas is below 2^52. To be safe, seal the token first and then add the number;
// remove the number first and then open the token.

import "ringside/ring"

// Identity returns the identity that seals the cas tokens of a key at one server. It is derived
// from the server's address, the key as servers know it, and values that change whenever the
// server may assign the same cas again: start time, process ID, number of flushes. It depends on
// nothing else, so all instances derive the same identity.
func Identity(address string, key []byte, incarnation ...uint64) uint64 {
	h := uint64(14695981039346656037) // initial value of the hash FNV-1a
	for i := range len(address) {
		h = (h ^ uint64(address[i])) * 1099511628211
	}
	h = ring.Mix(h)
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for _, n := range incarnation {
		h = ring.Mix(ring.Mix(h) + n)
	}
	return h
}

// sealToken returns the token that a client gets for a cas of the server with this identity.
func sealToken(cas, identity uint64) uint64 { return cas ^ identity&sealed }

// openToken returns the cas to send to a server for a client's token. identity is the identity of
// the server that is the primary now.
func openToken(token, identity uint64) uint64 { return token ^ identity&sealed }

const sealed = 1<<52 - 1
