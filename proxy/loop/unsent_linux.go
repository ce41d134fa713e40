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
