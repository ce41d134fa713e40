package loop

// This file queries the kernel's send and receive queues of a socket, and whether its other end sends no more, on Linux.

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacked returns how many bytes of a TCP socket the other end's kernel has not acknowledged.
func unacked(fd int) int {
	n, _ := unix.IoctlGetInt(fd, unix.TIOCOUTQ) // 0 after an error
	return n
}

// hungUp reports whether the other end of a socket has closed it, or its sending side.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// unread returns how many bytes have arrived on a socket that were not read yet.
func unread(fd int) int {
	n, _ := unix.IoctlGetInt(fd, unix.TIOCINQ) // 0 after an error
	return n
}

// unreadOf returns how many bytes have arrived on a connection that were not read yet.
func unreadOf(c net.Conn) int { return ask(c, unread) }

// ask returns what the kernel replies about the socket of a connection.
func ask(c net.Conn, about func(fd int) int) (n int) {
	if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { n = about(int(fd)) })
	}
	return n
}

// unackedOf returns how many bytes of a connection the other end's kernel has not acknowledged.
// Bytes written to a unix socket reach the other end at once, so the result is 0.
func unackedOf(c net.Conn) int {
	if _, tcp := c.(*net.TCPConn); !tcp {
		return 0
	}
	return ask(c, unacked)
}
