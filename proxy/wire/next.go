package wire

// This file parses requests: it finds the end of the line and the command.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/bits"
)

const (
	defaultKey   = 250
	defaultLine  = 64 << 10
	defaultValue = 8 << 20

	// shortLine is the maximum size in bytes of a command line, without its line end.
	// Only a read of many keys may be longer. memcached has the same limit.
	shortLine = 2048

	// maxBody is the length in bytes of the longest data block that memcached accepts.
	// With its \r\n, the length must fit an int32.
	maxBody = math.MaxInt32 - 2
)

// MaxKey returns the limit for the length of a key in bytes: the limit that is set, or
// memcached's own.
func (l *Limits) MaxKey() int {
	if l.Key > 0 && l.Key < defaultKey {
		return l.Key
	}
	return defaultKey
}

// Fits reports whether a command may have key: its length is within the limit. A key that must be in base64 counts
// with its length in base64, as in memcached.
func (l *Limits) Fits(key []byte) bool {
	n := len(key)
	if NeedsBase64(key) {
		n = base64.StdEncoding.EncodedLen(n)
	}
	return 0 < n && n <= l.MaxKey()
}

func (l *Limits) line() int {
	return max(cmp.Or(l.Line, defaultLine), shortLine)
}

func (l *Limits) MaxValue() int {
	return cmp.Or(l.Value, defaultValue)
}

// parser is the state of one call of Limits.Next.
type parser struct {
	limits *Limits
	buf    []byte
	r      *Request
	size   int    // size in bytes of the line, including its line ending
	word   Span   // the command
	end    uint32 // offset of the end of the part that memcached reads: the first NUL, or the line ending
	tail   uint32 // offset of the line ending; greater than the field end if the line contains a NUL
}

// One parses line into r, and reports whether line is exactly one request without a fault.
// If not, r.Op is Bad. Ringside checks with One what it has made of a client's request: for a
// server, a wrong line could be several commands.
func (l *Limits) One(line []byte, r *Request) bool {
	if n, err := l.Next(line, r); err == nil && n == len(line) && r.Op != Bad {
		return true
	}
	*r = Request{Op: Bad, Several: r.Several[:0]}
	return false
}

// Next parses the request at the start of buf into r. It returns the size of the request,
// including its data block and line endings. The only error is ErrShort, with size 0: the
// caller calls Next again with the same start and more bytes. If r.Need is set, these
// must be at least r.Need bytes in total. A malformed request is returned as a request
// with Op Bad. Bytes after the request do not affect the result.
func (l *Limits) Next(buf []byte, r *Request) (int, error) {
	several := r.Several[:0]
	*r = Request{}
	r.Several = several
	if len(buf) > 0 && buf[0] == 'g' {
		if n := l.plainGet(buf, r); n > 0 {
			return n, nil
		}
	}
	nl := bytes.IndexByte(buf[:min(len(buf), shortLine+1)], '\n')
	if nl < 0 {
		if len(buf) <= shortLine {
			return 0, ErrShort
		}
		if !isRead(buf) {
			return refuse(r, nil, shortLine), nil
		}
		if nl = bytes.IndexByte(buf[:min(len(buf), l.line()+1)], '\n'); nl < 0 {
			if len(buf) <= l.line() {
				return 0, ErrShort
			}
			return refuse(r, answerLongLine, l.line()), nil
		}
	}
	end := nl
	if nl > 1 && buf[nl-1] == '\r' {
		end--
	} else if r.Flags = Rewrite; nl == shortLine && !isRead(buf) { // its plain form, with \r\n, would be too long
		return refuse(r, nil, nl), nil
	} else if nl == l.line() {
		return refuse(r, answerLongLine, nl), nil
	}
	p := parser{limits: l, buf: buf, r: r, size: nl + 1, tail: uint32(end)}
	if nul := bytes.IndexByte(buf[:end], 0); nul >= 0 {
		end = nul
		r.Flags = Rewrite
	}
	p.end = uint32(end)
	word := nextToken(buf, 0, p.end)
	if word.Start > 0 {
		r.Flags = Rewrite
	}
	r.Line = Span{word.Start, p.end}
	return p.command(word)
}

// plainGet parses the most frequent request, a get of one key without unusual bytes. It
// returns the size of the request. For all other requests it returns 0 and does not
// modify r.
func (l *Limits) plainGet(buf []byte, r *Request) (size int) {
	const start = len("get ")
	if len(buf) < start || string(buf[:start]) != "get " {
		return 0
	}
	at, odd := start, uint64(0)
	for ; at <= len(buf)-8; at += 8 { // the end of the key is found here, and a search for the end of the line is not necessary
		if odd = below(binary.LittleEndian.Uint64(buf[at:at+8]), ' '+1); odd != 0 {
			at += bits.TrailingZeros64(odd) / 8
			break
		}
	}
	if odd == 0 {
		at += plainWord(buf[at:])
	}
	if at == start || at > start+l.MaxKey() || at+2 > len(buf) || string(buf[at:at+2]) != "\r\n" {
		return 0
	}
	key := Span{uint32(start), uint32(at)}
	r.Op, r.Line, r.Key, r.Keys, r.NumKeys = Get, Span{0, key.End}, key, key, 1
	return at + 2
}

// isRead reports whether the line is a read of possibly many keys: get, gets, gat or
// gats. Only such a line may exceed 2048 bytes. memcached skips at most 100 leading
// spaces.
func isRead(buf []byte) bool {
	i := 0
	for i <= 100 && buf[i] == ' ' {
		i++
	}
	if i > 100 {
		return false
	}
	for _, word := range [...]string{"get ", "gets ", "gat ", "gats "} {
		if bytes.HasPrefix(buf[i:], []byte(word)) {
			return true
		}
	}
	return false
}

// refuse makes r a request with Op Bad, because its first limit bytes have no line end.
// The connection will be closed, so the end of the request does not matter.
func refuse(r *Request, answer []byte, limit int) int {
	*r = Request{Op: Bad, Flags: CloseAfter, Answer: answer, Several: r.Several[:0]}
	return limit + 1
}

// command parses the line as the command that its first word names.
func (p *parser) command(word Span) (int, error) {
	p.word = word
	w := word.Of(p.buf)
	if len(w) == 2 && w[0] == 'm' {
		return p.meta(w[1], word.End)
	}
	switch string(w) {
	case "get":
		return p.read(Get, word.End)
	case "gets":
		return p.read(Gets, word.End)
	case "gat":
		return p.readTouch(Gat, word.End)
	case "gats":
		return p.readTouch(Gats, word.End)
	case "bget": // bget is an old synonym of get, removed in memcached 1.6.40
		p.r.Flags |= Rewrite
		return p.read(Get, word.End)
	case "set":
		return p.store(Set)
	case "add":
		return p.store(Add)
	case "replace":
		return p.store(Replace)
	case "append":
		return p.store(Append)
	case "prepend":
		return p.store(Prepend)
	case "cas":
		return p.store(Cas)
	case "incr":
		return p.keyAndNumber(Incr, &p.r.Delta, unsigned, answerDelta)
	case "decr":
		return p.keyAndNumber(Decr, &p.r.Delta, unsigned, answerDelta)
	case "touch":
		return p.keyAndNumber(Touch, &p.r.Exptime, signed, answerExptime)
	case "delete":
		return p.delete()
	case "flush_all":
		return p.flushAll()
	case "verbosity":
		return p.verbosity()
	case "cache_memlimit":
		return p.memlimit()
	case "version":
		return p.plain(Version)
	case "quit":
		return p.plain(Quit)
	case "stats":
		p.r.Args = Span{skipSpaces(p.buf, word.End, p.end), p.end}
		return p.plain(Stats)
	case "slabs", "lru", "lru_crawler", "extstore", "watch", "refresh_certs":
		return p.bad(p.operate())
	case "shutdown":
		p.r.Answer = answerShutdown
		return p.plain(Shutdown)
	}
	return p.unknown()
}

func (p *parser) plain(op Op) (int, error) {
	p.r.Op = op
	return p.size, nil
}

// bad makes the request a malformed one (Op Bad) with the reply answer. A nil answer
// means no reply.
func (p *parser) bad(answer []byte) (int, error) {
	*p.r = Request{Op: Bad, Dialect: p.r.Dialect, Line: p.r.Line, Answer: answer, Several: p.r.Several[:0]}
	return p.size, nil
}

// discard makes the request a malformed one (Op Bad) with the reply answer. The request
// is a storage command. Its data block of size bytes is discarded too.
func (p *parser) discard(size int, answer []byte) (int, error) {
	n, err := p.bad(answer)
	p.r.Swallow = int64(size) + 2
	return n, err
}

// pastNUL extends the line beyond a NUL to its real end. A storage command needs this if
// its length follows the NUL. pastNUL reports whether the line contains a NUL.
func (p *parser) pastNUL() bool {
	cut := p.end < p.tail
	p.end, p.r.Line.End = p.tail, p.tail
	return cut
}

// unknown handles an unknown command: the reply is ERROR. If the line looks like HTTP,
// the connection is closed instead. A browser that was tricked into sending commands in a
// POST must not get a second line executed.
func (p *parser) unknown() (int, error) {
	last := lastToken(p.buf, p.r.Line)
	if last.Start > p.r.Line.Start && bytes.HasPrefix(last.Of(p.buf), []byte("HTTP/")) {
		n, err := p.bad(nil)
		p.r.Flags |= CloseAfter
		return n, err
	}
	return p.bad(answerError)
}

// body parses the data block of n bytes that follows the line. It refuses a value over
// the limit, with the reply tooLarge. If the block does not end in \r\n, the reply is
// badChunk. The next request then begins after the block, because memcached has read the
// block by then.
func (p *parser) body(n int, badChunk, tooLarge []byte) (int, error) {
	r := p.r
	r.NumKeys = 1
	if n > p.limits.MaxValue() {
		r.Flags |= TooLarge
		r.Answer = tooLarge
		r.Swallow = int64(n) + 2
		return p.size, nil
	}
	total := p.size + n + 2
	r.Body = Span{uint32(p.size), uint32(p.size + n)}
	if len(p.buf) < total {
		r.Need = total
		return 0, ErrShort
	}
	if p.buf[total-2] != '\r' || p.buf[total-1] != '\n' {
		p.size = total
		return p.bad(badChunk)
	}
	return total, nil
}
