package wire

// This file parses words, keys and numbers, as memcached's tokenizer and the C library
// do.

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
)

// The functions of this file search words eight bytes at a time. Most words end within
// their first 16 bytes, and a call of bytes.IndexByte takes as long as two steps of eight
// bytes.

// each is a 64-bit word with eight bytes of value 1. A product of a byte and each has
// that byte in all eight bytes.
const each = 0x0101010101010101

// zeros finds the first zero byte of w. In the result, the top bit of that byte is set,
// and no bit of an earlier byte. Bits of later bytes are undefined.
func zeros(w uint64) uint64 { return below(w, 1) }

// below finds the first byte of w that is less than n; n is at most 0x80. In the result,
// the top bit of that byte is set, and no bit of an earlier byte. Bits of later bytes are
// undefined.
func below(w, n uint64) uint64 { return (w - n*each) &^ w & (0x80 * each) }

// nextToken returns the first token (word) in buf[p:end]. Only spaces separate tokens.
// Tabs and other control characters are part of a token. The result is an empty span if
// there is no token.
func nextToken(buf []byte, p, end uint32) Span {
	p = skipSpaces(buf, p, end)
	at := int(p)
	for ; at <= len(buf)-8 && at < int(end); at += 8 { // this reads up to seven bytes after the end, which does no harm
		if spaces := zeros(binary.LittleEndian.Uint64(buf[at:at+8]) ^ ' '*each); spaces != 0 {
			return Span{p, min(uint32(at+bits.TrailingZeros64(spaces)/8), end)}
		}
	}
	for at < int(end) && buf[at] != ' ' {
		at++
	}
	return Span{p, min(uint32(at), end)}
}

// lastToken returns the last token (word) of a line, or an empty span if the line has
// none.
func lastToken(buf []byte, line Span) Span {
	end := line.End
	for end > line.Start && buf[end-1] == ' ' {
		end--
	}
	return Span{line.Start + uint32(bytes.LastIndexByte(buf[line.Start:end], ' ')+1), end}
}

// skipSpaces returns the offset of the first byte in buf[p:end] that is not a space, or
// end if there is none.
func skipSpaces(buf []byte, p, end uint32) uint32 {
	at, buf := int(p), buf[:end] // the compiler then omits the bounds checks
	for at < len(buf) && buf[at] == ' ' {
		at++
	}
	return uint32(at)
}

// plainWord returns how many bytes at the start of b are greater than a space. It stops
// at the first space or control character.
func plainWord(b []byte) int {
	at := 0
	for ; at <= len(b)-8; at += 8 {
		if odd := below(binary.LittleEndian.Uint64(b[at:at+8]), ' '+1); odd != 0 {
			return at + bits.TrailingZeros64(odd)/8
		}
	}
	for at < len(b) && b[at] > ' ' {
		at++
	}
	return at
}

// PlainKey reports whether key can be in a command line as it is, without base64.
func PlainKey(key []byte) bool { return plainWord(key) == len(key) }

// NeedsBase64 reports whether key must be in base64 in a meta command. memcached accepts control characters in a
// key, except a line feed and a zero byte. So a key whose base64 form would be too long can stay as it is.
func NeedsBase64(key []byte) bool {
	return !PlainKey(key) && (base64.StdEncoding.EncodedLen(len(key)) <= defaultKey || bytes.ContainsAny(key, " \n\x00"))
}

// NextKey returns the first key in rest, and what remains of rest after that key. rest is
// a part of Request.Keys. At the end the returned key is empty.
func NextKey(buf []byte, rest Span) (key, remaining Span) {
	key = nextToken(buf, rest.Start, rest.End)
	return key, Span{key.End, rest.End}
}

// FlagArg finds the flag with this letter among the meta flags of a request or a reply.
// It returns the argument: the text after the letter. ok is false if there is no such
// flag.
func FlagArg(buf []byte, flags Span, letter byte) (arg Span, ok bool) {
	for p := flags.Start; ; {
		t := nextToken(buf, p, flags.End)
		if t.Len() == 0 {
			return Span{}, false
		}
		if buf[t.Start] == letter {
			return Span{t.Start + 1, t.End}, true
		}
		p = t.End
	}
}

// maxArgs is the largest number of words in a text command with one key: those of a cas
// with noreply.
const maxArgs = 7

