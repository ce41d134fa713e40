package loop

// This file implements fault injection. A filter between a driver's socket and the engine
// delays, drops or cuts the bytes of a server connection. A connection without a fault has no
// filter, so each read and write costs only one nil check.

import (
	"bytes"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"ringside/proxy"
	"ringside/proxy/fault"
	"ringside/proxy/link"
)

// port is a driver's side of one server connection: the socket below a filter, or a dial that a
// fault holds back.
type port interface {
	link() *link.Link
	filter() **filter           // the driver's field that holds the filter; nil without a fault
	connect()                   // makes the connection that the engine requested
	held() *bool                // whether a fault delays the dial
	send(b []byte) (int, error) // writes bytes to the socket, which may accept only some of them
	end(err error)              // closes the socket and notifies the engine
	want(read, write bool)      // sets whether the filter can read more, and whether it waits until it can write
	busy() bool                 // reports whether the driver's writer still has to report to the filter
}

// faults is the fault state of one driver. Like the engine, only one goroutine at a time uses it.
type faults struct {
	set    *fault.Set
	engine *proxy.Engine
	chance *rand.Rand                          // random numbers for dropped segments, with a fixed seed: the same sequence in every run
	after  func(wait time.Duration, do func()) // runs do after the time wait, when the engine may be used
	dials  []port                              // dials that a fault delays
}

// of returns the faults of the server of l.
func (fs *faults) of(l *link.Link) fault.State {
	if fs.set == nil {
		return fault.State{}
	}
	network, address := l.Server().Target()
	return fs.set.Of(network, address)
}

// dial connects p, unless a fault prevents or delays it.
func (fs *faults) dial(p port) {
	*p.held() = false
	state := fs.of(p.link())
	wait := fs.late(state.Drop, synRTO)
	switch {
	case state.Refuse:
		p.end(syscall.ECONNREFUSED)
		return
	case !state.Hang && !state.Partition && wait == 0:
		p.connect()
		return
	}
	*p.held() = true
	fs.dials = append(slices.DeleteFunc(fs.dials, func(o port) bool { return !*o.held() }), p)
	if wait == 0 {
		return
	}
	fs.after(wait, func() {
		if state := fs.of(p.link()); *p.held() && !state.Hang && !state.Partition && !state.Refuse {
			*p.held() = false
			p.connect()
		}
	})
}

// opened applies the faults of a connection that was just made. It returns false if a fault has
// ended the connection.
func (fs *faults) opened(p port) bool {
	state := fs.of(p.link())
	return state == (fault.State{}) || fs.attach(p).change(now(), state)
}

func (fs *faults) attach(p port) *filter {
	f := &filter{faults: fs, port: p, link: p.link()}
	*p.filter() = f
	return f
}

// review applies the current faults to open connections and to dials that were held back. The
// second value of `open` is whether the socket of the connection is full.
func (fs *faults) review(open iter.Seq2[port, bool]) {
	for p, full := range open {
		state, f := fs.of(p.link()), *p.filter()
		if f == nil {
			if state == (fault.State{}) {
				continue
			}
			f = fs.attach(p)
			f.greeted, f.full = true, full
		}
		if state != f.state && f.change(now(), state) {
			f.settle()
		}
	}
	dials := fs.dials
	fs.dials = nil
	for _, p := range dials {
		if *p.held() {
			fs.dial(p)
		}
	}
}

// late returns how much later a segment arrives if the network drops the given percentage of
// segments.
func (fs *faults) late(percent int, rto time.Duration) (d time.Duration) {
	for range lossesMax {
		if percent == 0 {
			break
		}
		if fs.chance == nil {
			fs.chance = rand.New(rand.NewPCG(1, 2))
		}
		if fs.chance.IntN(100) >= percent {
			break
		}
		d += rto
		rto *= 2
	}
	return d
}

