package loop

// This file implements the portable driver: two goroutines for each socket, and one engine
// protected by a mutex.

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ringside/proxy"
	"ringside/proxy/link"
	"ringside/proxy/table"
)

// portable drives one engine with blocking sockets. Every engine call is made under mu. Reads and
// writes are made without mu, in buffers that only one goroutine uses.
type portable struct {
	mu      sync.Mutex
	engine  *proxy.Engine
	opts    Options
	timer   *time.Timer
	timerAt int64
	stopped bool // written under both mu and posting
	socks   map[*stream]struct{}
	running sync.WaitGroup
	faults  faults

	handshakes    handshakes
	introductions introductions

	posting sync.Mutex // guards posted; never waits for mu, because the caller of post may hold mu
	posted  []func(e *proxy.Engine)
}

// stream is one open socket, or one that is being dialled.
type stream struct {
	conn   net.Conn // the connection; nil while dialling
	link   *link.Link
	out    chan []byte   // the buffer that the writer writes next; one at a time
	handed atomic.Int64  // number of bytes in the writer's buffer that the kernel has not accepted yet
	came   atomic.Bool   // the reader has bytes that the engine does not know yet, or a dial has ended
	resume chan struct{} // wakes a reader that was paused
	cancel chan struct{} // closed when the stream closes
	paused bool
	closed bool
	busy   bool    // the writer has a buffer
	given  int     // number of bytes in the writer's buffer when the writer got it
	held   bool    // a fault delays the dial
	filter *filter // applies a fault to a server connection; nil: there is no fault
	tls    *sealed
}

// Peer returns the address of the client or server at the other end of the stream.
func (s *stream) Peer() string {
	if s.conn == nil {
		return "-"
	}
	if a := s.conn.RemoteAddr(); a.String() != "" && a.String() != "@" {
		return a.String()
	}
	return "unix"
}

// Unsent returns a lower bound of the bytes that have not reached the server's kernel: those that
// the writer holds and those that the kernel has not acknowledged. It does not count the piece that
// is being written, which the kernel may already have. The engine may discard bytes that count as
// unsent, but it sends a late delete after those that count as arrived.
func (s *stream) Unsent() int {
	if s.tls != nil { // how many plain bytes the encrypted ones stand for is not known
		return s.filter.unsent()
	}
	n := max(0, int(s.handed.Load())-pieceSize)
	return s.filter.unsent() + n + unackedOf(s.conn)
}

// Unread returns how many bytes have arrived that the engine does not know yet. What the reader has counts as one read, and so does
// a dial that has ended. With a fault it returns 0, because the filter may hold back what has arrived.
func (s *stream) Unread() (n int) {
	if s.filter != nil {
		return 0
	}
	if s.conn != nil {
		n = unreadOf(s.conn)
	}
	if s.came.Load() {
		n += link.ClientRead
	}
	return n
}

func newPortable(e *proxy.Engine, o Options) (engineDriver, error) {
	e.Local = func(l *link.Link) string {
		if s, ok := l.Sock.(*stream); ok && s.conn != nil {
			return s.conn.LocalAddr().String()
		}
		return ""
	}
	d := &portable{engine: e, opts: o, socks: map[*stream]struct{}{}}
	e.Where = d.opts.locate
	d.faults = faults{set: o.Faults, engine: e, after: func(wait time.Duration, do func()) {
		time.AfterFunc(wait, func() { d.with(func(*proxy.Engine) { do() }) })
	}}
	d.handshakes = handshakes{engine: e, post: d.post}
	d.introductions = introductions{post: d.post, opts: &d.opts}
	d.timer = time.AfterFunc(time.Hour, func() { d.with(func(*proxy.Engine) {}) })
	return d, nil
}

// with runs f with the engine and performs the effects that the engine requests. It returns false,
// and does nothing, after the driver has stopped.
func (d *portable) with(f func(e *proxy.Engine)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wakeup(f)
}

// wakeup runs f with the engine and performs the effects that the engine requests, as `with`
// does. The caller holds mu.
func (d *portable) wakeup(f func(e *proxy.Engine)) bool {
	if d.stopped {
		return false
	}
	d.engine.Begin(now(), time.Now().Unix())
	f(d.engine)
	for effects := d.engine.End(); len(effects) > 0; effects = d.engine.End() {
		for _, x := range effects {
			d.effect(x)
		}
	}
	if d.engine.HasBacklog() {
		d.timerAt = 0
		d.timer.Reset(0)
	} else if next := d.engine.Next(); next != d.timerAt {
		d.timerAt = next
		d.timer.Reset(max(time.Duration(next-now()), time.Millisecond))
	}
	return true
}

