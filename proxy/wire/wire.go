// Package wire turns memcached protocol bytes into offsets and back.
//
// It parses in place: a Request or a Reply holds spans of the caller's buffer
// and never a copy, so a request that needs no change is forwarded as it came.
// Text and meta commands meet in one Op; only this package knows how either
// dialect spells a command or an answer.
//
// What a real memcached 1.6 answers to malformed input is part of the
// protocol: such input parses into an Op Bad that carries those bytes.
package wire

import "errors"

// Op is what a command does, whatever the dialect that spelled it.
type Op uint8

// The operations. Reads first, then mutations of one key, then the rest.
const (
	None    Op = iota
	Get        // get, mg
	Gets       // gets
	Gat        // gat
	Gats       // gats
	Set        // set, ms (mode S)
	Add        // add, ms ME
	Replace    // replace, ms MR
	Append     // append, ms MA
	Prepend    // prepend, ms MP
	Cas        // cas
	Incr       // incr, ma (mode I)
	Decr       // decr, ma MD
	Touch      // touch
	Delete     // delete, md
	Debug      // me
	Noop       // mn
	FlushAll
	Version
	Verbosity
	Stats
	Quit
	Shutdown
	Bad // malformed or unknown: answer Request.Answer, see there
	NumOps
)

// Dialect is how a client spells commands.
type Dialect uint8

// The dialects.
const (
	Text Dialect = iota
	Meta
)

// Flags are facts about a request that routing and settling need.
type Flags uint16

// The flags.
const (
	// Quiet: the client asked for noreply (text) or q (meta).
	Quiet Flags = 1 << iota
	// Base64: Key is base64 (meta flag b); route and hash the decoded bytes.
	Base64
	// Effects: a read that may change the item (mg with N, R, T or E; gat,
	// gats), so it must not be sent twice.
	Effects
	// ReturnKey: the answer carries the key (meta flag k).
	ReturnKey
	// TooLarge: a storage command whose value is over Limits.Value. Op is the
	// storage op, Key is set, Body is empty; the caller deletes the old value,
	// answers Answer (unless it is nil) and discards Swallow bytes.
	TooLarge
	// CloseAfter: memcached closes the connection after this request's answer.
	CloseAfter
)

// Span is a range of the buffer a Request or Reply was parsed from.
type Span struct{ Start, End uint32 }

// Of returns the bytes of s in buf.
func (s Span) Of(buf []byte) []byte { return buf[s.Start:s.End] }

// Len is the number of bytes in s.
func (s Span) Len() int { return int(s.End - s.Start) }

// Request is one parsed command. All spans are offsets into the buffer given
// to Next.
type Request struct {
	Op      Op
	Dialect Dialect
	Flags   Flags

	Line Span // the command line without its line ending
	Key  Span // the key as on the wire; of several the first
	Keys Span // multi-key reads: from the first key to the end of the line; NextKey walks it
	Args Span // stats, flush_all, verbosity: what follows the command word
	Body Span // the data block without its line ending
	Drop Span // forwarded without these bytes (" noreply", " q") the server's answer can be counted

	NumKeys int

	// Answer holds the exact bytes to send for Bad and TooLarge; nil means
	// say nothing. It points into static memory or into the buffer.
	Answer []byte

	// Swallow counts bytes after this request that belong to it and must be
	// discarded as they arrive (the data block of a refused storage command).
	Swallow int64

	// Need is set with ErrShort: the whole size of the request when its first
	// line is complete, else 0.
	Need int
}

// Limits bound what Next accepts. Zero fields mean the default.
type Limits struct {
	Key   int // bytes of a key; 250
	Line  int // bytes of a command line; 64 KiB (a multi-get of many keys)
	Value int // bytes of a value; 8 MiB
}

// ErrShort: the buffer ends before the request or reply does; read more and
// call again with the same start.
var ErrShort = errors.New("wire: need more bytes")

// ErrReply: these bytes are no answer to that request. Pairing is in doubt:
// the connection must be dropped.
var ErrReply = errors.New("wire: not a memcached reply")

// Kind is what a reply says.
type Kind uint8

// The kinds of reply.
const (
	NoReply     Kind = iota
	Value            // VALUE or VA, with a data block
	End              // END: the last of a text read or of stats
	Miss             // EN
	Stored           // STORED, and HD to a meta storage command
	NotStored        // NOT_STORED, NS
	Exists           // EXISTS, EX
	NotFound         // NOT_FOUND, NF
	Deleted          // DELETED, and HD to md
	Touched          // TOUCHED
	Header           // HD to mg or ma
	Number           // a number: incr, decr
	OK               // OK, and RESET of stats reset
	Barrier          // MN
	Item             // ME line
	Stat             // one STAT line
	VersionIs        // VERSION line
	Error            // ERROR
	ClientError      // CLIENT_ERROR text
	ServerError      // SERVER_ERROR text
	NumKinds
)

// Reply is one parsed answer, or one VALUE or STAT of an answer that has
// several.
type Reply struct {
	Kind Kind
	Last bool // this ends the answer to the request

	Line Span // the first line without its line ending
	Key  Span // of VALUE
	Body Span // the data block without its line ending; may reach past the buffer with ErrShort

	// Size is the whole reply in bytes, line endings and data included. With
	// ErrShort it is set when the first line is complete, else 0.
	Size int
}
