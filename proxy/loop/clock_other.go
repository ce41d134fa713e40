//go:build !linux

package loop

// The clock of all loops, where there is none that is known to count a suspend.

import "time"

var started = time.Now()

// now is the time since the process was started, in nanoseconds.
func now() int64 { return int64(time.Since(started)) }
