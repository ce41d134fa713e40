package proxy

// What all connections of one loop share.

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"ringside/proxy/wire"
)

// IO is what all connections of one loop share: what time it is, buffers, the
// input being parsed, and what the driver is to do when the wakeup ends.
type IO struct {
	log   *slog.Logger
	debug bool // log wants to know of every connection

	now    int64 // nanoseconds on the drivers' clock
	timers timers
	first  int64 // no timer fires before; with nothing due, that is all that is asked
	count  Counters
	wire   wire.Limits // of requests

	pool pool
	accounts
	scratch *chunk // where reads go that continue nothing
	cur     *chunk // the input being parsed: scratch, or a link's in

	dirty   []*Link  // have bytes to send or a decision to make in End
	effects []Effect // for the driver
	handed  []Effect // what End returned last

	// Tune trades a little latency for CPU. It is not changed while the loop runs.
	Tune Tune

	line []byte // a line being made
	key  []byte // a base64 key, decoded
	key2 []byte // a base64 key, encoded again
}

// Tune holds the settings that trade a little latency for CPU.
type Tune struct {
	HoldDue   int           // answers due from a server at which its queue is held; 0: never
	HoldMax   int           // requests held for it at most
	GroupWait time.Duration // how long a client's answers wait for their group; 0: not
	GroupSize int           // bytes of them that end the wait
}

// DefaultTune is what engine.md measured best.
var DefaultTune = Tune{HoldDue: 4, HoldMax: 16, GroupWait: time.Millisecond, GroupSize: 16 << 10}

func (io *IO) init(tune Tune, memory *atomic.Int64, log *slog.Logger) {
	io.all = memory
	io.Tune = tune
	io.log, io.debug = log, log.Enabled(context.Background(), slog.LevelDebug)
	io.scratch = io.pool.get(scratchSize)
	io.first = never
	for t := range io.timers {
		io.timers[t] = never
	}
}

// never is a moment that does not come.
const never = math.MaxInt64

// timer is something that a loop does by itself.
type timer uint8

// The timers, in the order in which End looks at them.
const (
	requestTimer timer = iota // requests, dials and redials that are due
	idleTimer                 // clients that say nothing
	keeperTimer               // keepers that have something to do
	parkedTimer               // commands that wait for a phase
	hedgeTimer                // reads that ask one more copy
	resyncTimer               // copies that something is missing from
	numTimers
)

// timers are the moments, by timer, at which End must be called even if
// nothing happens. Each is a lower bound: who is called looks what is due.
type timers [numTimers]int64

// at makes sure that t fires at the time when, or before.
func (io *IO) at(t timer, when int64) {
	if when < io.timers[t] {
		io.timers[t] = when
		io.first = min(io.first, when)
	}
}

// soon makes t fire in this wakeup, or in the next if it has had its turn.
func (io *IO) soon(t timer) { io.at(t, io.now) }

// fire calls do for each timer that is due, which is disarmed before.
func (io *IO) fire(do func(t timer)) {
	for t := range io.timers {
		if io.timers[t] <= io.now {
			io.timers[t] = never
			do(timer(t))
		}
	}
	io.first = slices.Min(io.timers[:])
}

// Space is where the driver should read to next for l.
func (io *IO) Space(l *Link) []byte {
	if l.in != nil && l.in.free() > 0 {
		return l.in.b[l.in.w:]
	}
	return io.scratch.b
}

// Filled says that n bytes from l were read into what Space returned.
func (io *IO) Filled(l *Link, n int) {
	if l.closed || n == 0 {
		return
	}
	l.bytesIn += uint64(n)
	io.count.Reads++
	l.end.Came(n)
	if l.in != nil && l.in.free() > 0 {
		l.in.w += n
		if l.in.len() < l.need {
			return
		}
		io.enter(l)
	} else {
		io.scratch.r, io.scratch.w = 0, n
		io.cur = io.scratch
		if l.in != nil { // full, and still not a whole request: move to a larger one
			c := io.pool.get(max(l.need, 2*l.in.len()+n))
			c.w = copy(c.b, l.in.bytes())
			c.w += copy(c.b[c.w:], io.scratch.bytes())
			io.pool.put(l.in)
			l.in = c
			io.enter(l)
		}
	}
	l.need = 0
	l.end.Parse()
	io.leave(l)
	if io.pool.held-io.booked.Load() >= memoryStep {
		io.account()
	}
}

