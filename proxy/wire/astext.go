package wire

// This file translates meta requests to text commands, and the replies back to the meta
// dialect.

import (
	"bytes"
	"strconv"
)

// textFlags are the meta flags that a text command can express: a set of flags for each
// op.
var textFlags = func() (f [NumOps]Letters) {
	always := letters("OkqbPL")
	f[Get] = always | letters("vfscT")
	for op := Set; op <= Prepend; op++ {
		f[op] = always | letters("FTM")
	}
	f[Cas] = f[Set] | letters("C")
	f[Delete] = always
	f[Incr] = always | letters("DMv")
	f[Decr] = f[Incr]
	return f
}()

var showsCas = letters("c")

// AppendAsText appends a text command with the same meaning as r. r is a meta request
// that was parsed from buf. The server has the features `has`. The text command is never
// quiet, so the server always replies. ok is false if no text command has the same
// meaning.
func AppendAsText(dst, buf []byte, r *Request, has Features) (line []byte, ok bool) {
	key := r.Key.Of(buf)
	if r.Flags&Base64 != 0 {
		key, _ = DecodeKey(nil, key)
	}
	letters := r.Letters
	if r.Flags&Binary != 0 && r.Op != Get { // a write is executed even if its reply cannot contain the cas id that the client asks for
		letters &^= showsCas
	}
	if letters&^textFlags[r.Op] != 0 || r.Flags&TooLarge != 0 || r.LongOpaque() || bytes.ContainsAny(key, " \n\x00") {
		return dst, false
	}
	s := speller{line: dst, buf: buf, ok: true}
	switch r.Op {
	case Get:
		s.get(r, key, has)
	case Set, Add, Replace, Append, Prepend, Cas:
		s.store(r, key)
	case Delete:
		s.command(r.Op, key)
	case Incr, Decr:
		s.command(r.Op, key)
		s.unsigned(r.Delta, 64, "1")
	default:
		return dst, false
	}
	s.line = append(s.line, "\r\n"...)
	if r.Op.Stores() {
		s.line = append(append(s.line, r.Body.Of(buf)...), "\r\n"...)
	}
	return s.line, s.ok
}

// speller builds a text command; ok becomes false if the command cannot express the
// request.
type speller struct {
	line, buf []byte
	ok        bool
}

func (s *speller) command(op Op, key []byte) {
	s.line = append(s.line, op.String()...)
	s.word(key)
}

func (s *speller) word(word []byte) { s.line = append(append(s.line, ' '), word...) }

// get translates an mg to get or gets. With the flag T, it translates it to gat, which
// the server must support. If the reply contains nothing of the item, touch is enough.
func (s *speller) get(r *Request, key []byte, has Features) {
	shown := r.Letters&letters("vfsc") != 0
	cas := r.Letters.Has('c')
	switch touches := r.Letters.Has('T'); {
	case !touches && cas:
		s.command(Gets, key)
	case !touches:
		s.command(Get, key)
	case !shown, r.Flags&Binary != 0 && !r.Letters.Has('v') && has&GetTouches == 0:
		s.ok = has&Touching != 0
		s.command(Touch, key)
		s.exptime(r.Exptime)
	default:
		s.ok = has&GetTouches != 0
		s.line = append(s.line, "gat"...)
		if cas {
			s.line = append(s.line, 's')
		}
		s.exptime(r.Exptime)
		s.word(key)
	}
}

func (s *speller) store(r *Request, key []byte) {
	s.command(r.Op, key)
	s.unsigned(r.ClientFlags, 32, "0")
	s.exptime(r.Exptime)
	s.line = strconv.AppendInt(append(s.line, ' '), int64(r.Body.Len()), 10)
	if r.Op == Cas {
		s.unsigned(r.Unique, 64, "")
	}
}

// unsigned appends the number in the span `at`, which may have at most `bits` bits. If
// the span is empty, it appends the number `otherwise`.
func (s *speller) unsigned(at Span, bits int, otherwise string) {
	b := at.Of(s.buf)
	if len(b) == 0 {
		b = []byte(otherwise)
	}
	n, err := strconv.ParseUint(string(b), 10, bits)
	s.ok = s.ok && err == nil
	s.line = strconv.AppendUint(append(s.line, ' '), n, 10)
}

// exptime appends the expiry in the span `at`. If the span is empty, it appends 0.
func (s *speller) exptime(at Span) {
	n, err := int64(0), error(nil)
	if at.Len() > 0 {
		n, err = strconv.ParseInt(string(at.Of(s.buf)), 10, 32)
	}
	s.ok = s.ok && err == nil
	s.line = strconv.AppendInt(append(s.line, ' '), n, 10)
}

// AppendAsMeta appends the meta reply to r, a request that was parsed from buf. A text
// command with the operation op was sent in place of r. answer is the complete reply to
// that text command.
func AppendAsMeta(dst, buf []byte, r *Request, op Op, answer []byte) []byte {
	var rep Reply
	NextReply(op, Text, answer, &rep)
	switch k := rep.Kind; {
	case k.Failed():
		return append(append(dst, rep.Line.Of(answer)...), "\r\n"...)
	case k == Value:
		return AppendShown(dst, buf, r, rep.Body.Of(answer), rep.ClientFlags.Of(answer), rep.Unique.Of(answer))
	case k == Number: // the text reply to an incr or decr has no cas
		return AppendShown(dst, buf, r, bytes.TrimRight(rep.Line.Of(answer), " "), nil, nil)
	case k == Touched:
		return AppendAnswer(dst, buf, r, Header)
	case k == End, k == NotFound && r.Op == Get:
		return AppendAnswer(dst, buf, r, Miss)
	default:
		return AppendAnswer(dst, buf, r, k)
	}
}

// AppendShown appends the meta reply to r, which was parsed from buf, with parts of an item. It begins
// with VA, or with HD if r does not ask for the value. The flags follow that r asks for, and the value
// (body). If cas is empty, the item's cas is not known.
func AppendShown(dst, buf []byte, r *Request, body, clientFlags, cas []byte) []byte {
	if r.Letters.Has('v') {
		dst = strconv.AppendInt(append(dst, "VA "...), int64(len(body)), 10)
	} else {
		dst = append(dst, "HD"...)
	}
	for t := nextToken(buf, r.MetaFlags.Start, r.MetaFlags.End); t.Len() > 0; t = nextToken(buf, t.End, r.MetaFlags.End) {
		switch buf[t.Start] {
		case 'f':
			dst = strconv.AppendUint(append(dst, " f"...), uint64(ClientFlags(clientFlags)), 10)
		case 's':
			dst = strconv.AppendInt(append(dst, " s"...), int64(len(body)), 10)
		case 'c':
			if len(cas) > 0 {
				dst = append(append(dst, " c"...), cas...)
			}
		case 'O':
			dst = append(append(dst, ' '), t.Of(buf)...)
		case 'k':
			dst = appendKey(append(dst, " k"...), r.Key.Of(buf), r.Flags)
		}
	}
	dst = append(dst, "\r\n"...)
	if r.Letters.Has('v') {
		dst = append(append(dst, body...), "\r\n"...)
	}
	return dst
}
