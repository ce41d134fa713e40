package wire

// This file parses replies: one status line, one VALUE with its data, or one STAT line at
// a time.

import (
	"bytes"
	"math"
)

// maxReplyLine is a limit in bytes for the line of a reply. memcached's own line buffer
// has 1 KiB. Lines of stats contain a key of at most 250 bytes or a path. All of them are
// shorter than this limit.
const maxReplyLine = 8 << 10

type kinds uint32

func oneOf(ks ...Kind) (set kinds) {
	for _, k := range append(ks, Error, ClientError, ServerError) {
		set |= 1 << k
	}
	return set
}

// possible contains the kinds of reply that a server may send, by dialect and op of the
// request. Error lines are possible for every op.
var possible = func() (p [2][NumOps]kinds) {
	for op := range NumOps {
		p[Text][op], p[Meta][op] = oneOf(), oneOf()
	}
	for op := Get; op <= Gats; op++ {
		p[Text][op] = oneOf(Value, End)
	}
	for op := Set; op <= Prepend; op++ {
		p[Text][op] = oneOf(Stored, NotStored)
	}
	p[Text][Cas] = oneOf(Stored, NotStored, Exists, NotFound)
	p[Text][Incr] = oneOf(Number, NotFound)
	p[Text][Decr] = oneOf(Number, NotFound)
	p[Text][Touch] = oneOf(Touched, NotFound)
	p[Text][Delete] = oneOf(Deleted, NotFound)

	p[Meta][Get] = oneOf(Value, Header, Miss)
	for op := Set; op <= Cas; op++ {
		p[Meta][op] = oneOf(Stored, NotStored, Exists, NotFound)
	}
	p[Meta][Incr] = oneOf(Value, Header, NotStored, Exists, NotFound)
	p[Meta][Decr] = p[Meta][Incr]
	p[Meta][Delete] = oneOf(Deleted, Exists, NotFound)

	for d := range p {
		p[d][Debug] = oneOf(Item, Miss)
		p[d][Noop] = oneOf(Barrier)
		p[d][FlushAll] = oneOf(OK)
		p[d][Version] = oneOf(VersionIs)
		p[d][Verbosity] = oneOf(OK)
		p[d][Memlimit] = oneOf(OK, Busy)
		p[d][Stats] = oneOf(Stat, End, OK)
		p[d][Dump] = oneOf(Listed, End, OK, Busy)
	}
	return p
}()

// NextReply parses the reply at the start of buf into r and returns its size. op and d
// are the operation and the dialect of the request. If the reply has several VALUE or
// STAT, each call parses one of them. r.Last is set for the last one. The errors are
// ErrShort and errReply, with size 0. With ErrShort, a nonzero r.Size means that the line
// is complete and only the data block is not. All fields of r may then be used, up to the
// end of the buffer.
func NextReply(op Op, d Dialect, buf []byte, r *Reply) (int, error) {
	return NextReplyOf(op, d, nil, buf, r)
}

// NextReplyOf is like NextReply, but it is faster if the next VALUE or VA is for the key
// awaited. The caller must compare the keys anyway. The comparison costs less than a
// search for the end of the key.
func NextReplyOf(op Op, d Dialect, awaited, buf []byte, r *Reply) (int, error) {
	*r = Reply{}
	if d == Text && (op == Get || op == Gat) {
		if size, dataLen := r.plain(awaited, buf); size > 0 {
			return r.whole(buf, size, dataLen)
		}
	} else if op == Get && len(awaited) > 0 && d == Meta {
		if size, dataLen := r.plainMeta(awaited, buf); size > 0 {
			return r.whole(buf, size, dataLen)
		}
	}
	return r.any(op, d, buf)
}

