package binary

// This file translates text and meta replies to frames of the binary protocol.

import (
	"bytes"
	"encoding/binary"

	"ringside/proxy/wire"
)

const answerMagic = 0x81

// Status is the status code in a reply frame.
type Status uint16

// These are the status codes of reply frames. memcached sends those up to OutOfMemory.
// The others are only in the documentation of its protocol; a proxy needs them.
const (
	Success     Status = 0x00
	NoSuchKey   Status = 0x01
	KeyExists   Status = 0x02
	Oversized   Status = 0x03
	Invalid     Status = 0x04
	Unstored    Status = 0x05
	NoNumber    Status = 0x06
	AuthFailed  Status = 0x20
	Continue    Status = 0x21 // the authentication needs another step of the client
	NoCommand   Status = 0x81
	OutOfMemory Status = 0x82
	Unsupported Status = 0x83
	Internal    Status = 0x84
	Busy        Status = 0x85 // too many requests are waiting; the documentation of the protocol calls this status Busy
	Temporary   Status = 0x86
)

// texts contains the text that memcached sends with each status.
var texts = map[Status]string{
	NoSuchKey:   "Not found",
	KeyExists:   "Data exists for key.",
	Oversized:   "Too large.",
	Invalid:     "Invalid arguments",
	Unstored:    "Not stored.",
	NoNumber:    "Non-numeric server-side value for incr or decr",
	AuthFailed:  "Auth failure.",
	NoCommand:   "Unknown command",
	OutOfMemory: "Out of memory",
}

// errorStatus contains parts of error lines, with the status for an error line that
// contains them.
var errorStatus = [...]struct {
	text   string
	status Status
}{
	{"cannot increment or decrement non-numeric value", NoNumber},
	{"object too large for cache", Oversized},
	{"out of memory", OutOfMemory},
	{"not allowed", AuthFailed},
	{wire.TooOld, Unsupported},
}

// AppendHead appends the header of the reply frame to h. s is its status. extras, key and
// value are sizes in bytes.
func (h Head) AppendHead(dst []byte, s Status, extras, key, value int, cas uint64) []byte {
	b := [HeadSize]byte{answerMagic, h.Opcode, byte(key >> 8), byte(key), byte(extras)} // appending the header in one step; appending each field takes three times as long
	binary.BigEndian.PutUint16(b[6:], uint16(s))
	binary.BigEndian.PutUint32(b[8:], uint32(extras+key+value))
	binary.BigEndian.PutUint32(b[12:], h.Opaque)
	binary.BigEndian.PutUint64(b[16:], cas)
	return append(dst, b[:]...)
}

// AppendValue appends the reply frame for a value, without the bytes of the value. r is
// the reply, which was parsed from b. key is the client's key if the frame must contain
// it, else empty.
func (h Head) AppendValue(dst []byte, r *wire.Reply, b, key []byte) []byte {
	flags, size := r.ClientFlags, r.Body.Len()
	if r.Letters.Has('f') {
		flags, _ = wire.FlagArg(b, r.MetaFlags, 'f')
	}
	if h.Opcode == opTouch {
		size = 0
	}
	dst = h.AppendHead(dst, Success, 4, len(key), size, casOf(r, b))
	return append(binary.BigEndian.AppendUint32(dst, wire.ClientFlags(flags.Of(b))), key...)
}

// casOf returns the cas id in the reply r, which was parsed from b. Without a cas id, it
// returns wire.NoMatch, with which every cas fails.
func casOf(r *wire.Reply, b []byte) uint64 {
	at := r.Unique
	if r.Letters.Has('c') {
		at, _ = wire.FlagArg(b, r.MetaFlags, 'c')
	}
	if at.Len() == 0 {
		return wire.NoMatch
	}
	return decimal(at.Of(b))
}

// decimal returns the number that the decimal digits in b represent.
func decimal(b []byte) (n uint64) {
	for _, c := range b {
		n = n*10 + uint64(c-'0')
	}
	return n
}

// Quiet reports whether the usual reply to the frame is hidden: a miss for a get, success
// for all other commands.
func (h Head) Quiet() bool { return opcodes[h.Opcode].quiet }

