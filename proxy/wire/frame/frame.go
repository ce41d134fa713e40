// Package frame turns frames of the binary protocol into requests, and replies
// back into frames.
//
// Nothing behind this package knows a third dialect: Next cuts a frame out of the
// input, Spell says what it is as a text or meta request, which goes every
// request's way, and AppendFrame makes a frame of the answer to that. What is
// quiet is only hidden there, so that it is always known what became of a command.
//
// # The model
//
// memcached 1.6.18, frame by frame: package twin compares random streams. Its
// verbosity (0x1b) is unknown there, so it is here. A frame that is malformed, or
// whose key has more than 250 bytes, closes the connection, as in memcached.
//
// # Where it is not followed
//
//   - An unknown command with extras or a key, and a touch, gat, gatk or stat with a
//     value: memcached loses count of the bytes behind it. Here the frame's own
//     length counts.
//   - A body of 2 GiB or more is too large like any other; memcached takes its
//     length for negative.
//   - A key with spaces or control characters goes to servers in base64, which can
//     carry at most 186 bytes (of 250): more are Invalid. memcached bounds the key as
//     it is written, 186 bytes are 248 in base64, and it takes none without padding.
//     In front of servers before 1.6.10 a key with a space, a line end or a zero byte
//     is Unsupported.
//   - An expiry of 2^31 or more, a time after January 2038, ends then.
//   - A value that a server finds too large removes the old one for add, replace,
//     append and prepend, too, as for a set; memcached does that for set only.
//   - In front of servers before 1.6.10 the cas of a write is wire.NoMatch, a counter
//     can't be made with an initial value, and a delete or append with a cas is
//     Unsupported.
//   - The cas of a value read from several copies is sealed (package replicate). It is
//     wire.NoMatch, which fits nothing, where the copy decides no cas, where the guard
//     serves an old value or the interim server's, and of a write that the guard has
//     stored nowhere.
//   - stats are those of all servers; stats conns and stats cachedump work, too.
//   - To a client that has yet to say who it is (auth_file) version is refused, too,
//     and PLAIN is the only mechanism.
//   - What memcached has no status for: 0x83 a server's release is too old, 0x84 a
//     server's error, 0x85 a queue is full, 0x86 a server can't be reached. The
//     value says why.
package frame

// Requests: a frame, and the text or meta request that it is to servers.

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"ringside/proxy/wire"
)

// Magic is the first byte of every frame of a client that speaks the
// binary protocol. memcached decides by a connection's first byte alone, too.
const Magic = 0x80

// maxKey is the longest key that memcached takes, maxBody the longest data block
// that a line can announce.
const (
	maxKey  = 250
	maxBody = math.MaxInt32 - 2
)

// HeadSize is how many bytes of a frame are before extras, key and value.
const HeadSize = 24

// Head is what the answer to a frame repeats of it.
type Head struct {
	Opcode byte
	Opaque uint32
}

// Frame is one request of the binary protocol. Its spans are offsets into the
// buffer given to Next.
type Frame struct {
	Head
	Op    wire.Op
	Key   wire.Span
	Value wire.Span // of what stores; may reach past the buffer with ErrShort

	cas     uint64
	flags   uint32
	exptime uint32
	delta   uint64
	initial uint64

	odd     bool   // the key is not one that a line can carry
	answer  []byte // to a malformed frame: an error line, or nothing
	closes  bool   // and then memcached closes the connection
	tooBig  bool   // the value is over Limits.Value
	Swallow int64  // bytes behind the frame that belong to it and mean nothing
	Need    int    // with ErrShort: the size of the frame, as far as that is known
}

// layout is what a frame of an opcode must look like.
type layout uint8

const (
	unknown layout = iota
	bare           // neither extras nor key nor value
	flush          // perhaps 4 bytes of extras: the delay
	keyed          // a key alone
	stored         // 8 bytes of extras, a key, a value
	joined         // a key, a value
	counted        // 20 bytes of extras, a key
	touched        // 4 bytes of extras, a key; a value is skipped, which memcached takes for the next frame
	named          // perhaps a key; a value as with touched
	sasl           // a key, the mechanism, and a value
)

