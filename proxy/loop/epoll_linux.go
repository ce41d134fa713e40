package loop

// This file implements the epoll driver: one goroutine, one engine, many sockets.

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ringside/proxy"
	"ringside/proxy/link"
)

func init() {
	newEpoll = func(e *proxy.Engine, o Options) (engineDriver, error) { return startEpoll(e, o) }
}

// epoll drives one engine. One goroutine (run) owns it.
type epoll struct {
	engine *proxy.Engine
	opts   Options

	// The fields from fd to kept are used only by the goroutine run.
	fd      int
	timer   int    // descriptor of the timer (timerfd) that wakes the loop for the engine's next deadline
	timerAt int64  // time at which the timer fires, on the clock of the function now; 0: the timer is not set
	round   uint32 // counts wakeups
	reads   int    // maximum number of reads from one client in this wakeup
	begun   int64  // when the last wakeup began, on the clock of the function now, in nanoseconds
	socks   []*sock
	made    int32 // number of sockets made so far; each socket gets it as its generation (sock.gen)
	events  [256]unix.EpollEvent
	iov     [][]byte
	vec     [64]unix.Iovec
	busy    moderator
	await   awaiting
	nap     unix.Timespec // the argument of a raw system call; not on the stack, which Go may move
	faults  faults
	spare   int   // a descriptor that is closed to reject a client for which no other is free; -1: none
	kept    []int // descriptors of ended server connections, reserved for the next ones

	handshakes    handshakes
	introductions introductions
	sealedIn      []byte // buffer for encrypted bytes that were read
	sealedOut     []byte // buffer for plain bytes that are encrypted together

	// The fields from wake on are shared with other goroutines.
	wake       int // eventfd that wakes the loop, for posted functions
	mu         sync.Mutex
	posted     []func(e *proxy.Engine)
	havePosted atomic.Bool // posted is not empty; the goroutine that sets it writes to wake
	ended      bool        // the loop has ended and runs no more functions; guarded by mu
	done       chan struct{}
}

// sock is one descriptor in the epoll set.
type sock struct {
	fd     int
	gen    int32 // tells apart sockets that had the same descriptor number within one round of events
	events uint32
	link   *link.Link // the engine's connection of this socket; nil for a listener
	listen *listener

	addrs []unix.Sockaddr // addresses of a server that were not tried yet, while connecting to the server
	state sockState
	low   int    // SO_RCVLOWAT: number of received bytes from which epoll reports the socket; 0: never set
	due   bool   // the socket is in the list awaiting.due
	inRow uint8  // number of consecutive wakeups at which this listener had new clients, up to inRowMost
	round uint32 // epoll.round when the socket was last read, or last accepted clients

	filter *filter // applies a fault to a server connection; nil: there is no fault
	held   bool    // a fault delays the connection to the server
	tls    *sealed // TLS of the connection; nil: it has none
}

type sockState uint8

const (
	sockOpen sockState = iota
	sockResolving
	sockConnecting
	sockShaking // the TLS handshake is not complete
	sockWaiting // dial not started yet: a fault may hold it back
	sockClosed
)

const (
	acceptsPerEvent = 64 // maximum number of clients that a listener accepts in one wakeup, before connected clients are served
	inRowMost       = 12 // number of consecutive wakeups with new clients (inRow) from which on a wakeup accepts up to acceptsPerEvent clients
	readsPerEvent   = 4  // maximum number of reads from one socket in one event, before other sockets are served
)

func startEpoll(e *proxy.Engine, o Options) (*epoll, error) {
	e.Local = localAddress
	d := &epoll{engine: e, opts: o, done: make(chan struct{}), busy: moderator{Settings: o.Moderation, Spent: threadTime},
		fd: -1, timer: -1, wake: -1, spare: -1, await: awaiting{fd: -1}}
	e.Where = d.opts.locate
	d.faults = faults{set: o.Faults, engine: e, after: func(wait time.Duration, do func()) {
		time.AfterFunc(wait, func() { d.post(func(*proxy.Engine) { do() }) })
	}}
	d.handshakes = handshakes{engine: e, post: d.post}
	d.introductions = introductions{post: d.post, opts: &d.opts}
	if err := d.open(); err != nil {
		d.closeOwn()
		return nil, err
	}
	go d.run()
	return d, nil
}

