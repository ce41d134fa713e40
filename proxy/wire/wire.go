// Package wire parses and builds memcached's text and meta protocols.
//
// It parses in place. A Request or Reply contains spans of the caller's buffer and
// never copies, so a request that needs no change is forwarded byte for byte. Text
// and meta commands are both represented by an Op. Only this package knows how the
// two dialects spell commands and replies.
//
// memcached's replies to malformed input are part of the protocol. Such input parses
// into a request of Op Bad, which contains the reply. A request that is not Bad gets
// exactly one reply from every memcached since 1.6.10, so replies can be matched to
// requests by counting. Some errors only the server can detect, for example a value
// that is not a number, or a meta flag that its version lacks. Such requests are
// forwarded.
//
// # The model
//
// Releases reply differently to malformed input. This package behaves like memcached
// 1.6.18, byte for byte, except where 1.6.45 is safer: once 1.6.45 has read the
// length of a data block, it never executes the block as commands. The tests compare
// the streams in wiretest/testdata/streams.txt with both releases. If the releases
// differ, the file marks which one is followed. The tests run 1.6.18; the replies of
// 1.6.45 are recorded. As in 1.6.45, and unlike 1.6.18:
//
//   - These storage commands are refused and their data block is discarded: a key
//     that is too long; invalid client flags, exptime or cas unique; a cas without
//     cas unique; an ms with too many flags.
//   - Extra words after the arguments of a text storage command are ignored, however
//     many. If the last one is noreply, it counts.
//   - A length that is negative or more than 2^31-3 is refused at once. 1.6.18 uses
//     its low 32 bits, so it stores 4294967297 bytes as 1.
//   - An unknown command closes the connection if its last word begins with HTTP/.
//
// As in 1.6.18: spaces before the command, a length like +5 or 007, and a tab or NUL
// after the length are accepted. An ms with a flag like { is refused and its data
// block is discarded. 1.6.45 refuses all of these and executes the data block as
// commands. If both releases are equally safe, 1.6.18 is followed too. Most of these
// cases only differ in which error is reported.
//
// If the length cannot be read, the end of the data block is unknown. Both releases
// continue at the next line, and so does this package.
//
// # Differences from both releases
//
//   - A storage command with a NUL before the length is refused, and its data block
//     is discarded. In 1.6.18 the NUL ends the line and the block is executed as
//     commands. 1.6.45 allows a NUL in a key.
//   - An ms of 20 words, which only 1.6.45 accepts, is refused and its data block is
//     discarded.
//   - The reply to a refused storage command is not delayed until the end of its data
//     block. noreply also hides the error for a length that is too large, which
//     1.6.45 shows.
//   - memcached 1.6.18 closes the connection after 2048 bytes without a line end,
//     except for get and gets. But if one read returns the whole line, it serves the
//     line. Here only the bytes matter, not how they arrive: such a line is always
//     refused. gat and gats may be as long as get.
//   - memcached does not limit the line of a get. Here Limits.Line does.
//   - memcached drops replies that it has not sent yet if a later request in the same
//     read closes the connection (HTTP) or is a read with a key that is too long.
//     Here earlier requests get their replies.
//   - A read with a key that is too long is refused as a whole, as in memcached. But
//     memcached has then already looked up (gat: touched) the keys before it.
//   - Flag k is not sent to the server if the key is in base64 and its bytes include
//     spaces or control characters. See Request.RawKey.
//   - Commands for the operator of one server are refused with an explanation; see
//     below.
//   - A meta command with a flag that memcached 1.6.18 doesn't know is forwarded. If
//     the command has another error too, the server may report the other error first.
//
// # Servers without meta commands
//
// AppendAsText and AppendAsMeta translate a meta request to text, and the reply back.
// The two functions do so only if the text command has the same meaning and its reply contains all
// that the meta reply needs:
//
//	mg k [v f s c]            get, with c gets
//	mg k T [v f s c]          gat, with c gats; touch if the reply shows nothing of the item
//	ms k n [F T MS]           set; with ME add, MR replace, MA append, MP prepend
//	ms k n C [F T MS MR]      cas
//	md k                      delete
//	ma k [D MI MD v]          incr, decr
//	O k q b, and P L          with each of them; P and L have no effect in any memcached
//
// Everything else cannot be translated: me; the flags t h l u N R I J E x; c except
// with mg; C except with an ms that sets or replaces. Nor can a key that a text
// command can't contain, or a number that is not a plain decimal number. It is unclear
// how an old server would read such a number. If it refused the line of a storage
// command, it would execute the data block as commands.
//
// # Commands for the operator of a server
//
//	cache_memlimit       sent to every server, as flush_all is
//	slabs reassign, slabs automove
//	lru tune, lru mode, lru temp_ttl
//	lru_crawler enable, disable, sleep, tocrawl, crawl, metadump, mgdump
//	extstore, watch, refresh_certs
//	                     refused: they concern the internals of one server, and some of
//	                     the replies have no end that a proxy could detect
//	shutdown             the reply of a memcached that was started without -A
//	misbehave, debugtime ERROR, because no production build of memcached has them
//
// The reply to a refused command is CLIENT_ERROR ask one server directly for …. A
// command that memcached itself would refuse gets memcached's reply. noreply hides
// whatever it hides in memcached.
package wire

