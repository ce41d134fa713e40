//go:build unix

package config

// On Unix, opening a pipe need not wait for its other end.

import "syscall"

// nonBlocking makes opening a pipe return at once.
const nonBlocking = syscall.O_NONBLOCK
