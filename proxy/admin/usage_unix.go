//go:build unix

package admin

// This file reads the CPU time of the process on unix systems.

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
