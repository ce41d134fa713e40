package wire

// This file changes requests that cannot be forwarded byte for byte.

import "strconv"

// RawKey reports whether r, parsed from buf, has the flags k and b, and whether its
// decoded key contains spaces or control characters. memcached up to 1.6.45 sometimes
// forgets that an item's key was sent in base64: if an mg or ma with N created the item,
// or if an ma replaced it to change the number. It then replies with the decoded bytes.
// These may contain line ends, and the rest would be parsed as the reply to the next
// request. Therefore such a flag k is never sent to a server: CutKey removes it, and
// KeyEcho adds the key to the reply.
func (r *Request) RawKey(buf []byte) bool {
	return r.Flags&(ReturnKey|Base64) == ReturnKey|Base64 && rawKey(r.Key.Of(buf))
}

func rawKey(b64 []byte) bool {
	var room [defaultKey]byte
	key, _ := DecodeKey(room[:0], b64)
	return plainWord(key) < len(key)
}

// KeyEcho is the text " k<key> b" for a reply. memcached would have sent it if CutKey had
// not removed the flag k from the request.
type KeyEcho struct {
	Text   []byte
	before Letters // the flags in front of the flag k in the request
}

// KeyEcho returns the key that must be added to the reply to r. r was parsed from buf.
// The KeyEcho is empty if CutKey does not remove the flag k of r.
func (r *Request) KeyEcho(buf []byte) (e KeyEcho) {
	if !r.RawKey(buf) {
		return e
	}
	for t := nextToken(buf, r.MetaFlags.Start, r.MetaFlags.End); buf[t.Start] != 'k'; t = nextToken(buf, t.End, r.MetaFlags.End) {
		e.before.Add(buf[t.Start])
	}
	e.Text = appendKey([]byte(" k"), r.Key.Of(buf), r.Flags)
	return e
}

// At returns the offset in the reply r at which the key must be inserted. r was parsed
// from buf. memcached replies to the flags in the order of the request, and then adds
// flags of its own. ok is false for an error line, because it has no flags.
func (e *KeyEcho) At(buf []byte, r *Reply) (at uint32, ok bool) {
	if len(e.Text) == 0 || r.Kind.Failed() {
		return 0, false
	}
	end := r.Line.End
	t := nextToken(buf, r.MetaFlags.Start, end)
	for t.Len() > 0 && e.before.Has(buf[t.Start]) {
		t = nextToken(buf, t.End, end)
	}
	if t.Len() == 0 {
		return end, true
	}
	return t.Start - 1, true
}

// CutKey removes the flag k from the request line, which was parsed into r, and parses
// the result into r again. If r.RawKey returns false, CutKey returns line unchanged.
func (l *Limits) CutKey(line []byte, r *Request) []byte {
	if !r.RawKey(line) {
		return line
	}
	kept := append([]byte(nil), line[:r.MetaFlags.Start-1]...)
	for t := nextToken(line, r.MetaFlags.Start, r.MetaFlags.End); t.Len() > 0; t = nextToken(line, t.End, r.MetaFlags.End) {
		if line[t.Start] != 'k' {
			kept = append(append(kept, ' '), t.Of(line)...)
		}
	}
	kept = append(kept, line[r.MetaFlags.End:]...)
	l.Next(kept, r)
	return kept
}

// AppendDelete appends the text command that deletes key. memcached 1.6.40 to 1.6.45 read a
// last word noreply as the option noreply, even if it is the key. So a 0, the obsolete delay,
// follows that key.
func AppendDelete(dst, key []byte) []byte {
	dst = append(append(dst, "delete "...), key...)
	if isNoreply(key) {
		dst = append(dst, " 0"...)
	}
	return append(dst, "\r\n"...)
}

func isNoreply(word []byte) bool { return string(word) == "noreply" }

// maxNumber is the length in bytes of the longest exptime that AppendPlain does not change.
const maxNumber = 20

// AppendPlain appends the request r, which was parsed from buf, in a form that every
// memcached reads alike. The form has single spaces, no ignored words, and \r\n. It has
// no noreply and no flag q, so that the server always replies. r must not be a request
// with Op Bad or flag TooLarge. If key is not empty, it replaces the only key of r. It must
// be in base64 if the key of r is.
func AppendPlain(dst, buf []byte, r *Request, key []byte) []byte {
	if len(key) == 0 {
		key = r.Key.Of(buf)
	}
	if r.Op == Delete && r.Dialect == Text {
		return AppendDelete(dst, key)
	}
	sizeAt := -1 // index of the word with the length of the data block; -1: there is no such word
	switch {
	case r.Op.Stores() && r.Dialect == Meta:
		sizeAt = 2
	case r.Op.Stores():
		sizeAt = 4
	}
	rest := r.Line
	for i := 0; ; i++ {
		var t Span
		if t, rest = NextKey(buf, rest); t.Len() == 0 {
			break
		}
		switch {
		case r.Dialect == Meta && r.MetaFlags.Len() > 0 && t.Start >= r.MetaFlags.Start && r.Op != Debug && buf[t.Start] == 'q':
			continue
		case r.Dialect == Text && r.Drop.Len() > 0 && t.Start >= r.Drop.Start:
			continue
		}
		if i > 0 {
			dst = append(dst, ' ')
		}
		switch {
		case i == sizeAt:
			dst = strconv.AppendInt(dst, int64(r.Body.Len()), 10)
		case i == 0 && r.Op == Get && buf[t.Start] == 'b':
			dst = append(dst, "get"...)
		case t == r.Key:
			dst = append(dst, key...)
		case t == r.Exptime && t.Len() > maxNumber: // a gat may be longer than the line that memcached accepts, but only with its keys
			dst = strconv.AppendInt(dst, Signed(t.Of(buf)), 10)
		default:
			dst = append(dst, t.Of(buf)...)
		}
	}
	dst = append(dst, "\r\n"...)
	if r.Op.Stores() {
		dst = append(append(dst, r.Body.Of(buf)...), "\r\n"...)
	}
	return dst
}