// The types, in the order in which a request uses them.

import (
	"errors"
	"math"
)

// Op is what a command does, in either dialect.
type Op uint8

// The operations: reads, then mutations of one key, then the rest.
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
	Dump     // lru_crawler metadump; only Ringside sends it, Next never returns it
	Auth     // authentication in the binary protocol; Limits.Next never returns it
	Bad      // malformed or unknown; the reply is Request.Answer
	NumOps
)

// Stores reports whether op carries a data block.
func (op Op) Stores() bool { return op >= Set && op <= Cas }

// Dialect is the syntax of a command.
type Dialect uint8

// The dialects.
const (
	Text Dialect = iota
	Meta
)

// Flags are properties of a request.
type Flags uint16

// The flags.
const (
	// Quiet: the client asked for noreply (text) or q (meta).
	Quiet Flags = 1 << iota
	// Base64: Key is in base64 (meta flag b). Routing and hashing use the result of
	// DecodeKey.
	Base64
	// Effects: the read may change the item, so it must not be sent twice: an mg
	// with N, R, T or a flag unknown here, gat, gats.
	Effects
	// ReturnKey: the reply contains the key (meta flag k).
	ReturnKey
	// TooLarge: a storage command with a value over Limits.Value. Op and Key are
	// set, Body is empty. The caller deletes the old value, sends Answer (unless it
	// is nil) and discards Swallow bytes. memcached deletes the old value for text
	// set and for every ms, but not for text add, replace, append, prepend and cas.
	TooLarge
	// CloseAfter: the connection must be closed after the reply, as memcached does.
	CloseAfter
	// Rewrite: memcached 1.6.18 accepts this spelling, but another version may read
	// it differently: leading spaces, a bare newline, a NUL, a length like +5.
	// Forward the bytes of AppendPlain; such a version could otherwise execute the
	// data block as commands.
	Rewrite
	// Binary: the client speaks the binary protocol, and package binary translated
	// its frame into this request. Its Line may begin with gets although Op is Get,
	// because the reply frame needs the cas.
	Binary
)

// Span is a range of the buffer from which a Request or Reply was parsed.
type Span struct{ Start, End uint32 }

// Of returns the bytes of s in buf.
func (s Span) Of(buf []byte) []byte { return buf[s.Start:s.End] }

// Len returns the number of bytes in s.
func (s Span) Len() int { return int(s.End - s.Start) }

// Request is one parsed command. All spans are offsets into the buffer given to
// Next. A span that a command doesn't have is empty.
type Request struct {
	Op      Op
	Dialect Dialect
	Flags   Flags

	Line Span // from the command word to the last byte that memcached reads (it stops at a NUL)
	Key  Span // the key as the client sent it; if there are several, the first
	Keys Span // reads: from the first key to the end of the line; walk it with NextKey
	Args Span // stats: the words after stats; flush_all, verbosity: the argument
	Body Span // the data block without its line ending
	Drop Span // bytes to omit when forwarding (" noreply", " q"), so that the server always replies

	// The numbers of the command, for code that rewrites it. Each is a text that
	// memcached accepts as a number. In the meta dialect it does not include the
	// letter of the flag.
	ClientFlags Span // text storage; meta F
	Exptime     Span // text storage, touch, gat, flush_all (its delay); meta T
	Unique      Span // cas; meta C
	Delta       Span // incr, decr; meta D
	Opaque      Span // meta O, without the letter

	MetaFlags Span    // meta: from the first flag to the end of the line; FlagArg searches it
	Letters   Letters // meta: which flags are there

	NumKeys int    // number of keys; 0 for commands without a key
	Several []Span // reads: all keys; the next call that parses into this Request overwrites them

	// Answer is the exact reply to Bad, Shutdown and TooLarge; nil: send nothing.
	// It points into static memory or the buffer and must not be modified.
	Answer []byte

	// Swallow is the number of bytes after this request that belong to it and must
	// be discarded as they arrive (the data block of a refused storage command).
	Swallow int64

	// Need is set with ErrShort: the total size of the request if its first line is
	// complete (the fields of that line are then set too), else 0.
	Need int
}

