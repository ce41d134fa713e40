package loop

// Connections to servers that something is wrong with, on purpose: a filter
// between a driver's socket and the engine. Without a fault a connection has no
// filter, and that is all that is asked on the way of a byte.

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

// port is a driver's side of one server connection: the socket below a filter,
// or a dial that a fault holds up.
type port interface {
	link() *link.Link
	filter() **filter           // where the driver keeps it; nil without a fault
	connect()                   // makes the connection that the engine has asked for
	held() *bool                // a fault is against connecting
	send(b []byte) (int, error) // hands bytes to the socket, which may take less
	end(err error)              // closes the socket and tells the engine
	want(read, write bool)      // what the filter can use now
	busy() bool                 // the driver still reports to the filter
}

// faults is what one driver knows of the faults of its servers. Like the
// engine it is used by one goroutine at a time.
type faults struct {
	set    *fault.Set
	engine *proxy.Engine
	chance *rand.Rand                          // the dice: they fall the same way in every run
	after  func(wait time.Duration, do func()) // runs do as the driver's own, later
	dials  []port                              // held up
}

// of is what is wrong with the server behind l.
func (fs *faults) of(l *link.Link) fault.State {
	if fs.set == nil {
		return fault.State{}
	}
	network, address := l.Server().Target()
	return fs.set.Of(network, address)
}

// dial connects p, unless a fault has something against it.
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

// opened looks whether a connection that was just made has a fault. It
// reports false when that has ended it.
func (fs *faults) opened(p port) bool {
	state := fs.of(p.link())
	return state == (fault.State{}) || fs.attach(p).change(now(), state)
}

func (fs *faults) attach(p port) *filter {
	f := &filter{faults: fs, port: p, link: p.link()}
	*p.filter() = f
	return f
}

// review takes up the faults as they are now, for open connections and for
// dials that are held up. full says of a connection that its socket is.
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

// late is how much later a segment comes, of which the network drops some.
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

// What TCP waits before it sends something again the first time; then twice
// as long, and so on.
const (
	rto    = 200 * time.Millisecond // a segment, on a fast network
	synRTO = time.Second            // an attempt to connect
)

// lossesMax is how often in a row something is lost at most: after some
// minutes everybody has given up.
const lossesMax = 10

// filter stands between the engine and the socket of one server connection
// while it has a fault, and until what that held back has gone on.
type filter struct {
	*faults
	port  port
	link  *link.Link
	state fault.State

	in, out line
	greeted bool // a whole line has come: what follows is answers
	lost    bool // bytes are lost: nothing that follows can be understood
	lostOut int  // how many of these were on their way to the server
	over    bool // the end is in the line, or past
	full    bool // the engine was told that the socket is full
	blocked bool // the socket is: it did not take all
	wakeAt  int64
}

// line is what is kept of one direction.
type line struct {
	pieces []piece
	size   int
}

// piece is bytes, or the end of the connection, that go on at due.
type piece struct {
	b   []byte
	end bool
	err error // of the end
	due int64
}

// keptMax bounds what is kept of each direction of a connection, as the
// kernel's buffers do for one that hangs. Beyond it the socket is full, or
// not read.
const keptMax = 1 << 20

func (l *line) full() bool { return l.size >= keptMax }

// push puts p behind what is there, and never before it in time.
func (l *line) push(p piece) {
	if n := len(l.pieces); n > 0 {
		p.due = max(p.due, l.pieces[n-1].due)
	}
	l.pieces = append(l.pieces, p)
	l.size += len(p.b)
}

// release lets everything go at once.
func (l *line) release() {
	for i := range l.pieces {
		l.pieces[i].due = 0
	}
}

// stuck says that nothing moves.
func (f *filter) stuck() bool { return f.state.Hang || f.state.Partition }

// read takes what was read from the server. It keeps no reference to b.
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

// cut says how much of b comes before the connection is reset in the middle
// of an answer, and whether it is.
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

// ended takes the end of what the server sends.
func (f *filter) ended(now int64, err error) {
	if !f.over {
		f.over = true
		f.in.push(piece{end: true, err: err, due: now})
	}
}

// write takes all the engine has for the socket, as far as there is room.
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

// refill takes what the engine had no room for, if there is room now.
func (f *filter) refill(now int64) bool {
	if !f.full || f.out.full() {
		return false
	}
	f.full = false
	f.engine.Wrote(f.link, 0, false)
	f.write(now)
	return true
}

// pump moves on what is due. It reports false when it has ended the
// connection.
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

// sleep sees that pump is called when the next piece is due.
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

// wake moves on what is due, if the filter is still its connection's, and says
// what it can use then.
func (f *filter) wake() {
	if *f.port.filter() == f && f.pump(now()) {
		f.settle()
	}
}

// settle lets the driver wait for what the filter can use, or lets go of a
// filter that has nothing left to do.
func (f *filter) settle() {
	if f.done() && !f.port.busy() {
		*f.port.filter() = nil
	}
	f.port.want(!f.in.full(), f.blocked)
}

// change puts another state in force. It reports false when that has ended
// the connection.
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

// unsent is how many of the engine's bytes the server's kernel has not got. It
// has got those to a server that only hangs.
func (f *filter) unsent() int {
	if f == nil || f.state.Hang && !f.lost {
		return 0
	}
	return f.out.size + f.lostOut
}

// done says that there is no fault any more and nothing is kept.
func (f *filter) done() bool {
	return f.state == fault.State{} && len(f.in.pieces)+len(f.out.pieces) == 0
}

// refault makes every engine's driver look at the faults again, and waits for
// that, but not for one that hangs or has ended.
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