// Retransmission timeouts of TCP. Each further attempt waits twice as long.
const (
	rto    = 200 * time.Millisecond // first timeout of a segment on an open connection in a fast network
	synRTO = time.Second            // first timeout of an attempt to connect
)

// lossesMax is how many times in a row a segment is lost at most. The delay is some minutes
// then, which is longer than any timeout.
const lossesMax = 10

// filter is between the engine and the socket of one server connection while the connection has a
// fault. It stays until the bytes that it kept have moved on.
type filter struct {
	*faults
	port  port
	link  *link.Link
	state fault.State

	in, out line
	greeted bool // the server's first line, the reply to the greeting, has arrived: all bytes after it are replies to requests
	lost    bool // bytes are lost, so what follows cannot be parsed
	lostOut int  // how many of the lost bytes were for the server
	over    bool // the end of the server's data was queued or passed on
	full    bool // the engine was told that the socket is full
	blocked bool // the socket did not accept all bytes
	wakeAt  int64
}

// line has the bytes that a filter holds back in one direction of a connection.
type line struct {
	pieces []piece
	size   int
}

// piece is some bytes, or the end of the connection, which the filter passes on at the time
// due.
type piece struct {
	b   []byte
	end bool
	err error // why the connection has ended, if end is set
	due int64
}

// keptMax limits the bytes kept of each direction of a connection. The kernel's buffers limit
// them in the same way for a server that hangs. At this limit the engine stops writing to the
// socket, or the driver stops reading from it.
const keptMax = 1 << 20

func (l *line) full() bool { return l.size >= keptMax }

// push appends p. Its due time is at least that of the piece before it.
func (l *line) push(p piece) {
	if n := len(l.pieces); n > 0 {
		p.due = max(p.due, l.pieces[n-1].due)
	}
	l.pieces = append(l.pieces, p)
	l.size += len(p.b)
}

// release makes all pieces due now.
func (l *line) release() {
	for i := range l.pieces {
		l.pieces[i].due = 0
	}
}

// stuck reports whether the fault stops all bytes.
func (f *filter) stuck() bool { return f.state.Hang || f.state.Partition }

// read queues bytes that were read from the server. It does not keep b.
func (f *filter) read(now int64, b []byte) {
	switch {
	case f.over:
		return
	case f.state.Partition:
		f.lost = f.lost || len(b) > 0
		return
	}
	due, n, reset := now+int64(f.state.Delay+f.late(f.state.Drop, rto)), len(b), false
	if f.state.Reset {
		n, reset = f.cut(b)
	}
	if n > 0 {
		f.in.push(piece{b: bytes.Clone(b[:n]), due: due})
	}
	if reset {
		f.ended(due, syscall.ECONNRESET)
	}
}

// cut returns how many bytes of b arrive before the connection is reset in the middle of a reply.
// reset is false if b contains no byte of a reply.
func (f *filter) cut(b []byte) (n int, reset bool) {
	start := 0
	if !f.greeted {
		start = bytes.IndexByte(b, '\n') + 1
		f.greeted = start > 0
	}
	if !f.greeted || start == len(b) {
		return len(b), false
	}
	return start + (len(b)-start)/2, true
}

// ended queues the end of the server's data.
func (f *filter) ended(now int64, err error) {
	if !f.over {
		f.over = true
		f.in.push(piece{end: true, err: err, due: now})
	}
}

// write queues all pending bytes of the engine, as far as there is room.
func (f *filter) write(now int64) {
	for {
		spans := f.link.Pending(nil)
		if len(spans) == 0 {
			return
		}
		if f.out.full() {
			f.full = true
			f.engine.Wrote(f.link, 0, true)
			return
		}
		b := slices.Concat(spans...)
		f.engine.Wrote(f.link, len(b), false)
		if f.state.Partition {
			f.lost = true
			f.lostOut += len(b)
		} else {
			f.out.push(piece{b: b, due: now + int64(f.late(f.state.Drop, rto))})
		}
	}
}

