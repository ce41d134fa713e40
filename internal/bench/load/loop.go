//go:build linux

package load

// The loop: epoll, the phases of a run, and what goes out when.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// phase is where a run stands; see the package doc.
type phase uint8

const (
	filling phase = iota
	warming
	measuring
	draining
	fencing
	finished
)

// period is that of the loop's own clock: it notices lost replies, samples
// memory, and its delays tell whether the load itself was kept from running.
const period = 20 * time.Millisecond

// readBuffer takes four replies of 64 KiB; one buffer serves all connections.
const readBuffer = 256 << 10

type loop struct {
	work   Workload
	bounds Bounds
	data   *data
	lost   *losses // nil unless the load is lossy
	window window

	epoll, ticker int
	conns         []conn
	buf           []byte
	began         time.Time // zero of the loop's nanoseconds

	phase    phase
	due      int    // requests whose replies are due, on all connections
	filled   int    // keys written while filling
	random   uint64 // splitmix state
	phaseEnd int64  // when warming or measuring ends
	checked  int64  // keys read and found right
	replies  int64  // requests settled in all phases

	// An open loop's clock, and the connections that may send: one entry for
	// each request that a connection may have in flight.
	nextDue float64 // nanoseconds
	gap     float64 // between two requests
	free    []int32 // a ring
	freeAt  int
	freeLen int
}

// Run puts the load on addr and returns what the window showed. It watches
// the processes of the given ids meanwhile. An error says which connection got
// what wrong. It ends within the bounds, or when ctx does.
func Run(ctx context.Context, addr netip.AddrPort, work Workload, bounds Bounds, watch []int) (Result, error) {
	if err := work.check(bounds); err != nil {
		return Result{}, err
	}
	// Sleep to the nanosecond, as an open loop needs: the slack is a thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return Result{}, fmt.Errorf("timer slack: %w", err)
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	l := &loop{work: work, bounds: bounds, data: newData(work), buf: make([]byte, readBuffer), began: time.Now(), random: 2, epoll: -1, ticker: -1}
	defer l.close()
	if work.Lossy {
		l.lost = newLosses(work.Count)
	}
	l.window = newWindow(l, watch)
	if err := l.open(addr); err != nil {
		return Result{}, err
	}
	if err := l.run(ctx); err != nil {
		return Result{}, err
	}
	result := l.window.result()
	result.Checked, result.Replies = l.checked, l.replies
	if l.lost != nil {
		result.Lost = l.lost.sum()
	}
	return result, nil
}

// open connects, and prepares epoll and the clock.
func (l *loop) open(addr netip.AddrPort) (err error) {
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if l.ticker, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	batch := max(l.work.Keys, l.work.Quiet)
	l.conns = make([]conn, 0, l.work.Conns)
	for id := range l.work.Conns {
		fd, err := dial(addr, l.bounds.Timeout)
		if err != nil {
			return fmt.Errorf("connection %d of %d: %w", id+1, l.work.Conns, err)
		}
		l.conns = append(l.conns, conn{id: id, fd: fd, check: newChecker(l.data, l.lost, l.work.Depth, batch)})
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(id)}
		if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
	tick := unix.NsecToTimespec(int64(period))
	if err := unix.TimerfdSettime(l.ticker, 0, &unix.ItimerSpec{Interval: tick, Value: tick}, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	l.window.firstTick = l.clock()
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: tickerEvent}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.ticker, &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		unix.Close(c.fd)
	}
	for _, fd := range []int{l.epoll, l.ticker} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// clock is nanoseconds since the loop began.
func (l *loop) clock() int64 { return int64(time.Since(l.began)) }

const tickerEvent = -1 // stands where events of connections have their index

func (l *loop) run(ctx context.Context) error {
	if l.bounds.NoFill {
		l.filled = l.work.Count
	}
	if err := l.kick(); err != nil {
		return err
	}
	var events [128]unix.EpollEvent
	for {
		if err := l.advance(); err != nil || l.phase == finished {
			return err
		}
		n, err := l.wait(events[:])
		if err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:n] {
			if e.Fd == tickerEvent {
				err = errors.Join(ctx.Err(), l.tick())
			} else {
				c := &l.conns[e.Fd]
				if err = l.serve(c, e.Events); err != nil {
					err = fmt.Errorf("connection %d, reply %d: %w", c.id+1, c.served+1, err)
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// wait sleeps until something is ready or, in an open loop, due. The calls are
// raw: the runtime's bookkeeping around a blocking call costs about as much as
// the rest of a request here. The runtime's own signals end the sleep, and then
// it gets its turn.
func (l *loop) wait(events []unix.EpollEvent) (int, error) {
	var n uintptr
	var errno unix.Errno
	if l.paced() && l.freeLen > 0 {
		rest := unix.NsecToTimespec(max(0, int64(l.nextDue)-l.clock()))
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(&rest)), 0, 0)
	} else {
		const forever = ^uintptr(0)
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), forever, 0, 0)
	}
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		runtime.Gosched()
		return 0, nil
	}
	return 0, errno
}

