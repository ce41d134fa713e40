// Package wire parses and builds memcached's text and meta protocols.
//
// The package parses in place. A Request or Reply contains spans of the caller's buffer and
// never copies, so a request that needs no change is forwarded byte for byte. Text
// and meta commands are both represented by an Op. Only this package knows how the
// two dialects spell commands and replies.
//
// memcached's replies to malformed input are part of the protocol. Such input parses
// into a request of Op Bad, which contains the reply. A request that is not Bad gets
// exactly one reply from every memcached since 1.6.13, so replies can be matched to
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
// differ, the file says which of them this package follows. The tests run 1.6.18; the replies of
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
// As in 1.6.18, this package accepts spaces before the command, a length like +5 or 007,
// and a tab or NUL after the length. It refuses an ms with a flag like { and discards its
// data block. 1.6.45 refuses all of these and executes the data block as
// commands. If both releases are equally safe, this package also replies like 1.6.18.
// Most of these cases differ only in which error is reported.
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
// The two functions do so only if the text command has the same meaning, and if its
// reply contains all that the meta reply needs:
//
//	mg k [v f s c]            get, with c gets
//	mg k T [v f s c]          gat, with c gats; touch if the reply contains nothing of the item
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

// This file contains the types of the package, in the order in which a request uses them.

import (
	"errors"
	"math"
)

// Op is the operation of a command, in the text or the meta dialect.
type Op uint8

// These are the operations: first reads, then changes of one key, then all others.
const (
	None    Op = iota
	Get        // the commands get and mg
	Gets       // the command gets
	Gat        // the command gat
	Gats       // the command gats
	Set        // the commands set and ms (mode S)
	Add        // the commands add and ms (mode E)
	Replace    // the commands replace and ms (mode R)
	Append     // the commands append and ms (mode A)
	Prepend    // the commands prepend and ms (mode P)
	Cas        // the commands cas and ms (mode S or R) with the flag C
	Incr       // the commands incr and ma (mode I)
	Decr       // the commands decr and ma (mode D)
	Touch      // the command touch
	Delete     // the commands delete and md; with the flag I, md only marks the item as stale
	Debug      // the meta command me
	Noop       // the meta command mn
	FlushAll
	Version
	Verbosity
	Memlimit // the command cache_memlimit
	Stats
	Quit
	Shutdown // the command shutdown; it is never forwarded, and Request.Answer contains memcached's refusal
	Dump     // the command lru_crawler metadump; only Ringside itself sends it, and Limits.Next never returns it
	Auth     // authentication in the binary protocol; Limits.Next never returns it
	Bad      // a malformed or unknown command; Request.Answer contains the reply
	NumOps
)

// Stores reports whether a command with this op has a data block.
func (op Op) Stores() bool { return op >= Set && op <= Cas }

// Dialect is the syntax of a command: text or meta.
type Dialect uint8

// These are the dialects of commands.
const (
	Text Dialect = iota
	Meta
)

// Flags are properties of a request.
type Flags uint16

// These are the properties that a request may have.
const (
	// Quiet: the client has asked for no reply, with noreply (text) or q (meta).
	Quiet Flags = 1 << iota
	// Base64: the field Key is in base64 (meta flag b). Routing and hashing use the
	// result of DecodeKey.
	Base64
	// Effects: the read may change the item, so it must not be sent twice. It is a gat, a
	// gats, or an mg with N, R, T or an unknown flag.
	Effects
	// ReturnKey: the reply contains the key (meta flag k).
	ReturnKey
	// TooLarge: a storage command has a value over Limits.Value. Op and Key are set, and
	// Body is empty. The caller deletes the old value, sends Answer (unless it is nil)
	// and discards Swallow bytes. memcached deletes the old value for a text set and for
	// every ms, but not for a text add, replace, append, prepend and cas.
	TooLarge
	// CloseAfter: the connection must be closed after the reply, as memcached does.
	CloseAfter
	// Rewrite: memcached 1.6.18 accepts the form of this request, but another version may
	// read it differently. Examples are leading spaces, a line end without \r, a NUL, and
	// a length like +5. The caller must forward the result of AppendPlain. Otherwise,
	// such a version could execute the data block as commands.
	Rewrite
	// Binary: the client speaks the binary protocol, and package binary has translated
	// its frame into this request. Its Line may begin with gets although Op is Get,
	// because the reply frame needs the cas id.
	Binary
	// ReturnValue: the reply to a hit contains the value or number (meta flag v).
	ReturnValue
	// Compare: the server compares the cas id of the item (meta flag C).
	Compare
	// Create: the command creates a missing item (meta flag N).
	Create
)

