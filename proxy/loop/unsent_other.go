//go:build !linux

package loop

// What the kernel has not got rid of yet, where nobody asks it.

import "net"

// unreadOf takes what the reader has not got for not there.
func unreadOf(net.Conn) bool { return false }

// unackedOf takes all for arrived: then a late delete goes behind it in any case.
func unackedOf(net.Conn) int { return 0 }