// AppendFrame appends the reply frame to h. r is the reply of a server, parsed from b, to
// a request with the operation op. If h is quiet, AppendFrame may append nothing. failure
// is the status for an error line without a status of its own.
func (h Head) AppendFrame(dst []byte, op wire.Op, r *wire.Reply, b, key []byte, failure Status) []byte {
	quiet := h.Quiet()
	counts := op == wire.Incr || op == wire.Decr
	switch k := r.Kind; k {
	case wire.Value, wire.Header, wire.Number:
		switch {
		case !counts:
			return append(h.AppendValue(dst, r, b, key), r.Body.Of(b)...)
		case quiet:
			return dst
		}
		n := r.Body
		if k == wire.Number {
			n = r.Line
		}
		dst = h.AppendHead(dst, Success, 0, 0, 8, casOf(r, b))
		return binary.BigEndian.AppendUint64(dst, decimal(bytes.TrimRight(n.Of(b), " ")))
	case wire.End, wire.Miss:
		switch {
		case quiet:
			return dst
		case len(key) > 0:
			return append(h.AppendHead(dst, NoSuchKey, 0, len(key), 0, 0), key...)
		}
		return h.AppendStatus(dst, NoSuchKey, "")
	case wire.NotFound:
		return h.AppendStatus(dst, NoSuchKey, "")
	case wire.Exists:
		return h.AppendStatus(dst, KeyExists, "")
	case wire.NotStored:
		switch op {
		case wire.Add:
			return h.AppendStatus(dst, KeyExists, "")
		case wire.Replace:
			return h.AppendStatus(dst, NoSuchKey, "")
		}
		return h.AppendStatus(dst, Unstored, "")
	case wire.VersionIs:
		text := bytes.TrimPrefix(r.Line.Of(b), []byte("VERSION "))
		return append(h.AppendHead(dst, Success, 0, 0, len(text), 0), text...)
	case wire.Error:
		return h.AppendStatus(dst, NoCommand, "")
	case wire.ClientError, wire.ServerError, wire.Busy:
		return h.AppendFailure(dst, r.Line.Of(b), failure)
	default: // replies of all other kinds mean success
		if quiet {
			return dst
		}
		cas := uint64(0)
		if op.Stores() {
			cas = casOf(r, b)
		}
		return h.AppendHead(dst, Success, 0, 0, 0, cas)
	}
}

// AppendStatus appends a reply frame with a status and a text. If text is empty, the
// frame has memcached's text for the status.
func (h Head) AppendStatus(dst []byte, s Status, text string) []byte {
	if text == "" {
		text = texts[s]
	}
	return append(h.AppendHead(dst, s, 0, 0, len(text), 0), text...)
}

// AppendFailure appends the reply frame for an error line. s is the status for an error
// line without a status of its own.
func (h Head) AppendFailure(dst, line []byte, s Status) []byte {
	_, text, _ := bytes.Cut(line, []byte{' '})
	if bytes.HasPrefix(line, []byte("CLIENT_ERROR ")) {
		s = Invalid
	}
	for i := range errorStatus {
		if e := &errorStatus[i]; bytes.Contains(text, []byte(e.text)) {
			s = e.status
			if own, ok := texts[s]; ok {
				text = []byte(own)
			}
			break
		}
	}
	return append(h.AppendHead(dst, s, 0, 0, len(text), 0), text...)
}

// AppendStats appends the reply frames for b, the complete reply to stats. They are one
// frame per line, and an empty frame at the end. For an error, they are one frame with
// the error. For stats detail dump, as in memcached, they are a single value and the
// empty frame.
func (h Head) AppendStats(dst, b []byte, failure Status) []byte {
	if bytes.HasPrefix(b, []byte("PREFIX ")) {
		dst = append(h.AppendDetail(dst, len(b)), b...)
		return h.AppendHead(dst, Success, 0, 0, 0, 0)
	}
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, wire.CRLF)
		word, rest, _ := bytes.Cut(line, []byte{' '})
		switch string(word) {
		case "STAT", "ITEM":
			name, value, _ := bytes.Cut(rest, []byte{' '})
			dst = h.appendStat(dst, name, value)
		case "END", "OK", "RESET":
			return h.AppendHead(dst, Success, 0, 0, 0, 0)
		case "ERROR":
			return h.AppendStatus(dst, NoSuchKey, "")
		case "CLIENT_ERROR":
			if bytes.HasPrefix(rest, []byte("usage: ")) {
				return h.AppendStatus(dst, NoSuchKey, "")
			}
			return h.AppendFailure(dst, line, failure)
		default:
			return h.AppendFailure(dst, line, failure)
		}
	}
	return dst
}

// AppendDetail appends the reply frame for stats detail dump, without the lines. They have n bytes.
func (h Head) AppendDetail(dst []byte, n int) []byte {
	const name = "detailed"
	return append(h.AppendHead(dst, Success, 0, len(name), n, 0), name...)
}

func (h Head) appendStat(dst, name, value []byte) []byte {
	dst = h.AppendHead(dst, Success, 0, len(name), len(value), 0)
	return append(append(dst, name...), value...)
}
