//go:build !linux

package loop

// This file implements the clock of all loops on systems without a clock that is known to
// include suspends.

import "time"

var started = time.Now()

// now returns the time since the process was started, in nanoseconds.
func now() int64 { return int64(time.Since(started)) }
