package loop

// What the kernel has not got rid of yet, on Linux.

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacked is how many bytes of a TCP socket the other end's kernel has not
// acknowledged.
func unacked(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// unread says whether bytes have come on a socket that nobody has read.
func unread(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err == nil && n > 0
}

// unreadOf is unread for a net.Conn.
func unreadOf(c net.Conn) (yes bool) {
	if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { yes = unread(int(fd)) })
	}
	return yes
}

// unackedOf is unacked for a net.Conn. What a unix socket has taken is with
// the other end at once.
func unackedOf(c net.Conn) (n int) {
	if _, tcp := c.(*net.TCPConn); !tcp {
		return 0
	}
	if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { n = unacked(int(fd)) })
	}
	return n
}