// Letters is a set of meta flags, by letter.
type Letters uint64

// Has reports whether the letter c is in l.
func (l Letters) Has(c byte) bool { return c >= 'A' && c <= 'z' && l&(1<<(c-'A')) != 0 }

func (l *Letters) add(c byte) { *l |= 1 << ((c - 'A') & 63) }

// NoMatch is a cas id that no item has. Binary replies always contain a cas id, and
// NoMatch is sent if no cas may depend on it. A client that uses NoMatch for a cas
// therefore fails. 0 would mean an unconditional write. NoMatch is positive even as
// a signed 64-bit number.
const NoMatch = math.MaxInt64

// Limits bound what Next accepts. Zero fields mean the default.
type Limits struct {
	Key   int // bytes of a key; default 250, which is memcached's own limit and the maximum
	Line  int // bytes of the line of a get, gets, gat, gats; default 64 KiB, at least 2 KiB; other lines: 2 KiB
	Value int // bytes of a value; default 8 MiB
}

// Unlimited accepts all that memcached accepts, with a read of any number of keys. It is for
// requests that have been accepted before, possibly under other limits.
var Unlimited = Limits{Line: math.MaxInt32, Value: maxBody}

// ErrShort means that the buffer ends before the request or reply does. Read more
// and call again with the same start.
var ErrShort = errors.New("wire: need more bytes")

// errReply means that the bytes are not a reply to this request. Later replies may
// belong to the wrong requests, so the connection must be closed.
var errReply = errors.New("wire: not a memcached reply")

// Kind is the kind of a reply.
type Kind uint8

// The kinds of reply.
const (
	NoReply     Kind = iota // zero value: no reply
	Value                   // VALUE or VA, with a data block
	End                     // END, which ends the reply to a text read or stats
	Miss                    // EN
	Stored                  // STORED, and HD to a meta storage command
	NotStored               // NOT_STORED, NS
	Exists                  // EXISTS, EX
	NotFound                // NOT_FOUND, NF
	Deleted                 // DELETED, and HD to md
	Touched                 // TOUCHED
	Header                  // HD to mg or ma
	Number                  // a number, the reply to incr and decr
	OK                      // OK, and RESET of stats reset
	Barrier                 // MN
	Item                    // ME line
	Stat                    // one STAT line; also the ITEM and PREFIX lines of stats
	VersionIs               // VERSION line
	Listed                  // a key= line of Dump; Reply.Key is escaped, decode it with UnescapeKey
	Busy                    // BUSY: another client is dumping; MEMLIMIT_ADJUST_FAILED: the server refused
	Error                   // ERROR
	ClientError             // CLIENT_ERROR text
	ServerError             // SERVER_ERROR text
	NumKinds
)

// Failed reports whether k is one of the three error lines.
func (k Kind) Failed() bool { return k >= Error && k <= ServerError }

// Answered reports whether k is a reply other than an error line.
func (k Kind) Answered() bool { return k != NoReply && !k.Failed() }

// Reply is one parsed reply, or one VALUE or STAT of a reply with several. All
// spans are offsets into the buffer given to NextReply.
type Reply struct {
	Kind Kind
	Last bool // this Reply ends the reply to the request

	Line Span // the first line without its line ending
	Key  Span // key of a VALUE, of a meta reply with flag k, or of Listed
	Body Span // the data block without its line ending; may reach past the buffer with ErrShort

	Awaited bool // set if this VALUE is known to be of the key that NextReplyOf expected; it may be that key even if not set

	ClientFlags Span // client flags of a VALUE
	Unique      Span // cas id of a VALUE, if the server sent one
	Opaque      Span // opaque of a meta reply with flag O, without the letter

	MetaFlags Span    // meta: from the first flag to the end of the line; FlagArg searches it
	Letters   Letters // meta: which flags are there

	// Size is the size of the reply in bytes, including line endings and data. With
	// ErrShort it is set if the first line is complete, else 0.
	Size int
}
