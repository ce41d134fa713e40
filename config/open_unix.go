//go:build unix

package config

import "syscall"

// nonBlocking makes opening a pipe return at once.
const nonBlocking = syscall.O_NONBLOCK
