package ring

// This file contains hash functions that no library provides in the form that clients
// need. In each of them, the parameter ext is or-ed to bytes of 0x80 or more. It is
// 0xffffff00 where char is signed, else 0.

import (
	"encoding/binary"
	stdcrc "hash/crc32"
	"math/bits"
)

// These are the start values and primes of FNV. Those of 64-bit FNV are cut to their
// lower 32 bits, because no client uses the other bits.
const (
	fnv32Start, fnv32Prime = 0x811c9dc5, 0x01000193
	fnv64Start, fnv64Prime = 0x84222325, 0x000001b3
)

func char(b byte, ext uint32) uint32 { return uint32(b) | uint32(b>>7)*ext }

func oneAtATime(key []byte, ext uint32) uint32 {
	var h uint32
	for _, b := range key {
		h += char(b, ext)
		h += h << 10
		h ^= h >> 6
	}
	h += h << 3
	h ^= h >> 11
	h += h << 15
	return h
}

func fnv1(key []byte, h, prime, ext uint32) uint32 {
	for _, b := range key {
		h *= prime
		h ^= char(b, ext)
	}
	return h
}

func fnv1a(key []byte, h, prime, ext uint32) uint32 {
	for _, b := range key {
		h ^= char(b, ext)
		h *= prime
	}
	return h
}

// hsieh is Paul Hsieh's SuperFastHash. If one to three bytes remain after the last
// block of four, only the third of three bytes depends on the sign of char.
func hsieh(key []byte, ext uint32) uint32 {
	var h uint32
	for ; len(key) >= 4; key = key[4:] {
		h += uint32(binary.LittleEndian.Uint16(key))
		h = h<<16 ^ uint32(binary.LittleEndian.Uint16(key[2:]))<<11 ^ h
		h += h >> 11
	}
	switch len(key) {
	case 3:
		h += uint32(binary.LittleEndian.Uint16(key))
		h ^= h << 16
		h ^= char(key[2], ext) << 18
		h += h >> 11
	case 2:
		h += uint32(binary.LittleEndian.Uint16(key))
		h ^= h << 11
		h += h >> 17
	case 1:
		h += uint32(key[0])
		h ^= h << 10
		h += h >> 1
	}
	h ^= h << 3
	h += h >> 5
	h ^= h << 4
	h += h >> 17
	h ^= h << 25
	h += h >> 6
	return h
}

// crcTables[j][b] is the IEEE CRC-32 remainder of the byte b followed by j zero bytes.
var crcTables = func() (t [8][256]uint32) {
	t[0] = *stdcrc.IEEETable
	for i := range t[0] {
		for j := 1; j < len(t); j++ {
			c := t[j-1][i]
			t[j][i] = c>>8 ^ t[0][byte(c)]
		}
	}
	return t
}()

// crc32 is the IEEE checksum, computed as the package hash/crc32 does for short input.
// The function of hash/crc32 itself would move a key on the stack to the heap, because
// it calls through a variable.
func crc32(key []byte) uint32 {
	t := &crcTables
	c := ^uint32(0)
	for ; len(key) >= 8; key = key[8:] {
		x := binary.LittleEndian.Uint64(key) ^ uint64(c)
		c = t[7][byte(x)] ^ t[6][byte(x>>8)] ^ t[5][byte(x>>16)] ^ t[4][byte(x>>24)] ^
			t[3][byte(x>>32)] ^ t[2][byte(x>>40)] ^ t[1][byte(x>>48)] ^ t[0][byte(x>>56)]
	}
	for _, b := range key {
		c = c>>8 ^ t[0][byte(c)^b]
	}
	return ^c
}

var crc16Table = func() (t [256]uint32) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
		t[i] = uint32(c)
	}
	return t
}()

// crc16 is a CRC-CCITT that keeps the bits above the low 16 bits. twemproxy keeps them
// too, so they change the hash modulo the number of servers.
func crc16(key []byte) uint32 {
	var c uint32
	for _, b := range key {
		c = c<<8 ^ crc16Table[byte(c>>8)^b]
	}
	return c
}

// jenkins is Bob Jenkins' lookup3 (hashlittle) with initval 13.
func jenkins(key []byte) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + 13
	b, c := a, a
	if len(key) == 0 {
		return c
	}
	for ; len(key) > 12; key = key[12:] {
		a += binary.LittleEndian.Uint32(key)
		b += binary.LittleEndian.Uint32(key[4:])
		c += binary.LittleEndian.Uint32(key[8:])
		a = a - c ^ bits.RotateLeft32(c, 4)
		c += b
		b = b - a ^ bits.RotateLeft32(a, 6)
		a += c
		c = c - b ^ bits.RotateLeft32(b, 8)
		b += a
		a = a - c ^ bits.RotateLeft32(c, 16)
		c += b
		b = b - a ^ bits.RotateLeft32(a, 19)
		a += c
		c = c - b ^ bits.RotateLeft32(b, 4)
		b += a
	}
	var tail [12]byte
	copy(tail[:], key)
	a += binary.LittleEndian.Uint32(tail[:])
	b += binary.LittleEndian.Uint32(tail[4:])
	c += binary.LittleEndian.Uint32(tail[8:])
	c = c ^ b - bits.RotateLeft32(b, 14)
	a = a ^ c - bits.RotateLeft32(c, 11)
	b = b ^ a - bits.RotateLeft32(a, 25)
	c = c ^ b - bits.RotateLeft32(b, 16)
	a = a ^ c - bits.RotateLeft32(c, 4)
	b = b ^ a - bits.RotateLeft32(a, 14)
	c = c ^ b - bits.RotateLeft32(b, 24)
	return c
}

func murmur2(key []byte, seed uint32) uint32 {
	const m = 0x5bd1e995
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	if len(key) > 0 {
		var tail [4]byte
		copy(tail[:], key)
		h ^= binary.LittleEndian.Uint32(tail[:])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// murmur64 is MurmurHash64A.
func murmur64(key []byte, seed uint64) uint64 {
	const m = 0xc6a4a7935bd1e995
	h := seed ^ uint64(len(key))*m
	for ; len(key) >= 8; key = key[8:] {
		k := binary.LittleEndian.Uint64(key) * m
		k ^= k >> 47
		h = (h ^ k*m) * m
	}
	if len(key) > 0 {
		var tail [8]byte
		copy(tail[:], key)
		h ^= binary.LittleEndian.Uint64(tail[:])
		h *= m
	}
	h ^= h >> 47
	h *= m
	h ^= h >> 47
	return h
}