// open creates the loop's own descriptors. After an error some of them may be open.
func (d *epoll) open() (err error) {
	if d.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if d.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if d.timer, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	for _, fd := range []int{d.wake, d.timer} {
		if err := unix.EpollCtl(d.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
	if err := d.await.open(d.wake, d.timer); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if d.spare, err = unix.FcntlInt(uintptr(d.wake), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return fmt.Errorf("descriptor: %w", err)
	}
	return nil
}

func (d *epoll) closeOwn() {
	for _, fd := range append([]int{d.timer, d.wake, d.fd, d.await.fd, d.spare}, d.kept...) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// run is the loop. It locks its OS thread because it sets the timer slack of that thread, and
// because a fixed thread keeps its CPU caches.
func (d *epoll) run() {
	runtime.LockOSThread()
	defer close(d.done)
	fineTimers()
	for {
		n := d.wait()
		posted := d.takePosted() // before Begin adopts a table: a function posted after a new table runs with that table
		d.begun = now()
		d.engine.Begin(d.begun, time.Now().Unix())
		d.round++
		d.reads = readsPerEvent
		for i := range n {
			d.handle(&d.events[i])
			if d.engine.Spent() {
				d.nextRound()
			}
		}
		if d.await.slept {
			d.await.slept = false
			d.readDue()
		}
		if len(posted) > 0 && d.runPosted(posted) {
			return
		}
		if d.havePosted.Load() { // functions were posted during this wakeup, which may already have read the byte that should wake the loop for them
			unix.Write(d.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
		d.carryOut()
		d.arm()
	}
}

// nextRound sends the requests so far, because the engine's limit for one round is reached. From then on, this wakeup reads
// only once from each client, so that it ends soon.
func (d *epoll) nextRound() {
	d.carryOut()
	d.begun = now()
	d.engine.Begin(d.begun, time.Now().Unix())
	d.reads = 1
}

// carryOut ends a wakeup, or a part of one, and performs the effects that the engine requests.
func (d *epoll) carryOut() {
	for effects := d.engine.End(); len(effects) > 0; effects = d.engine.End() {
		for _, x := range effects {
			d.effect(x)
		}
	}
}

// wait blocks until an event occurs and returns the number of events. The raw call keeps the
// runtime's P while it waits, which makes a wakeup cheap. The runtime reclaims the P with a signal,
// which interrupts the wait. wait then uses an ordinary call, so the P is free while nothing
// happens.
func (d *epoll) wait() int {
	backlog := d.engine.HasBacklog() // if clients wait for their turn, the loop does not wait for events
	waiting, clients := d.engine.Waiting()
	p := d.busy.Next(d.begun, d.engine.Work(), waiting, clients)
	d.engine.Prompt = p.Prompt
	if p.Nap && !backlog {
		d.nap = unix.NsecToTimespec(int64(d.busy.Sleep))
		unix.RawSyscall(unix.SYS_NANOSLEEP, ptr(&d.nap), 0, 0)
	}
	d.awaitAnswers(p.Answers)
	forever := ^uintptr(0)
	if backlog {
		forever = 0
	} else if p.Answers && d.engine.Unanswered() > 0 && d.sleep() {
		d.await.slept = true
		forever = 0 // the event that ended the sleep is ready, along with all others
	}
	if !d.opts.OrdinaryWait || forever == 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.fd), ptr(&d.events[0]), uintptr(len(d.events)), forever, 0, 0)
		if errno == 0 {
			return int(n)
		}
		runtime.Gosched()
	}
	timeout := -1
	if backlog {
		timeout = 0
	}
	for {
		n, err := unix.EpollWait(d.fd, d.events[:], timeout)
		if err == nil {
			return n
		}
		if err != unix.EINTR {
			panic("epoll_wait: " + err.Error()) // an error here is a bug, because only this loop uses the descriptor
		}
	}
}

// arm sets the timer for the engine's next deadline, at least 1 ms ahead. An earlier timer stays
// set because firing too early does no harm.
func (d *epoll) arm() {
	next := d.engine.Next()
	if next == math.MaxInt64 || d.engine.HasBacklog() || d.timerAt != 0 && d.timerAt <= next {
		return
	}
	wait := max(next-now(), int64(time.Millisecond))
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(wait)}
	unix.TimerfdSettime(d.timer, 0, &spec, nil)
	d.timerAt = next
}

func (d *epoll) handle(ev *unix.EpollEvent) {
	fd := int(ev.Fd)
	switch fd {
	case d.wake: // posted functions run after the events
		var b [8]byte
		unix.Read(d.wake, b[:])
		return
	case d.timer:
		var b [8]byte
		unix.Read(d.timer, b[:])
		d.timerAt = 0
		return
	}
	s := d.socks[fd]
	if s == nil || s.gen != ev.Pad {
		return // the socket was closed in this wakeup
	}
	switch {
	case s.listen != nil:
		d.accept(s)
		return
	case s.state == sockConnecting:
		d.connected(s)
		return
	case s.state == sockShaking:
		d.shake(s, ev.Events)
		return
	}
	if ev.Events&unix.EPOLLOUT != 0 {
		d.write(s)
	}
	if ev.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 && s.state == sockOpen {
		d.read(s)
	}
}

// read passes the bytes that have arrived on s to the engine. If a read returns less than there was
// room for, the socket counts as empty. That saves the call that would return EAGAIN.
func (d *epoll) read(s *sock) {
	s.round = d.round
	if s.tls != nil {
		d.readSealed(s)
		return
	}
	if s.filter != nil {
		d.readFiltered(s)
		return
	}
	if s.events&unix.EPOLLIN == 0 { // paused: epoll reports only the end of the connection
		d.fail(s, sockError(s.fd))
		return
	}
	reads := d.readsOf(s)
	for range reads {
		buf := d.engine.Space(s.link)
		if reads == 1 {
			buf = buf[:min(len(buf), link.ScratchSize)]
		}
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(s.fd), ptr(&buf[0]), uintptr(len(buf)))
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return
		case errno != 0:
			d.fail(s, errno)
			return
		case n == 0:
			if s.link.Client() {
				d.engine.Closed(s.link, nil) // the engine closes the client at the end of this wakeup, or pauses it until its replies are sent
			} else {
				d.fail(s, nil)
			}
			return
		}
		d.engine.Filled(s.link, int(n))
		if int(n) < len(buf) || s.state != sockOpen || s.link.Stalled || d.engine.Spent() {
			if s.low > 1 && s.state == sockOpen && s.owes() { // more replies are due: expect sets the watermark for them
				d.expect(s)
			}
			return
		}
	}
}

