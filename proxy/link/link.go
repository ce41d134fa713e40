package link

// One connection as the engine and its driver share it.

import "errors"

// Sock is what a driver keeps behind a Link.
type Sock interface {
	// Peer names the other end, for people.
	Peer() string

	// Unsent is how many of the bytes that Wrote has reported are not known to
	// have reached the other end's kernel: 0 where that cannot be told. Only a
	// server's is asked for, when a mutation was not answered in time; that may
	// cost a system call.
	Unsent() int

	// Ready says whether the other end has done something that the driver has not
	// reported yet: it has sent bytes, or a connection is there. Only a server's is
	// asked for, before it is taken for silent; that may cost a system call.
	Ready() bool
}

// Link is one connection: a client's or a server's. The driver moves its
// bytes; the engine owns everything else. A Link must only be touched by the
// goroutine that drives its engine.
type Link struct {
	Sock Sock // the driver's; nil while there is no socket

	End    End    // who it belongs to: what is done with its bytes
	Dialer Dialer // the same, if it is a connection to a server; nil: it is a client

	In   *Chunk // input that is not a whole request or reply yet
	Need int    // how long In must be before another look at it pays; 0: any byte pays
	Out  Queue  // bytes for the socket

	Handed int // bytes that Wrote has reported and the driver still holds

	pendingFlush bool   // it is in IO.PendingFlush
	Full         bool   // the socket refused bytes; the driver will say when it takes more
	Paused       bool   // the driver was told not to read
	Closed       bool   // an effect Close or Abort has named it, or the driver has reported its end
	BytesIn      uint64 // from the socket
	BytesOut     uint64 // taken by the socket
}

// ErrRefused is what a driver reports, wrapped or not, where nobody listens at the
// address of a server.
var ErrRefused = errors.New("connection refused")

// End is one end of a connection: what is done with its bytes.
type End interface {
	// Came is told that n bytes have been read, before they are parsed.
	Came(n int)

	// Parse serves what it can of the input being parsed.
	Parse()

	// Sent is told that the socket took n bytes, or takes bytes again.
	Sent(n int)

	// Flush decides, when the wakeup ends, what is sent now.
	Flush()

	// Lost is told that the socket is gone; err is nil at a clean end of input.
	Lost(err error)
}

// Dialer is an End that Ringside connects by itself: a server's.
type Dialer interface {
	End

	// Up is told that the connection is there.
	Up()

	// Target is the address to connect to.
	Target() (network, address string)

	// Pending appends to iov the bytes that may go out now.
	Pending(iov [][]byte) [][]byte

	// Owed is how many answers are still due, and the mean size of the last
	// ones in bytes; 0 while there were none.
	Owed() (answers, size int)
}

// Pending appends to iov the bytes that wait for the socket, in order. They
// stay valid until Wrote or Closed is called. From an order to close on there
// are none: what is there already is for the next connection, and a socket
// that becomes writable in the same wakeup must not get it.
func (l *Link) Pending(iov [][]byte) [][]byte {
	switch {
	case l.Closed:
		return iov
	case l.Dialer != nil:
		return l.Dialer.Pending(iov)
	}
	return l.Out.Spans(iov, SpansAtOnce)
}

const SpansAtOnce = 64 // pieces for one call to the system

// Client reports whether l is a client's connection.
func (l *Link) Client() bool { return l.Dialer == nil }

// Server is the other end of a server's connection; nil if l is a client's.
func (l *Link) Server() Dialer { return l.Dialer }

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
