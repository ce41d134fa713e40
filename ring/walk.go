package ring

// What clients look up next when a server is dead: hashes of the key and the
// number of the try.

import "strconv"

// keyRoom is room on the stack for a key with something before or behind it.
// Longer ones (no memcached key is) cost an allocation.
const keyRoom = 320

// Walk is a client's own way on from a dead server: another hash for each try,
// looked up in the same ring. The zero Walk means that the client has none.
type Walk struct {
	Tries int // lookups in all, the first one included
	Hash  func(key []byte, h uint64, n int) uint64
}

func (w *Walk) at(key []byte, h uint64, n int) (uint64, bool) {
	if n >= w.Tries {
		return 0, false
	}
	return w.Hash(key, h, n), true
}

// TryBefore hashes the decimal try number and the key; the first new hash has
// try number from.
func TryBefore(a Algorithm, from, tries int) Walk {
	return Walk{tries, func(key []byte, _ uint64, n int) uint64 {
		return before(a, from+n-1, key)
	}}
}

// AddTryBefore adds such a hash to the one before, at every try. The sum is
// cut to so many low bits.
func AddTryBefore(a Algorithm, from, tries, bits int) Walk {
	mask := uint64(1)<<bits - 1
	return Walk{tries, func(key []byte, h uint64, n int) uint64 {
		for i := range n {
			h += before(a, from+i, key)
		}
		return h & mask
	}}
}

// TryBehind hashes the key, a dash and the decimal try number, from 0.
func TryBehind(a Algorithm, tries int) Walk {
	return Walk{tries, func(key []byte, _ uint64, n int) uint64 {
		var buf [keyRoom]byte
		text := append(append(buf[:0], key...), '-')
		return a.Sum(strconv.AppendInt(text, int64(n-1), 10))
	}}
}

// HashOfHash hashes the decimal hash before with the decimal try number, from
// 0, behind it.
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
