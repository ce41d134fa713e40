package wire

// Answers: what memcached says, in the client's dialect, and what quiet hides.

import (
	"encoding/base64"
	"strconv"
)

// Answers that a proxy gives by itself.
const (
	AnswerEnd      = "END\r\n"   // to a text read or stats: no more
	AnswerMiss     = "EN\r\n"    // to mg: a miss, without the flags of AppendAnswer
	AnswerBarrier  = "MN\r\n"    // to mn
	AnswerOK       = "OK\r\n"    // to flush_all, verbosity
	AnswerError    = "ERROR\r\n" // to an unknown command
	AnswerTooLarge = "SERVER_ERROR object too large for cache\r\n"
	AnswerShutdown = "ERROR: shutdown not enabled\r\n"
)

// TooOld ends the error line for a command that a server's release doesn't know.
const TooOld = "too old for this command"

// What memcached answers to malformed requests.
var (
	// EndLine ends the answer to a text read or stats; LineEnd ends every line.
	EndLine = []byte(AnswerEnd)
	LineEnd = []byte("\r\n")

	answerError    = []byte(AnswerError)
	answerTooLarge = []byte(AnswerTooLarge)
	answerShutdown = []byte(AnswerShutdown)

	answerFormat  = clientError("bad command line format")
	answerChunk   = clientError("bad data chunk")
	answerExptime = clientError("invalid exptime argument")
	answerDelta   = clientError("invalid numeric delta argument")
	answerDelete  = clientError("bad command line format.  Usage: delete <key> [noreply]")

	answerManyGet     = clientError("options flags are too long")
	answerMany        = clientError("options flags too long")
	answerFlag        = clientError("invalid or duplicate flag")
	answerFlagTwice   = clientError("duplicate flag")
	answerFlagUnknown = clientError("invalid flag")
	answerKey         = clientError("error decoding key")
	answerToken       = clientError("bad token in command line format")
	answerMetaDelta   = clientError("invalid numeric delta value")
	answerMetaInitial = clientError("invalid numeric initial value")
	answerMode        = clientError("incorrect length for M token")
	answerStoreMode   = clientError("invalid mode for ms M token")
	answerIncrMode    = clientError("invalid mode for ma M token")
	answerOpaque      = clientError("opaque token too long")

	answerLongLine = clientError("line too long") // memcached has no such limit
)

func clientError(text string) []byte { return AppendClientError(nil, text) }

// AppendServerError appends the line SERVER_ERROR text. Control characters
// become spaces: a second line would be taken for the next answer.
func AppendServerError(dst []byte, text string) []byte {
	return appendLine(append(dst, "SERVER_ERROR "...), text)
}

// AppendClientError appends the line CLIENT_ERROR text, as AppendServerError.
func AppendClientError(dst []byte, text string) []byte {
	return appendLine(append(dst, "CLIENT_ERROR "...), text)
}

func appendLine(dst []byte, text string) []byte {
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c == 127 {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, "\r\n"...)
}

// words spells the kinds that are the whole answer, in either dialect.
var words = [NumKinds][2]string{
	End:       {"END", "EN"},
	Miss:      {"END", "EN"},
	Stored:    {"STORED", "HD"},
	NotStored: {"NOT_STORED", "NS"},
	Exists:    {"EXISTS", "EX"},
	NotFound:  {"NOT_FOUND", "NF"},
	Deleted:   {"DELETED", "HD"},
	Touched:   {"TOUCHED", "HD"},
	Header:    {"OK", "HD"},
	OK:        {"OK", "HD"},
	Barrier:   {"MN", "MN"},
	Error:     {"ERROR", "ERROR"},
}

// MarkFlags are the client flags of a mark: an empty item that says that somebody
// is at work on the key, and that this server knows nothing of it. An item is a
// mark by its flags alone.
const MarkFlags = "1381191169" // 0x52534e01

// AppendAnswer appends the answer of kind k to r, which was parsed from buf,
// in the dialect of r: STORED or HD, END or EN, and so on. In the meta dialect
// the opaque and the key come back if r asks for them. Kinds that carry more
// than their name (Value, Number, Item, Stat, VersionIs, ClientError,
// ServerError) cannot be made here and append nothing.
func AppendAnswer(dst, buf []byte, r *Request, k Kind) []byte {
	word := words[k][r.Dialect]
	if word == "" {
		return dst
	}
	dst = append(dst, word...)
	switch {
	case r.Letters&echoed == 0, r.Op == Debug, k == Barrier, k == Error:
	case r.Letters&(echoed|^knownFlags) == opaque:
		dst = append(append(dst, " O"...), r.Opaque.Of(buf)...)
	default:
		for t := nextToken(buf, r.MetaFlags.Start, r.MetaFlags.End); t.Len() > 0; t = nextToken(buf, t.End, r.MetaFlags.End) {
			switch buf[t.Start] {
			case 'O':
				dst = append(append(dst, ' '), t.Of(buf)...)
			case 'k':
				dst = appendKey(append(dst, " k"...), r.Key.Of(buf), r.Flags)
			}
		}
	}
	return append(dst, "\r\n"...)
}

// echoed are the flags that come back, opaque is one of them.
var echoed, opaque = letters("Ok"), letters("O")

// appendKey appends a key as memcached sends it back: base64 is made anew from
// the bytes that it stands for.
func appendKey(dst, key []byte, f Flags) []byte {
	if f&Base64 == 0 {
		return append(dst, key...)
	}
	var room [defaultKey]byte
	raw, _ := DecodeKey(room[:0], key)
	return append(base64.StdEncoding.AppendEncode(dst, raw), " b"...)
}

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

// Hidden reports whether a client that asked for this doesn't get an answer of
// kind k. Under noreply memcached answers nothing at all. Under q each meta
// command hides what it calls the normal case: EN of mg, HD of ms and md, HD
// and VA of ma; errors, NS, EX and NF are always shown.
//
// Read in every release from 1.6.0 to 1.6.45: none hides NF, though the
// documentation says so of md and ma. The one difference between versions is
// not in the answer: up to 1.6.39 an ma with N and q that creates its item
// shows HD; here, as since 1.6.40, it is hidden.
func Hidden(op Op, d Dialect, f Flags, k Kind) bool {
	switch {
	case f&Quiet == 0:
		return false
	case d == Text:
		return true
	}
	switch k {
	case Miss:
		return op == Get
	case Stored, Deleted:
		return true
	case Header, Value:
		return op == Incr || op == Decr
	}
	return false
}
