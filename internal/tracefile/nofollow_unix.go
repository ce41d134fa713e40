//go:build unix

package tracefile

// On Unix, an open can reject a symbolic link in place of a trace file.

import "syscall"

// noFollow makes the open of a symbolic link fail.
const noFollow = syscall.O_NOFOLLOW
