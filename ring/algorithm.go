package ring

// This file contains the key hashes of memcached clients. Each one computes exactly
// what the client computes.

import (
	"crypto/md5"
	"crypto/sha1"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/murmur3"
	"github.com/zeebo/xxh3"
)

// Algorithm is one hash function for keys, such as MD5 or CRC32.
//
// It is a number and not a func because some rules compute several hashes, for example
// of a key with the number of the try. Bytes passed to an unknown func escape to the
// heap. Bytes passed to the method Sum can stay on the stack.
type Algorithm uint8

// These are the hash functions. The functions from OneAtATime to Hsieh treat a byte of
// 0x80 or more as a negative number, as C clients do where char is signed (x86). The
// method Unsigned returns their variants for compilers with unsigned char (ARM). ASCII
// keys have the same hash in both variants.
//
// The Java FNV functions hash UTF-16 units. The functions called 64 compute only the
// lower 32 bits of FNV with 64 bits, because clients use no other bits.
const (
	MD5          Algorithm = iota // first 4 bytes of MD5, little-endian
	MD5Wide                       // first 8 bytes of MD5, big-endian: the upper half of a 128-bit number
	MD5Signed                     // first 8 bytes of MD5 as a signed little-endian number; the sign bit is flipped, so that unsigned comparison sorts hashes like signed numbers
	SHA1                          // first 4 bytes of SHA-1, little-endian
	CRC32                         // CRC-32 with the IEEE polynomial, all 32 bits
	CRC31                         // lower 31 bits of CRC32
	CRC15                         // bits 16 to 30 of CRC32
	CRC15Not0                     // CRC15, but 1 if CRC15 is 0
	CRC16                         // CRC-CCITT in a 32-bit accumulator that is never cut to 16 bits (twemproxy)
	Jenkins                       // lookup3 little-endian, initval 13
	Murmur2                       // MurmurHash2, seed 0xdeadbeef times the length
	Murmur3                       // MurmurHash3 x86_32, seed 0xdeadbeef times the length
	Murmur64                      // MurmurHash64A, seed 4193360111 (mcrouter's furc_hash)
	Murmur64Key                   // MurmurHash64A, seed 2718281828 (mcrouter's rendezvous)
	XXH64                         // xxHash with 64 bits, seed 0
	XXH3                          // XXH3 with 64 bits, seed 0
	Java                          // String.hashCode of Java, as an unsigned number
	Java15                        // bits 16 to 30 of Java's String.hashCode
	JavaAbs                       // Math.abs of String.hashCode (memjs)
	JavaFNV1x32                   // 32-bit FNV-1 over the UTF-16 units of the key
	JavaFNV1Ax32                  // 32-bit FNV-1a over the UTF-16 units of the key
	JavaFNV1x64                   // lower 32 bits of 64-bit FNV-1 over the UTF-16 units of the key
	JavaFNV1Ax64                  // lower 32 bits of 64-bit FNV-1a over the UTF-16 units of the key
	OneAtATime                    // Bob Jenkins' one-at-a-time hash
	FNV1x32                       // FNV-1 with 32 bits
	FNV1Ax32                      // FNV-1a with 32 bits
	FNV1x64                       // lower 32 bits of 64-bit FNV-1
	FNV1Ax64                      // lower 32 bits of 64-bit FNV-1a
	FNV1A15Not0                   // bits 16 to 30 of FNV1Ax32, but 1 if they are 0
	Hsieh                         // Paul Hsieh's SuperFastHash, with the start value 0
	unsigned                      // first number after the functions with names; the unsigned variants of OneAtATime to Hsieh have the numbers from here on
)

// Unsigned returns the variant of the hash function a that treats bytes as unsigned.
// The second result is false if a has no such variant.
func (a Algorithm) Unsigned() (Algorithm, bool) {
	if a < OneAtATime || a >= unsigned {
		return a, false
	}
	return a - OneAtATime + unsigned, true
}

