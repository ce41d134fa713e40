//go:build unix

package config

// Opening of files on Unix, without waiting for the other end of a pipe.

import "syscall"

// nonBlocking is the flag with which opening a pipe returns at once.
const nonBlocking = syscall.O_NONBLOCK
