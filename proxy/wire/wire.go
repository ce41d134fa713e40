// Package wire turns memcached protocol bytes into offsets and back.
//
// It parses in place: a Request or a Reply holds spans of the caller's buffer
// and never a copy, so a request that needs no change is forwarded as it came.
// Text and meta commands meet in one Op; only this package knows how either
// dialect spells a command or an answer.
//
// What a real memcached answers to malformed input is part of the protocol: such
// input parses into an Op Bad that carries those bytes. A request that is not Bad
// is one that every memcached since 1.6.10 answers with exactly one reply, so
// replies can be counted; what only the server can know (is the value a number,
// does this version have that meta flag) is left to the server.
//
// # The model
//
// Releases differ in what they say to malformed input. The model is memcached
// 1.6.18, byte for byte, but 1.6.45 where that is the safer of the two: it never
// takes the data block of a storage command for commands once it could read the
// block's length. wiretest/testdata/streams.txt has the streams that are compared
// with both, and marks which release each follows where they differ; 1.6.18 is
// asked, the answers of 1.6.45 are recorded. As 1.6.45, and unlike 1.6.18:
//
//   - A storage command with a key that is too long, bad client flags, exptime or
//     cas unique, a cas without one, an ms with too many flags: refused, and the
//     data block is discarded.
//   - Words behind those that a text storage command takes are noise, however
//     many. The last one counts if it is noreply.
//   - A length that is negative or more than 2^31-3 is refused at once. 1.6.18
//     keeps its low 32 bits and stores 4294967297 as 1.
//   - Any unknown command whose last word begins with HTTP/ closes.
//
// As 1.6.18, and unlike 1.6.45, which refuses these and takes the data block for
// commands: spaces before the command, a length like +5, 007 or one with a tab
// behind it, a NUL behind the length, an ms with a flag like {. Where both are
// equally safe 1.6.18 is followed too: most differ only in which error they name.
//
// Where the length cannot be read nobody knows where the data block ends. Both
// releases go on at the next line, and so does this package.
//
// # Where neither is followed
//
//   - A storage command whose length is behind a NUL is refused, and its data block
//     is discarded. 1.6.18 takes the NUL for the end of the line and the block for
//     commands; 1.6.45 has keys with NULs.
//   - An ms of 20 words, which only 1.6.45 takes, is refused with its data block.
//   - The answer to a refused storage command doesn't wait for the end of its data
//     block. A noreply also hides that a length is too big, which 1.6.45 shows.
//   - Without a line end after 2048 bytes memcached 1.6.18 closes, unless the
//     line is a get or gets; if one read brings the whole line, it serves it.
//     Here the bytes decide, not their arrival: such a line is always refused,
//     and gat and gats may be long like get.
//   - memcached has no limit for the line of a get; here it is Limits.Line.
//   - memcached forgets answers that it has not sent yet when a later request
//     of the same read closes the connection (HTTP) or is a read with a key
//     that is too long. Here earlier requests keep their answers.
//   - A read with a key that is too long is refused as a whole, as memcached
//     does; but memcached has by then looked up (gat: touched) the keys before.
//   - Flag k of a key in base64 that stands for spaces or control characters is
//     not left to the server: see Request.RawKey.
//   - Commands that make no sense through a proxy (lru_crawler, watch, slabs,
//     cache_memlimit, lru, extstore, …) are unknown: ERROR.
//   - Commands for the operator of one server are refused with a sentence: see
//     below.
//   - A meta command with a flag that memcached 1.6.18 doesn't know is left to
//     the server. If it is also wrong in another way the two may disagree on
//     which error comes first.
//
// # Servers without meta commands
//
// What a meta request is as text, where text has the same meaning and an answer
// of which the meta answer can be made (AppendAsText, AppendAsMeta):
//
//	mg k [v f s c]            get, with c gets
//	mg k T [v f s c]          gat, with c gats; touch if the answer shows nothing of the item
//	ms k n [F T MS]           set; with ME add, MR replace, MA append, MP prepend
//	ms k n C [F T MS MR]      cas
//	md k                      delete
//	ma k [D MI MD v]          incr, decr
//	O k q b, and P L          with each of them; P and L mean nothing to any memcached
//
// All else has none: me, the flags t h l u N R I J E x, c but with mg, C but with
// an ms that sets or replaces. Nor has a key that a text command can't carry, or
// a number that is not written plainly: how an old server reads that is not sure,
// and where it refuses the line of a storage command it takes the data block for
// commands.
//
// # Commands for the operator of a server
//
//	cache_memlimit       every server does it, as flush_all
//	slabs reassign, slabs automove
//	lru tune, lru mode, lru temp_ttl
//	lru_crawler enable, disable, sleep, tocrawl, crawl, metadump, mgdump
//	extstore, watch, refresh_certs
//	                     refused: they are about the insides of one server, and some of the
//	                     answers have no end by which a proxy could know it
//	shutdown             what memcached says that was not started to allow it
//	misbehave, debugtime ERROR: no memcached that is built for use knows them
//
// What is refused is answered CLIENT_ERROR ask one server directly for …; a form
// that memcached itself refuses gets memcached's answer, and noreply hides what
// it hides there.
package wire

