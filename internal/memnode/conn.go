package memnode

// This file serves one client connection. Package wire parses the requests; this file executes them in
// order, and sends the replies.

import (
	"bytes"
	"io"
	"slices"

	"ringside/proxy/wire"
)

const (
	readBuffer  = 16 << 10
	writeBuffer = 64 << 10 // replies are sent when this many bytes are pending, or when no more requests have arrived

	// maxGetLine is the greatest length of the line of a get in bytes. memcached does not limit it.
	maxGetLine = 1 << 20

	binaryRequest = 0x80 // first byte of a client that uses the binary protocol
)

// Error replies of a request that package wire has accepted.
const (
	badNumber = "CLIENT_ERROR cannot increment or decrement non-numeric value"
	tooLarge  = "SERVER_ERROR object too large for cache"
)

// A conn serves one client.
type conn struct {
	node   *Node
	rw     io.ReadWriter
	limits wire.Limits

	in  []byte // what the client has sent
	at  int    // how much of it is executed
	out []byte

	// The request that is being executed. Its spans are offsets into text.
	req     wire.Request
	text    []byte
	scratch [maxKey]byte // buffer for a key that was decoded from base64
}

func newConn(n *Node, rw io.ReadWriter) *conn {
	return &conn{node: n, rw: rw, limits: wire.Limits{Line: maxGetLine, Value: n.options.MaxItem}}
}

// run serves the client until it disconnects or sends what ends the connection, or until the node is
// closed.
func (c *conn) run() {
	if c.at == len(c.in) && c.receive(1) != nil {
		return
	}
	if c.in[c.at] == binaryRequest {
		return
	}
	for c.next() {
		if len(c.out) >= writeBuffer && c.send() != nil {
			return
		}
	}
	_ = c.send() // the connection ends, whether the client reads it or not
}

// next executes the next request. It returns false if the connection ends.
func (c *conn) next() bool {
	c.text = c.in[c.at:]
	n, err := c.limits.Next(c.text, &c.req)
	for err != nil { // the request is not complete
		if c.receive(c.req.Need) != nil {
			return false
		}
		c.text = c.in[c.at:]
		n, err = c.limits.Next(c.text, &c.req)
	}
	c.at += n
	return c.execute() && c.skip(int(c.req.Swallow)) == nil && c.req.Flags&wire.CloseAfter == 0
}

// receive reads more bytes, until there are at least need bytes that are not executed. It sends the pending
// replies before, because the read may block. So the replies to a pipeline are sent in one piece, and no
// reply waits for the next request.
func (c *conn) receive(need int) error {
	if err := c.send(); err != nil {
		return err
	}
	rest := c.in[c.at:]
	if cap(c.in) > 2*writeBuffer && len(rest)+need < writeBuffer { // the buffer has grown for a large value, so its memory is released
		c.in = nil
	}
	c.in, c.at = append(c.in[:0], rest...), 0
	more := max(need-len(c.in), 1)
	c.in = slices.Grow(c.in, max(more, readBuffer))
	n, err := io.ReadAtLeast(c.rw, c.in[len(c.in):cap(c.in)], more)
	c.in = c.in[:len(c.in)+n]
	return err
}

// skip discards the next n bytes: the value of a request that was refused.
func (c *conn) skip(n int) error {
	here := min(n, len(c.in)-c.at)
	c.at += here
	if n == here {
		return nil
	}
	if err := c.send(); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c.rw, int64(n-here))
	return err
}

func (c *conn) send() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.rw.Write(c.out)
	c.out = c.out[:0]
	if cap(c.out) > 2*writeBuffer { // the buffer has grown for a large value, so its memory is released
		c.out = nil
	}
	return err
}

// execute executes the request. It returns false if the connection ends.
func (c *conn) execute() bool {
	r := &c.req
	switch meta := r.Dialect == wire.Meta; {
	case meta && c.node.options.Old: // the next command begins after the line, even if that is a value
		c.at, r.Swallow = len(c.in)-len(c.text)+bytes.IndexByte(c.text, '\n')+1, 0
		c.reply("ERROR")
	case r.Op == wire.Quit:
		return false
	case r.Op == wire.Bad && bytes.HasPrefix(r.Answer, []byte(forOperators)), r.Op == wire.Memlimit:
		c.reply("ERROR")
	case r.Op == wire.Bad, r.Op == wire.Shutdown:
		c.out = append(c.out, r.Answer...)
	case r.UnknownFlags():
		c.refuseFlags()
	case r.Op.Stores():
		c.store()
	case meta && r.Op == wire.Get:
		c.metaGet()
	case r.Op <= wire.Gats:
		return c.get()
	case meta && r.Op == wire.Delete:
		c.metaDelete()
	case r.Op == wire.Delete:
		c.delete()
	case meta && (r.Op == wire.Incr || r.Op == wire.Decr):
		c.metaArithmetic()
	case r.Op == wire.Incr, r.Op == wire.Decr:
		c.arithmetic()
	case r.Op == wire.Touch:
		c.touch()
	case r.Op == wire.Debug:
		c.metaDebug()
	case r.Op == wire.Noop:
		c.reply("MN")
	case r.Op == wire.FlushAll:
		c.flushAll()
	case r.Op == wire.Version:
		c.reply("VERSION " + c.node.options.Version)
	case r.Op == wire.Verbosity:
		c.reply("OK") // without an effect, because a Node does not log
	case r.Op == wire.Stats:
		c.stats()
	}
	return true
}

// forOperators is the beginning of the reply of package wire to commands for the internals of one server.
const forOperators = "CLIENT_ERROR ask one server directly"

// key returns the key of the request.
func (c *conn) key() []byte {
	key := c.req.Key.Of(c.text)
	if c.req.Flags&wire.Base64 != 0 {
		key, _ = wire.DecodeKey(c.scratch[:0], key)
	}
	return key
}

// deadline converts an exptime in the request to a second of the store's clock.
func (c *conn) deadline(exptime wire.Span) uint32 {
	return c.node.store.deadline(int32(wire.Signed(exptime.Of(c.text))))
}

// number returns an unsigned number in the request; 0 if it is absent.
func (c *conn) number(s wire.Span) uint64 { return wire.Unsigned(s.Of(c.text)) }

// store executes the commands that store a value, in both dialects.
func (c *conn) store() {
	r, s := &c.req, c.node.store
	meta := r.Dialect == wire.Meta
	it := &item{flags: uint32(c.number(r.ClientFlags)), expires: c.deadline(r.Exptime)}
	key := c.key()
	s.lock()
	defer s.unlock()
	if r.Flags&wire.TooLarge != 0 || size(len(key), it.flags, r.Body.Len()) > s.maxItem {
		s.storeTooLarge++
		if meta || r.Op == wire.Set { // a set that fails removes the old value, so that no reader gets it
			s.discard(key)
		}
		c.reply(tooLarge)
		return
	}
	s.cmdSet++
	it.value = bytes.Clone(r.Body.Of(c.text))
	if r.Flags&wire.Base64 != 0 {
		it.marks = encoded
	}
	result, cas := s.write(r.Op, string(key), it, c.number(r.Unique), r.Letters.Has('I'))
	if meta {
		c.stored(result, cas)
	} else {
		c.reply(textOutcomes[result])
	}
}

// reply writes a reply line. It writes nothing if a text command has noreply.
func (c *conn) reply(line string) {
	if c.req.Dialect == wire.Text && c.req.Flags&wire.Quiet != 0 {
		return
	}
	c.out = append(c.out, line...)
	c.endLine()
}

func (c *conn) endLine() { c.out = append(c.out, '\r', '\n') }
