package health

// This file distinguishes memcached processes by their PID and start time.

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"ringside/proxy/wire"
)

// Process identifies a memcached process by the values that it reports.
type Process struct {
	PID     int64
	Started int64 // when the process started, as Unix time by the server's clock, in seconds
	Uptime  int64 // how long the process had run when it replied, in seconds
}

// ParseProcess parses the reply to `stats`. It returns false if the reply has no time.
func ParseProcess(answer []byte) (p Process, ok bool) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(wire.StatOf(answer, name), 10, 64)
		return n
	}
	clock := number("time")
	p = Process{PID: number("pid"), Uptime: number("uptime")}
	p.Started = clock - p.Uptime
	return p, clock != 0
}

// Is reports whether p and q are the same process. Start times may differ by two seconds, because
// they are rounded and clocks may step.
func (p Process) Is(q Process) bool {
	return p.PID == q.PID && p.Started-q.Started <= 2 && q.Started-p.Started <= 2
}

// processCell contains a Process. One goroutine stores it, and other goroutines compare it with
// another Process. The zero value contains no process.
type processCell struct{ pid, started atomic.Int64 }

// Store sets the process in c to p.
func (c *processCell) Store(p Process) { c.pid.Store(p.PID); c.started.Store(p.Started) }

// Is reports whether the process that is stored in c is p.
func (c *processCell) Is(p Process) bool {
	return p.Is(Process{PID: c.pid.Load(), Started: c.started.Load()})
}

// slack is a tolerance for the reported uptime. memcached starts its uptime at two seconds, and a
// process may have started while the last request to the previous process was in flight.
const slack = int64(5 * time.Second)

// Stranger reports whether p was already running when the previous process at its address last
// replied. The parameter `ago` is the time since that reply, in nanoseconds. A stranger is
// another memcached: it does not have the data of the previous process.
func (p Process) Stranger(ago int64) bool { return p.Uptime*int64(time.Second) > ago+slack }

// Answers returns the message for operators that the process p replies at a server's address, and may be a stranger.
func (p Process) Answers() string {
	return fmt.Sprintf("another memcached process answers at its address; its uptime of %v includes that of the former process if it was restarted with its memory (-e)", time.Duration(p.Uptime)*time.Second)
}