// The types, in the order in which a request meets them.

import (
	"errors"
	"math"
)

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
	Cas        // cas, ms of mode S or R with a C flag
	Incr       // incr, ma (mode I)
	Decr       // decr, ma MD
	Touch      // touch
	Delete     // delete, md (with flag I: mark as stale)
	Debug      // me
	Noop       // mn
	FlushAll
	Version
	Verbosity
	Memlimit // cache_memlimit
	Stats
	Quit
	Shutdown // never forwarded: Answer holds memcached's refusal
	Dump     // lru_crawler metadump: Ringside's own, unknown to Next
	Auth     // of the binary protocol: who the client is; unknown to Limits.Next
	Bad      // malformed or unknown: answer Request.Answer, see there
	NumOps
)

// Stores reports whether op carries a data block.
func (op Op) Stores() bool { return op >= Set && op <= Cas }

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
	// Base64: Key is base64 (meta flag b); route and hash what DecodeKey gives.
	Base64
	// Effects: a read that may change the item (mg with N, R, T or a flag
	// unknown here; gat, gats), so it must not be sent twice.
	Effects
	// ReturnKey: the answer carries the key (meta flag k).
	ReturnKey
	// TooLarge: a storage command whose value is over Limits.Value. Op is the
	// storage op, Key is set, Body is empty; the caller deletes the old value,
	// answers Answer (unless it is nil) and discards Swallow bytes. memcached
	// deletes the old value for text set and for every ms, not for text add,
	// replace, append, prepend and cas.
	TooLarge
	// CloseAfter: memcached closes the connection after this request's answer.
	CloseAfter
	// Rewrite: spelled in a way that memcached 1.6.18 accepts and another
	// version may read differently (leading spaces, a bare newline, a NUL, a
	// length like +5). Forward AppendPlain's bytes, else such a
	// server could take the data block for commands.
	Rewrite
	// Binary: the client speaks the binary protocol, and package frame has made this
	// of its frame. Its Line may say gets where Op is Get, for the sake of the cas.
	Binary
)

// Span is a range of the buffer a Request or Reply was parsed from.
type Span struct{ Start, End uint32 }

// Of returns the bytes of s in buf.
func (s Span) Of(buf []byte) []byte { return buf[s.Start:s.End] }

// Len is the number of bytes in s.
func (s Span) Len() int { return int(s.End - s.Start) }