// any parses every kind of reply. It is NextReply without the fast path for a text get.
func (r *Reply) any(op Op, d Dialect, buf []byte) (int, error) {
	nl := bytes.IndexByte(buf[:min(len(buf), maxReplyLine)], '\n')
	if nl < 0 {
		if len(buf) < maxReplyLine {
			return 0, ErrShort
		}
		return 0, errReply
	}
	if op == Dump && r.listed(buf[:nl]) {
		return nl + 1, nil
	}
	if nl == 0 || buf[nl-1] != '\r' {
		return 0, errReply
	}
	r.Line = Span{0, uint32(nl - 1)}
	size := nl + 1
	if op == Debug || op == Noop {
		d = Meta
	}
	dataLen, ok := -1, false
	if d == Meta {
		dataLen, ok = r.meta(op, buf)
	} else {
		dataLen, ok = r.text(op, buf)
	}
	if !ok || possible[d][op]&(1<<r.Kind) == 0 {
		*r = Reply{}
		return 0, errReply
	}
	r.Last = r.Kind != Stat && (r.Kind != Value || d == Meta) && (op != Dump || r.Kind != OK) // newer servers send OK in front of the lines of a dump, so an OK is not the end of a dump
	return r.whole(buf, size, dataLen)
}

// Fits reports whether memcached may send the meta reply r, which was parsed from buf, to a request with
// the operation op and the flags f. The data block may be incomplete. A client would otherwise get a reply
// that the command does not have.
func (r *Reply) Fits(op Op, f Flags, buf []byte) bool {
	switch r.Kind {
	case Value:
		return f&ReturnValue != 0 && (op == Get || r.Body.Len() <= maxCounter && (int(r.Body.End) > len(buf) || isNumber(r.Body.Of(buf))))
	case Header:
		return f&ReturnValue == 0
	case Exists:
		return f&Compare != 0
	case NotFound:
		return f&Compare != 0 || !op.Stores()
	case NotStored:
		return f&Create != 0 || op.Stores()
	}
	return true
}

// maxCounter is a limit in bytes for the value of a counter. memcached's own limit is 24.
const maxCounter = 32

// whole sets the size and the data block (Body) of a reply, and returns the size. The
// parameter size is the length of the reply's line with its line ending. dataLen is the
// length of the data block, or -1 if there is none.
func (r *Reply) whole(buf []byte, size, dataLen int) (int, error) {
	r.Size = size
	if dataLen < 0 {
		return size, nil
	}
	r.Body = Span{uint32(size), uint32(size + dataLen)}
	end := size + dataLen + 2
	r.Size = end
	if len(buf) < end {
		return 0, ErrShort
	}
	if string(buf[end-2:end]) != "\r\n" {
		*r = Reply{}
		return 0, errReply
	}
	return end, nil
}

// plain parses the most frequent lines in the reply to a text get: END, or a VALUE
// without unusual bytes. It takes a third of the time of the function `any`. For all
// other lines it returns size 0 and does not modify r. dataLen is the length of the data
// block, or -1 if none follows.
func (r *Reply) plain(awaited, buf []byte) (size, dataLen int) {
	const start = len("VALUE ")
	if len(buf) < start || string(buf[:start]) != "VALUE " {
		if len(buf) >= len("END\r\n") && string(buf[:len("END\r\n")]) == "END\r\n" {
			r.Kind, r.Last, r.Line = End, true, Span{0, uint32(len("END"))}
			return len("END\r\n"), -1
		}
		return 0, 0
	}
	key := start + len(awaited)
	is := key < len(buf) && buf[key] == ' ' && key > start && same(buf[start:key], awaited)
	if !is {
		if key = start + plainWord(buf[start:min(len(buf), maxReplyLine/2)]); key == start || key == len(buf) || buf[key] != ' ' {
			return 0, 0
		}
	}
	flags := key + 2
	if flags >= len(buf) || buf[flags] != ' ' || buf[key+1]-'0' > 9 { // the flags are not a single digit, which they usually are
		flags, _ = number(buf, key+1)
	}
	length, dataLen := number(buf, flags+1)
	end := length
	switch {
	case length+2 > len(buf), buf[flags] != ' ', uint(flags-key-2) > 8, uint(length-flags-2) > 8: // the line is not complete, or the flags or the length do not have one to nine digits
		return 0, 0
	case string(buf[length:length+2]) != "\r\n":
		if end = r.plainUnique(buf, length); end == 0 {
			return 0, 0
		}
	}
	r.Kind, r.Awaited = Value, is
	r.Line = Span{0, uint32(end)}
	r.Key = Span{uint32(start), uint32(key)}
	r.ClientFlags = Span{uint32(key + 1), uint32(flags)}
	return end + 2, dataLen
}

