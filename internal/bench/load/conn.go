//go:build linux

package load

// This file has the clients and their connections: sockets, bytes to send, and requests that wait
// for replies.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// client is one of the clients of the load. Its connections are called lanes. It has one lane, or
// one lane to each server if the load places the keys itself.
type client struct {
	id         int
	lanes      []conn
	due        int   // number of requests without a reply, on all connections of the client
	unanswered int   // if a multi-get is split by server: the number of parts without a reply; if connections are closed after some requests: the number of requests left on this one; otherwise 0
	start      int64 // time when the client's current request began, in nanoseconds since the loop began
	served     int64 // number of requests of the client with a reply
}

type conn struct {
	id, fd int // index of the connection, and its file descriptor; fd -1: not connected
	check  checker
	out    []byte // bytes of requests that are to be sent
	sent   int    // number of bytes of out that were sent already
	part   []byte // incomplete line that was read; its end is not read yet
	full   bool   // true if the socket accepts no more bytes now; epoll reports when it does
}

// connect starts to connect to the address a. If `from` is not nil, it is the local address of the
// connection. Each local address has its own range of ports.
func connect(a at, from unix.Sockaddr) (fd int, err error) {
	fd, err = unix.Socket(a.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("a socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if a.family != unix.AF_UNIX {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return -1, fmt.Errorf("TCP_NODELAY: %w", err)
		}
	}
	if from != nil {
		if err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1), unix.Bind(fd, from)); err != nil {
			return -1, fmt.Errorf("an address to connect from: %w", err)
		}
	}
	if err := unix.Connect(fd, a.to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, fmt.Errorf("connect to %s: %w", a.text, err)
	}
	return fd, nil
}

// flush sends bytes of c.out until the socket accepts no more.
func (c *conn) flush() error {
	for c.sent < len(c.out) {
		n, err := unix.Write(c.fd, c.out[c.sent:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.full = true
			return nil
		case err != nil:
			return fmt.Errorf("send: %w", err)
		default:
			c.sent += n
		}
	}
	c.out, c.sent, c.full = c.out[:0], 0, false
	return nil
}
