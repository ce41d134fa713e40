package loop

// This file implements the wait for replies: while servers owe replies, clients do not wake the
// loop.

import (
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// awaiting makes each wakeup serve more requests. While servers owe replies, the loop sleeps until
// most replies of one of them have arrived; it serves clients at the same wakeup. On the machine of
// BENCHMARKS.md, waking one thread from another costs each about 12 us. A wakeup by a timer costs
// about 30 us.
//
// The kernel does the waiting, with two means: an epoll set that contains the servers but not the
// clients, and a low watermark on each server connection (SO_RCVLOWAT). The watermark is derived
// from the mean size of the connection's replies. It can be too high, so a wait without any event
// ends after awaitMost. The watermarks then stay low until the next requests.
type awaiting struct {
	fd    int                // epoll set of the server connections, the eventfd for posted functions, and the timer; without clients
	on    bool               // the server connections are in the epoll set fd
	slept bool               // the last wait was for replies: more sockets may be ready than the one that ended it
	due   []*sock            // connections with requests that have no reply yet; those that were read last are at the end
	event [2]unix.EpollEvent // the events that a raw system call returns; not on the stack, which Go may move
}

const (
	awaitMost  = time.Millisecond // how long the loop waits for replies; a timer that is already set may double this
	awaitMany  = 128              // maximum number of replies of one connection that the loop waits for: more make a wakeup hardly cheaper
	awaitBytes = 256 << 10        // maximum size of the replies that the loop waits for, in bytes: larger values are forwarded while they arrive
	readsDue   = 16               // number of connections that each wakeup reads without an event, because replies are due on them
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

// awaitAnswers switches waiting for replies on or off: see the type awaiting.
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

// awaitAlso adds a server connection to the epoll set of servers. If that fails, its replies
// are read when others arrive, or when the wait ends.
func (d *epoll) awaitAlso(s *sock) {
	unix.EpollCtl(d.await.fd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: s.events, Fd: int32(s.fd)})
}

// sleep waits for replies. It reports whether there may be events. If it returns false, a signal of
// the runtime has interrupted the wait.
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

// expect sets the low watermark of s: how many bytes of replies wake the loop. If it is too
// high, the loop waits until awaitMost is over; if it is too low, the loop only wakes once
// more. If n replies are due, expect waits for n - √n replies of the mean size. √n is three
// times the standard deviation of the total size, if the size of one reply deviates by a third.
// expect ignores a change of less than a quarter, which is not worth a system call.
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

// lower sets the watermark of s to one byte, so that any byte wakes the loop again, including
// bytes that have already arrived.
func (s *sock) lower() {
	if s.low > 1 && s.state == sockOpen {
		s.low = 1
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1)
	}
}

// readDue reads the connections that owe replies, even if they are below their watermark. Epoll
// does not report those, so a read may return nothing. In a large pool, each wakeup reads only
// readsDue of them.
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

// owes reports whether replies are due on a server connection.
func (s *sock) owes() bool {
	n, _ := s.link.Server().Owed()
	return n > 0
}

func (s *sock) server() bool { return s.link != nil && !s.link.Client() }
