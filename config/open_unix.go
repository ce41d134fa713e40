//go:build unix

package config

// On Unix, opening a pipe does not wait for its other end.

import "syscall"

// nonBlocking is the flag with which opening a pipe returns at once.
const nonBlocking = syscall.O_NONBLOCK
