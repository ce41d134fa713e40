package wire

// Replies of memcached in the dialect of the client, and which ones quiet hides.

import "encoding/base64"

// Replies that a proxy sends without asking a server.
const (
	AnswerEnd      = "END\r\n"   // to a text read or stats: the end
	AnswerMiss     = "EN\r\n"    // to mg: a miss, without the flags of AppendAnswer
	AnswerBarrier  = "MN\r\n"    // to mn
	AnswerOK       = "OK\r\n"    // to flush_all, verbosity
	AnswerError    = "ERROR\r\n" // to an unknown command
	AnswerTooLarge = "SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside\r\n"
	AnswerShutdown = "ERROR: shutdown not enabled\r\n"
)

// TooOld is the end of the error line for a command that the server's release
// doesn't support.
const TooOld = "too old for this command"

// TombstoneFlags are the client flags of a tombstone. A tombstone is an empty item
// stored in place of a key's value while an instance works on the key. It means
// that this server does not know the value. An item is a tombstone if it has these
// flags; nothing else is checked.
const TombstoneFlags = "1381191169" // 0x52534e01

// memcached's replies to malformed requests.
var (
	// EndLine ends the reply to a text read or stats. CRLF ends every line.
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

// AppendServerError appends the line SERVER_ERROR text. Control characters are
// replaced by spaces, because a client would take a second line for the next reply.
func AppendServerError(dst []byte, text string) []byte {
	return appendLine(append(dst, "SERVER_ERROR "...), text)
}

// AppendClientError appends the line CLIENT_ERROR text, with control characters
// replaced as in AppendServerError.
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

// words are the replies that consist of one word, by kind and dialect.
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

// AppendAnswer appends the reply of kind k to r, parsed from buf, in the dialect of
// r: STORED or HD, END or EN, and so on. In the meta dialect it adds the opaque and
// the key if r asks for them. For kinds that consist of more than a word (Value,
// Number, Item, Stat, VersionIs, ClientError, ServerError) it appends nothing.
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

// echoed are the flags that the reply repeats with their argument. opaque is one of
// them.
var echoed, opaque = letters("Ok"), letters("O")

// appendKey appends a key as memcached returns it. A key in base64 is decoded and
// encoded again, which normalizes it.
func appendKey(dst, key []byte, f Flags) []byte {
	if f&Base64 == 0 {
		return append(dst, key...)
	}
	var room [defaultKey]byte
	raw, _ := DecodeKey(room[:0], key)
	return append(base64.StdEncoding.AppendEncode(dst, raw), " b"...)
}

// Hidden reports whether a reply of kind k is not sent to the client, because the
// request was quiet. With noreply memcached sends no reply at all. With q each meta
// command hides its normal result: EN of mg, HD of ms and md, HD and VA of ma.
// Errors, NS, EX and NF are always sent.
//
// The documentation says that md and ma hide NF, but the source of no release from
// 1.6.0 to 1.6.45 does. Releases differ in one case: up to 1.6.39, an ma with N and
// q that creates its item sends HD. Here, as since 1.6.40, it is hidden.
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
