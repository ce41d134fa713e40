package memnode

// This file has clients without a socket. They are for simulations of a network and a clock.

import "io"

// New returns a Node without a listener. Its clients are created with the method Line. The Node
// need not be closed.
func New(options Options) (*Node, error) { return newNode(options) }

// Keys returns all keys of n, the most recently used last.
func (n *Node) Keys() []string {
	n.store.lock()
	defer n.store.unlock()
	return n.store.items.Keys()
}

// A Line is a client of a Node without a socket: the caller passes its requests and gets its
// replies. A Line is not safe for concurrent use.
type Line struct {
	c       *conn
	in, out []byte
}

// Line adds a client to a node that was created by New.
func (n *Node) Line() *Line {
	l := &Line{}
	l.c = newConn(n, l)
	return l
}

// Do executes the given requests, which must be complete, and returns their replies. The returned
// slice is valid until the next call.
func (l *Line) Do(requests []byte) []byte {
	l.in, l.out = requests, l.out[:0]
	l.c.run()
	return l.out
}

// Read makes Line an io.Reader. The node reads the requests with it.
func (l *Line) Read(p []byte) (int, error) {
	if len(l.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.in)
	l.in = l.in[n:]
	return n, nil
}

// Write makes Line an io.Writer. The node writes the replies with it.
func (l *Line) Write(p []byte) (int, error) {
	l.out = append(l.out, p...)
	return len(p), nil
}