// tick keeps the window's clock and finds replies that do not come.
func (l *loop) tick() error {
	var count [8]byte
	if _, err := unix.Read(l.ticker, count[:]); err != nil {
		return nil // the clock was early: it rings again
	}
	now := l.clock()
	l.window.tick(now, int64(binary.NativeEndian.Uint64(count[:])), l.phase == measuring)
	if l.bounds.Cut {
		return nil
	}
	for i := range l.conns {
		c := &l.conns[i]
		if c.check.size == 0 {
			continue
		}
		if waited := time.Duration(now - c.check.first().start); waited > l.bounds.Timeout {
			return fmt.Errorf("connection %d, reply %d: none within %v, %d replies are due", c.id+1, c.served+1, l.bounds.Timeout, c.check.size)
		}
	}
	return nil
}

// serve takes what a connection has to say and sends what may follow.
func (l *loop) serve(c *conn, ready uint32) error {
	if ready&^unix.EPOLLOUT != 0 {
		if err := l.read(c); err != nil {
			return err
		}
	}
	if l.paced() {
		return l.flush(c)
	}
	return l.refill(c)
}

func (l *loop) read(c *conn) error {
	for {
		kept := copy(l.buf, c.part)
		n, err := unix.Read(c.fd, l.buf[kept:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("read with %d replies due: %w", c.check.size, err)
		case n == 0:
			return fmt.Errorf("the other side closed with %d replies due", c.check.size)
		}
		if err := l.take(c, l.buf[:kept+n]); err != nil {
			return err
		}
		if kept+n < len(l.buf) {
			return nil
		}
	}
}

// take checks what came and settles the requests it answers.
func (l *loop) take(c *conn, b []byte) error {
	now := l.clock()
	for {
		n, whole, err := c.check.consume(b)
		b = b[n:]
		if err != nil {
			return err
		}
		if !whole {
			c.part = append(c.part[:0], b...)
			return nil
		}
		l.checked += int64(c.check.found)
		hits := c.check.found
		good := !c.check.bad
		r := c.check.pop()
		c.served++
		l.replies++
		l.due--
		if l.phase == measuring {
			l.window.record(r, hits, now)
			if good {
				c.good++
			}
		}
		if l.paced() {
			l.release(c)
		}
	}
}

// refill sends what a closed loop may send on c.
func (l *loop) refill(c *conn) error {
	if c.check.size == 0 || l.work.Sliding {
		now := l.clock()
		for c.check.size < l.work.Depth && l.next(c, now) {
		}
	}
	return l.flush(c)
}

func (l *loop) flush(c *conn) error {
	was := c.full
	if err := c.flush(); err != nil || was == c.full {
		return err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.id)}
	if c.full {
		event.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// next puts the next request of this phase on c, if there is one.
func (l *loop) next(c *conn, start int64) bool {
	switch l.phase {
	case filling:
		if l.filled == l.work.Count {
			return false
		}
		n := min(max(1, l.work.Quiet), l.work.Count-l.filled)
		l.write(c, l.filled, n, start)
		l.filled += n
	case warming, measuring:
		if l.work.Idle && c.served > 0 {
			return false
		}
		random := splitmix(&l.random)
		first := int(random >> 32 * uint64(l.work.Count) >> 32)
		switch {
		case int(random&0xffffffff*100>>32) >= l.work.Reads && !l.work.Idle:
			l.write(c, first, max(1, l.work.Quiet), start)
		case l.work.Quiet > 0:
			c.out = l.data.appendQuietGets(c.out, first, l.work.Quiet)
			l.push(c, request{quietGets, first, l.work.Quiet, start})
		case l.work.Binary:
			kind := get
			if l.work.Keys > 1 {
				kind = quietGets
			}
			c.out = l.data.appendFrameGets(c.out, first, l.work.Keys)
			l.push(c, request{kind, first, l.work.Keys, start})
		default:
			c.out = l.data.appendGet(c.out, first, l.work.Keys)
			l.push(c, request{get, first, l.work.Keys, start})
		}
	default:
		return false
	}
	return true
}

func (l *loop) write(c *conn, first, n int, start int64) {
	if l.work.Quiet > 0 {
		c.out = l.data.appendQuietSets(c.out, first, n)
		l.push(c, request{quietSets, first, n, start})
		return
	}
	if l.work.Binary {
		c.out = l.data.appendFrameSet(c.out, first)
	} else {
		c.out = l.data.appendSet(c.out, first)
	}
	l.push(c, request{set, first, 1, start})
}

func (l *loop) push(c *conn, r request) {
	c.check.push(r)
	l.due++
}
