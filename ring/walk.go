package ring

// This file contains the rules of clients that hash a key with the number of the try,
// to find the next server after a dead one.

import "strconv"

// keyRoom is the size in bytes of a buffer on the stack, for a key with a prefix or
// suffix. A longer key would allocate memory, but memcached does not accept one.
const keyRoom = 320

// Walk is a client's rule for the next server after a dead one: each try computes
// another hash and looks it up in the same ring. The zero Walk means that the client
// has no such rule.
type Walk struct {
	Tries int // maximum number of lookups, including the first one
	Hash  func(key []byte, h uint64, n int) uint64
}

func (w *Walk) at(key []byte, h uint64, n int) (uint64, bool) {
	if n >= w.Tries {
		return 0, false
	}
	return w.Hash(key, h, n), true
}

// TryBefore returns a Walk that hashes the decimal number of the try followed by the
// key. The number of the first retry is the parameter from.
func TryBefore(a Algorithm, from, tries int) Walk {
	return Walk{tries, func(key []byte, _ uint64, n int) uint64 {
		return before(a, from+n-1, key)
	}}
}

// AddTryBefore returns a Walk that adds a hash to the previous sum at each try: the
// hash of the decimal number of the try followed by the key. The first retry has the
// number from. Only as many low bits of the sum as the parameter bits says are used.
func AddTryBefore(a Algorithm, from, tries, bits int) Walk {
	mask := uint64(1)<<bits - 1
	return Walk{tries, func(key []byte, h uint64, n int) uint64 {
		for i := range n {
			h += before(a, from+i, key)
		}
		return h & mask
	}}
}

// TryBehind returns a Walk that hashes the key, a dash and the decimal number of the
// try. The first retry has the number 0.
func TryBehind(a Algorithm, tries int) Walk {
	return Walk{tries, func(key []byte, _ uint64, n int) uint64 {
		var buf [keyRoom]byte
		text := append(append(buf[:0], key...), '-')
		return a.Sum(strconv.AppendInt(text, int64(n-1), 10))
	}}
}

// HashOfHash returns a Walk that hashes the previous hash, in decimal, followed by the
// decimal number of the try. The first retry has the number 0.
func HashOfHash(a Algorithm, tries int) Walk {
	return Walk{tries, func(_ []byte, h uint64, n int) uint64 {
		for i := range n {
			var buf [keyRoom]byte
			text := strconv.AppendUint(buf[:0], h, 10)
			h = a.Sum(strconv.AppendInt(text, int64(i), 10))
		}
		return h
	}}
}

func before(a Algorithm, try int, key []byte) uint64 {
	var buf [keyRoom]byte
	return a.Sum(append(strconv.AppendInt(buf[:0], int64(try), 10), key...))
}