// opcodes says what each opcode of memcached 1.6.18 does. verbosity (0x1b) is
// none of them.
var opcodes = [256]struct {
	op     wire.Op
	layout layout
	quiet  bool
	key    bool // the answer carries the key
}{
	0x00:       {op: wire.Get, layout: keyed},
	0x01:       {op: wire.Set, layout: stored},
	0x02:       {op: wire.Add, layout: stored},
	0x03:       {op: wire.Replace, layout: stored},
	0x04:       {op: wire.Delete, layout: keyed},
	0x05:       {op: wire.Incr, layout: counted},
	0x06:       {op: wire.Decr, layout: counted},
	0x07:       {op: wire.Quit, layout: bare},
	0x08:       {op: wire.FlushAll, layout: flush},
	0x09:       {op: wire.Get, layout: keyed, quiet: true},
	0x0a:       {op: wire.Noop, layout: bare},
	0x0b:       {op: wire.Version, layout: bare},
	0x0c:       {op: wire.Get, layout: keyed, key: true},
	0x0d:       {op: wire.Get, layout: keyed, quiet: true, key: true},
	0x0e:       {op: wire.Append, layout: joined},
	0x0f:       {op: wire.Prepend, layout: joined},
	0x10:       {op: wire.Stats, layout: named},
	0x11:       {op: wire.Set, layout: stored, quiet: true},
	0x12:       {op: wire.Add, layout: stored, quiet: true},
	0x13:       {op: wire.Replace, layout: stored, quiet: true},
	0x14:       {op: wire.Delete, layout: keyed, quiet: true},
	0x15:       {op: wire.Incr, layout: counted, quiet: true},
	0x16:       {op: wire.Decr, layout: counted, quiet: true},
	0x17:       {op: wire.Quit, layout: bare, quiet: true},
	0x18:       {op: wire.FlushAll, layout: flush, quiet: true},
	0x19:       {op: wire.Append, layout: joined, quiet: true},
	0x1a:       {op: wire.Prepend, layout: joined, quiet: true},
	opTouch:    {op: wire.Gats, layout: touched},
	0x1d:       {op: wire.Gats, layout: touched},
	0x1e:       {op: wire.Gats, layout: touched, quiet: true},
	0x23:       {op: wire.Gats, layout: touched, key: true},
	0x24:       {op: wire.Gats, layout: touched, quiet: true, key: true},
	Mechanisms: {op: wire.Auth, layout: bare},
	Begin:      {op: wire.Auth, layout: sasl},
	Step:       {op: wire.Auth, layout: sasl},
}

const opTouch = 0x1c

// The opcodes by which a client says who it is.
const (
	Mechanisms = 0x20
	Begin      = 0x21
	Step       = 0x22
)

// ReturnsKey says that the answer to h carries the key.
func (h Head) ReturnsKey() bool { return opcodes[h.Opcode].key }

// IsQuietGet says that f is a get that is silent on a miss, of a key that a line can
// carry.
func (f *Frame) IsQuietGet() bool { return f.Op == wire.Get && !f.odd && opcodes[f.Opcode].quiet }

// NextQuietGet finds the key of the quiet get that buf begins with, and takes its head
// into f; nil: it begins with anything else, or that is not whole, or the key is none that a
// line can carry. For what there are many of in a row it does what Next does in a third of the time.
func (f *Frame) NextQuietGet(l *wire.Limits, buf []byte) (key []byte) {
	if len(buf) < HeadSize || !BeginsQuietGet(buf) || buf[4] != 0 {
		return nil
	}
	n := int(binary.BigEndian.Uint16(buf[2:]))
	if n == 0 || n > l.MaxKey() || int(binary.BigEndian.Uint32(buf[8:])) != n || len(buf) < HeadSize+n {
		return nil
	}
	if key = buf[HeadSize : HeadSize+n]; !wire.PlainKey(key) {
		return nil
	}
	f.Opcode, f.Opaque = buf[1], binary.BigEndian.Uint32(buf[12:])
	return key
}

// BeginsQuietGet says whether buf begins with a get that is silent on a miss, as far
// as that can be seen.
func BeginsQuietGet(buf []byte) bool {
	if len(buf) < 2 || buf[0] != Magic {
		return false
	}
	o := &opcodes[buf[1]]
	return o.op == wire.Get && o.quiet
}

var (
	answerUnknown = []byte(wire.AnswerError)
	answerInvalid = wire.AppendClientError(nil, "Invalid arguments")
	answerOddKey  = wire.AppendClientError(nil, "a key with spaces or control characters is too long to be asked for in base64")
)

// noExpiry in place of the exptime of a counter says that it is not to be made.
const noExpiry = math.MaxUint32

