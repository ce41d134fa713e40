//go:build unix

package tracefile

// On Unix, opening a trace file fails if its path is a symbolic link.

import "syscall"

// noFollow is the flag with which opening a symbolic link fails.
const noFollow = syscall.O_NOFOLLOW