// refill queues bytes of the engine for which there was no room before, if there is room now.
// It reports whether it did.
func (f *filter) refill(now int64) bool {
	if !f.full || f.out.full() {
		return false
	}
	f.full = false
	f.engine.Wrote(f.link, 0, false)
	f.write(now)
	return true
}

// pump passes on the pieces that are due. It returns false if it has ended the connection.
func (f *filter) pump(now int64) bool {
	if f.wakeAt <= now {
		f.wakeAt = 0
	}
	if f.stuck() {
		return true
	}
	for len(f.in.pieces) > 0 && f.in.pieces[0].due <= now {
		p := f.in.pieces[0]
		if p.end {
			f.port.end(p.err)
			return false
		}
		f.in.pieces, f.in.size = f.in.pieces[1:], f.in.size-len(p.b)
		f.engine.Bytes(f.link, p.b)
	}
	f.blocked = false
	for len(f.out.pieces) > 0 && f.out.pieces[0].due <= now {
		p := &f.out.pieces[0]
		n, err := f.port.send(p.b)
		if err != nil {
			f.port.end(err)
			return false
		}
		f.out.size -= n
		if p.b = p.b[n:]; len(p.b) > 0 {
			f.blocked = true
			break
		}
		f.out.pieces = f.out.pieces[1:]
	}
	if f.refill(now) {
		return f.pump(now)
	}
	f.sleep(now)
	return true
}

// sleep schedules pump for the time when the next piece is due.
func (f *filter) sleep(now int64) {
	next := int64(math.MaxInt64)
	for _, l := range []*line{&f.in, &f.out} {
		if len(l.pieces) > 0 && l.pieces[0].due > now {
			next = min(next, l.pieces[0].due)
		}
	}
	if next < math.MaxInt64 && (f.wakeAt == 0 || next < f.wakeAt) {
		f.wakeAt = next
		f.after(time.Duration(next-now), f.wake)
	}
}

// wake passes on what is due and tells the driver what to wait for. It does nothing if the
// connection no longer has this filter.
func (f *filter) wake() {
	if *f.port.filter() == f && f.pump(now()) {
		f.settle()
	}
}

// settle tells the driver which events the filter can use. It removes a filter that has nothing
// left to do.
func (f *filter) settle() {
	if f.done() && !f.port.busy() {
		*f.port.filter() = nil
	}
	f.port.want(!f.in.full(), f.blocked)
}

// change applies another fault state. It returns false if that has ended the connection.
func (f *filter) change(now int64, s fault.State) bool {
	f.state = s
	if s.Refuse || f.lost && !f.stuck() {
		f.port.end(syscall.ECONNRESET)
		return false
	}
	f.in.release()
	f.out.release()
	f.refill(now)
	return f.pump(now)
}

// unsent returns how many of the engine's bytes have not reached the server's kernel. If the server
// only hangs, its kernel still has the bytes, so the count is 0.
func (f *filter) unsent() int {
	if f == nil || f.state.Hang && !f.lost {
		return 0
	}
	return f.out.size + f.lostOut
}

// done reports whether the filter can be removed: there is no fault any more, and it holds no
// bytes back.
func (f *filter) done() bool {
	return f.state == fault.State{} && len(f.in.pieces)+len(f.out.pieces) == 0
}

// refault makes the drivers of all engines apply the current faults. It waits for them, but at most
// a second, because a loop may hang or have ended.
func (d *Driver) refault() {
	d.mu.Lock()
	engines := slices.Clone(d.engine)
	d.mu.Unlock()
	seen := make(chan struct{}, len(engines))
	for _, e := range engines {
		e.post(func(*proxy.Engine) {
			e.refault()
			seen <- struct{}{}
		})
	}
	late := time.After(time.Second)
	for range engines {
		select {
		case <-seen:
		case <-late:
			return
		}
	}
}
