//go:build linux

package load

// This file checks the replies on one connection. It uses no sockets: it gets the bytes that were
// read.

import (
	"bytes"
	"errors"
	"fmt"
)

type kind uint8

const (
	get kind = iota
	set
	fence // a get of a key that is never written; a surplus reply before its reply is detected
)

// request is a request that was sent and has no reply yet.
type request struct {
	kind  kind
	first int   // number of the first key of the request
	n     int   // number of keys of the request
	start int64 // time when the request was due or was sent, in nanoseconds since the loop began
}

const fenceKey = "ringbench-no-such-key"

var (
	crlf        = []byte("\r\n")
	end         = []byte("END\r\n")
	stored      = []byte("STORED\r\n")
	serverError = []byte("SERVER_ERROR ")
)

// maxLine limits the length of a line of a reply. A correct line has at most 250 bytes of key and
// some numbers.
const maxLine = 512

// checker has the requests of one connection that have no reply yet, in order. It also has the
// state of the reply to the oldest of them.
type checker struct {
	data *data
	lost *Lost // counts of misses and errors; nil: a miss or an error ends the run

	owner []uint8 // by number of the key: the index of the client's connection for that key; nil: the client has only one connection
	lane  uint8

	due        []request // ring buffer of the requests without a reply, in order
	head, size int

	seen   []uint64 // bit set by the key's position in the request: the reply has a hit for that key so far
	found  int      // number of hits in the reply so far
	body   int      // number of the key of the value that is being read; -1: no value is being read
	offset int      // number of bytes of the value and its line end that were read so far
}

func newChecker(d *data, lost *Lost, depth, keys int) checker {
	return checker{data: d, lost: lost, due: make([]request, depth), seen: make([]uint64, (keys+63)/64), body: -1}
}

func (c *checker) push(r request) {
	c.due[(c.head+c.size)%len(c.due)] = r
	c.size++
}

func (c *checker) pop() request {
	r := c.due[c.head]
	c.head = (c.head + 1) % len(c.due)
	c.size--
	clear(c.seen)
	c.found = 0
	return r
}

// first returns the oldest request without a complete reply. The bytes that are read next belong to
// its reply.
func (c *checker) first() *request { return &c.due[c.head] }

// consume checks the bytes b up to the end of the reply to the oldest request. It returns how many
// bytes it used, and whether that reply is complete and right. If the reply is not complete, the
// bytes of b that were not used are the beginning of a line. The caller must pass them again with
// the bytes that follow.
func (c *checker) consume(b []byte) (n int, whole bool, err error) {
	for n < len(b) {
		if c.body >= 0 {
			took, err := c.value(b[n:])
			if err != nil {
				return n, false, err
			}
			n += took
			continue
		}
		stop := bytes.IndexByte(b[n:], '\n') + 1
		if stop == 0 {
			if len(b)-n > maxLine {
				return n, false, fmt.Errorf("a line without end: %s", quote(b[n:]))
			}
			return n, false, nil
		}
		line := b[n : n+stop]
		n += stop
		if c.size == 0 {
			return n, false, fmt.Errorf("a reply without a request: %s", quote(line))
		}
		if whole, err = c.line(line); whole || err != nil {
			return n, whole, err
		}
	}
	return n, false, nil
}

// line checks one line of a reply and reports whether the reply ends with it.
func (c *checker) line(line []byte) (whole bool, err error) {
	r, last := c.first(), end
	if r.kind == set {
		last = stored
	}
	failed := c.lost != nil && bytes.HasPrefix(line, serverError)
	if failed {
		c.lost.Errors++
	}
	if failed || bytes.Equal(line, last) {
		missed := 0
		if r.kind == get {
			missed = c.wanted(r) - c.found
		}
		if c.lost != nil {
			c.lost.Misses += int64(missed)
		} else if missed > 0 {
			return false, fmt.Errorf("a miss: %d of the %d keys from %s on were not answered", missed, c.wanted(r), c.data.key(r.first))
		}
		return true, nil
	}
	if r.kind != get {
		return false, fmt.Errorf("expected %s, got %s", quote(last), quote(line))
	}
	i, ok := c.data.number(line)
	if !ok {
		return false, fmt.Errorf("expected the value of one of the %d keys from %s on or %s, got %s", r.n, c.data.key(r.first), quote(last), quote(line))
	}
	return false, c.hit(r, i)
}

// wanted returns how many keys of the read r were requested on this connection. A client that
// places keys itself has one connection to each server.
func (c *checker) wanted(r *request) int {
	if c.owner == nil || r.n == 1 {
		return r.n
	}
	n := 0
	for place := range r.n {
		if c.owner[(r.first+place)%c.data.count] == c.lane {
			n++
		}
	}
	return n
}

// hit checks that the request r may have a hit for key i now. The value of key i follows.
func (c *checker) hit(r *request, i int) error {
	place := i - r.first
	if place < 0 {
		place += c.data.count
	}
	switch {
	case place >= r.n || c.owner != nil && c.owner[i] != c.lane:
		return fmt.Errorf("the value of key %s, which was not asked for: %d keys from %s on were", c.data.key(i), r.n, c.data.key(r.first))
	case c.seen[place/64]&(1<<(place%64)) != 0:
		return fmt.Errorf("the value of key %s twice", c.data.key(i))
	}
	c.seen[place/64] |= 1 << (place % 64)
	c.found++
	c.body, c.offset = i, 0
	return nil
}

var errValue = errors.New("a wrong value")

// value checks the next bytes of a value and the line end after it. It returns how many bytes it
// used.
func (c *checker) value(b []byte) (took int, err error) {
	if c.offset < c.data.size {
		rest := c.data.value(c.body)[c.offset:]
		took = min(len(rest), len(b))
		if !bytes.Equal(rest[:took], b[:took]) {
			return 0, fmt.Errorf("%w for key %s, in bytes %d to %d", errValue, c.data.key(c.body), c.offset, c.offset+took)
		}
		c.offset += took
	}
	for took < len(b) && c.offset < c.data.size+len(crlf) {
		if b[took] != crlf[c.offset-c.data.size] {
			return 0, fmt.Errorf("%w for key %s: no line end after %d bytes", errValue, c.data.key(c.body), c.data.size)
		}
		took++
		c.offset++
	}
	if c.offset == c.data.size+len(crlf) {
		c.body = -1
	}
	return took, nil
}

func quote(b []byte) string {
	if len(b) > 100 {
		return fmt.Sprintf("%q and %d more bytes", b[:100], len(b)-100)
	}
	return fmt.Sprintf("%q", b)
}
