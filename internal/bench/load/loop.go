//go:build linux

package load

// This file has the loop: epoll, the phases of a run, and the choice of the next request.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// phase is a phase of a run. In the phases, the load writes the keys, warms up, measures, waits for
// the last replies, checks for surplus replies, and has finished.
type phase uint8

const (
	filling phase = iota
	warming
	measuring
	draining
	fencing
	finished
)

// period is the interval of the loop's own timer. The timer is used to detect lost replies and to
// sample memory. Its delays show whether the load generator itself had enough CPU time.
const period = 20 * time.Millisecond

// readBuffer is large enough for four replies of 64 KiB. All connections share one buffer.
const readBuffer = 256 << 10

type loop struct {
	work   Workload
	bounds Bounds
	data   *data
	lost   *Lost // counts of misses and errors; nil: the load is not lossy, so they are errors
	window window

	epoll, ticker int
	aim           // addresses of the servers, and the server of each key
	clients       []client
	conns         []conn // the connections of all clients, one client after the other
	buf           []byte
	began         time.Time // time at which the clock of the loop is 0

	phase    phase
	due      int    // requests without a reply, on all connections
	filled   int    // number of keys that were written in the phase filling
	random   uint64 // state of the random number generator splitmix
	phaseEnd int64  // time at which the warm-up or the measured window ends, in nanoseconds since the loop began
	checked  int64  // number of keys that were read with the right value
	replies  int64  // number of requests with a reply, in all phases

	// State of an open loop, in which requests have fixed times. free contains the clients that may
	// send a request. A client is in it once for each request that it may still have in flight.
	nextDue float64 // due time of the next request, in nanoseconds since the loop began
	gap     float64 // time between two requests, in nanoseconds
	free    []int32 // ring buffer of the ids of clients that may send
	freeAt  int
	freeLen int
}

// Run runs the load on a target and returns the measurement of the window. It watches the given
// processes during the window. An error names the connection and the wrong reply. Run ends when its
// bounds are reached, or when ctx ends.
func Run(ctx context.Context, to Target, work Workload, bounds Bounds, watch []int) (Result, error) {
	lanes, err := to.lanes()
	if err == nil {
		err = work.check(bounds, to)
	}
	if err != nil {
		return Result{}, err
	}
	// An open loop must sleep with nanosecond precision. The loop sets the timer slack for that,
	// which is a property of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return Result{}, fmt.Errorf("timer slack: %w", err)
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	l := &loop{work: work, bounds: bounds, data: newData(work), buf: make([]byte, readBuffer), began: time.Now(), random: 2, epoll: -1, ticker: -1,
		aim: aim{lanes: lanes}}
	defer l.close()
	if to.Addr == "" {
		if l.owner, err = l.data.owners(lanes); err != nil {
			return Result{}, err
		}
	}
	if work.Lossy {
		l.lost = new(Lost)
	}
	l.window = newWindow(l, watch)
	l.window.lossy = work.Lossy
	if err := l.open(); err != nil {
		return Result{}, err
	}
	if err := l.run(ctx); err != nil {
		return Result{}, err
	}
	result := l.window.result()
	result.Checked, result.Replies, result.From = l.checked, l.replies, l.began.Add(time.Duration(l.window.from))
	if l.lost != nil {
		result.Lost = *l.lost
	}
	return result, nil
}

