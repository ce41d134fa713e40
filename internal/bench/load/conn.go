//go:build linux

package load

// Clients and their connections: a socket, what is to be sent, what is due.

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// client is one of the load's clients. Its lanes are its connections: one, or one to each
// server where the load places keys itself.
type client struct {
	id         int
	lanes      []conn
	due        int   // replies that are due, on all lanes
	unanswered int   // replies that its request still lacks: parts of a multi-get, requests of a visit; 0 of any other
	start      int64 // when that began
	hits       int   // keys found in it
	bad        bool  // a miss or an error was counted in it
	served     int64 // requests that were answered
	good       int64 // those of them in the window, without a miss or an error
}

type conn struct {
	id, fd int // fd is -1 while it is not connected
	check  checker
	out    []byte // what is to be sent
	sent   int    // how much of it went out
	part   []byte // the beginning of a line, read but not whole
	full   bool   // the socket took no more; epoll says when it does
}

// dial connects within timeout.
func dial(a at, timeout time.Duration) (fd int, err error) {
	if fd, err = connect(a, nil); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for until := time.Now().Add(timeout); ; {
		n, err := unix.Poll(ready, int(max(0, time.Until(until).Milliseconds())))
		if n == 0 && err == nil {
			return -1, fmt.Errorf("connect to %s: no answer within %v", a.text, timeout)
		}
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		return -1, fmt.Errorf("connect to %s: %w", a.text, errors.Join(err, unix.Errno(code)))
	}
	return fd, nil
}

// connect begins to connect, from an address that has ports of its own if from is one.
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

// flush sends what the socket takes.
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
