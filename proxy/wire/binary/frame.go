// Package binary translates frames of the binary protocol to requests, and replies
// back to frames.
//
// Next parses a frame. Spell translates it to a text or meta request, which is then
// handled like any other. AppendFrame translates the reply to a frame. No other package
// therefore has to support the binary protocol. Requests to servers are never quiet.
// AppendFrame hides the replies to quiet frames, so the result of each command is
// always known.
//
// # The model
//
// This package behaves like memcached 1.6.18. The tests of package twin compare
// random streams with it, frame by frame. That release doesn't know verbosity
// (0x1b), so neither does this package. A malformed frame and a key of more than
// 250 bytes close the connection, as in memcached.
//
// # Differences from memcached
//
//   - An unknown command with extras or a key, and a touch, gat, gatk or stat with
//     a value: memcached continues at the wrong byte. Here the length in the frame
//     counts.
//   - A body of 2 GiB or more is too large, like any other large body. memcached
//     reads its length as negative.
//   - A key with spaces or control characters is sent to servers in base64, which
//     limits it to 186 bytes. The reply to a longer key has the status Invalid.
//     memcached limits the encoded key to 250 bytes: 186 bytes become 248, and it
//     accepts no base64 without padding. Servers before 1.6.13 don't understand base64.
//     With these, the reply to a key with a space, a line end or a zero byte has the
//     status Unsupported.
//   - A touch or gat is sent to servers as mg with T. So on a stale item (md with I) it
//     takes the right to rebuild the value (W). memcached's does not.
//   - An expiry of 2^31 or more, a time after January 2038, is replaced by 2^31-1.
//   - If a server finds a value too large, the old value is removed for add,
//     replace, append and prepend too. memcached removes it only for set.
//   - With servers before 1.6.13, the cas id in the reply to a write is
//     wire.NoMatch. A counter can't be created with an initial value. The reply to a
//     delete or append with a cas has the status Unsupported.
//   - The cas id of a value read from several replicas is sealed (package
//     replicate). The cas id is wire.NoMatch, which matches no item, in three cases:
//     the replica doesn't decide a cas; the guard serves a stale value or a value of
//     the substitute server; the guard did not store a write.
//   - stats covers all servers. stats conns and stats cachedump also work.
//   - Before a client has authenticated (auth_file), version is refused too. PLAIN
//     is the only mechanism.
//   - Statuses for errors that memcached doesn't have: 0x83 the server's release is
//     too old, 0x84 a server's error, 0x85 a queue is full, 0x86 a server can't be
//     reached. The value contains the reason.
package binary

// This file parses frames of the binary protocol and translates them to text or meta
// requests.

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"ringside/proxy/wire"
)

// Magic is the first byte of every request frame. Like memcached, Ringside detects
// the binary protocol by the first byte of a connection.
const Magic = 0x80

// maxKey is the length in bytes of the longest key that memcached accepts. maxBody is the
// length in bytes of the longest data block that a text or meta command can announce.
const (
	maxKey  = 250
	maxBody = math.MaxInt32 - 2
)

// HeadSize is the size in bytes of a frame's header. The extras, the key and the value
// follow the header.
const HeadSize = 24

// Head contains those fields of a request frame that the reply to it repeats.
type Head struct {
	Opcode byte
	Opaque uint32
}

// Frame is one request of the binary protocol. Its spans are offsets into the buffer that
// was given to Next.
type Frame struct {
	Head
	Op    wire.Op
	Key   wire.Span
	Value wire.Span // value of a storage command; with the error ErrShort, it may end after the buffer

	cas     uint64
	flags   uint32
	exptime uint32
	delta   uint64
	initial uint64

	odd     bool   // true: the key has bytes that a command line can only contain in base64
	answer  []byte // reply to a malformed frame, in the form of an error line; nil: no reply
	closes  bool   // true: memcached closes the connection after such a frame, and after the reply to it if there is one
	tooBig  bool   // true: the value is longer than Limits.Value
	Swallow int64  // number of bytes after the frame that belong to it and must be discarded
	Need    int    // with the error ErrShort: number of bytes of the frame that the next call of Next needs
}

