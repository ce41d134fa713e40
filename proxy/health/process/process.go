// Package process tells memcached processes apart by what they say of themselves.
package process

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
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

// Cell is a process that one goroutine knows and others ask about. The zero one is none.
type Cell struct{ pid, started atomic.Int64 }

// Store says which it is.
func (c *Cell) Store(p Process) { c.pid.Store(p.PID); c.started.Store(p.Started) }

// Is says whether it is p.
func (c *Cell) Is(p Process) bool {
	return p.Is(Process{PID: c.pid.Load(), Started: c.started.Load()})
}

// slack is how much longer than it has run a process may say that it has: memcached
// counts seconds from two, and a process may have begun while the one before it was asked
// for the last time.
const slack = int64(5 * time.Second)

// Stranger says whether p, which is not the process that was heard of last, so many
// nanoseconds ago, has run before that: then it has values of its own.
func (p Process) Stranger(ago int64) bool { return p.Uptime*int64(time.Second) > ago+slack }

// Answers says for people that p, a stranger, is there.
func (p Process) Answers() string {
	return fmt.Sprintf("another memcached answers at its address, which has run for %v", time.Duration(p.Uptime)*time.Second)
}