// Bytes is Space and Filled for a driver that has its own buffer.
func (io *IO) Bytes(l *Link, b []byte) {
	for len(b) > 0 && !l.closed {
		n := copy(io.Space(l), b)
		io.Filled(l, n)
		b = b[n:]
	}
}

// enter makes what l has kept the input being parsed. Until leave it is not
// l's: parsing may hand it over, and l may be closed meanwhile.
func (io *IO) enter(l *Link) {
	io.cur, l.in = l.in, nil
}

// leave keeps what parsing left over.
func (io *IO) leave(l *Link) {
	c := io.cur
	io.cur = nil
	rest := c.len()
	switch {
	case rest == 0 || l.closed:
		if c == io.scratch {
			c.r, c.w = 0, 0
		} else {
			io.pool.put(c)
		}
	case c == io.scratch:
		if rest >= bigSpan && len(c.b)-c.r >= l.need {
			l.in = c
			io.scratch = io.pool.get(scratchSize)
			return
		}
		l.in = io.pool.get(max(l.need, rest+rest/2+256))
		l.in.w = copy(l.in.b, c.bytes())
		c.r, c.w = 0, 0
	case len(c.b)-c.r < l.need || c.free() == 0 && c.r > 0:
		if len(c.b) >= l.need && rest < c.r { // slide down: cheaper than another chunk
			c.w = copy(c.b, c.bytes())
			c.r = 0
			l.in = c
			return
		}
		l.in = io.pool.get(max(l.need, rest+rest/2+256))
		l.in.w = copy(l.in.b, c.bytes())
		io.pool.put(c)
	default:
		l.in = c
	}
}

// take hands over the first n bytes of the input being parsed as a chunk of
// its own, without copying them, and goes on with the rest in another.
func (io *IO) take(n int) *chunk {
	c := io.cur
	rest := c.b[c.r+n : c.w]
	next := io.pool.get(max(scratchSize, len(rest)))
	next.w = copy(next.b, rest)
	c.w = c.r + n
	if c == io.scratch {
		io.scratch = next
	}
	io.cur = next
	return c
}

// Wrote says that the socket of l took n bytes; full that it refuses more
// until it is writable again. The driver then sends what is Pending by itself
// when it is.
func (io *IO) Wrote(l *Link, n int, full bool) {
	l.full = full
	if n > 0 {
		io.count.Writes++
		l.out.consume(&io.pool, n)
		l.bytesOut += uint64(n)
	}
	l.end.Sent(n)
}

// Handed says that the driver holds n more bytes of l, or fewer, that Wrote has
// reported as written.
func (io *IO) Handed(l *Link, n int) {
	l.handed += n
	io.pool.hold(n)
}

// Up says that the connection an effect Dial asked for is there.
func (io *IO) Up(l *Link) {
	if !l.closed {
		l.server.Up()
	}
}

// Closed says that l's socket is gone or at its end: err is nil at a clean
// end of input. The driver has closed the socket, unless err is nil and l is a
// client's: that one may still wait for answers, and gets an effect Close. It
// is not called for a link that an effect Close or Abort has named.
func (io *IO) Closed(l *Link, err error) { l.end.Lost(err) }

// mark lets l decide in End what it sends.
func (io *IO) mark(l *Link) {
	if !l.dirty {
		l.dirty = true
		io.dirty = append(io.dirty, l)
	}
}

// effect asks the driver for something.
func (io *IO) effect(k EffectKind, l *Link) { io.effects = append(io.effects, Effect{k, l}) }

// flush lets everybody who has something to send decide, and returns what the
// driver must do.
func (io *IO) flush() []Effect {
	for i := 0; i < len(io.dirty); i++ { // may grow: a flush can order another
		l := io.dirty[i]
		l.dirty = false
		l.end.Flush()
	}
	io.dirty = io.dirty[:0]
	out := io.effects
	io.effects, io.handed = io.handed[:0], out
	return out
}