// layout is the form that a frame must have: which of extras, key and value.
type layout uint8

const (
	unknown layout = iota
	bare           // a frame without extras, key and value
	flush          // a frame that is empty or has 4 bytes of extras, which are the delay of a flush
	keyed          // a frame with only a key
	stored         // a frame with 8 bytes of extras, a key and a value
	joined         // a frame with a key and a value
	counted        // a frame with 20 bytes of extras and a key
	touched        // a frame with 4 bytes of extras and a key; a value is discarded here, but memcached executes it as the next frame
	named          // a frame with an optional key; a value is discarded here, but memcached executes it as the next frame
	sasl           // a frame with a key (the name of the mechanism) and a value
)

// opcodes describes the opcodes that memcached 1.6.18 knows. It does not know verbosity
// (0x1b).
var opcodes = [256]struct {
	op     wire.Op
	layout layout
	quiet  bool
	key    bool // whether the reply contains the key
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

// These are the opcodes of SASL authentication.
const (
	Mechanisms = 0x20
	Begin      = 0x21
	Step       = 0x22
)

// ReturnsKey reports whether the reply to the frame contains the key.
func (h Head) ReturnsKey() bool { return opcodes[h.Opcode].key }

// IsQuietGet reports whether f is a get without a reply to a miss, and its key can be in
// a command line without base64.
func (f *Frame) IsQuietGet() bool { return f.Op == wire.Get && !f.odd && opcodes[f.Opcode].quiet }

// NextQuietGet returns the key of a quiet get at the start of buf and stores its header
// in f. It returns nil if buf begins with another frame or an incomplete one, or if the
// key needs base64. Clients send many quiet gets in a row, and NextQuietGet takes a third
// of the time of Next.
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

// BeginsQuietGet reports whether buf begins with a get without a reply to a miss. It
// returns false if buf does not contain the opcode yet.
func BeginsQuietGet(buf []byte) bool {
	if len(buf) < 2 || buf[0] != Magic {
		return false
	}
	o := &opcodes[buf[1]]
	return o.op == wire.Get && o.quiet
}

var (
	answerUnknown  = []byte(wire.AnswerError)
	answerTooLarge = []byte(wire.AnswerTooLarge)
	answerInvalid  = wire.AppendClientError(nil, "Invalid arguments")
	answerOddKey   = wire.AppendClientError(nil, "a key with spaces or control characters is too long to be asked for in base64")
)

// noExpiry is the exptime with which an incr or decr does not create a missing counter.
const noExpiry = math.MaxUint32

// Next parses the frame at the start of buf into f and returns its size. The only error
// is ErrShort, with size 0: the caller calls Next again with the same start and at least
// f.Need bytes. A malformed frame is returned as a Frame with Op Bad.
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
	body := int64(binary.BigEndian.Uint32(buf[8:])) // int64, because the length may not fit into an int of 32 bits
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

// fits reports whether a frame with the layout l may have parts of these sizes in bytes.
// body is the total size of extras, key and value.
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
	default: // the layout `named`
		return extras == 0
	}
}

// Oversized reports whether the value is longer than Limits.Value. Such a value is not
// part of the frame.
func (f *Frame) Oversized() bool { return f.tooBig }

func (f *Frame) bad(answer []byte, closes bool) (int, error) {
	f.Op, f.answer, f.closes = wire.Bad, answer, closes
	return HeadSize, nil
}

