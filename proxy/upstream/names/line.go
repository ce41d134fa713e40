package names

// Gets that share a line.

import "ringside/proxy/wire"

// Line is the line of a get that other gets may share.
//
// Up to some release after 1.6.18 memcached sends the answer to each get by itself, one
// system call each, however many gets it has been sent at once; the values of one get of
// many keys leave together. So a get that comes behind another which the socket has not
// got yet continues its line:
//
//	clients   get a    get b c    gets d    get e    set f …    get g
//	server    get a b c ↵         gets d ↵  get e ↵  set f … ↵  get g ↵
//
// Each stays a request of its own in the queue, with its client, deadline and fate: only
// the line's end moves from one to the next, so the bytes of the queue are whole at any
// time. The server answers the keys in their order and leaves out those that it hasn't.
// So the answer to one ends with the VALUE of its last key; and a VALUE of a key further
// on, or END, says that those before it are misses. An error line in the place of a VALUE is for all the
// keys that had none, as the server says nothing more of them.
//
// A server that answers several keys in another order, as a Ringside does that is not told
// multiget_order: request, loses a connection by it once and gets no more shared lines.
// Where a client asks for a key twice without waiting, and the key comes or goes between
// the two looks of the server, which of the two is the miss can't be told: the second is.
//
// A line that goes out can't lose a key: a get that nobody waits for any more stays in it,
// as an orphan, until the line as a whole is given up.
type Line struct {
	length int32 // bytes up to here, and the line's end; 0: it may not be shared
	Joined bool  // it goes on with the next request
	gets   bool  // its answers show the cas; not the request's op says so: a frame's get asks for it, too
}

// longestLine is how long a line may become, in bytes. Of a longer one memcached looks at
// the beginning before it is whole, and needs a larger buffer for it.
const longestLine = 2000

// Plain says whether raw, parsed into r, is a get or gets of one key, with nothing but
// one space and one line end around it.
func Plain(r *wire.Request, raw []byte) bool {
	return r.Dialect == wire.Text && r.Flags&wire.Binary == 0 && int(r.Key.Start) == len("get ")+int(r.Op-wire.Get) &&
		len(raw) == int(r.Key.End)+len(wire.CRLF) && raw[r.Key.End] == '\r'
}

// Fits says whether a key of so many bytes, whose answer shows the cas if gets, can go on
// the line.
func (l *Line) Fits(gets bool, key int) bool {
	return l.length > 0 && l.gets == gets && int(l.length)+len(" ")+key <= longestLine
}

// Begin makes l a line of its own.
func (l *Line) Begin(gets bool) { l.gets = gets }

// Continue lets l go on with the line of before, whose line's end is gone: Ends says where
// it is now.
func (l *Line) Continue(before *Line) {
	before.Joined = true
	l.length, l.gets = before.length-int32(len(wire.CRLF)), before.gets
}

// Ends says that the request, of so many bytes, is whole and ends its line.
func (l *Line) Ends(size int) { l.length += int32(size) }

// Shared says that the line of a request of so many bytes has others, too.
func (l *Line) Shared(size int) bool { return l.Joined || int(l.length) > size }
