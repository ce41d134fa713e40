package health

// What is different about a key away from home: its name, its time to live
// and its cas numbers.

import (
	"bytes"
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
	divertedEnd    = '~'
)

// AppendKey appends the key that a server stores for key under a number:
// `__rs~<number in base 36>~<key>`, or key itself for 0. The result can be
// longer than the 250 bytes that memcached takes; such a key is not diverted.
func AppendKey(dst []byte, number uint64, key []byte) []byte {
	if number == 0 {
		return append(dst, key...)
	}
	dst = append(dst, divertedPrefix...)
	dst = strconv.AppendUint(dst, number, 36)
	dst = append(dst, divertedEnd)
	return append(dst, key...)
}

// Undivert takes off again what AppendKey put before a key. A key that has no
// such prefix comes back as it is.
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
