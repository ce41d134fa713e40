package loop

// Moderation: a busy loop waits a moment, so that more comes at once.

import (
	"time"

	"golang.org/x/sys/unix"
)

// gauge measures how busy a loop is.
type gauge struct {
	since    int64  // when the measured period began
	requests uint64 // sent to servers by then
	busy     bool
	sleep    unix.Timespec // here, not on the stack: a raw call gets its address
}

const gaugePeriod = int64(10 * time.Millisecond)

// moderate sleeps if the loop is busy enough for that to pay.
func (g *gauge) moderate(d *epoll) {
	m := d.opts.Moderation
	if m.Above == 0 {
		return
	}
	if now := d.now(); now-g.since >= gaugePeriod {
		n := d.engine.Asked()
		g.busy = int64(n-g.requests)*int64(time.Second) > int64(m.Above)*(now-g.since)
		g.since, g.requests = now, n
	}
	if g.busy {
		g.sleep = unix.NsecToTimespec(int64(m.Sleep))
		unix.RawSyscall(unix.SYS_NANOSLEEP, ptr(&g.sleep), 0, 0)
	}
}
