// Package divert translates a key that is stored on a substitute server: its name, its
// time to live and its cas values.
//
//	            on its owner    on a substitute, number 7
//	name        k               __rs~7~k, or __rs=7~<SHA-256 of k> if k is long
//	cas         c               c with 7 in its 12 highest bits
//	exptime     as requested    at most the pool's limit
//
// The number (7 in this example) is the epoch of the outage, which health.Generation determines. So
// values that an earlier outage left on the substitute server are never read, and a cas token of
// one server is not accepted on another.
package divert

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Reserved is the prefix of all keys that Ringside creates itself. Requests of clients
// with such keys must be rejected.
const Reserved = "__rs"

// IsReserved reports whether a key has the prefix Reserved.
func IsReserved(key []byte) bool {
	return len(key) >= len(Reserved) && string(key[:len(Reserved)]) == Reserved
}

const (
	divertedPrefix = Reserved + "~"
	hashedPrefix   = Reserved + "="
	divertedEnd    = '~'

	// divertedLimit is the maximum length of a name. A client may use base64 keys: then
	// memcached gets 248 bytes for a name of this length, and would get 252 for one
	// more byte, which exceeds its limit of 250.
	divertedLimit = 186
)

// AppendKey appends to dst the name under which a server stores key. The parameter number is the
// epoch of the outage in which a substitute server has the key; 0: the key's own server, where the
// name is the plain key. On a substitute server it is `__rs~<number in base 36>~<key>`. If that is
// too long, the name is `__rs=<number>~<SHA-256 of the key>`. A key can't be derived from its hashed
// name, so keys with hashed names are not copied back from the substitute server.
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

const (
	markPrefix       = Reserved + "!"
	hashedMarkPrefix = Reserved + "#"
)

// AppendMark appends to dst the name of the mark of key: an item on the key's server, which says that the
// key was written there. It is `__rs!<key>`, or `__rs#<SHA-256 of the key>` if that is too long.
func AppendMark(dst, key []byte) []byte {
	if len(markPrefix)+len(key) <= divertedLimit {
		return append(append(dst, markPrefix...), key...)
	}
	sum := sha256.Sum256(key)
	return hex.AppendEncode(append(dst, hashedMarkPrefix...), sum[:])
}

// IsNameOf reports whether name is key, or a name that AppendKey returns for key.
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

// Undivert returns the key of a name that AppendKey has made, without the prefix `__rs~<number>~`.
// A name without that prefix, or a hashed name, is returned unchanged.
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

// Two servers may use the same cas values. So the cas token that a client gets contains the epoch
// of the outage in its 12 highest bits, or 0 for the key's own server. memcached counts cas values
// up from 1. At a million writes a second, cas values would reach these bits after 142 years.
const (
	casBits = 52
	tagMask = 1<<(64-casBits) - 1
)

// TagCas returns the cas token for the client: the server's cas value, with the epoch of the outage
// (number) in its 12 highest bits. number is 0 for the key's own server.
func TagCas(cas, number uint64) uint64 {
	return cas | (number&tagMask)<<casBits
}

// Tag returns the number with which TagCas marks the tokens for n. It is not 0, so that it differs from
// that of the key's own server.
func Tag(n uint64) uint64 { return max(n&tagMask, 1) }

// Fits reports whether a token has the same number as the token tagged.
func Fits(token, tagged uint64) bool { return token>>casBits == tagged>>casBits }

// UntagCas returns the server's cas value for a client's cas token. number is the epoch of the
// outage; 0: the key's own server. If number is not 0, UntagCas returns false for a token from
// another server or another outage. The caller then replies EXISTS without a request to the server.
func UntagCas(token, number uint64) (cas uint64, ok bool) {
	if number == 0 {
		return token, true // a token of another server or outage is larger than any cas value of this server, so the server finds no match
	}
	if token>>casBits != number&tagMask {
		return 0, false
	}
	return token & (1<<casBits - 1), true
}

// maxRelative is the maximum exptime, in seconds, that memcached interprets as a
// duration; larger values are Unix times.
const maxRelative = 60 * 60 * 24 * 30

// CapTTL returns the exptime of a key on its substitute server: the client's exptime,
// but at most limit seconds from now. As in memcached, 0 means forever, a negative
// value means already expired, and more than 30 days is a Unix time. unix is the
// current time. A limit of 0 is no limit. memcached keeps only the lower 32 bits of an exptime, so
// it takes 1<<31 for a negative value, and -1<<32 for 0.
func CapTTL(exptime, limit, unix int64) int64 {
	exptime = int64(int32(exptime))
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