// plainUnique parses the cas id of a VALUE line. The cas id follows the length, which
// ends at the offset `at`. plainUnique returns the end of the line, or 0 if the rest of
// the line is not just a cas id.
func (r *Reply) plainUnique(buf []byte, at int) (end int) {
	end, _ = number(buf, at+1)
	if buf[at] != ' ' || end == at+1 || end-at > 21 || end+2 > len(buf) || end > maxReplyLine-2 || string(buf[end:end+2]) != "\r\n" {
		return 0
	}
	r.Unique = Span{uint32(at + 1), uint32(end)}
	return end
}

// plainMeta parses the usual reply to an mg with the flags f, c and, at the end, k: a VA line with
// the key awaited. t may be between c and k. For all other lines it returns size 0 and does not
// modify r.
func (r *Reply) plainMeta(awaited, buf []byte) (size, dataLen int) {
	const start = len("VA ")
	if len(buf) < start || string(buf[:start]) != "VA " {
		return 0, 0
	}
	buf = buf[:min(len(buf), maxReplyLine)]
	first, dataLen := number(buf, start)
	if uint(first-start-1) > 8 || !begins(buf, first, " f") { // the length must have one to nine digits
		return 0, 0
	}
	flags, _ := number(buf, first+2)
	if !begins(buf, flags, " c") || flags == first+2 {
		return 0, 0
	}
	at, _ := number(buf, flags+2)
	if at == flags+2 {
		return 0, 0
	}
	letters := Letters(1<<('f'-'A') | 1<<('c'-'A') | 1<<('k'-'A'))
	if begins(buf, at, " t") {
		letters.Add('t')
		at, _ = number(buf, at+2)
	}
	key := at + 2
	end := key + len(awaited)
	if !begins(buf, at, " k") || !begins(buf, end, "\r\n") || !same(buf[key:end], awaited) {
		return 0, 0
	}
	r.Kind, r.Awaited, r.Last = Value, true, true
	r.Line = Span{0, uint32(end)}
	r.Key, r.ClientFlags = Span{uint32(key), uint32(end)}, Span{uint32(first + 2), uint32(flags)}
	r.MetaFlags, r.Letters = Span{uint32(first + 1), uint32(end)}, letters
	return end + 2, dataLen
}

// begins reports whether the two bytes of buf from the offset `at` on are word.
func begins(buf []byte, at int, word string) bool {
	return uint(at) < uint(len(buf)) && uint(at+1) < uint(len(buf)) && buf[at] == word[0] && buf[at+1] == word[1] // as uint, the compiler omits its bounds checks
}

// same reports whether two words are equal. For words of 8 to 32 bytes, as most keys are,
// it needs no function call.
func same(a, b []byte) bool {
	switch n := len(b); {
	case n < 8 || n > 32 || n != len(a):
		return string(a) == string(b)
	case n < 16:
		return [8]byte(a) == [8]byte(b) && [8]byte(a[n-8:]) == [8]byte(b[n-8:])
	default:
		return [16]byte(a) == [16]byte(b) && [16]byte(a[n-16:]) == [16]byte(b[n-16:])
	}
}

// number parses the decimal digits of b from the offset `at` on. end is the offset after
// them, and n is their value. With more than nine digits, n is undefined.
func number(b []byte, at int) (end, n int) {
	for uint(at) < uint(len(b)) { // the comparison as uint makes the compiler omit the bounds check
		digit := b[at] - '0'
		if digit > 9 {
			break
		}
		n = n*10 + int(digit)
		at++
	}
	return at, n
}

