package wire

// Answers: what memcached says, in the client's dialect, and what quiet hides.

import "encoding/base64"

// Answers that a proxy gives by itself.
const (
	AnswerEnd      = "END\r\n"   // to a text read or stats: no more
	AnswerMiss     = "EN\r\n"    // to mg: a miss, without the flags of AppendAnswer
	AnswerBarrier  = "MN\r\n"    // to mn
	AnswerOK       = "OK\r\n"    // to flush_all, verbosity
	AnswerError    = "ERROR\r\n" // to an unknown command
	AnswerTooLarge = "SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside\r\n"
	AnswerShutdown = "ERROR: shutdown not enabled\r\n"
)

// TooOld ends the error line for a command that a server's release doesn't know.
const TooOld = "too old for this command"

// MarkFlags are the client flags of a mark: an empty item that says that somebody
// is at work on the key, and that this server knows nothing of it. An item is a
// mark by its flags alone.
const MarkFlags = "1381191169" // 0x52534e01

// What memcached answers to malformed requests.
var (
	// EndLine ends the answer to a text read or stats; CRLF ends every line.
	EndLine = []byte(AnswerEnd)
	CRLF    = []byte("\r\n")

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

// Hidden reports whether a client that asked for this doesn't get an answer of
// kind k. Under noreply memcached answers nothing at all. Under q each meta
// command hides what it calls the normal case: EN of mg, HD of ms and md, HD
// and VA of ma; errors, NS, EX and NF are always shown.
//
// No release from 1.6.0 to 1.6.45 hides NF, as the source of each says, though
// the documentation says so of md and ma. The one difference between versions is
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
