package wire

// This file contains memcached's replies in the dialect of the client. It also decides
// which replies are hidden from a client that asked for none.

import (
	"bytes"
	"encoding/base64"
)

// These are replies that a proxy sends without asking a server.
const (
	AnswerEnd      = "END\r\n"   // the end of the reply to a text read or to stats
	AnswerMiss     = "EN\r\n"    // reply to mg after a miss; AppendAnswer adds the flags of the request
	AnswerBarrier  = "MN\r\n"    // reply to the meta command mn
	AnswerOK       = "OK\r\n"    // reply to flush_all and to verbosity
	AnswerError    = "ERROR\r\n" // reply to an unknown command
	AnswerTooLarge = "SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside\r\n"
	AnswerShutdown = "ERROR: shutdown not enabled\r\n"
)

// TooOld is the end of the error line for a command that the server's memcached release
// does not support.
const TooOld = "too old for this command"

// TombstoneFlags are the client flags of a tombstone, in decimal. A tombstone is an empty
// item in place of a key's value. It means that this server does not know the value. An
// item with these client flags is a tombstone; nothing else of the item is checked.
const TombstoneFlags = "1381191169" // the number 0x52534e01 in decimal

// These are memcached's replies to malformed requests, and the ends of replies and lines.
var (
	// EndLine is the last line of the reply to a text read or to stats.
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

	answerLongLine = clientError("line too long") // reply to a line that is too long for Ringside; memcached has no such limit
)

func clientError(text string) []byte { return AppendClientError(nil, text) }

// AppendServerError appends the line "SERVER_ERROR text". It replaces control characters
// in text by spaces. With a line end in it, a client would read the remaining text as the
// next reply.
func AppendServerError(dst []byte, text string) []byte {
	return appendLine(append(dst, "SERVER_ERROR "...), text)
}

// NotNumber reports whether line is memcached's reply to an increment or decrement of a value that is
// no number.
func NotNumber(line []byte) bool {
	return bytes.HasPrefix(line, []byte("CLIENT_ERROR cannot increment or decrement non-numeric value"))
}

// AppendClientError appends the line "CLIENT_ERROR text". It replaces control characters
// in text by spaces.
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

// words contains the replies that consist of one word: the word by kind of the reply and
// by dialect.
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

// AppendAnswer appends the reply of kind k to the request r, in the dialect of r: STORED
// or HD, END or EN, and so on. In the meta dialect it adds the opaque and the key if r
// asks for them, and the cas 0 if r asks for the cas of an item that was not stored. buf is the buffer from which r was parsed. AppendAnswer appends nothing
// for kinds that have more than one word: Value, Number, Item, Stat, VersionIs,
// ClientError and ServerError.
func AppendAnswer(dst, buf []byte, r *Request, k Kind) []byte {
	word := words[k][r.Dialect]
	if word == "" {
		return dst
	}
	dst = append(dst, word...)
	without := k != Stored && r.Letters.Has('c') && r.Op.Stores() // the reply has the cas 0
	switch {
	case r.Letters&echoed == 0 && !without, r.Op == Debug, k == Barrier, k == Error:
	case r.Letters&(echoed|^knownFlags) == opaque && !without:
		dst = append(append(dst, " O"...), r.Opaque.Of(buf)...)
	default:
		for t := nextToken(buf, r.MetaFlags.Start, r.MetaFlags.End); t.Len() > 0; t = nextToken(buf, t.End, r.MetaFlags.End) {
			switch buf[t.Start] {
			case 'O':
				dst = append(append(dst, ' '), t.Of(buf)...)
			case 'k':
				dst = appendKey(append(dst, " k"...), r.Key.Of(buf), r.Flags)
			case 'c':
				if without {
					dst = append(dst, " c0"...)
				}
			}
		}
	}
	return append(dst, "\r\n"...)
}

// echoed are the meta flags O and k, which a reply repeats. opaque is only the flag O.
var echoed, opaque = letters("Ok"), letters("O")

// appendKey appends a key to a reply, as memcached does. It decodes a key in base64 and
// encodes it again, which normalizes it.
func appendKey(dst, key []byte, f Flags) []byte {
	if f&Base64 == 0 {
		return append(dst, key...)
	}
	var room [defaultKey]byte
	raw, _ := DecodeKey(room[:0], key)
	return append(base64.StdEncoding.AppendEncode(dst, raw), " b"...)
}

// Hidden reports whether a client that asked for no reply does not get a reply of kind k.
// With noreply, memcached sends no reply at all. With the flag q, each meta command hides
// its normal result: EN of mg, HD of ms and md, HD and VA of ma. Errors, NS, EX and NF
// are always sent.
//
// The documentation of memcached says that md and ma hide NF, but no release from 1.6.0
// to 1.6.45 does. Releases differ in one case: an ma with N and q that creates its item.
// Up to 1.6.39 HD is sent. Since 1.6.40 and here, it is hidden.
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
