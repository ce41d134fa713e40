package ring

// How clients find the next server when one is dead: they hash the key together
// with the number of the try.

import "strconv"

// keyRoom is the size of a stack buffer for a key with a prefix or suffix. Longer
// input allocates, but no memcached key is that long.
const keyRoom = 320

// Walk is a client's rule for the next server after a dead one: each try looks up
// another hash in the same ring. The zero Walk means that the client has no such
// rule.
type Walk struct {
	Tries int // number of lookups, including the first
	Hash  func(key []byte, h uint64, n int) uint64
}

func (w *Walk) at(key []byte, h uint64, n int) (uint64, bool) {
	if n >= w.Tries {
		return 0, false
	}
	return w.Hash(key, h, n), true
}

// TryBefore hashes the decimal try number followed by the key. The first retry has
// try number from.
func TryBefore(a Algorithm, from, tries int) Walk {
	return Walk{tries, func(key []byte, _ uint64, n int) uint64 {
		return before(a, from+n-1, key)
	}}
}

// AddTryBefore adds the hash of TryBefore to the previous hash at each try. The sum
// is cut to the low bits given by bits.
func AddTryBefore(a Algorithm, from, tries, bits int) Walk {
	mask := uint64(1)<<bits - 1
	return Walk{tries, func(key []byte, h uint64, n int) uint64 {
		for i := range n {
			h += before(a, from+i, key)
		}
		return h & mask
	}}
}

// TryBehind hashes the key, a dash and the decimal try number, counted from 0.
func TryBehind(a Algorithm, tries int) Walk {
	return Walk{tries, func(key []byte, _ uint64, n int) uint64 {
		var buf [keyRoom]byte
		text := append(append(buf[:0], key...), '-')
		return a.Sum(strconv.AppendInt(text, int64(n-1), 10))
	}}
}

// HashOfHash hashes the previous hash in decimal, followed by the decimal try
// number, counted from 0.
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