// open prepares the clients and creates the epoll set and the timer. A client connects when it sends
// its first request.
func (l *loop) open() (err error) {
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if l.ticker, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	l.clients = make([]client, l.work.Conns)
	l.conns = make([]conn, 0, l.work.Conns*len(l.lanes))
	for id := range l.clients {
		first := len(l.conns)
		for lane := range l.lanes {
			c := conn{id: len(l.conns), fd: -1, check: newChecker(l.data, l.lost, l.work.Depth, l.work.Keys)}
			if len(l.lanes) > 1 {
				c.check.owner, c.check.lane = l.owner, uint8(lane)
			}
			l.conns = append(l.conns, c)
		}
		l.clients[id] = client{id: id, lanes: l.conns[first:]}
	}
	if l.work.Visit > 0 && l.lanes[0].local {
		// A port of a closed connection cannot be used again for a minute, and one local address
		// has about 28,000 ports. So each client has another local address.
		for id := range l.clients {
			l.from = append(l.from, &unix.SockaddrInet4{Addr: [4]byte{127, 1, byte(id >> 8), byte(id)}})
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

// lane returns the connection of the client k on which a request for the key is sent.
func (l *loop) lane(k *client, key int) (*conn, error) {
	if len(k.lanes) == 1 {
		return l.connected(k, 0)
	}
	return l.connected(k, int(l.owner[key]))
}

// connected returns the connection of the client k to the server with the given index. It connects
// if necessary.
func (l *loop) connected(k *client, server int) (c *conn, err error) {
	if c = &k.lanes[server]; c.fd >= 0 {
		return c, nil
	}
	var from unix.Sockaddr
	if l.from != nil {
		from = l.from[k.id]
	}
	if c.fd, err = connect(l.lanes[server], from); err != nil {
		return nil, err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.id)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return c, nil
}

// disconnect closes all connections of the client k.
func (k *client) disconnect() {
	for i := range k.lanes {
		if c := &k.lanes[i]; c.fd >= 0 {
			unix.Close(c.fd)
			c.fd, c.full = -1, false
		}
	}
}

func (l *loop) close() {
	for i := range l.clients {
		l.clients[i].disconnect()
	}
	for _, fd := range []int{l.epoll, l.ticker} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// clock returns the nanoseconds since the loop began.
func (l *loop) clock() int64 { return int64(time.Since(l.began)) }

// tickerEvent is a value in an epoll event in place of the index of a connection.
const tickerEvent = -1

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
				k := l.clientOf(c)
				if err = l.serve(k, c, e.Events); err != nil {
					err = fmt.Errorf("connection %d, reply %d: %w", k.id+1, k.served+1, err)
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// wait sleeps until an event or, in an open loop, until a request is due. It uses raw system calls:
// the Go runtime's work for a blocking call would cost about as much as the rest of a request. A
// signal of the Go runtime interrupts the sleep. wait then yields the CPU to other goroutines.
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

// tick reads the timer, records its delay, and ends the run if a reply is lost.
func (l *loop) tick() error {
	var count [8]byte
	if _, err := unix.Read(l.ticker, count[:]); err != nil {
		return nil // the timer has not expired yet; epoll will report it again
	}
	now := l.clock()
	l.window.tick(now, int64(binary.NativeEndian.Uint64(count[:])), l.phase == measuring)
	for i := range l.conns {
		c := &l.conns[i]
		if c.check.size == 0 {
			continue
		}
		if waited := time.Duration(now - c.check.first().start); waited > l.bounds.Timeout {
			k := l.clientOf(c)
			return fmt.Errorf("connection %d, reply %d: none within %v, %d replies are due", k.id+1, k.served+1, l.bounds.Timeout, c.check.size)
		}
	}
	return nil
}

func (l *loop) clientOf(c *conn) *client { return &l.clients[c.id/len(l.lanes)] }

// serve reads the replies on the connection c of the client k and sends the next requests.
func (l *loop) serve(k *client, c *conn, ready uint32) error {
	if ready&^unix.EPOLLOUT != 0 && c.fd >= 0 { // fd is -1 if an earlier event of the same wakeup closed the connection
		if err := l.read(k, c); err != nil {
			return err
		}
	}
	if l.paced() {
		return l.flushAll(k)
	}
	return l.refill(k)
}

func (l *loop) read(k *client, c *conn) error {
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
		if err := l.receive(k, c, l.buf[:kept+n]); err != nil || kept+n < len(l.buf) {
			return err
		}
	}
}

// receive checks the bytes b, which were read from the connection c, and counts the requests that
// they complete.
func (l *loop) receive(k *client, c *conn, b []byte) error {
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
		r := c.check.pop()
		k.due--
		l.due--
		l.answered(k, r, now)
	}
}

// answered records a reply to the request r. If r is a part of a larger request of the client k,
// the larger request counts when all its parts have replies.
func (l *loop) answered(k *client, r request, now int64) {
	if k.unanswered > 0 {
		if k.unanswered--; k.unanswered > 0 {
			return
		}
		r.start = k.start
	}
	k.served++
	l.replies++
	if l.phase == measuring {
		l.window.record(r, now)
	}
	if l.paced() {
		l.release(k)
	}
}

// refill sends the requests that the client k may send now in a closed loop.
func (l *loop) refill(k *client) error {
	if k.due == 0 {
		now := l.clock()
		for k.due < l.work.Depth {
			if more, err := l.next(k, now); err != nil {
				return err
			} else if !more {
				break
			}
		}
	}
	return l.flushAll(k)
}

func (l *loop) flushAll(k *client) error {
	for i := range k.lanes {
		if c := &k.lanes[i]; c.fd >= 0 {
			if err := l.flush(c); err != nil {
				return err
			}
		}
	}
	return nil
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

// next adds the next request of the current phase to a connection of the client k. It returns false
// if the client has no more requests in this phase.
func (l *loop) next(k *client, start int64) (bool, error) {
	switch l.phase {
	case filling:
		if l.filled == l.work.Count {
			return false, nil
		}
		l.filled++
		return true, l.write(k, l.filled-1, start)
	case warming, measuring:
		if l.work.Visit > 0 && k.unanswered == 0 {
			k.disconnect()
			k.unanswered, k.start = l.work.Visit, start
		}
		random := splitmix(&l.random)
		key := int(random >> 32 * uint64(l.work.Count) >> 32)
		if int(random&0xffffffff*100>>32) >= l.work.Reads {
			return true, l.write(k, key, start)
		}
		return true, l.ask(k, key, start)
	}
	return false, nil
}

// ask adds a read by the client k. The read is of the key with number `first` and, for a multi-get,
// of the keys after it.
func (l *loop) ask(k *client, first int, start int64) error {
	if len(k.lanes) > 1 && l.work.Keys > 1 {
		k.start = start
		for i := range k.lanes {
			c, err := l.connected(k, i)
			if err != nil {
				return err
			}
			any := false
			if c.out, any = l.data.appendGet(c.out, first, l.work.Keys, l.owner, uint8(i)); any {
				l.push(k, c, request{get, first, l.work.Keys, start})
				k.unanswered++
			}
		}
		return nil
	}
	c, err := l.lane(k, first)
	if err == nil {
		c.out, _ = l.data.appendGet(c.out, first, l.work.Keys, nil, 0)
		l.push(k, c, request{get, first, l.work.Keys, start})
	}
	return err
}

// write adds a set of the key with the given number by the client k.
func (l *loop) write(k *client, key int, start int64) error {
	c, err := l.lane(k, key)
	if err == nil {
		c.out = l.data.appendSet(c.out, key)
		l.push(k, c, request{set, key, 1, start})
	}
	return err
}

func (l *loop) push(k *client, c *conn, r request) {
	c.check.push(r)
	k.due++
	l.due++
}
