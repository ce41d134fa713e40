//go:build !unix

package admin

// What the process has used, where the system does not tell as unix does.

import "time"

func cpuUsed() time.Duration { return 0 }
