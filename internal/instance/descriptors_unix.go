//go:build unix

package instance

// This file reads the limit of open files on Unix.

import "syscall"

// openFiles returns the maximum number of descriptors of the process. The Go runtime
// has already raised the soft limit to the hard limit.
func openFiles() (n uint64, known bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil
}
