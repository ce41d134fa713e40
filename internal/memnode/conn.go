package memnode

// conn.go: one client: lines and values in, commands carried out in order, answers out.

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync/atomic"
)

const (
	readBuffer  = 16 << 10
	writeBuffer = 64 << 10 // answers are sent when there are so many, or when input is drained

	// A line without an end in sight closes the connection, as in memcached, unless it is
	// a get of many keys, which memcached does not limit.
	maxLine    = 2048
	maxGetLine = 1 << 20

	binaryRequest = 0x80 // begins a client that speaks the binary protocol

	maxTokens = 23 // of a line; what follows them only matters to get
)

// Answers that are spelled in more than one place.
const (
	badFormat = "CLIENT_ERROR bad command line format"
	badChunk  = "CLIENT_ERROR bad data chunk"
	badNumber = "CLIENT_ERROR cannot increment or decrement non-numeric value"
	badTTL    = "CLIENT_ERROR invalid exptime argument"
	tooLarge  = "SERVER_ERROR object too large for cache"
)

var (
	errQuit    = errors.New("memnode: the client is done")
	errTooLong = errors.New("memnode: line too long")
)

// A conn serves one client.
type conn struct {
	node *Node
	rw   io.ReadWriter
	id   int
	last atomic.Uint32 // the second of the last command

	in   *bufio.Reader
	out  []byte
	line []byte // a copy: its tokens outlive the read of a value

	// The command being carried out.
	tokens  [][]byte
	rest    []byte // of the line, behind maxTokens tokens
	noreply bool
	scratch [maxKey]byte // the key that base64 spelled
}

func newConn(n *Node, rw io.ReadWriter) *conn {
	c := &conn{node: n, rw: rw, tokens: make([][]byte, 0, maxTokens)}
	c.in = bufio.NewReaderSize(source{c}, readBuffer)
	return c
}

// run serves until the client goes, breaks the protocol beyond repair, or the node closes.
func (c *conn) run() {
	if first, err := c.in.Peek(1); err != nil || first[0] == binaryRequest {
		return
	}
	for {
		err := c.readLine()
		if err == nil {
			err = c.execute()
		}
		if err != nil {
			c.send()
			return
		}
		if len(c.out) >= writeBuffer && c.send() != nil {
			return
		}
	}
}

// source is what a conn's reader reads from. A read that may have to wait sends the answers so
// far first: that is how a pipeline is answered in one piece, and never too late.
type source struct{ c *conn }

func (s source) Read(p []byte) (int, error) {
	if err := s.c.send(); err != nil {
		return 0, err
	}
	n, err := s.c.rw.Read(p)
	s.c.node.await()
	return n, err
}

func (c *conn) send() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.rw.Write(c.out)
	c.out = c.out[:0]
	if cap(c.out) > 2*writeBuffer { // a large value went out: do not keep its room
		c.out = nil
	}
	return err
}

// readLine puts the next line, without its end, into c.line.
func (c *conn) readLine() error {
	if cap(c.line) > readBuffer {
		c.line = nil
	}
	c.line = c.line[:0]
	seen := 0 // bytes of the buffer that hold no line end
	for {
		buf, _ := c.in.Peek(c.in.Buffered()) // buffered: no error, no wait
		if i := bytes.IndexByte(buf[seen:], '\n'); i >= 0 {
			c.line = append(c.line, buf[:seen+i]...)
			c.in.Discard(seen + i + 1)
			if n := len(c.line); n > 1 && c.line[n-1] == '\r' {
				c.line = c.line[:n-1]
			}
			return nil
		}
		seen = len(buf)
		if n := len(c.line) + seen; n > maxGetLine || n > maxLine && len(c.line) == 0 && !getsMany(buf) {
			return errTooLong
		}
		if seen == c.in.Size() {
			c.line = append(c.line, buf...)
			c.in.Discard(seen)
			seen = 0
		}
		if _, err := c.in.Peek(seen + 1); err != nil {
			return err
		}
	}
}

// getsMany says whether a line begins as a get, perhaps behind some spaces.
func getsMany(line []byte) bool {
	command := bytes.TrimLeft(line, " ")
	if len(line)-len(command) > 100 {
		return false
	}
	return bytes.HasPrefix(command, []byte("get ")) || bytes.HasPrefix(command, []byte("gets "))
}

