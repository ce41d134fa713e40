//go:build unix

package tracefile

// On Unix, a symbolic link in place of a trace file can be refused.

import "syscall"

// noFollow makes opening a symbolic link fail.
const noFollow = syscall.O_NOFOLLOW