// IsBinaryTouch reports whether a read with the flags f is the touch of a binary client. It is an mg without
// v, because its reply frame needs the client flags and the cas id.
func (f Flags) IsBinaryTouch() bool { return f&(Binary|Effects|ReturnValue) == Binary|Effects }

// Span is a range of the buffer from which a Request or Reply was parsed.
type Span struct{ Start, End uint32 }

// Of returns the bytes of s in buf.
func (s Span) Of(buf []byte) []byte { return buf[s.Start:s.End] }

// Len returns the number of bytes in s.
func (s Span) Len() int { return int(s.End - s.Start) }

// Request is one parsed command. All its spans are offsets into the buffer that was given
// to Limits.Next. A span is empty if the command does not have that part.
type Request struct {
	Op      Op
	Dialect Dialect
	Flags   Flags

	Line Span // from the name of the command to the last byte that memcached reads (it stops at a NUL)
	Key  Span // the key as the client sent it; the first key if there are several
	Keys Span // only for reads: from the first key to the end of the line; NextKey separates the keys
	Args Span // for stats: the words after stats; for flush_all and verbosity: the argument
	Body Span // the data block without its line ending
	Drop Span // bytes that are not forwarded (" noreply" or " q"), so that the server always replies

	// The fields ClientFlags to Opaque are spans of arguments, for code that changes
	// them. Each number is a text that memcached accepts. An argument of a meta flag does
	// not include the letter of the flag.
	ClientFlags Span // client flags of a text storage command, or argument of the meta flag F
	Exptime     Span // exptime of a text storage command, touch, gat or flush_all (its delay), or argument of the meta flag T
	Unique      Span // cas unique of a cas, or argument of the meta flag C
	Delta       Span // delta of incr or decr, or argument of the meta flag D
	Opaque      Span // opaque: argument of the meta flag O, without the letter

	MetaFlags Span    // only for meta commands: from the first flag to the end of the line; FlagArg searches it
	Letters   Letters // only for meta commands: the set of their flags

	NumKeys int    // number of keys; 0 for commands without a key
	Several []Span // only for reads: all keys; the next call that parses into this Request overwrites the slice

	// Answer is the complete reply to a request with Op Bad or Shutdown, or with the flag
	// TooLarge. nil means that no reply is sent. Answer refers to static memory or to the
	// parsed buffer, and must not be modified.
	Answer []byte

	// Swallow is the number of bytes after this request that belong to it: the data block
	// of a refused storage command. They must be discarded as they arrive.
	Swallow int64

	// Need is only set with the error ErrShort. It is the total size of the request in
	// bytes if the first line is complete, else 0. If Need is not 0, the fields for the
	// first line are set.
	Need int
}

// Letters is a set of meta flags, by letter.
type Letters uint64

// Has reports whether the letter c is in l.
func (l Letters) Has(c byte) bool { return c >= 'A' && c <= 'z' && l&(1<<(c-'A')) != 0 }

// Add adds the letter c to l.
func (l *Letters) Add(c byte) { *l |= 1 << ((c - 'A') & 63) }

// Shown returns the letters of l that the reply to a hit must have, if they are the flags of an mg. The flags
// k and O are compared anyway.
func (l Letters) Shown() Letters {
	return l & (1<<('c'-'A') | 1<<('f'-'A') | 1<<('h'-'A') | 1<<('l'-'A') | 1<<('s'-'A') | 1<<('t'-'A'))
}

