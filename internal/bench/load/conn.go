//go:build linux

package load

// One connection: a socket, what is to be sent, what is due.

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

type conn struct {
	id, fd int
	check  checker
	out    []byte // what is to be sent
	sent   int    // how much of it went out
	part   []byte // the beginning of a line, read but not whole
	full   bool   // the socket took no more; epoll says when it does
	served int64  // replies in all
	good   int64  // those of them in the window, without a miss or an error
}

// dial connects within timeout.
func dial(addr netip.AddrPort, timeout time.Duration) (fd int, err error) {
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()})
	if addr.Addr().Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("a socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return -1, fmt.Errorf("TCP_NODELAY: %w", err)
	}
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, fmt.Errorf("connect to %s: %w", addr, err)
	}
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for until := time.Now().Add(timeout); ; {
		n, err := unix.Poll(ready, int(max(0, time.Until(until).Milliseconds())))
		if n == 0 && err == nil {
			return -1, fmt.Errorf("connect to %s: no answer within %v", addr, timeout)
		}
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		return -1, fmt.Errorf("connect to %s: %w", addr, errors.Join(err, unix.Errno(code)))
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
