// Package process tells memcached processes apart by what they say of themselves.
package process

import (
	"strconv"
	"strings"
)

// Process is a memcached process, by what it says of itself.
type Process struct {
	PID     int64
	Started int64 // Unix time by the server's clock, in seconds
	Uptime  int64 // seconds, when it was asked
}

// Parse reads the answer to `stats`. It is not ok if that doesn't tell.
func Parse(answer []byte) (p Process, ok bool) {
	var clock int64
	for line := range strings.Lines(string(answer)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseInt(f[2], 10, 64)
		switch f[1] {
		case "time":
			clock = n
		case "uptime":
			p.Uptime = n
		case "pid":
			p.PID = n
		}
	}
	p.Started = clock - p.Uptime
	return p, clock != 0
}

// Is says whether both are the same process. Times are rounded to seconds, by clocks
// that may step.
func (p Process) Is(q Process) bool {
	return p.PID == q.PID && p.Started-q.Started <= 2 && q.Started-p.Started <= 2
}