// post runs f after the functions that were posted before.
func (d *portable) post(f func(e *proxy.Engine)) {
	d.posting.Lock()
	defer d.posting.Unlock()
	if d.stopped {
		return
	}
	d.posted = append(d.posted, f)
	if len(d.posted) == 1 {
		go d.runPosted()
	}
}

// runPosted takes the posted functions before the wakeup adopts a table. So a function posted after
// a new table runs with that table.
func (d *portable) runPosted() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.posting.Lock()
	list := d.posted
	d.posted = nil
	d.posting.Unlock()
	some := func(e *proxy.Engine) {
		for ; len(list) > 0 && !e.Spent(); list = list[1:] {
			list[0](e)
		}
	}
	for len(list) > 0 && d.wakeup(some) {
	}
}

func (d *portable) effect(x link.Effect) {
	l := x.Link
	s, _ := l.Sock.(*stream)
	if x.Kind == link.Dial {
		d.dial(l)
		return
	}
	if s == nil || s.closed {
		return
	}
	switch x.Kind {
	case link.Write:
		d.write(s)
	case link.Close, link.Abort:
		if s.conn == nil { // the engine has waited long enough for the connection
			d.opts.refused(l)
		}
		if t, ok := s.conn.(*net.TCPConn); ok && x.Kind == link.Abort {
			t.SetLinger(0)
		}
		if s.tls != nil && x.Kind == link.Close {
			d.sayBye(s)
		}
		d.drop(s)
	case link.Pause, link.Resume:
		s.pause(x.Kind == link.Pause)
	}
}

// pause stops the reader after its current read, or resumes it.
func (s *stream) pause(yes bool) {
	if s.paused = yes; !yes {
		select {
		case s.resume <- struct{}{}:
		default:
		}
	}
}

// write passes the pending bytes to the writer. Until the writer reports back, the engine treats
// the socket as full.
func (d *portable) write(s *stream) {
	if f := s.filter; f != nil {
		f.write(now())
		f.wake()
		return
	}
	if s.tls != nil {
		d.writeSealed(s)
		return
	}
	n := 0
	pending := s.link.Pending(nil)
	for i, b := range pending {
		if n += len(b); n >= maxHanded {
			pending = pending[:i+1]
			break
		}
	}
	if n == 0 {
		return
	}
	buf := slices.Concat(pending...)
	d.engine.Wrote(s.link, len(buf), true)
	d.engine.Handed(s.link, len(buf))
	s.given = len(buf)
	s.handed.Store(int64(len(buf)))
	s.busy = true
	s.out <- buf // never blocks: the writer has reported back, or has just started
}

// maxHanded is about how many bytes the writer gets at a time. They are copied.
const maxHanded = 1 << 20

// taken records that the writer holds no bytes any more.
func (d *portable) taken(s *stream) {
	if s.given > 0 {
		d.engine.Handed(s.link, -s.given)
		s.given = 0
	}
}

// drop closes s and removes it.
func (d *portable) drop(s *stream) {
	if s.closed {
		return
	}
	s.closed, s.held, s.filter = true, false, nil
	if s.tls != nil {
		s.tls.forget(&d.handshakes, &d.introductions)
		s.tls.Cancel()
	}
	d.taken(s)
	close(s.cancel)
	if s.conn != nil {
		s.conn.Close()
	}
	if s.link != nil && s.link.Sock == link.Sock(s) {
		s.link.Sock = nil
	}
	delete(d.socks, s)
}

func (d *portable) serve(l *listener, i int) {
	d.running.Add(1)
	go d.accept(l, l.of(i))
}

func (d *portable) forget(*listener) {} // closing the listener ends accept

func (d *portable) accept(l *listener, ln net.Listener) {
	defer d.running.Done()
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the process has no descriptors left, or the client has already disconnected
			if !errors.Is(err, syscall.ECONNABORTED) {
				d.with(func(e *proxy.Engine) { e.Count.Unaccepted++ })
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s := &stream{conn: c}
		if !d.with(func(e *proxy.Engine) {
			if t := l.tls.Load(); t != nil {
				d.greet(s, l, t)
				return
			}
			s.link = e.Accepted(l.network, l.address, s)
			d.start(s)
		}) {
			c.Close()
		}
	}
}

func (d *portable) dial(l *link.Link) {
	s := &stream{link: l}
	l.Sock = s
	s.cancel = make(chan struct{})
	d.socks[s] = struct{}{}
	d.faults.dial(streamPort{d, s})
}

