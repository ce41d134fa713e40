package loop

// Waiting for answers: while servers owe some, nothing else wakes the loop.

import (
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// awaiting makes a wakeup serve more requests without a timer: while servers
// owe answers the loop sleeps until most of what one of them owes is there, and
// clients are served in passing. On the machine of BENCHMARKS.md a thread that
// is woken by another costs either some 12 us, and one that is woken by its timer
// some 30 (ringbench wakeups).
//
// The kernel does the waiting: an epoll set without the clients, and a low
// watermark on each server's connection (SO_RCVLOWAT) by the mean size of its
// answers. Both can be wrong, so that a wait without any event ends after
// awaitMost; then the watermarks are lowered until the next requests.
type awaiting struct {
	fd    int                // the set: servers, posted functions, the timer
	on    bool               // servers are in it
	slept bool               // what ended this wait may not be all that is there
	due   []*sock            // connections that owe answers, those looked at last at the end
	event [2]unix.EpollEvent // here, not on the stack: a raw call gets its address
}

const (
	awaitMost  = time.Millisecond // the timer may make it twice that
	awaitMany  = 128              // answers waited for at most: a wakeup for so many is cheap
	awaitBytes = 256 << 10        // bytes of them at most: larger values are forwarded as they come
	readsDue   = 16               // connections looked at in a wakeup
)

func (a *awaiting) open(always ...int) error {
	var err error
	if a.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for _, fd := range always {
		if err := unix.EpollCtl(a.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return err
		}
	}
	return nil
}

// awaitAnswers begins or ends this way of waiting.
func (d *epoll) awaitAnswers(on bool) {
	if d.await.on == on {
		return
	}
	d.await.on = on
	for _, s := range d.socks {
		switch {
		case s == nil || !s.server():
		case on:
			d.awaitAlso(s)
		default:
			unix.EpollCtl(d.await.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
			s.lower()
		}
	}
}

// awaitAlso puts a server's connection in the set. If there is no room for it,
// its answers are found when others come, or when the wait ends.
func (d *epoll) awaitAlso(s *sock) {
	unix.EpollCtl(d.await.fd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: s.events, Fd: int32(s.fd)})
}

// sleep waits for answers. It reports whether there may be events: if not,
// the runtime wanted the processor.
func (d *epoll) sleep() bool {
	a, start := &d.await, time.Now()
	if end := d.begun + int64(awaitMost); d.timerAt == 0 || d.timerAt > end {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(awaitMost))}
		unix.TimerfdSettime(d.timer, 0, &spec, nil)
		d.timerAt = end
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(a.fd), ptr(&a.event[0]), uintptr(len(a.event)), ^uintptr(0), 0, 0)
	if errno != 0 {
		runtime.Gosched()
		return false
	}
	if n == 1 && int(a.event[0].Fd) == d.timer && time.Since(start) >= awaitMost {
		for _, s := range d.socks {
			if s != nil {
				s.lower()
			}
		}
	}
	return true
}

// expect sets how many bytes of answers wake the loop. Too many cost the whole
// wait, too few only another wakeup: so the loop waits for √n answers less than the n
// that are due, at their mean size. That is three times the standard deviation of n
// sizes together, if one size deviates by a third. A change by less than a quarter is
// not worth a system call.
func (d *epoll) expect(s *sock) {
	n, size := s.link.Server().Owed()
	n = min(n, awaitMany)
	sure := float64(n) - float64(n)/math.Sqrt(float64(n+1))
	want := max(min(int(sure*float64(size)), awaitBytes), 1)
	if n > 0 && !s.due {
		s.due = true
		d.await.due = append(d.await.due, s)
	}
	if low := max(s.low, 1); want > low+low/4 || want < low-low/4 {
		s.low = want
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, want)
	}
}

// lower makes any byte wake the loop again, also those that are there.
func (s *sock) lower() {
	if s.low > 1 && s.state == sockOpen {
		s.low = 1
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1)
	}
}

// readDue reads what has come on connections that owe answers, whether it would
// have woken the loop or not. Epoll says nothing of these, so that a read may be
// in vain: in a large pool each wakeup has a look at some.
func (d *epoll) readDue() {
	var still [readsDue]*sock
	n, list := 0, d.await.due
	looked := min(len(list), len(still))
	for _, s := range list[:looked] {
		if s.round != d.round && s.state == sockOpen && s.events&unix.EPOLLIN != 0 {
			d.read(s)
		}
		if s.due = s.state == sockOpen && s.owes(); s.due {
			still[n] = s
			n++
		}
	}
	d.await.due = append(append(list[:0], list[looked:]...), still[:n]...)
}

// owes reports whether answers are due on a server's connection.
func (s *sock) owes() bool {
	n, _ := s.link.Server().Owed()
	return n > 0
}

// server reports whether s is a connection to a server.
func (s *sock) server() bool { return s.link != nil && !s.link.Client() }
