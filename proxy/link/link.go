package link

// This file defines Link: one connection, as the engine and its driver share it.

import (
	"errors"

	"ringside/proxy/table"
)

// Sock is a driver's socket of a Link.
type Sock interface {
	// Peer returns the address of the client or server, for logs and statistics.
	Peer() string

	// Unsent returns how many of the bytes reported to Wrote may not have reached the other end's
	// kernel; 0 if that cannot be determined. It is called for a server when a mutation was
	// not answered in time, and for a client that does not read while others need memory. It may cost a system call.
	Unsent() int

	// Unread returns how many bytes the other end has sent that the driver has not reported yet; 0 if that cannot be determined. If the
	// driver has not reported yet that the other end has accepted the connection, it is more than 0. It is called for a server before
	// that counts as silent, and for a client that sends slowly while others need memory. It may cost a system call.
	Unread() int
}

// HangUp is implemented by a Sock that can tell whether the other end sends no more, while the driver does not read.
type HangUp interface {
	// HungUp reports whether the other end has closed the connection, or its sending side. There may still be bytes that
	// were not read. It costs a system call.
	HungUp() bool
}

// Link is one connection: a client's or a server's. The driver moves its
// bytes; the engine owns everything else. A Link must only be touched by the
// goroutine that drives its engine.
type Link struct {
	Sock Sock // set by the driver; nil: no socket

	End    End    // the Session or Conn that parses the bytes
	Dialer Dialer // equal to End for a connection to a server; nil for a client

	In   *Chunk // input that is not a whole request or reply yet; nil: none
	Need int    // length of In from which parsing it again is worthwhile; 0: any
	Out  Queue  // bytes for the socket

	Handed int // bytes that were reported to Wrote and that the driver still holds

	pendingFlush bool   // the link is in IO.PendingFlush
	Full         bool   // the socket did not accept all bytes; the driver reports when it accepts more
	Stalled      bool   // the End handles no further input for now, so the driver should not read more in this wakeup
	Paused       bool   // the driver was told to stop reading
	Closed       bool   // Close or Abort was requested, or the driver has reported the end
	BytesIn      uint64 // bytes read from the socket
	BytesOut     uint64 // bytes written to the socket
}

// ErrRefused is the error, possibly wrapped, that a driver reports if no process listens at the
// address of a server.
var ErrRefused = errors.New("connection refused")

// End is the engine's side of a connection. It handles the bytes.
type End interface {
	// Came is called when n bytes were read, before they are parsed.
	Came(n int)

	// Parse handles as much as possible of the input being parsed.
	Parse()

	// Sent is called when the socket has accepted n bytes, or accepts bytes again.
	Sent(n int)

	// Flush is called at the end of a wakeup and decides what is sent now.
	Flush()

	// Lost is called when the socket is closed. err is nil after a clean end of input.
	Lost(err error)
}

// Dialer is the End of a connection that Ringside opens: one to a server.
type Dialer interface {
	End

	// Up is called when the connection is established.
	Up()

	// Target returns the address to connect to.
	Target() (network, address string)

	// Security returns the TLS of the next connection.
	Security() table.Security

	// Pending appends to iov the bytes that may be sent now.
	Pending(iov [][]byte) [][]byte

	// Owed returns how many replies are due, and the mean size of the last replies in bytes; 0 if
	// there were none.
	Owed() (answers, size int)
}

// Pending appends to iov the bytes to be written to the socket, in order. They are valid until
// the next call of Wrote or Closed. After the engine has requested Close or Abort, Pending
// returns no bytes. The queue may already contain bytes for the next connection, and a socket
// that becomes writable in the same wakeup must not send them.
func (l *Link) Pending(iov [][]byte) [][]byte {
	switch {
	case l.Closed:
		return iov
	case l.Dialer != nil:
		return l.Dialer.Pending(iov)
	}
	return l.Out.Spans(iov, SpansAtOnce)
}

const SpansAtOnce = 64 // maximum number of spans that one system call writes

// Client reports whether l is a client's connection.
func (l *Link) Client() bool { return l.Dialer == nil }

// Server returns the Dialer of a server connection; nil for a client.
func (l *Link) Server() Dialer { return l.Dialer }

// EffectKind is what a driver must do.
type EffectKind uint8

// The kinds of effects.
const (
	Write  EffectKind = iota // write the bytes of Pending, call Wrote
	Dial                     // connect, call Up or Closed
	Close                    // close after the kernel has sent what it buffers
	Abort                    // reset: discard what the kernel buffers (SO_LINGER 0)
	Pause                    // stop reading
	Resume                   // read again
)

// Effect is one action that a driver must perform for a Link.
type Effect struct {
	Kind EffectKind
	Link *Link
}
