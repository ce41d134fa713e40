package wire

// Requests as a server gets them where it must not get the client's own bytes.

import "strconv"

// RawKey reports whether r, which was parsed from buf, asks for its key in base64
// back (flags k and b) and the bytes that it stands for are no word. memcached up
// to 1.6.45 forgets of an item which mg or ma made with N, or which ma made anew to
// count, that it has a key in base64, and answers with those bytes. They may hold
// line ends: the rest would be paired with the next request on the connection. So
// no server must get such a k: CutKey takes it out, KeyEcho puts it back.
func (r *Request) RawKey(buf []byte) bool {
	return r.Flags&(ReturnKey|Base64) == ReturnKey|Base64 && rawKey(r.Key.Of(buf))
}

func rawKey(b64 []byte) bool {
	var room [defaultKey]byte
	key, _ := DecodeKey(room[:0], b64)
	return plainWord(key) < len(key)
}

// KeyEcho is what memcached answers to a flag k that CutKey has taken out, " k<key> b".
type KeyEcho struct {
	Text   []byte
	before Letters // flags of the request before k
}

// KeyEcho returns the echo of r, which was parsed from buf: empty unless its k is
// to be cut.
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

// At is where the echo belongs in the answer r, which was parsed from buf:
// memcached answers flags in the order of the request, and then what it has to
// say unasked. ok is false for an answer that has no flags, an error.
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

// CutKey takes flag k out of line, which was parsed into r, if its key is a
// RawKey, and parses what is left of it into r.
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

// AppendPlain appends r, which was parsed from buf, as a request that every
// memcached reads alike: one space between words, nothing that is ignored,
// \r\n, and without noreply or q, so that its answer can be counted. r must
// not be Bad or TooLarge.
func AppendPlain(dst, buf []byte, r *Request) []byte {
	sizeAt := -1 // which word is the length of the data block
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