// split stores the tokens (words) of a line in tok and returns their number. The first one,
// the command, is known already; the line ends at end. If the line has more than maxArgs
// tokens, split returns maxArgs+1.
func split(buf []byte, first Span, end uint32, tok *[maxArgs]Span) (n int) {
	for t := first; t.Len() > 0; t = nextToken(buf, t.End, end) {
		if n == maxArgs {
			return maxArgs + 1
		}
		tok[n] = t
		n++
	}
	return n
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// magnitude parses a number as the C functions strtol and strtoull do: white space, a
// sign, digits. Anything may follow after a further white space. ok is false if memcached
// refuses the number: it has no digits, other bytes follow its digits directly, or it has
// more than 64 bits.
func magnitude(b []byte) (v uint64, negative, ok bool) {
	i := 0
	if len(b) > 0 && b[0]-'0' > 9 {
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		if i < len(b) && (b[i] == '-' || b[i] == '+') {
			negative = b[i] == '-'
			i++
		}
	}
	first := i
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		d := uint64(b[i] - '0')
		if v > (1<<64-10)/10 && v > (1<<64-1-d)/10 { // first compare with a constant: for usual numbers this is false, and the division is not necessary
			return 0, negative, false
		}
		v = v*10 + d
	}
	return v, negative, i > first && (i == len(b) || isSpace(b[i]))
}

// length parses the length of a data block in a request. It refuses a length that is
// negative or greater than maxBody. memcached 1.6.18 would use the low 32 bits of such a
// length.
func length(b []byte) (n int, ok bool) {
	u, negative, ok := magnitude(b)
	return int(u), ok && u <= maxBody && (!negative || u == 0)
}

// signed reports whether memcached accepts b as an exptime, which it parses with the C
// function strtol. memcached uses only the low 32 bits of the result.
func signed(b []byte) bool {
	u, negative, ok := magnitude(b)
	return ok && (u < 1<<63 || negative && u == 1<<63)
}

// unsigned reports whether memcached accepts b as client flags, a cas unique or a delta,
// which it parses with the C function strtoull. memcached refuses a number with a minus
// sign if the top bit of the result is set.
func unsigned(b []byte) bool {
	u, negative, ok := magnitude(b)
	if negative {
		u = -u
	}
	return ok && (int64(u) >= 0 || bytes.IndexByte(b, '-') < 0)
}

// ClientFlags returns the client flags that memcached stores for b: the low 32 bits
// of the number, however it is spelled.
func ClientFlags(b []byte) uint32 { return uint32(Unsigned(b)) }

// Unsigned returns the number in b, which is client flags or a delta, as memcached reads
// it. Text commands accept a sign. Not all releases accept a sign in a meta flag.
func Unsigned(b []byte) uint64 {
	u, negative, _ := magnitude(b)
	if negative {
		u = -u
	}
	return u
}

// ParseUnsigned returns the number in b as Unsigned does, and whether memcached accepts it.
func ParseUnsigned(b []byte) (u uint64, ok bool) { return Unsigned(b), unsigned(b) }

// Signed returns the number in b, which is an exptime, as memcached reads it.
func Signed(b []byte) int64 { return int64(Unsigned(b)) }

// SameFlags reports whether memcached reads both texts as the same client flags. others are ten
// digits, less than 4194967296: no shorter text has the same value, even if it is negative.
func SameFlags(flags []byte, others string) bool {
	return len(flags) >= len(others) && ClientFlags(flags) == ClientFlags([]byte(others))
}

// plainNumber reports whether b is a decimal number of at most nine digits, without sign,
// spaces or leading zeros. Every version of memcached reads such a number in the same
// way.
func plainNumber(b []byte) bool {
	end, _ := number(b, 0)
	return end == len(b) && end > 0 && end <= 9 && (b[0] != '0' || end == 1)
}

// base64Values maps each byte to the six bits that it encodes, or to 0x80 if it is not in
// the base64 alphabet. The padding byte = has zero bits.
var base64Values = func() (t [256]byte) {
	for i := range t {
		t[i] = 0x80
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for i := range len(alphabet) {
		t[alphabet[i]] = byte(i)
	}
	t['='] = 0
	return t
}()

// DecodeKey decodes b64, a key in base64 (meta flag b), and appends it to dst. It is as
// lenient as memcached: it skips bytes outside the base64 alphabet, and ignores
// everything after the padding. ok is false if b64 is not base64 or if the decoded key is
// empty.
func DecodeKey(dst, b64 []byte) (key []byte, ok bool) {
	digits := 0
	for _, c := range b64 {
		if base64Values[c] != 0x80 {
			digits++
		}
	}
	if digits == 0 || digits%4 != 0 {
		return dst, false
	}
	from := len(dst)
	var group uint32
	n, pad := 0, 0
	for _, c := range b64 {
		v := base64Values[c]
		if v == 0x80 {
			continue
		}
		if c == '=' {
			pad++
		}
		group = group<<6 | uint32(v)
		if n++; n < 4 {
			continue
		}
		if pad > 2 {
			return dst[:from], false
		}
		dst = append(dst, byte(group>>16), byte(group>>8), byte(group))
		if pad > 0 {
			dst = dst[:len(dst)-pad]
			break
		}
		group, n = 0, 0
	}
	return dst, len(dst) > from
}
