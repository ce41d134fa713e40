// Package castoken makes cas tokens that are worth something only at the member that gave them.
//
// A cas unique counts one server's writes, so the same number comes up at
// others, and again after a restart. What a client gets is therefore sealed:
//
//	bits 63-52  as they are: failover's generation, g mod 4096
//	bits 51-0   the server's cas XOR 52 bits that the identity of the member gives
//
// A token that is opened for another identity is another number, at random among
// 2^52, so the server itself answers EXISTS (or NOT_FOUND); nothing needs to be
// remembered, and no bits are taken from the number, which a clock in
// microseconds (with E) or 142 years of a million writes a second would fill.
// It commutes with failover's tag as long as the server's cas is below 2^52: to
// be sure seal first, tag then; and take the tag off first, open then.
package castoken

// The package's manual, and all of it.

// Identity is what the tokens of a key at a member are sealed for: the member's
// address, the key as servers know it, and what changes whenever the member's
// cas may start again (its start time, its process, how often it was flushed).
// It depends on nothing else, so that all proxies make the same of the same.
func Identity(address string, key []byte, incarnation ...uint64) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(address) {
		h = (h ^ uint64(address[i])) * 1099511628211
	}
	h = mix(h)
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for _, n := range incarnation {
		h = mix(mix(h) + n)
	}
	return h
}

// Seal returns the token that a client gets for a cas unique of the member with
// this identity.
func Seal(cas, identity uint64) uint64 { return cas ^ identity&sealed }

// Open returns the cas unique to send for a token, if the member with this
// identity is the authority now.
func Open(token, identity uint64) uint64 { return token ^ identity&sealed }

const sealed = 1<<52 - 1

// mix is the finalizer of splitmix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
