package upstream

// This file implements gets that share a command line.

import "ringside/proxy/wire"

// Line is the command line of a get that other gets may share.
//
// Up to some release after 1.6.18, memcached sends the replies to several gets with one system
// call each, even if it received the gets together. The values of one multi-key get are sent
// together. So a get is appended to the command line of the get before it, if the socket has
// not accepted that command line yet:
//
//	clients   get a    get b c    gets d    get e    set f …    get g
//	server    get a b c ↵         gets d ↵  get e ↵  set f … ↵  get g ↵
//
// Each get is still a separate request in the queue, with its own client, deadline and result.
// When a get is appended, the line end moves behind it, so the queued bytes are always complete.
// The server replies with the keys in their order and omits keys that it does not have. So the
// reply to one get ends with the VALUE of its last key. A VALUE of a later key, or END, means that
// the keys before it are misses. An error line in place of a VALUE is the reply to all gets that
// are not complete, because the server sends nothing more for them.
//
// Some servers return several keys in another order, such as a Ringside without multiget_order:
// request. The connection to such a server is aborted once, and then the server gets no more
// shared lines. A client may request a key twice without waiting, and the key may change between
// the two lookups of the server. If only one of the two gets has a VALUE, it cannot be known which;
// the second get counts as the miss.
//
// A key cannot be removed from a line that is being sent. A get that timed out therefore stays
// in the line, without a receiver for its reply, until the whole line is dropped.
type Line struct {
	length int32 // length of the command line so far in bytes, with the line end; 0: other gets must not share the line
	Joined bool  // the next request in the queue continues the command line of this request
	gets   bool  // the replies include the cas: the command on the line is gets
}

// longestLine is the maximum length of a shared command line, in bytes. For a longer line, memcached
// needs a larger buffer, and it starts to parse the line before all of it has arrived.
const longestLine = 2000

// Plain reports whether raw, parsed into r, is a get or gets of one key, with exactly one space
// before the key and a CRLF after it.
func Plain(r *wire.Request, raw []byte) bool {
	return r.Dialect == wire.Text && r.Flags&wire.Binary == 0 && int(r.Key.Start) == len("get ")+int(r.Op-wire.Get) &&
		len(raw) == int(r.Key.End)+len(wire.CRLF) && raw[r.Key.End] == '\r'
}

// Fits reports whether a key with the length `key` can be added to the command line. gets means that
// the reply to its get includes the cas.
func (l *Line) Fits(gets bool, key int) bool {
	return l.length > 0 && l.gets == gets && int(l.length)+len(" ")+key <= longestLine
}

// Begin starts a new command line. gets means that the replies include the cas.
func (l *Line) Begin(gets bool) { l.gets = gets }

// Continue makes l continue the command line of `before`. The caller has removed the line end of
// `before`, and must call Ends for the new line end.
func (l *Line) Continue(before *Line) {
	before.Joined = true
	l.length, l.gets = before.length-int32(len(wire.CRLF)), before.gets
}

// Ends records that the request of l, with size bytes, is complete, with the end of the command line.
func (l *Line) Ends(size int) { l.length += int32(size) }

// Shared reports whether the command line of l also has other requests than the request of l, which
// has size bytes.
func (l *Line) Shared(size int) bool { return l.Joined || int(l.length) > size }