// Spell translates the frame f to a text or meta request. It appends the bytes of the
// request to dst, which must be empty, and sets r to what wire.Limits.Next would parse
// from them. buf is the buffer from which f was parsed. If buf ends in the middle of the
// value, the request has no data block. Spell must not be called for Auth, which is not sent to servers.
//
// A get becomes a gets, because the reply frame contains the cas id. Its Op is Get
// nevertheless: everything that may reply to a get, such as a cache, may also reply to
// it. A write with a visible reply asks for the cas id, which needs a meta command. A
// delete without a cas id is a text command.
func Spell(dst, buf []byte, f *Frame, r *wire.Request) []byte {
	key := f.Key.Of(buf)
	if f.Op == wire.Get && !f.odd {
		return spellGet(dst, key, r)
	}
	several := r.Several[:0]
	*r = wire.Request{Op: f.Op, Flags: wire.Binary, Several: several}
	s := speller{line: dst, frame: f, r: r}
	switch f.Op {
	case wire.Bad:
		r.Answer, r.Swallow = f.answer, f.Swallow
		if f.closes {
			r.Flags |= wire.CloseAfter
		}
		return dst
	case wire.Noop:
		r.Dialect = wire.Meta
		s.line = append(s.line, "mn"...)
	case wire.Quit, wire.Version:
		s.line = append(s.line, f.Op.String()...)
	case wire.FlushAll:
		s.line = append(s.line, "flush_all"...)
		r.Args = s.number(" ", s.seconds())
		r.Exptime = r.Args
	case wire.Stats:
		s.line = append(s.line, "stats "...)
		r.Args.Start = s.at()
		s.line = append(s.line, bytes.TrimSpace(plainText(key))...)
		r.Args.End = s.at()
	case wire.Delete:
		s.delete(key)
	case wire.Incr, wire.Decr:
		s.count(key)
	case wire.Get, wire.Gats:
		s.get(key)
	default:
		s.store(key)
	}
	r.Line.End = s.at()
	if len(key) > 0 && r.Dialect == wire.Meta {
		r.MetaFlags = wire.Span{Start: min(r.MetaFlags.Start, r.Line.End), End: r.Line.End}
	}
	s.line = append(s.line, "\r\n"...)
	if f.Op.Stores() {
		s.body(buf)
	}
	return s.line
}

// spellGet translates a get, the most frequent frame, to a text request, as Spell does.
func spellGet(dst, key []byte, r *wire.Request) []byte {
	const start = len("gets ")
	dst = append(append(append(dst, "gets "...), key...), "\r\n"...)
	end := uint32(len(dst) - 2)
	several, k := r.Several[:0], wire.Span{Start: uint32(start), End: end}
	*r = wire.Request{Op: wire.Get, Flags: wire.Binary, Line: wire.Span{Start: 0, End: end}, Key: k, Keys: k, NumKeys: 1, Several: several}
	return dst
}

// plainText returns b with a space in place of each byte that is not printable ASCII.
func plainText(b []byte) []byte {
	return bytes.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return ' '
		}
		return c
	}, b)
}

// speller builds the command line to which a frame is translated, and the request.
type speller struct {
	line  []byte
	frame *Frame
	r     *wire.Request
}

// at returns the offset of the next byte of the line.
func (s *speller) at() uint32 { return uint32(len(s.line)) }

// command appends the name of a command, the key, and of a storage command the length of its value. A key with
// spaces or control characters is appended in base64.
func (s *speller) command(name string, key []byte) {
	r := s.r
	s.line = append(append(s.line, name...), ' ')
	r.Key.Start, r.NumKeys = s.at(), 1
	if s.frame.odd {
		s.line = base64.StdEncoding.AppendEncode(s.line, key)
	} else {
		s.line = append(s.line, key...)
	}
	r.Key.End = s.at()
	if name == "delete" {
		return
	}
	if name == "ms" {
		size := int64(s.frame.Value.Len())
		if s.frame.tooBig {
			size = min(s.frame.Swallow, maxBody)
		}
		s.number(" ", uint64(size))
	}
	r.Dialect, r.MetaFlags.Start = wire.Meta, s.at()+1
	if s.frame.odd {
		s.flags(" b")
		r.Flags |= wire.Base64
	}
}