// text parses the line of a reply in the text dialect. dataLen is the length of the data
// block, or -1 if none follows.
func (r *Reply) text(op Op, buf []byte) (dataLen int, ok bool) {
	line := r.Line.Of(buf)
	if len(line) > 6 && string(line[:6]) == "VALUE " {
		return r.value(op, buf)
	}
	switch string(line) {
	case "END":
		r.Kind = End
	case "STORED":
		r.Kind = Stored
	case "NOT_STORED":
		r.Kind = NotStored
	case "EXISTS":
		r.Kind = Exists
	case "NOT_FOUND":
		r.Kind = NotFound
	case "DELETED":
		r.Kind = Deleted
	case "TOUCHED":
		r.Kind = Touched
	case "OK", "RESET":
		r.Kind = OK
	default:
		switch {
		case isNumber(line):
			r.Kind = Number
		case hasWord(line, "STAT"), hasWord(line, "ITEM"), hasWord(line, "PREFIX"):
			r.Kind = Stat
		case hasWord(line, "VERSION"):
			r.Kind = VersionIs
		case hasWord(line, "BUSY"), hasWord(line, "MEMLIMIT_ADJUST_FAILED"):
			r.Kind = Busy
		default:
			return -1, r.failure(line)
		}
	}
	return -1, true
}

// listed parses a line of a dump, such as key=<escaped> exp=…. Unlike other lines, it
// ends in \n without \r.
func (r *Reply) listed(line []byte) bool {
	if len(line) < len("key=") || string(line[:len("key=")]) != "key=" {
		return false
	}
	end := uint32(len(line))
	word := nextToken(line, 0, end)
	r.Kind, r.Line, r.Size = Listed, Span{0, end}, len(line)+1
	r.Key = Span{uint32(len("key=")), word.End}
	return r.Key.Len() > 0
}

