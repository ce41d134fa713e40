//go:build unix

package admin

// What the process has used, where the system tells.

import (
	"syscall"
	"time"
)

func cpuUsed() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