// readValue reads n bytes and their line end. The value is nil if they do not end so.
func (c *conn) readValue(n int) ([]byte, error) {
	buf := make([]byte, n+2)
	if _, err := io.ReadFull(c.in, buf); err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(buf, []byte("\r\n")) {
		return nil, nil
	}
	return buf[:n:n], nil
}

// skipValue throws n bytes and their line end away.
func (c *conn) skipValue(n int) error {
	_, err := c.in.Discard(n + 2)
	return err
}

// nextToken cuts the first word off a line; there is none when token is empty.
func nextToken(line []byte) (token, rest []byte) {
	line = bytes.TrimLeft(line, " ")
	if i := bytes.IndexByte(line, ' '); i >= 0 {
		return line[:i], line[i+1:]
	}
	return line, nil
}

// execute carries out the command in c.line. An error ends the connection.
func (c *conn) execute() error {
	c.last.Store(c.node.store.second())
	c.noreply = false
	c.split(untilNUL(c.line))
	if len(c.tokens) == 0 {
		c.reply("ERROR")
		return nil
	}
	switch string(c.tokens[0]) {
	case "get", "bget":
		return c.get(false, false)
	case "gets":
		return c.get(true, false)
	case "gat":
		return c.get(false, true)
	case "gats":
		return c.get(true, true)
	case "set":
		return c.set(setMode)
	case "add":
		return c.set(addMode)
	case "replace":
		return c.set(replaceMode)
	case "append":
		return c.set(appendMode)
	case "prepend":
		return c.set(prependMode)
	case "cas":
		return c.set(casMode)
	case "ms":
		return c.metaSet()
	case "mg":
		c.metaGet()
	case "md":
		c.metaDelete()
	case "ma":
		c.metaArithmetic()
	case "me":
		c.metaDebug()
	case "mn":
		c.reply("MN")
	case "delete":
		c.delete()
	case "incr":
		c.arithmetic(false)
	case "decr":
		c.arithmetic(true)
	case "touch":
		c.touch()
	case "flush_all":
		c.flushAll()
	case "verbosity":
		c.verbosity()
	case "version":
		c.reply("VERSION " + c.node.options.Version)
	case "stats":
		c.stats()
	case "shutdown":
		c.reply("ERROR: shutdown not enabled")
	case "quit":
		return errQuit
	default:
		if last := c.lastToken(); len(c.tokens) > 1 && bytes.HasPrefix(last, []byte("HTTP/")) {
			return errQuit // a browser that was sent here by a hostile page
		}
		c.reply("ERROR")
	}
	return nil
}

// split finds the first tokens of a line; what is behind them is c.rest.
func (c *conn) split(line []byte) {
	c.tokens, c.rest = c.tokens[:0], line
	for len(c.tokens) < maxTokens {
		var token []byte
		if token, c.rest = nextToken(c.rest); len(token) == 0 {
			break
		}
		c.tokens = append(c.tokens, token)
	}
}

// pastNUL splits the whole line, for a storing command whose length may be behind a NUL: its
// value must not be taken for commands. It says whether there is one.
func (c *conn) pastNUL() bool {
	if bytes.IndexByte(c.line, 0) < 0 {
		return false
	}
	c.split(c.line)
	return true
}

// lastToken is the last word of the line.
func (c *conn) lastToken() []byte {
	last := c.tokens[len(c.tokens)-1]
	for rest := c.rest; len(rest) > 0; {
		var token []byte
		if token, rest = nextToken(rest); len(token) > 0 {
			last = token
		}
	}
	return last
}

// reply answers with a line, errors included, unless the client wants none.
func (c *conn) reply(line string) {
	if c.noreply {
		return
	}
	c.out = append(c.out, line...)
	c.endLine()
}

// fail answers with an error that even noreply and q do not hide.
func (c *conn) fail(line string) {
	c.noreply = false
	c.reply(line)
}

func (c *conn) endLine() { c.out = append(c.out, '\r', '\n') }

// takes says whether the command has so many words, counted with its name; if not, it answers.
func (c *conn) takes(least, most int) bool {
	if n := len(c.tokens); n < least || n > most {
		c.reply("ERROR")
		return false
	}
	return true
}

// readNoreply looks whether the last word is noreply.
func (c *conn) readNoreply() {
	c.noreply = string(c.lastToken()) == "noreply"
}
