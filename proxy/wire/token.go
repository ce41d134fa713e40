package wire

// Words, keys and numbers as memcached's tokenizer and the C library see them.

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Words are looked through eight bytes at a time: most end in the first eight
// or the next, and a call of bytes.IndexByte takes as long as both.

// each times a byte is that byte in all places of a word.
const each = 0x0101010101010101

// zeros has, of the bytes of w that are zero, the first one's top bit set, and
// no bit of those before it.
func zeros(w uint64) uint64 { return below(w, 1) }

// below is zeros for bytes less than n, which is 0x80 at most.
func below(w, n uint64) uint64 { return (w - n*each) &^ w & (0x80 * each) }

// nextToken finds the first token in buf[p:end]. Only the space separates:
// tabs and other control characters are part of a token. At the end the
// token is empty.
func nextToken(buf []byte, p, end uint32) Span {
	p = skipSpaces(buf, p, end)
	at := int(p)
	for ; at <= len(buf)-8 && at < int(end); at += 8 { // what is behind end does no harm
		if spaces := zeros(binary.LittleEndian.Uint64(buf[at:at+8]) ^ ' '*each); spaces != 0 {
			return Span{p, min(uint32(at+bits.TrailingZeros64(spaces)/8), end)}
		}
	}
	for at < int(end) && buf[at] != ' ' {
		at++
	}
	return Span{p, min(uint32(at), end)}
}

// lastToken finds the last token of a line. If there is none it is empty.
func lastToken(buf []byte, line Span) Span {
	end := line.End
	for end > line.Start && buf[end-1] == ' ' {
		end--
	}
	return Span{line.Start + uint32(bytes.LastIndexByte(buf[line.Start:end], ' ')+1), end}
}

// skipSpaces is where the first token in buf[p:end] begins, or the end.
func skipSpaces(buf []byte, p, end uint32) uint32 {
	for p < end && buf[p] == ' ' {
		p++
	}
	return p
}

// plainWord is the number of bytes at the start of b that are no space and no
// control character below it.
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

// PlainKey reports whether a line can carry a key as it is.
func PlainKey(key []byte) bool { return plainWord(key) == len(key) }

// NextKey splits the first key off rest, a part of Request.Keys. At the end
// the key is empty.
func NextKey(buf []byte, rest Span) (key, remaining Span) {
	key = nextToken(buf, rest.Start, rest.End)
	return key, Span{key.End, rest.End}
}

// FlagArg finds a flag among the meta flags of a request or a reply and
// returns what follows its letter.
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

// maxArgs is the most tokens of a text command with one key: cas with noreply.
const maxArgs = 7

// split finds the tokens of a line; n counts no further than one past maxArgs.
func split(buf []byte, line Span, tok *[maxArgs]Span) (n int) {
	p := line.Start
	for {
		t := nextToken(buf, p, line.End)
		if t.Len() == 0 {
			return n
		}
		if n == maxArgs {
			return maxArgs + 1
		}
		tok[n] = t
		n++
		p = t.End
	}
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// magnitude reads a number as strtol and strtoull do: white space, a sign,
// digits. White space may follow and anything after that. ok is false for
// what memcached's wrappers refuse: no digits, junk behind them, or more than
// 64 bits.
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
		if v > (1<<64-10)/10 && v > (1<<64-1-d)/10 { // the first holds of no usual number, and takes no division
			return 0, negative, false
		}
		v = v*10 + d
	}
	return v, negative, i > first && (i == len(b) || isSpace(b[i]))
}

// length is the length of a data block. Unlike memcached 1.6.18, which keeps the
// low 32 bits, it is refused when it is negative or longer than maxBody.
func length(b []byte) (n int, ok bool) {
	u, negative, ok := magnitude(b)
	return int(u), ok && u <= maxBody && (!negative || u == 0)
}

// signed reports whether b is a number where memcached uses strtol: an exptime, of
// which it keeps the low 32 bits.
func signed(b []byte) bool {
	u, negative, ok := magnitude(b)
	return ok && (u < 1<<63 || negative && u == 1<<63)
}

// unsigned reports whether b is a number where memcached uses strtoull: client
// flags, a cas unique, a delta. A minus sign counts only when the result has
// the top bit set.
func unsigned(b []byte) bool {
	u, negative, ok := magnitude(b)
	if negative {
		u = -u
	}
	return ok && (int64(u) >= 0 || bytes.IndexByte(b, '-') < 0)
}

// ClientFlags is what memcached keeps of client flags as a client writes them: the low 32
// bits, and not how they were spelled.
func ClientFlags(b []byte) uint32 { return uint32(Unsigned(b)) }

// Unsigned is the number of client flags or a delta as memcached reads it. Commands of text
// take a sign there; not all releases take one in a flag of a meta command.
func Unsigned(b []byte) uint64 {
	u, negative, _ := magnitude(b)
	if negative {
		u = -u
	}
	return u
}

// Signed is the number of an exptime, likewise.
func Signed(b []byte) int64 { return int64(Unsigned(b)) }

// SameFlags says whether memcached keeps the same of client flags and of others.
func SameFlags(flags []byte, others string) bool {
	return ClientFlags(flags) == ClientFlags([]byte(others))
}

// plainNumber reports whether b is a decimal number without sign, spaces or
// leading zeros, of at most nine digits: every version reads it alike.
func plainNumber(b []byte) bool {
	end, _ := number(b, 0)
	return end == len(b) && end > 0 && end <= 9 && (b[0] != '0' || end == 1)
}

// base64Values maps a byte to its six bits, or to 0x80 where it has none.
// The padding counts as zero bits.
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

// DecodeKey appends the key that memcached makes of a base64 key (meta flag
// b) to dst. It is as lenient as memcached: bytes outside of the alphabet are
// skipped and what follows the padding is not read. A key that is no base64,
// or that decodes to nothing, gives false.
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