// Next parses the frame at the start of buf into f and returns its size.
// The only error is ErrShort, and then the size is 0: call again with the same
// start and at least f.Need bytes. A malformed frame is a frame, too.
func Next(l *wire.Limits, buf []byte, f *Frame) (int, error) {
	*f = Frame{}
	if buf[0] != Magic {
		f.Op, f.closes = wire.Bad, true
		return len(buf), nil
	}
	if len(buf) < HeadSize {
		f.Need = HeadSize
		return 0, wire.ErrShort
	}
	f.Opcode, f.Opaque = buf[1], binary.BigEndian.Uint32(buf[12:])
	f.cas = binary.BigEndian.Uint64(buf[16:])
	key, extras := int(binary.BigEndian.Uint16(buf[2:])), int(buf[4])
	body := int64(binary.BigEndian.Uint32(buf[8:])) // an int of 32 bits does not hold it
	o := &opcodes[f.Opcode]
	switch {
	case int64(key+extras) > body:
		return f.bad(answerUnknown, true)
	case key > maxKey:
		return f.bad(answerInvalid, true)
	case o.layout == unknown:
		f.Swallow = body
		return f.bad(answerUnknown, false)
	case !o.layout.fits(extras, key, body):
		return f.bad(answerInvalid, true)
	}
	f.Op = o.op
	at := HeadSize + extras
	f.Key = wire.Span{Start: uint32(at), End: uint32(at + key)}
	end := at + key
	value := body - int64(extras+key)
	if len(buf) < end {
		f.Need = end
		return 0, wire.ErrShort
	}
	switch o.layout {
	case stored:
		f.flags = binary.BigEndian.Uint32(buf[HeadSize:])
		f.exptime = binary.BigEndian.Uint32(buf[HeadSize+4:])
	case counted:
		f.delta = binary.BigEndian.Uint64(buf[HeadSize:])
		f.initial = binary.BigEndian.Uint64(buf[HeadSize+8:])
		f.exptime = binary.BigEndian.Uint32(buf[HeadSize+16:])
	case touched, flush:
		if extras > 0 {
			f.exptime = binary.BigEndian.Uint32(buf[HeadSize:])
		}
	}
	f.odd = o.op != wire.Stats && o.op != wire.Auth && !wire.PlainKey(f.Key.Of(buf))
	switch {
	case key > l.MaxKey(), f.odd && base64.StdEncoding.EncodedLen(key) > l.MaxKey():
		f.Swallow = value
		f.Op, f.answer = wire.Bad, answerInvalid
		if f.odd {
			f.answer = answerOddKey
		}
		return end, nil
	case !o.op.Stores() && o.op != wire.Auth:
		f.Swallow = value
		return end, nil
	case value > int64(l.MaxValue()):
		f.tooBig, f.Swallow = true, value
		return end, nil
	}
	end += int(value)
	f.Value = wire.Span{Start: uint32(end) - uint32(value), End: uint32(end)}
	if len(buf) < end {
		f.Need = end
		return 0, wire.ErrShort
	}
	return end, nil
}

// fits reports whether a frame of such a layout may have so many bytes of extras,
// key and all in all.
func (l layout) fits(extras, key int, body int64) bool {
	switch l {
	case bare:
		return body == 0
	case flush:
		return key == 0 && body == int64(extras) && (extras == 0 || extras == 4)
	case keyed:
		return key > 0 && extras == 0 && body == int64(key)
	case stored:
		return key > 0 && extras == 8
	case joined, sasl:
		return key > 0 && extras == 0
	case counted:
		return key > 0 && extras == 20 && body == int64(key+extras)
	case touched:
		return key > 0 && extras == 4
	default: // named
		return extras == 0
	}
}

// Oversized says that the value is over the limit, and is not there.
func (f *Frame) Oversized() bool { return f.tooBig }

func (f *Frame) bad(answer []byte, closes bool) (int, error) {
	f.Op, f.answer, f.closes = wire.Bad, answer, closes
	return HeadSize, nil
}

// Spell appends to dst, which must be empty, the text or meta request that f is
// to servers, and makes r that request. buf is what f was parsed from; if its end
// is in the middle of the value, the data block is left out. An Auth is no request
// to servers: it must not be given to Spell.
//
// A get becomes a gets, since its answer shows the cas, but under Op Get: whoever
// may answer a get may answer it. Writes that show their answer ask for the cas, which
// needs meta; a delete of any value is text.
func Spell(l *wire.Limits, dst, buf []byte, f *Frame, r *wire.Request) []byte {
	if f.Op == wire.Get && !f.odd {
		return spellGet(dst, f.Key.Of(buf), r)
	}
	s := speller{line: dst, frame: f, key: f.Key.Of(buf)}
	switch f.Op {
	case wire.Bad:
		several := r.Several[:0]
		*r = wire.Request{Op: wire.Bad, Flags: wire.Binary, Answer: f.answer, Swallow: f.Swallow, Several: several}
		if f.closes {
			r.Flags |= wire.CloseAfter
		}
		return dst
	case wire.Noop:
		s.line = append(s.line, "mn"...)
	case wire.Quit:
		s.line = append(s.line, "quit"...)
	case wire.Version:
		s.line = append(s.line, "version"...)
	case wire.FlushAll:
		s.line = append(s.line, "flush_all"...)
		s.number(" ", s.seconds())
	case wire.Stats:
		s.line = append(append(s.line, "stats "...), bytes.TrimSpace(plainText(s.key))...)
	case wire.Get:
		s.command("mg", " v f c")
	case wire.Gats:
		s.get()
	case wire.Delete:
		s.delete()
	case wire.Incr, wire.Decr:
		s.count()
	default:
		s.store()
	}
	s.line = append(s.line, "\r\n"...)
	end := len(s.line)
	if f.Op.Stores() && !f.tooBig && int(f.Value.End) <= len(buf) {
		s.line = append(append(s.line, f.Value.Of(buf)...), "\r\n"...)
	}
	l.Next(s.line, r)
	if f.tooBig { // how large it is may be more than a text command can say
		r.Swallow = f.Swallow
	}
	r.Flags |= wire.Binary
	return s.line[:max(end, len(s.line))]
}

