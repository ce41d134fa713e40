package memnode

// number.go: numbers as C's strtol family reads them, which is what memcached accepts.
//
// Space may stand before and anything after space; a sign is allowed even on unsigned
// numbers; numbers of 32 bits are read with 64 and cut, so 2^32 is 0.

import (
	"bytes"
	"math"
)

// parseLength reads how long a value is. It is not cut: with its line end it must be an int of C.
func parseLength(s []byte) (int, bool) {
	negative, n, ok := scan(s)
	return int(n), ok && n <= math.MaxInt32-2 && (!negative || n == 0)
}

// parseInt32 reads a signed number and keeps its low 32 bits.
func parseInt32(s []byte) (int32, bool) {
	negative, n, ok := scan(s)
	switch {
	case !ok:
		return 0, false
	case negative && n <= -math.MinInt64:
		return int32(-n), true
	case !negative && n <= math.MaxInt64:
		return int32(n), true
	}
	return 0, false
}

// parseUint32 reads an unsigned number and keeps its low 32 bits.
func parseUint32(s []byte) (uint32, bool) {
	n, ok := parseUint64(s)
	return uint32(n), ok
}

// parseUint64 reads an unsigned number. A minus sign negates it modulo 2^64, and is
// refused, wherever in s it stands, if the result has its highest bit set.
func parseUint64(s []byte) (uint64, bool) {
	negative, n, ok := scan(s)
	if !ok {
		return 0, false
	}
	if negative {
		n = -n
	}
	if n > math.MaxInt64 && bytes.IndexByte(untilNUL(s), '-') >= 0 {
		return 0, false
	}
	return n, true
}

// scan reads space, a sign and digits up to the end, a NUL or space.
func scan(s []byte) (negative bool, n uint64, ok bool) {
	s = untilNUL(s)
	for len(s) > 0 && isSpace(s[0]) {
		s = s[1:]
	}
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	digits := 0
	for ; digits < len(s) && '0' <= s[digits] && s[digits] <= '9'; digits++ {
		d := uint64(s[digits] - '0')
		if n > (math.MaxUint64-d)/10 {
			return false, 0, false
		}
		n = 10*n + d
	}
	ended := digits == len(s) || isSpace(s[digits])
	return negative, n, digits > 0 && ended
}

func untilNUL(s []byte) []byte {
	if i := bytes.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }
