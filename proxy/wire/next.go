package wire

// Requests: the line, its end, and which command it is.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
)

const (
	defaultKey   = 250
	defaultLine  = 64 << 10
	defaultValue = 8 << 20

	// shortLine is how many bytes memcached reads before it expects the end of
	// a line that is no multi-get.
	shortLine = 2048

	// maxBody is the longest data block memcached takes: an int with its \r\n.
	maxBody = math.MaxInt32 - 2
)

// MaxKey is the limit of a key that is in force, and MaxValue that of a value.
func (l *Limits) MaxKey() int {
	if l.Key > 0 && l.Key < defaultKey {
		return l.Key
	}
	return defaultKey
}

func (l *Limits) line() int {
	return max(cmp.Or(l.Line, defaultLine), shortLine)
}

func (l *Limits) MaxValue() int {
	return cmp.Or(l.Value, defaultValue)
}

// parser is one call of Next.
type parser struct {
	limits *Limits
	buf    []byte
	r      *Request
	size   int    // of the line with its ending
	end    uint32 // of what memcached reads of the line
	tail   uint32 // of the line without its ending; past end if there is a NUL
}

// Next parses the request at the start of buf into r and returns its size, its
// data block and line endings included. The only error is ErrShort, and then
// the size is 0: call again with the same start and more bytes, at least
// r.Need in all if that is set. Malformed input is a request too, of Op Bad.
// The result depends on the bytes alone, not on how many follow.
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
	} else {
		r.Flags = Rewrite
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

// plainGet parses what most requests are, a get of one key without an odd byte, and
// returns its size; of all else it says 0 and leaves r alone.
func (l *Limits) plainGet(buf []byte, r *Request) (size int) {
	const start = len("get ")
	if len(buf) < start || string(buf[:start]) != "get " {
		return 0
	}
	at, odd := start, uint64(0)
	for ; at <= len(buf)-8; at += 8 { // it ends at the key's end: that of the line need not be looked for
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

// isRead reports whether a line that is too long so far is one that may be:
// a read of many keys. memcached looks past 100 spaces at most.
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

// refuse makes a request Bad that has no line end in more than limit bytes. The
// connection closes: where the request ends no longer matters.
func refuse(r *Request, answer []byte, limit int) int {
	*r = Request{Op: Bad, Flags: CloseAfter, Answer: answer, Several: r.Several[:0]}
	return limit + 1
}

// command parses the line by its first word.
func (p *parser) command(word Span) (int, error) {
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
	case "bget": // an old spelling of get that memcached dropped after 1.6.39
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

// bad ends the request as malformed; answer may be nil.
func (p *parser) bad(answer []byte) (int, error) {
	*p.r = Request{Op: Bad, Dialect: p.r.Dialect, Line: p.r.Line, Answer: answer, Several: p.r.Several[:0]}
	return p.size, nil
}

// discard is bad for a storage command whose data block, of size bytes, is
// thrown away.
func (p *parser) discard(size int, answer []byte) (int, error) {
	n, err := p.bad(answer)
	p.r.Swallow = int64(size) + 2
	return n, err
}

// pastNUL makes the line end where its line end is, for a storage command whose
// length may be behind a NUL. It reports whether there is one.
func (p *parser) pastNUL() bool {
	cut := p.end < p.tail
	p.end, p.r.Line.End = p.tail, p.tail
	return cut
}

// unknown answers ERROR, but closes at once when the line looks like HTTP: a
// browser that is tricked into posting commands gets no second line.
func (p *parser) unknown() (int, error) {
	last := lastToken(p.buf, p.r.Line)
	if last.Start > p.r.Line.Start && bytes.HasPrefix(last.Of(p.buf), []byte("HTTP/")) {
		n, err := p.bad(nil)
		p.r.Flags |= CloseAfter
		return n, err
	}
	return p.bad(answerError)
}

// body takes the data block of n bytes, or refuses a value over the limit. A
// block that doesn't end in \r\n is answered with badChunk: memcached has read
// it by then, and goes on behind it. tooLarge is the answer to a value over
// the limit.
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
