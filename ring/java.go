package ring

// This file contains hashes over the UTF-16 units of a key, as Java and JavaScript
// compute them. Bytes that are not UTF-8 count as U+FFFD, as in those languages.

import "unicode/utf8"

// units calls f for each UTF-16 unit of key. A unit is a character, or half of a
// character above U+FFFF.
func units(key []byte, f func(unit uint32)) {
	for len(key) > 0 {
		if key[0] < utf8.RuneSelf {
			f(uint32(key[0]))
			key = key[1:]
			continue
		}
		r, size := utf8.DecodeRune(key)
		key = key[size:]
		if r >= 0x10000 {
			f(uint32(r-0x10000)>>10 + 0xd800)
			f(uint32(r-0x10000)&0x3ff + 0xdc00)
			continue
		}
		f(uint32(r))
	}
}

func javaHashCode(key []byte) uint32 {
	var h uint32
	units(key, func(u uint32) { h = h*31 + u })
	return h
}

// javaFNV computes the low 32 bits of an FNV hash as Java clients do: over UTF-16
// units. h is the start value. xorFirst selects FNV-1a, else the hash is FNV-1.
func javaFNV(key []byte, h, prime uint32, xorFirst bool) uint32 {
	if xorFirst {
		units(key, func(u uint32) { h = (h ^ u) * prime })
	} else {
		units(key, func(u uint32) { h = h*prime ^ u })
	}
	return h
}
