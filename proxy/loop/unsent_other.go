//go:build !linux

package loop

// This file replaces the queries of the kernel's send and receive queues on systems where the
// driver makes none.

import "net"

// unreadOf returns 0: bytes that the reader has not read count as not arrived.
func unreadOf(net.Conn) int { return 0 }

// unackedOf returns 0: all bytes count as arrived, so a late delete always follows them.
func unackedOf(net.Conn) int { return 0 }
