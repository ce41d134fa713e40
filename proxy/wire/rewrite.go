package wire

// Requests that are not forwarded byte for byte.

import "strconv"

// RawKey reports whether r, parsed from buf, has flags k and b, and its decoded key
// contains spaces or control characters. memcached up to 1.6.45 sometimes forgets
// that an item's key was sent in base64: if mg or ma created the item with N, or if
// ma replaced it to change the number. It then replies with the decoded bytes.
// The decoded bytes may contain line ends, and the rest would be parsed as the reply to the
// next request. So such a k is never sent to a server: CutKey removes it, and
// KeyEcho adds the key to the reply.
func (r *Request) RawKey(buf []byte) bool {
	return r.Flags&(ReturnKey|Base64) == ReturnKey|Base64 && rawKey(r.Key.Of(buf))
}

func rawKey(b64 []byte) bool {
	var room [defaultKey]byte
	key, _ := DecodeKey(room[:0], b64)
	return plainWord(key) < len(key)
}

// KeyEcho is the key in a reply, " k<key> b", that memcached would have sent if
// CutKey had not removed flag k.
type KeyEcho struct {
	Text   []byte
	before Letters // flags of the request before k
}

// KeyEcho returns the echo for r, parsed from buf. It is empty unless CutKey would
// remove k.
func (r *Request) KeyEcho(buf []byte) (e KeyEcho) {
	if !r.RawKey(buf) {
		return e
	}
	for t := nextToken(buf, r.MetaFlags.Start, r.MetaFlags.End); buf[t.Start] != 'k'; t = nextToken(buf, t.End, r.MetaFlags.End) {
		e.before.add(buf[t.Start])
	}
	e.Text = appendKey([]byte(" k"), r.Key.Of(buf), r.Flags)
	return e
}

// At returns the position of the echo in the reply r, parsed from buf. memcached
// replies to flags in the order of the request and then adds flags of its own. ok
// is false for an error line, because it has no flags.
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

// CutKey removes flag k from line, which was parsed into r, if r.RawKey reports
// true. It parses the result into r again.
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

// AppendPlain appends r, parsed from buf, in a form that every memcached reads
// alike: single spaces, no ignored words, \r\n. It omits noreply or q, so that the
// server always replies. r must not be Bad or TooLarge.
func AppendPlain(dst, buf []byte, r *Request) []byte {
	sizeAt := -1 // index of the word that is the length of the data block; -1: none
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