// dialUp dials in a separate goroutine. It looks up host names for each dial.
func (d *portable) dialUp(s *stream) {
	l := s.link
	network, address := l.Server().Target()
	address = d.opts.locate(network, address)
	d.running.Add(1)
	go func() {
		defer d.running.Done()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-s.cancel:
				cancel()
			case <-ctx.Done():
			}
		}()
		ambiguous := ""
		if host, _, err := net.SplitHostPort(address); err == nil && network != "unix" {
			if ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host); err == nil {
				ambiguous = table.AmbiguousAddresses(ips)
			}
		}
		dialer := net.Dialer{}
		dialer.SetMultipathTCP(false)
		c, err := dialer.DialContext(ctx, network, address)
		s.came.Store(true)
		used := false
		d.with(func(e *proxy.Engine) {
			s.came.Store(false)
			warnAmbiguous(e, address, ambiguous)
			switch {
			case s.closed: // the engine has closed the link
			case err != nil:
				d.opts.refused(l)
				d.drop(s)
				e.Closed(l, engineError(err))
			default:
				used = true
				s.conn = c
				if l.Server().Security().On() {
					d.greetServer(s)
					return
				}
				d.start(s)
				d.up(s)
			}
		})
		if c != nil && !used {
			c.Close()
		}
	}()
}

// up tells the engine that the connection to a server is ready.
func (d *portable) up(s *stream) {
	if d.faults.opened(streamPort{d, s}) {
		d.engine.Up(s.link)
	}
}

// start starts the reader and the writer of s.
func (d *portable) start(s *stream) {
	if s.cancel == nil {
		s.cancel = make(chan struct{})
	}
	s.out = make(chan []byte, 1)
	s.resume = make(chan struct{}, 1)
	d.socks[s] = struct{}{}
	d.running.Add(2)
	go d.reader(s)
	go d.writer(s)
}

// Sizes of a reader's buffer. Each socket has one, and most sockets receive little at a time.
const (
	smallRead = 4 << 10
	largeRead = 64 << 10
)

func (d *portable) reader(s *stream) {
	defer d.running.Done()
	buf := make([]byte, smallRead)
	for {
		n, err := s.conn.Read(buf)
		s.came.Store(true)
		d.with(func(e *proxy.Engine) {
			s.came.Store(false)
			if s.closed {
				return
			}
			switch f := s.filter; {
			case s.tls != nil:
				d.arrivedSealed(s, buf[:n], err)
				return
			case f != nil:
				f.read(now(), buf[:n])
				if err != nil {
					f.ended(now(), err)
				}
				f.wake()
				return
			case n > 0:
				e.Bytes(s.link, buf[:n])
			}
			if err != nil {
				d.ended(s, err)
			}
		})
		if n == smallRead && len(buf) == smallRead {
			buf = make([]byte, largeRead)
		} else if n < smallRead && len(buf) > smallRead {
			buf = make([]byte, smallRead)
		}
		d.mu.Lock()
		pause, closed := s.paused, s.closed
		d.mu.Unlock()
		if err != nil || closed {
			return
		}
		for pause {
			select {
			case <-s.resume:
			case <-s.cancel:
				return
			}
			d.mu.Lock()
			pause = s.paused
			d.mu.Unlock()
		}
	}
}

// ended reports the end of a socket's input to the engine. A client that has closed its sending
// side may still wait for replies.
func (d *portable) ended(s *stream, err error) {
	if err == io.EOF {
		err = nil
		if s.link.Client() {
			d.engine.Closed(s.link, nil)
			return
		}
	}
	d.drop(s)
	d.engine.Closed(s.link, engineError(err))
}

func (d *portable) writer(s *stream) {
	defer d.running.Done()
	for {
		select {
		case buf := <-s.out:
			err := s.send(buf)
			d.with(func(e *proxy.Engine) {
				switch {
				case s.closed:
				case s.tls != nil:
					d.wroteSealed(s, err)
				case err != nil:
					d.drop(s)
					e.Closed(s.link, err)
				default:
					s.busy = false
					d.taken(s)
					e.Wrote(s.link, 0, false)
					d.write(s)
				}
			})
		case <-s.cancel:
			return
		}
	}
}

// pieceSize is how many bytes the writer passes to the kernel in one call. Unsent does not count
// the piece that is being written.
const pieceSize = 64 << 10

func (s *stream) send(buf []byte) error {
	for len(buf) > 0 {
		n, err := s.conn.Write(buf[:min(len(buf), pieceSize)])
		if err != nil {
			return err
		}
		s.handed.Add(int64(-n))
		buf = buf[n:]
	}
	return nil
}

func (d *portable) stop() {
	d.mu.Lock()
	d.posting.Lock()
	d.stopped, d.posted = true, nil
	d.posting.Unlock()
	d.timer.Stop()
	for s := range d.socks {
		d.drop(s)
	}
	d.mu.Unlock()
	d.running.Wait()
}
