package memnode

// line.go: clients without a socket, for simulations with a network and a clock of their own.

import "io"

// New is a Node that listens nowhere: its clients are Lines. It needs no Close.
func New(options Options) (*Node, error) { return newNode(options) }

// Keys are all that n holds, the most recently used last.
func (n *Node) Keys() []string {
	n.store.lock()
	defer n.store.unlock()
	return n.store.items.Keys()
}

// A Line is one client whose bytes the caller carries. It is not safe for concurrent use.
type Line struct {
	c       *conn
	in, out []byte
}

// Line is one more client of a node that was made by New.
func (n *Node) Line() *Line {
	l := &Line{}
	l.c = newConn(n, l)
	return l
}

// Do carries out whole requests, at once, and returns the answers, which are valid until the next call.
func (l *Line) Do(requests []byte) []byte {
	l.in, l.out = requests, l.out[:0]
	l.c.run()
	return l.out
}

// Read is for the node.
func (l *Line) Read(p []byte) (int, error) {
	if len(l.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.in)
	l.in = l.in[n:]
	return n, nil
}

// Write is for the node.
func (l *Line) Write(p []byte) (int, error) {
	l.out = append(l.out, p...)
	return len(p), nil
}
