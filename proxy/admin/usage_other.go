//go:build !unix

package admin

// This file is for systems on which the CPU time of the process is not available.

import "time"

func cpuUsed() time.Duration { return 0 }