// Bits returns the number of low bits of a hash that this function uses. Higher bits
// are always zero.
func (a Algorithm) Bits() int {
	switch a {
	case CRC15, CRC15Not0, Java15, FNV1A15Not0, FNV1A15Not0 - OneAtATime + unsigned:
		return 15
	case CRC31:
		return 31
	case MD5Wide, MD5Signed, Murmur64, Murmur64Key, XXH64, XXH3:
		return 64
	}
	return 32
}

// Sum returns the hash of key, computed with this hash function.
func (a Algorithm) Sum(key []byte) uint64 {
	// ext holds the upper 24 bits for a byte of 0x80 or more: all ones make the byte a
	// negative number.
	ext := uint32(0xffffff00)
	if a >= unsigned {
		a, ext = a-unsigned+OneAtATime, 0
	}
	switch a {
	case MD5:
		d := md5.Sum(key)
		return uint64(binary.LittleEndian.Uint32(d[:]))
	case MD5Wide:
		d := md5.Sum(key)
		return binary.BigEndian.Uint64(d[:])
	case MD5Signed:
		d := md5.Sum(key)
		return binary.LittleEndian.Uint64(d[:]) ^ 1<<63
	case SHA1:
		d := sha1.Sum(key)
		return uint64(binary.LittleEndian.Uint32(d[:]))
	case CRC32:
		return uint64(crc32(key))
	case CRC31:
		return uint64(crc32(key) & 0x7fffffff)
	case CRC15:
		return fold15(crc32(key))
	case CRC15Not0:
		return max(fold15(crc32(key)), 1)
	case CRC16:
		return uint64(crc16(key))
	case Jenkins:
		return uint64(jenkins(key))
	case Murmur2:
		return uint64(murmur2(key, 0xdeadbeef*uint32(len(key))))
	case Murmur3:
		return uint64(murmur3.SeedSum32(0xdeadbeef*uint32(len(key)), key))
	case Murmur64:
		return murmur64(key, furcSeed)
	case Murmur64Key:
		return murmur64(key, rendezvousSeed)
	case XXH64:
		return xxhash.Sum64(key)
	case XXH3:
		return xxh3.Hash(key)
	case Java:
		return uint64(javaHashCode(key))
	case Java15:
		return fold15(javaHashCode(key))
	case JavaAbs:
		h := int64(int32(javaHashCode(key)))
		return uint64(max(h, -h))
	case JavaFNV1x32:
		return uint64(javaFNV(key, fnv32Start, fnv32Prime, false))
	case JavaFNV1Ax32:
		return uint64(javaFNV(key, fnv32Start, fnv32Prime, true))
	case JavaFNV1x64:
		return uint64(javaFNV(key, fnv64Start, fnv64Prime, false))
	case JavaFNV1Ax64:
		return uint64(javaFNV(key, fnv64Start, fnv64Prime, true))
	case OneAtATime:
		return uint64(oneAtATime(key, ext))
	case FNV1x32:
		return uint64(fnv1(key, fnv32Start, fnv32Prime, ext))
	case FNV1Ax32:
		return uint64(fnv1a(key, fnv32Start, fnv32Prime, ext))
	case FNV1x64:
		return uint64(fnv1(key, fnv64Start, fnv64Prime, ext))
	case FNV1Ax64:
		return uint64(fnv1a(key, fnv64Start, fnv64Prime, ext))
	case FNV1A15Not0:
		return max(fold15(fnv1a(key, fnv32Start, fnv32Prime, ext)), 1)
	case Hsieh:
		return uint64(hsieh(key, ext))
	}
	panic("ring: no such hash algorithm")
}

// Salted returns a Hash that appends salt to the key and hashes both, as mcrouter does.
func Salted(a Algorithm, salt string) Hash {
	return func(key []byte) uint64 {
		var buf [keyRoom]byte
		return a.Sum(append(append(buf[:0], key...), salt...))
	}
}

// fold15 returns bits 16 to 30 of the hash h. The first memcached client used only
// these bits, so that hashes are positive integers in Perl.
func fold15(h uint32) uint64 { return uint64(h >> 16 & 0x7fff) }
