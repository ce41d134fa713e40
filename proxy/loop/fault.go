package loop

// Connections to servers that something is wrong with, on purpose: what both
// drivers do with them. Without a fault a connection has no faulty, and that
// is all that is asked on the way of a byte.

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"ringside/proxy"
	"ringside/proxy/fault"
)

// faulty stands between the engine and the socket of one server connection
// while it has a fault, and until what that held back has gone on. Like the
// engine it is used by one goroutine at a time.
type faulty struct {
	engine *proxy.Engine
	link   *proxy.Link
	state  fault.State
	chance *rand.Rand

	// The driver's. send hands bytes to the socket, which may take less; end
	// closes the socket and tells the engine; wake calls pump after a while.
	send func(b []byte) (int, error)
	end  func(err error)
	wake func(after time.Duration)

	in, out line
	greeted bool // a whole line has come: what follows is answers
	lost    bool // bytes are gone: nothing that follows can be understood
	sunk    int  // of the engine's bytes, how many are gone
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

// heldMax bounds what is kept of each direction of a connection, as the
// kernel's buffers do for one that hangs. Beyond it the socket is full, or
// not read.
const heldMax = 1 << 20

func (l *line) full() bool { return l.size >= heldMax }

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
func (f *faulty) stuck() bool { return f.state.Hang || f.state.Partition }

// came takes what was read from the server. It keeps no reference to b.
func (f *faulty) came(now int64, b []byte) {
	switch {
	case f.over:
		return
	case f.state.Partition:
		f.lost = f.lost || len(b) > 0
		return
	}
	due, n, reset := now+int64(f.state.Delay+f.late(rto)), len(b), false
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
func (f *faulty) cut(b []byte) (n int, reset bool) {
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
func (f *faulty) ended(now int64, err error) {
	if !f.over {
		f.over = true
		f.in.push(piece{end: true, err: err, due: now})
	}
}

// give takes all the engine has for the socket, as far as there is room.
func (f *faulty) give(now int64) {
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
			f.sunk += len(b)
		} else {
			f.out.push(piece{b: b, due: now + int64(f.late(rto))})
		}
	}
}

// refill takes what the engine had no room for, if there is room now.
func (f *faulty) refill(now int64) bool {
	if !f.full || f.out.full() {
		return false
	}
	f.full = false
	f.engine.Wrote(f.link, 0, false)
	f.give(now)
	return true
}

// pump moves on what is due. It reports false when it has ended the
// connection.
func (f *faulty) pump(now int64) bool {
	if f.wakeAt <= now {
		f.wakeAt = 0
	}
	if f.stuck() {
		return true
	}
	for len(f.in.pieces) > 0 && f.in.pieces[0].due <= now {
		p := f.in.pieces[0]
		if p.end {
			f.end(p.err)
			return false
		}
		f.in.pieces, f.in.size = f.in.pieces[1:], f.in.size-len(p.b)
		f.engine.Bytes(f.link, p.b)
	}
	f.blocked = false
	for len(f.out.pieces) > 0 && f.out.pieces[0].due <= now {
		p := &f.out.pieces[0]
		n, err := f.send(p.b)
		if err != nil {
			f.end(err)
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
func (f *faulty) sleep(now int64) {
	next := int64(math.MaxInt64)
	for _, l := range []*line{&f.in, &f.out} {
		if len(l.pieces) > 0 && l.pieces[0].due > now {
			next = min(next, l.pieces[0].due)
		}
	}
	if next < math.MaxInt64 && (f.wakeAt == 0 || next < f.wakeAt) {
		f.wakeAt = next
		f.wake(time.Duration(next - now))
	}
}

// change puts another state in force. It reports false when that has ended
// the connection.
func (f *faulty) change(now int64, s fault.State) bool {
	f.state = s
	if s.Refuse || f.lost && !f.stuck() {
		f.end(syscall.ECONNRESET)
		return false
	}
	f.in.release()
	f.out.release()
	f.refill(now)
	return f.pump(now)
}

// unsent is how many of the engine's bytes the server's kernel has not got. It
// has got those to a server that only hangs.
func (f *faulty) unsent() int {
	if f == nil || f.state.Hang && !f.lost {
		return 0
	}
	return f.out.size + f.sunk
}

// done says that there is no fault any more and nothing is kept.
func (f *faulty) done() bool {
	return f.state == fault.State{} && len(f.in.pieces)+len(f.out.pieces) == 0
}

// What TCP waits before it sends something again the first time; then twice
// as long, and so on.
const (
	rto    = 200 * time.Millisecond // a segment, on a fast network
	synRTO = time.Second            // an attempt to connect
)

// late is how much later a segment comes, of which the network drops some.
func (f *faulty) late(rto time.Duration) time.Duration { return late(f.chance, f.state.Drop, rto) }

// lossesMax is how often in a row something is lost at most: after some
// minutes everybody has given up.
const lossesMax = 10

func late(chance *rand.Rand, percent int, rto time.Duration) (d time.Duration) {
	for range lossesMax {
		if percent == 0 || chance.IntN(100) >= percent {
			break
		}
		d += rto
		rto *= 2
	}
	return d
}

// newChance is the dice of one driver. They fall the same way in every run.
func newChance() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

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
