package proxy

// One connection as the engine and its driver share it.

// Sock is what a driver keeps behind a Link.
type Sock interface {
	// Peer names the other end, for people.
	Peer() string

	// Unsent is how many of the bytes that Wrote has reported are not known to
	// have reached the other end's kernel: 0 where that cannot be told. Only a
	// server's is asked for, when a mutation was not answered in time; that may
	// cost a system call.
	Unsent() int
}

// Link is one connection: a client's or a server's. The driver moves its
// bytes; the engine owns everything else. A Link must only be touched by the
// goroutine that drives its engine.
type Link struct {
	Sock Sock // the driver's; nil while there is no socket

	session *Session // one of these two is set
	conn    *Conn

	in   *chunk // input that is not a whole request or reply yet
	need int    // how long in must be before it is worth looking at; 0: at any byte
	out  queue  // bytes for the socket

	dirty    bool // in Engine.dirty
	full     bool // the socket refused bytes; the driver will say when it takes more
	paused   bool // the driver was told not to read
	closed   bool // Close or Abort was ordered, or Closed reported
	bytesIn  uint64
	bytesOut uint64
}

// Pending appends to iov the bytes that wait for the socket, in order. They
// stay valid until Wrote or Closed is called. From an order to close on there
// are none: what is there already is for the next connection, and a socket
// that becomes writable in the same wakeup must not get it.
func (l *Link) Pending(iov [][]byte) [][]byte {
	if l.closed {
		return iov
	}
	if c := l.conn; c != nil && c.held != nil {
		return c.unheld(iov)
	}
	return l.out.spans(iov, 64)
}

// Client reports whether l is a client's connection.
func (l *Link) Client() bool { return l.session != nil }

// Owed is how many answers are still due on a server's connection, and the mean
// size of its last ones in bytes; 0 while there were none.
func (l *Link) Owed() (answers, size int) {
	c := l.conn
	return c.due(), c.came / max(c.settled, 1)
}

// Dialled returns the address of the server that an effect Dial names.
func (l *Link) Dialled() (network, address string) {
	return l.conn.srv.target.Network, l.conn.srv.target.Address
}

// EffectKind is what a driver is asked to do.
type EffectKind uint8

// The effects.
const (
	Write  EffectKind = iota // send Pending, report Wrote
	Dial                     // connect, report Up or Closed
	Close                    // close after the kernel has sent what it holds
	Abort                    // reset: throw away what the kernel holds (SO_LINGER 0)
	Pause                    // stop reading
	Resume                   // read again
)

// Effect is one thing a driver must do for a Link.
type Effect struct {
	Kind EffectKind
	Link *Link
}