// spellGet is Spell for what most frames are.
func spellGet(dst, key []byte, r *wire.Request) []byte {
	const start = len("gets ")
	dst = append(append(append(dst, "gets "...), key...), "\r\n"...)
	end := uint32(len(dst) - 2)
	several, k := r.Several[:0], wire.Span{Start: uint32(start), End: end}
	*r = wire.Request{Op: wire.Get, Flags: wire.Binary, Line: wire.Span{Start: 0, End: end}, Key: k, Keys: k, NumKeys: 1, Several: several}
	return dst
}

// plainText is b with spaces for what can't be in a line.
func plainText(b []byte) []byte {
	return bytes.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return ' '
		}
		return c
	}, b)
}

// speller makes the line of a frame.
type speller struct {
	line  []byte
	frame *Frame
	key   []byte
}

// command begins a meta command on the key.
func (s *speller) command(name, flags string) {
	s.word(name)
	s.flags(flags)
}

// word appends a command and the key as it can be written.
func (s *speller) word(name string) {
	s.line = append(append(s.line, name...), ' ')
	if s.frame.odd {
		s.line = base64.StdEncoding.AppendEncode(s.line, s.key)
	} else {
		s.line = append(s.line, s.key...)
	}
}

func (s *speller) flags(flags string) {
	if s.frame.odd {
		s.line = append(s.line, " b"...)
	}
	s.line = append(s.line, flags...)
}

func (s *speller) quiet() bool { return opcodes[s.frame.Opcode].quiet }

func (s *speller) number(name string, n uint64) {
	s.line = strconv.AppendUint(append(s.line, name...), n, 10)
}

// seconds is the exptime. It has no sign in a frame; what a line can't carry is a
// time after 2038.
func (s *speller) seconds() uint64 { return uint64(min(s.frame.exptime, math.MaxInt32)) }

func (s *speller) cas() {
	if s.frame.cas != 0 {
		s.number(" C", s.frame.cas)
	}
}

// shown asks for the cas, if the answer is to be seen.
func (s *speller) shown() {
	if !s.quiet() {
		s.line = append(s.line, " c"...)
	}
}

func (s *speller) get() {
	if s.frame.Opcode == opTouch {
		s.command("mg", " f c")
	} else {
		s.command("mg", " v f c")
	}
	s.number(" T", s.seconds())
}

func (s *speller) delete() {
	if s.frame.cas == 0 && !s.frame.odd {
		s.word("delete")
		return
	}
	s.command("md", "")
	s.cas()
}

func (s *speller) count() {
	s.command("ma", " v")
	s.shown()
	s.cas()
	s.number(" D", s.frame.delta)
	if s.frame.Op == wire.Decr {
		s.line = append(s.line, " MD"...)
	}
	if s.frame.exptime != noExpiry {
		s.number(" N", s.seconds())
		s.number(" J", s.frame.initial)
	}
}

func (s *speller) store() {
	s.word("ms")
	size := s.frame.Value.Len()
	if s.frame.tooBig {
		size = int(min(s.frame.Swallow, maxBody))
	}
	s.number(" ", uint64(size))
	s.flags("")
	switch op := s.frame.Op; {
	case op == wire.Append:
		s.line = append(s.line, " MA"...)
	case op == wire.Prepend:
		s.line = append(s.line, " MP"...)
	case s.frame.cas != 0: // then memcached takes add and replace for a cas, too
	case op == wire.Add:
		s.line = append(s.line, " ME"...)
	case op == wire.Replace:
		s.line = append(s.line, " MR"...)
	}
	s.cas()
	s.shown()
	if s.frame.flags != 0 {
		s.number(" F", uint64(s.frame.flags))
	}
	if s.frame.exptime != 0 {
		s.number(" T", s.seconds())
	}
}
