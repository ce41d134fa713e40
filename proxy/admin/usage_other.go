//go:build !unix

package admin

// CPU time of the process: not available on this system.

import "time"

func cpuUsed() time.Duration { return 0 }