// Request is one parsed command. All spans are offsets into the buffer given
// to Next; a span that a command doesn't have is empty.
type Request struct {
	Op      Op
	Dialect Dialect
	Flags   Flags

	Line Span // from the command word to the end of what memcached reads of the line
	Key  Span // the key as on the wire; of several the first
	Keys Span // reads: from the first key to the end of the line; NextKey walks it
	Args Span // stats: what follows the command word; flush_all, verbosity: the argument
	Body Span // the data block without its line ending
	Drop Span // forwarded without these bytes (" noreply", " q") the server's answer can be counted

	// What a rewriter needs. Each is the text of a number that memcached
	// accepts, without the flag's letter in the meta dialect.
	ClientFlags Span // text storage; meta F
	Exptime     Span // text storage, touch, gat, flush_all (its delay); meta T
	Unique      Span // cas; meta C
	Delta       Span // incr, decr; meta D
	Opaque      Span // meta O, without the letter

	MetaFlags Span    // meta: from the first flag to the end of the line; FlagArg searches it
	Letters   Letters // meta: which flags are there

	NumKeys int    // 0 for commands without a key
	Several []Span // of a read of several keys: each of them; the next call that parses into this Request writes over them

	// Answer holds the exact bytes to send for Bad, Shutdown and TooLarge; nil
	// means say nothing. It points into static memory or into the buffer and
	// must not be changed.
	Answer []byte

	// Swallow counts bytes after this request that belong to it and must be
	// discarded as they arrive (the data block of a refused storage command).
	Swallow int64

	// Need is set with ErrShort: the whole size of the request when its first
	// line is complete (then the fields of that line are set too), else 0.
	Need int
}

// Letters is a set of meta flags.
type Letters uint64

// Has reports whether the letter c is in l.
func (l Letters) Has(c byte) bool { return c >= 'A' && c <= 'z' && l&(1<<(c-'A')) != 0 }

func (l *Letters) add(c byte) { *l |= 1 << ((c - 'A') & 63) }

// NoMatch is a cas that no item has. A client of the binary protocol, where every
// answer has one, gets it with what no cas may be decided by. 0 would be no condition
// at all. It is positive also where 64 bits have a sign.
const NoMatch = math.MaxInt64

// Limits bound what Next accepts. Zero fields mean the default.
type Limits struct {
	Key   int // bytes of a key; 250, which is also the most (memcached's own limit)
	Line  int // bytes of the line of a get, gets, gat, gats; 64 KiB, at least 2 KiB. All others: 2 KiB
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
	NoReply     Kind = iota // there is none
	Value                   // VALUE or VA, with a data block
	End                     // END: the last of a text read or of stats
	Miss                    // EN
	Stored                  // STORED, and HD to a meta storage command
	NotStored               // NOT_STORED, NS
	Exists                  // EXISTS, EX
	NotFound                // NOT_FOUND, NF
	Deleted                 // DELETED, and HD to md
	Touched                 // TOUCHED
	Header                  // HD to mg or ma
	Number                  // a number: incr, decr
	OK                      // OK, and RESET of stats reset
	Barrier                 // MN
	Item                    // ME line
	Stat                    // one STAT line; also the ITEM and PREFIX lines of stats
	VersionIs               // VERSION line
	Listed                  // a key= line of Dump; Reply.Key is escaped, see UnescapeKey
	Busy                    // BUSY: another client dumps; MEMLIMIT_ADJUST_FAILED: the server won't
	Error                   // ERROR
	ClientError             // CLIENT_ERROR text
	ServerError             // SERVER_ERROR text
	NumKinds
)

// Failed reports whether k is one of the three error lines.
func (k Kind) Failed() bool { return k >= Error && k <= ServerError }

// Answered reports whether k is a reply, and none of the error lines.
func (k Kind) Answered() bool { return k != NoReply && !k.Failed() }

// Reply is one parsed answer, or one VALUE or STAT of an answer that has
// several. All spans are offsets into the buffer given to NextReply.
type Reply struct {
	Kind Kind
	Last bool // this ends the answer to the request

	Line Span // the first line without its line ending
	Key  Span // of VALUE; of a meta answer with flag k; of Listed
	Body Span // the data block without its line ending; may reach past the buffer with ErrShort

	Awaited bool // a VALUE of the key that NextReplyOf was told; if not, it may be one all the same

	ClientFlags Span // of VALUE
	Unique      Span // of VALUE, when the server sent one
	Opaque      Span // of a meta answer with flag O, without the letter

	MetaFlags Span    // meta: from the first flag to the end of the line; FlagArg searches it
	Letters   Letters // meta: which flags are there

	// Size is the whole reply in bytes, line endings and data included. With
	// ErrShort it is set when the first line is complete, else 0.
	Size int
}