// readsOf returns how often s may be read in this event.
func (d *epoll) readsOf(s *sock) int {
	if s.link.Client() {
		return d.reads
	}
	return readsPerEvent
}

// fail closes a socket that is unusable and notifies the engine.
func (d *epoll) fail(s *sock, err error) {
	if s.state == sockClosed {
		return
	}
	d.close(s)
	if err == nil && s.link.Client() {
		err = io.EOF
	}
	d.engine.Closed(s.link, engineError(err))
}

func (d *epoll) write(s *sock) {
	if f := s.filter; f != nil {
		if s.tls != nil && !d.flushSealed(s) {
			return
		}
		f.write(now())
		f.wake()
		return
	}
	if s.tls != nil {
		d.writeSealed(s)
		return
	}
	for {
		d.iov = s.link.Pending(d.iov[:0])
		total := 0
		var n uintptr
		var errno unix.Errno
		switch len(d.iov) {
		case 0:
			d.engine.Wrote(s.link, 0, false)
			d.watch(s, s.events&^unix.EPOLLOUT)
			return
		case 1:
			b := d.iov[0]
			total = len(b)
			n, _, errno = unix.RawSyscall(unix.SYS_WRITE, uintptr(s.fd), ptr(&b[0]), uintptr(total))
		default:
			for i, b := range d.iov {
				d.vec[i].Base = &b[0]
				d.vec[i].SetLen(len(b))
				total += len(b)
			}
			n, _, errno = unix.RawSyscall(unix.SYS_WRITEV, uintptr(s.fd), ptr(&d.vec[0]), uintptr(len(d.iov)))
		}
		switch {
		case errno == unix.EAGAIN:
			n = 0
		case errno == unix.EINTR:
			continue
		case errno != 0:
			d.fail(s, errno)
			return
		}
		full := int(n) < total
		d.engine.Wrote(s.link, int(n), full)
		if d.await.on && s.server() && s.state == sockOpen {
			d.expect(s)
		}
		if full {
			d.watch(s, s.events|unix.EPOLLOUT)
			return
		}
		if s.events&unix.EPOLLOUT == 0 && len(d.iov) < cap(d.vec) {
			return
		}
	}
}