// UnescapeKey appends a key from a dump to dst. It replaces escapes such as %20 by their
// bytes.
func UnescapeKey(dst, escaped []byte) []byte {
	for i := 0; i < len(escaped); i++ {
		if c := escaped[i]; c == '%' && i+2 < len(escaped) {
			dst = append(dst, hex(escaped[i+1])<<4|hex(escaped[i+2]))
			i += 2
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

func hex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

// value parses the line VALUE <key> <flags> <bytes> [<cas>]. In replies to gets and gats,
// the cas id is required.
func (r *Reply) value(op Op, buf []byte) (dataLen int, ok bool) {
	r.Kind = Value
	end := r.Line.End
	r.Key = nextToken(buf, uint32(len("VALUE ")), end)
	r.ClientFlags = nextToken(buf, r.Key.End, end)
	length := nextToken(buf, r.ClientFlags.End, end)
	unique := nextToken(buf, length.End, end)
	dataLen, ok = dataSize(length.Of(buf))
	ok = ok && r.Key.Len() > 0 && isNumber(bytes.TrimPrefix(r.ClientFlags.Of(buf), minus)) // before some release after 1.4.25, memcached sends client flags of 32 bits as a signed number
	switch {
	case unique.Len() > 0:
		r.Unique = unique
		ok = ok && isNumber(r.Unique.Of(buf)) && nextToken(buf, r.Unique.End, end).Len() == 0
	case op == Gets || op == Gats:
		ok = false
	}
	return dataLen, ok
}

// meta parses the line of a reply in the meta dialect. dataLen is the length of the data
// block, or -1 if none follows.
func (r *Reply) meta(op Op, buf []byte) (dataLen int, ok bool) {
	line := r.Line.Of(buf)
	if len(line) < 2 || len(line) > 2 && line[2] != ' ' {
		return -1, r.failure(line)
	}
	dataLen = -1
	at := uint32(2)
	switch string(line[:2]) {
	case "VA":
		r.Kind = Value
		digits, n := number(line, len("VA "))
		if at, dataLen = uint32(digits), n; uint(digits-len("VA ")-1) > 8 || digits < len(line) && line[digits] != ' ' { // not one to nine digits
			length := nextToken(buf, uint32(len("VA")), r.Line.End)
			at = length.End
			if dataLen, ok = dataSize(length.Of(buf)); !ok {
				return -1, false
			}
		}
	case "HD":
		r.Kind = Header
		switch {
		case op.Stores():
			r.Kind = Stored
		case op == Delete:
			r.Kind = Deleted
		}
	case "EN":
		r.Kind = Miss
	case "NS":
		r.Kind = NotStored
	case "EX":
		r.Kind = Exists
	case "NF":
		r.Kind = NotFound
	case "MN":
		r.Kind = Barrier
		return -1, len(line) == 2
	case "ME":
		r.Kind = Item
		r.Key = nextToken(buf, at, r.Line.End)
		return -1, r.Key.Len() > 0
	default:
		return -1, false
	}
	return dataLen, r.flags(buf, at)
}

// flags parses the meta flags of a reply, which begin at the offset `at`. It returns
// false if a flag is invalid.
func (r *Reply) flags(buf []byte, at uint32) bool {
	end := r.Line.End
	p := skipSpaces(buf, at, end)
	r.MetaFlags = Span{p, end}
	line, letters := buf[:end], r.Letters
	for int(p) < len(line) {
		letter := line[p]
		if (letter|0x20)-'a' > 'z'-'a' { // as an unsigned number: no letter
			return false
		}
		letters.Add(letter)
		if letter != 'k' && letter != 'O' { // the argument of all other flags is a number, which ends at a space
			from := p + 1
			for int(p) < len(line) && line[p] != ' ' {
				p++
			}
			switch letter {
			case 'f':
				r.ClientFlags = Span{from, p}
				fallthrough
			case 'c':
				if !isNumber(line[from:p]) {
					return false
				}
			}
		} else {
			word := nextToken(buf, p, end)
			switch {
			case r.Key.End > 0 && letter == 'k', r.Opaque.End > 0 && letter == 'O': // a reply with two keys or two opaques: it is unclear which request it belongs to
				return false
			case letter == 'k':
				r.Key = Span{word.Start + 1, word.End}
			default:
				r.Opaque = Span{word.Start + 1, word.End}
			}
			p = word.End
		}
		for int(p) < len(line) && line[p] == ' ' {
			p++
		}
	}
	r.Letters = letters
	return true
}

// failure parses an error line. In addition to ERROR alone, memcached sends "ERROR: …",
// and "ERROR …" when it has too many connections.
func (r *Reply) failure(line []byte) bool {
	switch {
	case hasWord(line, "SERVER_ERROR"):
		r.Kind = ServerError
	case hasWord(line, "CLIENT_ERROR"):
		r.Kind = ClientError
	case hasWord(line, "ERROR"), hasWord(line, "ERROR:"):
		r.Kind = Error
	default:
		return false
	}
	return true
}

// StatOf returns the value that a reply to stats has for a name; "": it has none.
func StatOf(reply []byte, name string) string {
	_, rest, _ := bytes.Cut(reply, []byte("STAT "+name+" "))
	value, _, _ := bytes.Cut(rest, []byte(CRLF))
	return string(value)
}

// hasWord reports whether line is word, or begins with it and a space.
func hasWord(line []byte, word string) bool {
	return len(line) >= len(word) && string(line[:len(word)]) == word &&
		(len(line) == len(word) || line[len(word)] == ' ')
}

// minus is the sign of large client flags in the replies of old servers.
var minus = []byte("-")

// isNumber reports whether b is a number below 2^64. Spaces may follow: old servers pad the value of a
// counter with spaces after a decr, and their reply contains these spaces.
func isNumber(b []byte) bool {
	n, _ := number(b, 0)
	return n > 0 && (n < 20 || n == 20 && string(b[:n]) <= "18446744073709551615") && len(bytes.TrimRight(b[n:], " ")) == 0
}

// dataSize parses the length of a data block in the line of a reply.
func dataSize(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 10 {
		return -1, false
	}
	var v int64
	for _, c := range b {
		if c-'0' > 9 {
			return -1, false
		}
		v = v*10 + int64(c-'0')
	}
	return int(v), v <= math.MaxInt32-2*maxReplyLine
}