// NoMatch is a cas id that no item has. A binary reply always contains a cas id. It
// contains NoMatch if no cas may depend on this reply: a cas with NoMatch always fails.
// The cas id 0 would mean an unconditional write. NoMatch is positive even as a signed
// 64-bit number.
const NoMatch = math.MaxInt64

// Limits are the limits for requests that Next accepts. In a field, 0 means the default.
type Limits struct {
	Key   int // maximum length of a key in bytes; the default and the maximum is 250, memcached's own limit
	Line  int // maximum length in bytes of the line of a get, gets, gat or gats; default 64 KiB, at least 2 KiB; all other lines: 2 KiB
	Value int // maximum length of a value in bytes; default 8 MiB
}

// Unlimited are limits with which Next accepts all that memcached accepts, including a
// read of any number of keys. They are for requests that were accepted before, possibly
// under other limits.
var Unlimited = Limits{Line: math.MaxInt32, Value: maxBody}

// ErrShort means that the buffer ends before the end of the request or reply. The caller
// must read more bytes and call again with the same start.
var ErrShort = errors.New("wire: need more bytes")

// errReply means that the bytes are not a possible reply to the request. Later replies
// may belong to the wrong requests, so the connection must be closed.
var errReply = errors.New("wire: not a memcached reply")

// Kind is the kind of a reply, such as Stored or NotFound.
type Kind uint8

// These are the kinds of replies.
const (
	NoReply     Kind = iota // zero value: there is no reply
	Value                   // the line VALUE or VA, with a data block
	End                     // the line END, which ends the reply to a text read or to stats
	Miss                    // the line EN: a miss of an mg
	Stored                  // the line STORED, or HD as the reply to an ms
	NotStored               // the line NOT_STORED or NS
	Exists                  // the line EXISTS or EX
	NotFound                // the line NOT_FOUND or NF
	Deleted                 // the line DELETED, or HD as the reply to an md
	Touched                 // the line TOUCHED
	Header                  // the line HD as the reply to an mg or ma
	Number                  // a line with a number: the reply to incr and decr
	OK                      // the line OK, or RESET as the reply to stats reset
	Barrier                 // the line MN
	Item                    // the line ME with the internals of an item
	Stat                    // one STAT line, or one of the ITEM and PREFIX lines of stats
	VersionIs               // the line VERSION with the server's version
	Listed                  // one key= line of a dump; Reply.Key is escaped, and UnescapeKey decodes it
	Busy                    // the line BUSY (another client is dumping), or MEMLIMIT_ADJUST_FAILED (the server refuses the limit)
	Error                   // the error line ERROR
	ClientError             // the error line CLIENT_ERROR with a text
	ServerError             // the error line SERVER_ERROR with a text
	NumKinds
)

// Failed reports whether k is an error line: ERROR, CLIENT_ERROR or SERVER_ERROR.
func (k Kind) Failed() bool { return k >= Error && k <= ServerError }

// Answered reports whether there is a reply of kind k, and it is not an error line.
func (k Kind) Answered() bool { return k != NoReply && !k.Failed() }

// Reply is one parsed reply. Of a reply with several VALUE or STAT, it is one of them.
// All its spans are offsets into the buffer that was given to NextReply.
type Reply struct {
	Kind Kind
	Last bool // whether the reply to the request ends with this Reply

	Line Span // the first line of the reply, without its line ending
	Key  Span // key of a VALUE line, of a meta reply with the flag k, or of a line of a dump
	Body Span // the data block without its line ending; with ErrShort, it may end after the buffer

	Awaited bool // true: this VALUE or VA is for the key that NextReplyOf expected; false: the key was not compared, or is another one

	ClientFlags Span // client flags of a VALUE, or of a meta reply with the flag f
	Unique      Span // cas id of a VALUE, if the server sent one
	Opaque      Span // opaque of a meta reply with flag O, without the letter

	MetaFlags Span    // only for meta replies: from the first flag to the end of the line; FlagArg searches it
	Letters   Letters // only for meta replies: the set of their flags

	// Size is the size of the reply in bytes, including line endings and the data block.
	// With ErrShort, Size is set if the first line is complete, else it is 0.
	Size int
}