func (d *epoll) effect(x link.Effect) {
	if x.Kind == link.Dial {
		d.dial(x.Link)
		return
	}
	s, _ := x.Link.Sock.(*sock)
	if s == nil || s.state == sockClosed {
		return
	}
	if (x.Kind == link.Close || x.Kind == link.Abort) && (s.state == sockConnecting || s.state == sockResolving) {
		d.opts.refused(s.link) // the engine has waited long enough for the connection
	}
	switch x.Kind {
	case link.Write:
		d.write(s)
	case link.Close:
		if s.tls != nil {
			d.sayBye(s)
		}
		d.close(s)
	case link.Abort:
		if s.fd >= 0 {
			unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		d.close(s)
	case link.Pause:
		d.watch(s, s.events&^unix.EPOLLIN)
	case link.Resume:
		d.watch(s, s.events|unix.EPOLLIN)
	}
}

func (d *epoll) add(s *sock, events uint32) error {
	for len(d.socks) <= s.fd {
		d.socks = append(d.socks, nil)
	}
	d.made++
	s.gen = d.made
	s.events = events
	if err := unix.EpollCtl(d.fd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: events, Fd: int32(s.fd), Pad: s.gen}); err != nil {
		return err
	}
	d.socks[s.fd] = s
	if d.await.on && s.server() {
		d.awaitAlso(s)
	}
	return nil
}

func (d *epoll) watch(s *sock, events uint32) {
	if s.events == events || s.state == sockClosed {
		return
	}
	s.events = events
	unix.EpollCtl(d.fd, unix.EPOLL_CTL_MOD, s.fd, &unix.EpollEvent{Events: events, Fd: int32(s.fd), Pad: s.gen})
	if d.await.on && s.server() {
		unix.EpollCtl(d.await.fd, unix.EPOLL_CTL_MOD, s.fd, &unix.EpollEvent{Events: events, Fd: int32(s.fd)})
	}
}

// close closes s without notifying the engine. See fail.
func (d *epoll) close(s *sock) {
	if s.tls != nil && s.state != sockClosed {
		d.closeSealed(s)
	}
	if s.fd >= 0 {
		if s.fd < len(d.socks) && d.socks[s.fd] == s {
			d.socks[s.fd] = nil
		}
		d.release(s)
	}
	s.state, s.held, s.filter = sockClosed, false, nil
	if s.link != nil && s.link.Sock == link.Sock(s) {
		s.link.Sock = nil
	}
}

// Peer returns the address of the client or server at the other end of the socket.
func (s *sock) Peer() string {
	if s.fd < 0 || s.state == sockClosed {
		return "-"
	}
	sa, err := unix.Getpeername(s.fd)
	if err != nil {
		return "-"
	}
	return cmp.Or(addressOf(sa), "unix")
}

// HungUp reports whether the other end sends no more.
func (s *sock) HungUp() bool { return s.state == sockOpen && hungUp(s.fd) }

// Unsent returns how many bytes the other end's kernel has not acknowledged. Bytes written to a unix
// socket reach a server at once. For a client with TLS, the bytes are encrypted ones.
func (s *sock) Unsent() int {
	n := s.filter.unsent()
	if s.state != sockOpen {
		return n
	}
	if !s.link.Client() {
		if network, _ := s.link.Server().Target(); network == "unix" || s.tls != nil { // how many plain bytes the encrypted ones stand for is not known
			return n
		}
	}
	return n + unacked(s.fd)
}

// Unread returns how many bytes have arrived that were not read yet; with TLS, encrypted ones. It returns 1 if a dial has ended. With a fault
// it returns 0, because the filter may hold back what has arrived.
func (s *sock) Unread() int {
	switch {
	case s.filter != nil:
	case s.state == sockConnecting:
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, 0)
		return max(n, 0)
	case s.state == sockOpen:
		return unread(s.fd)
	}
	return 0
}

func (d *epoll) post(f func(e *proxy.Engine)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.posted = append(d.posted, f)
	if !d.havePosted.Swap(true) {
		unix.Write(d.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// takePosted returns the functions posted so far and clears the list.
func (d *epoll) takePosted() []func(e *proxy.Engine) {
	if !d.havePosted.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.havePosted.Store(false)
	list := d.posted
	d.posted = nil
	return list
}

// runPosted runs the posted functions, some of which pass requests to the engine: the first ones of TLS clients. It reports whether
// the loop must end.
func (d *epoll) runPosted(list []func(e *proxy.Engine)) bool {
	for _, f := range list {
		if d.engine.Spent() {
			d.nextRound()
		}
		f(d.engine)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

func (d *epoll) stop() {
	d.post(func(*proxy.Engine) {
		for _, s := range d.socks {
			if s != nil {
				d.close(s)
			}
		}
		d.mu.Lock()
		d.ended = true // once ended is set, no goroutine writes to wake
		d.mu.Unlock()
		d.closeOwn()
	})
	<-d.done
}
