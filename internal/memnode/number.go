package memnode

// This file parses numbers as memcached does, which uses C's strtol functions.
//
// Space may precede a number, and space and any text may follow it. A sign is allowed even on
// unsigned numbers. Numbers of 32 bits are parsed with 64 bits and truncated, so 2^32 is read as 0.

import (
	"bytes"
	"math"
)

// parseLength parses the length of a value. Unlike other numbers, the length is not truncated. It
// is an error if the length plus two bytes for the line end does not fit an int of C.
func parseLength(s []byte) (int, bool) {
	negative, n, ok := scan(s)
	return int(n), ok && n <= math.MaxInt32-2 && (!negative || n == 0)
}

// parseInt32 parses a signed number and returns its low 32 bits.
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

// parseUint32 parses an unsigned number and returns its low 32 bits.
func parseUint32(s []byte) (uint32, bool) {
	n, ok := parseUint64(s)
	return uint32(n), ok
}

// parseUint64 parses an unsigned number. A minus sign negates it modulo 2^64. If
// the result has its highest bit set, a minus sign anywhere in s makes the number
// invalid.
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

// scan parses optional space, an optional sign, and digits. A NUL, space or the end of s must
// follow the digits.
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
