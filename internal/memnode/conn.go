package memnode

// This file serves one client connection. It reads lines and values, executes the commands in
// order, and writes replies.

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	readBuffer  = 16 << 10
	writeBuffer = 64 << 10 // replies are sent when this many bytes are pending, or when no more requests have arrived

	// maxLine is the greatest length of a line in bytes. A longer line closes the connection, as in
	// memcached. A get may have maxGetLine bytes; memcached does not limit it.
	maxLine    = 2048
	maxGetLine = 1 << 20

	binaryRequest = 0x80 // first byte of a client that uses the binary protocol

	maxTokens = 23 // greatest number of words of a line that are split at once; only get reads more words
)

// Error replies that are used in several places.
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

	in   *bufio.Reader
	out  []byte
	line []byte // copy of the current line; a copy because its words are used after the value has been read

	// State of the command that is being executed. tokens are the words of its line.
	tokens  [][]byte
	rest    []byte // part of the line after the first maxTokens words
	noreply bool
	scratch [maxKey]byte // buffer for a key that was decoded from base64
}

func newConn(n *Node, rw io.ReadWriter) *conn {
	c := &conn{node: n, rw: rw, tokens: make([][]byte, 0, maxTokens)}
	c.in = bufio.NewReaderSize(source{c}, readBuffer)
	return c
}

// run serves the client until it disconnects or sends a line that is too long, or until the node is
// closed.
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

// source is the reader from which conn.in reads. Its Read sends the pending replies before it reads
// from the client, because the read may block. So the replies to a pipeline are sent in one piece,
// and no reply waits for the next request.
type source struct{ c *conn }

func (s source) Read(p []byte) (int, error) {
	if err := s.c.send(); err != nil {
		return 0, err
	}
	return s.c.rw.Read(p)
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

// readLine reads the next line from the client into c.line, without its line end.
func (c *conn) readLine() error {
	if cap(c.line) > readBuffer {
		c.line = nil
	}
	c.line = c.line[:0]
	seen := 0 // number of bytes at the start of the buffer that were searched and have no line end
	for {
		buf, _ := c.in.Peek(c.in.Buffered()) // only the bytes that are buffered already, so Peek returns no error and does not wait
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

// getsMany reports whether line begins with get or gets. Up to 100 spaces may precede the command.
func getsMany(line []byte) bool {
	command := bytes.TrimLeft(line, " ")
	if len(line)-len(command) > 100 {
		return false
	}
	return bytes.HasPrefix(command, []byte("get ")) || bytes.HasPrefix(command, []byte("gets "))
}

// readValue reads a value of n bytes and its line end. If the line end is missing, it returns nil
// without an error.
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

// skipValue reads a value of n bytes and its line end, and discards both.
func (c *conn) skipValue(n int) error {
	_, err := c.in.Discard(n + 2)
	return err
}

// nextToken returns the first word of a line and the part after it. token is empty if the line has
// no word.
func nextToken(line []byte) (token, rest []byte) {
	line = bytes.TrimLeft(line, " ")
	if i := bytes.IndexByte(line, ' '); i >= 0 {
		return line[:i], line[i+1:]
	}
	return line, nil
}

// execute executes the command in c.line. An error ends the connection.
func (c *conn) execute() error {
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
			return errQuit // the request is HTTP: a hostile web page may have made a browser send it
		}
		c.reply("ERROR")
	}
	return nil
}

// split sets c.tokens to the first words of a line, and c.rest to the part of the line after them.
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

// pastNUL reports whether the line contains a NUL. If it does, pastNUL splits the line again,
// including the part after the NUL. The length of a value may be in that part, and without it the
// value would be executed as commands.
func (c *conn) pastNUL() bool {
	if bytes.IndexByte(c.line, 0) < 0 {
		return false
	}
	c.split(c.line)
	return true
}

// lastToken returns the last word of the current line.
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

// reply writes a reply line, which may be an error. It writes nothing if the command has noreply.
func (c *conn) reply(line string) {
	if c.noreply {
		return
	}
	c.out = append(c.out, line...)
	c.endLine()
}

// fail writes an error line, even if the command has noreply.
func (c *conn) fail(line string) {
	c.noreply = false
	c.reply(line)
}

func (c *conn) endLine() { c.out = append(c.out, '\r', '\n') }

// takes reports whether the command has the right number of words, including its name: from least
// to most. If not, it writes an error.
func (c *conn) takes(least, most int) bool {
	if n := len(c.tokens); n < least || n > most {
		c.reply("ERROR")
		return false
	}
	return true
}

// readNoreply sets c.noreply if the last word of the line is noreply.
func (c *conn) readNoreply() {
	c.noreply = string(c.lastToken()) == "noreply"
}
