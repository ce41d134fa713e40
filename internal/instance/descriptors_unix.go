//go:build unix

package instance

// The limit of open files, where there is one.

import "syscall"

// openFiles is how many descriptors the process may have; the Go runtime has
// raised its limit as far as it may be raised.
func openFiles() (n uint64, known bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil
}