// flags appends meta flags, each after a space.
func (s *speller) flags(text string) {
	for i := 1; i < len(text); i++ {
		if text[i-1] == ' ' {
			s.r.Letters.Add(text[i])
			switch text[i] {
			case 'v':
				s.r.Flags |= wire.ReturnValue
			case 'C':
				s.r.Flags |= wire.Compare
			case 'N':
				s.r.Flags |= wire.Create
			}
		}
	}
	s.line = append(s.line, text...)
}

// number appends a number after a flag or a space, and returns its span.
func (s *speller) number(flag string, n uint64) (at wire.Span) {
	s.flags(flag)
	at.Start = s.at()
	s.line = strconv.AppendUint(s.line, n, 10)
	at.End = s.at()
	return at
}

// seconds returns the exptime for a command line. An exptime is unsigned in a frame but
// signed in a command, so times after January 2038 are replaced by the largest possible
// time.
func (s *speller) seconds() uint64 { return uint64(min(s.frame.exptime, math.MaxInt32)) }

func (s *speller) cas() {
	if s.frame.cas != 0 {
		s.r.Unique = s.number(" C", s.frame.cas)
	}
}

// shown appends the flag c, which asks for the cas id, unless the frame is quiet.
func (s *speller) shown() {
	if !opcodes[s.frame.Opcode].quiet {
		s.flags(" c")
	}
}

// get appends a get whose key needs base64, or a gat or touch.
func (s *speller) get(key []byte) {
	s.command("mg", key)
	if s.frame.Opcode != opTouch {
		s.flags(" v")
	}
	s.flags(" f c")
	if s.frame.Op == wire.Gats {
		s.r.Exptime = s.number(" T", s.seconds())
		s.r.Flags |= wire.Effects
	}
	s.r.Op, s.r.Keys = wire.Get, s.r.Key
}

func (s *speller) delete(key []byte) {
	if s.frame.cas == 0 && !s.frame.odd {
		s.command("delete", key)
		if string(key) == "noreply" { // see wire.AppendDelete
			s.r.Flags |= wire.Rewrite
		}
		return
	}
	s.command("md", key)
	s.cas()
}

func (s *speller) count(key []byte) {
	s.command("ma", key)
	s.flags(" v")
	s.shown()
	s.cas()
	s.r.Delta = s.number(" D", s.frame.delta)
	if s.frame.Op == wire.Decr {
		s.flags(" MD")
	}
	if s.frame.exptime != noExpiry {
		s.number(" N", s.seconds())
		s.number(" J", s.frame.initial)
	}
}

func (s *speller) store(key []byte) {
	s.command("ms", key)
	switch op := s.frame.Op; {
	case op == wire.Append:
		s.flags(" MA")
	case op == wire.Prepend:
		s.flags(" MP")
	case s.frame.cas != 0: // a frame with a cas id becomes a cas; memcached treats an add or replace with a cas id in this way
		s.r.Op = wire.Cas
	case op == wire.Add:
		s.flags(" ME")
	case op == wire.Replace:
		s.flags(" MR")
	}
	s.cas()
	s.shown()
	if s.frame.flags != 0 {
		s.r.ClientFlags = s.number(" F", uint64(s.frame.flags))
	}
	if s.frame.exptime != 0 {
		s.r.Exptime = s.number(" T", s.seconds())
	}
}

// body appends the data block, if buf has it.
func (s *speller) body(buf []byte) {
	f, r := s.frame, s.r
	if f.tooBig {
		r.Flags |= wire.TooLarge
		r.Answer, r.Swallow = answerTooLarge, f.Swallow
		return
	}
	r.Body = wire.Span{Start: s.at(), End: s.at() + uint32(f.Value.Len())}
	if int(f.Value.End) > len(buf) {
		r.Need = int(r.Body.End) + 2
		return
	}
	s.line = append(append(s.line, f.Value.Of(buf)...), "\r\n"...)
}
