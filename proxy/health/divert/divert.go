// Package divert knows what is different about a key away from home: its name, its
// time to live and its cas numbers.
//
//	            at home         away, under number 7
//	name        k               __rs~7~k, or of long keys __rs=7~<SHA-256 of k>
//	cas         c               c with 7 in its 12 highest bits
//	exptime     as asked for    at most the pool's limit
//
// So nothing that an earlier outage has left is ever read, and no token of one place
// fits at another. Package health gives the numbers; this one only spells them.
package divert

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Reserved begins every key that Ringside makes itself. Clients must not use
// such keys: refuse them.
const Reserved = "__rs"

// IsReserved reports whether a key is one of those that Ringside makes itself.
func IsReserved(key []byte) bool {
	return len(key) >= len(Reserved) && string(key[:len(Reserved)]) == Reserved
}

const (
	divertedPrefix = Reserved + "~"
	hashedPrefix   = Reserved + "="
	divertedEnd    = '~'

	// divertedLimit is the longest name that memcached takes however it is spelled:
	// base64 makes 248 bytes of it, and 252 of one byte more.
	divertedLimit = 186
)

// AppendKey appends the key that a server stores for key under a number:
// `__rs~<number in base 36>~<key>`, or key itself for 0. Where that would be too
// long it is `__rs=<number>~<SHA-256 of the key>`, from which nobody can tell the
// key: a refill from a server that has it so leaves it out.
func AppendKey(dst []byte, number uint64, key []byte) []byte {
	if number == 0 {
		return append(dst, key...)
	}
	start := len(dst)
	dst = append(dst, divertedPrefix...)
	dst = strconv.AppendUint(dst, number, 36)
	dst = append(dst, divertedEnd)
	if len(dst)-start+len(key) <= divertedLimit {
		return append(dst, key...)
	}
	copy(dst[start:], hashedPrefix)
	sum := sha256.Sum256(key)
	return hex.AppendEncode(dst, sum[:])
}

// IsNameOf reports whether name is key, or one that AppendKey makes of it.
func IsNameOf(name, key []byte) bool {
	rest, ok := bytes.CutPrefix(name, []byte(hashedPrefix))
	if !ok {
		return bytes.Equal(Undivert(name), key)
	}
	sum := sha256.Sum256(key)
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	_, hash, _ := bytes.Cut(rest, []byte{divertedEnd})
	return bytes.Equal(hash, text[:])
}

// Undivert takes off again what AppendKey put before a key. A key that has no
// such prefix, or is hashed, comes back as it is.
func Undivert(key []byte) []byte {
	rest, ok := bytes.CutPrefix(key, []byte(divertedPrefix))
	if !ok {
		return key
	}
	i := bytes.IndexByte(rest, divertedEnd)
	if i <= 0 {
		return key
	}
	for _, c := range rest[:i] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return key
		}
	}
	return rest[i+1:]
}

// Cas numbers of two servers can coincide, so what a client gets carries the
// key's number in its 12 highest bits; memcached counts up from 1 and would
// need 142 years at a million writes a second to reach them.
const (
	casBits = 52
	tagMask = 1<<(64-casBits) - 1
)

// TagCas returns the token that a client gets for a server's cas.
func TagCas(cas, number uint64) uint64 {
	return cas | (number&tagMask)<<casBits
}

// UntagCas returns the server's cas for a client's token. It fails if the token
// comes from another place of the key: answer EXISTS without asking anybody.
func UntagCas(token, number uint64) (cas uint64, ok bool) {
	if number == 0 {
		return token, true // a token of another place is no cas that a server has given yet
	}
	if token>>casBits != number&tagMask {
		return 0, false
	}
	return token & (1<<casBits - 1), true
}

// maxRelative is the longest exptime, in seconds, that memcached takes as a
// time from now; what is higher is a Unix time.
const maxRelative = 60 * 60 * 24 * 30

// CapTTL returns the exptime of a key at its interim server: what the client
// asked for, but at most limit seconds. As in memcached 0 is forever, negative
// is gone at once and more than 30 days is a Unix time; unix is the time now. A
// limit of 0 caps nothing.
func CapTTL(exptime, limit, unix int64) int64 {
	if limit <= 0 || exptime < 0 {
		return exptime
	}
	left := exptime
	if left > maxRelative {
		left = exptime - unix
		if left <= 0 {
			return -1
		}
	}
	if left != 0 && left <= limit {
		return exptime
	}
	if limit > maxRelative {
		return unix + limit
	}
	return limit
}
