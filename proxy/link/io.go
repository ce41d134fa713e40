package link

// This file defines IO: the state that all connections of one loop share.

import (
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// IO is the state that all connections of one loop share: the time, buffers, the input being
// parsed, and the effects that the driver must perform. Only the goroutine of the loop uses it,
// except for Booked.
type IO struct {
	Log      *slog.Logger
	logLimit *LogLimit
	Debug    bool // Log writes debug lines, so every connection is logged

	Now    int64        // start of the wakeup, in nanoseconds of the driver's clock
	Wall   int64        // start of the wakeup in Unix seconds, for expiration times in requests
	Clock  func() int64 // reads the driver's clock; nil: the time does not change within a wakeup
	Timers timers       // when to call End without an event, by kind of work
	First  int64        // the earliest of Timers, so that one comparison shows that nothing is due
	Count  stats.Counters
	Wire   wire.Limits // parses requests that were accepted before, and requests that Ringside makes: without limits

	Buffers Buffers
	accounts
	Scratch *Chunk // buffer for reads of links without input
	Input   *Chunk // the input being parsed: Scratch, or the former In of a link

	PendingFlush []*Link  // links that were marked: End.Flush is called for them
	effects      []Effect // actions that the driver must perform at the end of the wakeup
	handed       []Effect // the slice that the last Flush returned, reused by the next one

	// Tune trades a little latency for CPU time. It does not change while the loop runs.
	Tune Tune

	Line       []byte // scratch: a line being built
	Key        []byte // scratch: a base64 key, decoded
	EncodedKey []byte // scratch: a base64 key, encoded
}

// Tune contains the settings that trade a little latency for CPU time.
type Tune struct {
	HoldDue   int           // number of replies due from a server from which on requests to it are held; 0: never
	HoldMax   int           // maximum number of requests that are held for a server, to be sent together
	GroupWait time.Duration // how long a client's replies wait to be sent together; 0: they do not wait
	GroupSize int           // number of bytes of a client's replies from which on they do not wait
}

// DefaultTune has the values with which every instance runs.
var DefaultTune = Tune{HoldDue: 4, HoldMax: 16, GroupWait: time.Millisecond, GroupSize: 16 << 10}

// Moment returns the current time. It may be later than Now: the thread may have been suspended
// during the wakeup, and then read replies that servers sent after Now.
func (io *IO) Moment() int64 {
	if io.Clock == nil {
		return io.Now
	}
	return io.Clock()
}

// Init initializes io. memory is the counter of the memory of all loops; all loops also share
// limit.
func (io *IO) Init(tune Tune, memory *atomic.Int64, log *slog.Logger, limit *LogLimit) {
	io.all = memory
	io.logLimit = limit
	io.Tune = tune
	io.Log = log
	io.Wire = wire.Unlimited
	io.Scratch = io.Buffers.Get(ScratchSize)
	io.First = Never
	for t := range io.Timers {
		io.Timers[t] = Never
	}
}

// Never is a time that is never reached.
const Never = math.MaxInt64

// Timer is a kind of work that a loop does without an event.
type Timer uint8

// The timers, in the order in which End checks them.
const (
	RequestTimer Timer = iota // requests, dials and redials that are due
	IdleTimer                 // clients that are idle for too long
	KeeperTimer               // keepers that have something to do
	ParkedTimer               // parked commands: they wait until servers change their phase, or until it is known which servers are out
	TaskTimer                 // commands that continue at a set time, such as reads that try one more replica
	ResyncTimer               // work for replicas that have missed writes
	GuardTimer                // reads that wait while a client rebuilds the value, and requests that Ringside sends for them
	NearTimer                 // values of the near cache that expire
	LogTimer                  // lines of the log that wait: see LogLimited
	wakeTimer                 // only makes the loop call End: see Wake
	numTimers
)

// timers are the times at which End must be called even without an event, by Timer. Each is a lower
// bound: the work checks what is due.
type timers [numTimers]int64

// At makes t fire at the time when, or earlier.
func (io *IO) At(t Timer, when int64) {
	if when < io.Timers[t] {
		io.Timers[t] = when
		io.First = min(io.First, when)
	}
}

// Soon makes t fire in this wakeup, or in the next one if this wakeup has already checked t.
func (io *IO) Soon(t Timer) { io.At(t, io.Now) }

// Wake makes the driver call End without an event, because something can run that this wakeup
// may not reach any more.
func (io *IO) Wake() { io.Soon(wakeTimer) }

// WakeAt makes the driver call End at the time when, or earlier.
func (io *IO) WakeAt(when int64) { io.At(wakeTimer, when) }

// Fire calls do for each timer that is due. It disarms the timer first.
func (io *IO) Fire(do func(t Timer)) {
	for t := range io.Timers {
		if io.Timers[t] <= io.Now {
			io.Timers[t] = Never
			do(Timer(t))
		}
	}
	io.First = slices.Min(io.Timers[:])
}

// Space returns the buffer for the driver's next read from l. In the middle of a large request or reply it
// has little room beyond the end of it, so that a link which then waits keeps little of the next one.
// If l.In is short and has too little room, the next read is stored after a copy of it in Scratch.
func (io *IO) Space(l *Link) []byte {
	c := l.In
	switch {
	case c == nil:
		return io.Scratch.Data
	case c.hasRoom(l.Need):
	case c.Len() <= fewBytes:
		return io.Scratch.Data[copy(io.Scratch.Data, c.Bytes()):]
	default:
		l.In = io.keep(c, l.Need)
		io.Buffers.Put(c)
	}
	free := l.In.space(l.Need)
	if l.Client() { // a client must not delay others by reads of large values
		free = free[:min(len(free), ClientRead)]
	}
	return free
}

// hasRoom reports whether c has room for a next read, and for a request or reply of need bytes of which it has the
// beginning; 0: the length is not known.
func (c *Chunk) hasRoom(need int) bool { return c.free() > 0 && len(c.Data)-c.Start >= need }

// space returns the free part of c for the next read. need is the length of a large request or reply; 0: it is not known.
func (c *Chunk) space(need int) []byte {
	if n := max(need-c.Len(), BigSpan); need > 0 && n < c.free() {
		return c.Data[c.End : c.End+n]
	}
	return c.Data[c.End:]
}

// Filled reports that n bytes of l were read into the buffer that Space returned.
func (io *IO) Filled(l *Link, n int) {
	if l.Closed || n == 0 {
		return
	}
	l.BytesIn += uint64(n)
	io.Count.Reads++
	l.End.Came(n)
	switch c := l.In; {
	case c == nil:
		io.Scratch.Start, io.Scratch.End = 0, n
		io.Input = io.Scratch
	case c.hasRoom(l.Need):
		c.End += n
		if c.Len() < l.Need {
			return
		}
		io.Enter(l)
	default: // Space has copied c to Scratch
		io.Scratch.Start, io.Scratch.End = 0, c.Len()+n
		io.Input = io.Scratch
		io.Buffers.Put(c)
		l.In = nil
	}
	if io.Input.Len() >= l.Need {
		l.Need = 0
		l.End.Parse()
	}
	io.Leave(l)
	if io.Buffers.Held-io.Booked.Load() >= memoryStep {
		io.Account()
	}
}

// Bytes passes on the input b, which a driver has read into a buffer of its own. It does the work of
// Space and Filled.
func (io *IO) Bytes(l *Link, b []byte) {
	for len(b) > 0 && !l.Closed {
		n := copy(io.Space(l), b)
		io.Filled(l, n)
		b = b[n:]
	}
}

// Enter makes l.In the input being parsed. Until Leave, l does not own that input, because
// parsing may pass on its chunk, or close l.
func (io *IO) Enter(l *Link) {
	io.Input, l.In = l.In, nil
}

// Leave ends Enter: l keeps the input that was not parsed.
func (io *IO) Leave(l *Link) {
	c := io.Input
	io.Input = nil
	rest := c.Len()
	switch {
	case rest == 0 || l.Closed:
		if c == io.Scratch {
			c.Start, c.End = 0, 0
		} else {
			io.Buffers.Put(c)
		}
	case c == io.Scratch:
		if rest >= BigSpan && len(c.Data)-c.Start >= l.Need {
			l.In = c
			io.Scratch = io.Buffers.Get(ScratchSize)
			return
		}
		l.In = io.keep(c, l.Need)
		c.Start, c.End = 0, 0
	case l.Need == 0 && rest <= BigSpan && len(c.Data) > ScratchSize: // the chunk was for a large request
		l.In = io.keep(c, 0)
		io.Buffers.Put(c)
	case c.hasRoom(l.Need) || l.Need == 0 && c.Start == 0:
		l.In = c
	case len(c.Data) >= l.Need && rest < c.Start: // move the rest to the start: cheaper than another chunk
		c.End = copy(c.Data, c.Bytes())
		c.Start = 0
		l.In = c
	default:
		l.In = io.keep(c, l.Need)
		io.Buffers.Put(c)
	}
}

// fewBytes is the number of bytes up to which input is kept without room for more: a client that only announces a
// large request uses little memory.
const fewBytes = 4 << 10

// keep returns a copy of c. It has room for a request or reply of need bytes, but if that is more than fewBytes, only
// when more than that many have arrived.
func (io *IO) keep(c *Chunk, need int) *Chunk {
	n := max(need, c.Len()+c.Len()/2+256)
	if need > fewBytes && c.Len() <= fewBytes {
		n = c.Len()
	}
	k := io.Buffers.Get(n)
	k.End = copy(k.Data, c.Bytes())
	return k
}

// Take passes on the first n bytes of the input being parsed as a separate chunk, without copying
// them. Parsing continues with the rest in another chunk.
func (io *IO) Take(n int) *Chunk {
	c := io.Input
	rest := c.Data[c.Start+n : c.End]
	next := io.Buffers.Get(max(ScratchSize, len(rest)))
	next.End = copy(next.Data, rest)
	c.End = c.Start + n
	if c == io.Scratch {
		io.Scratch = next
	}
	io.Input = next
	return c
}

// Draft returns an empty slice, to which the caller appends what Add then adds to q. If that is at most n
// bytes, and the last chunk of q has room for them, Add copies nothing.
func (io *IO) Draft(q *Queue, n int) []byte {
	if t := q.Tail; t != nil && n <= t.free() {
		return t.Data[t.End:t.End]
	}
	return io.Line[:0]
}

// Add adds b, which was appended to the result of Draft, to the end of q. b is not empty.
func (io *IO) Add(q *Queue, b []byte) {
	if t := q.Tail; t != nil && t.free() > 0 && &b[0] == &t.Data[t.End] {
		q.Size += len(b)
		t.End += len(b)
		return
	}
	io.Line = b
	q.Append(&io.Buffers, b)
}

// Wrote reports that the socket of l accepted n bytes. full means that the socket accepts no more
// bytes until the kernel reports it as writable. The driver then sends the bytes of Pending without
// a further request of the engine.
func (io *IO) Wrote(l *Link, n int, full bool) {
	l.Full = full
	if n > 0 {
		io.Count.Writes++
		l.Out.Consume(&io.Buffers, n)
		l.BytesOut += uint64(n)
	}
	l.End.Sent(n)
}

// Handed reports that the driver holds n more bytes of l (fewer if n is negative) that were already
// reported to Wrote.
func (io *IO) Handed(l *Link, n int) {
	l.Handed += n
	io.Buffers.Hold(n)
}

// Up reports that the connection requested by a Dial effect is established.
func (io *IO) Up(l *Link) {
	if !l.Closed {
		l.Dialer.Up()
	}
}

// Closed reports that l's socket is closed or at the end of its input. err is nil at a clean
// end of input. The driver has closed the socket, except if err is nil and l is a client: the
// client may still wait for replies, and a Close effect follows. Closed is not called after a
// Close or Abort effect for l.
func (io *IO) Closed(l *Link, err error) { l.End.Lost(err) }

// Mark schedules a call of l.End.Flush at the end of the wakeup.
func (io *IO) Mark(l *Link) {
	if !l.pendingFlush {
		l.pendingFlush = true
		io.PendingFlush = append(io.PendingFlush, l)
	}
}

// Effect requests an action of the driver.
func (io *IO) Effect(k EffectKind, l *Link) { io.effects = append(io.effects, Effect{k, l}) }

// Flush calls End.Flush of each marked link, and returns the effects that the driver must perform.
func (io *IO) Flush() []Effect {
	for i := 0; i < len(io.PendingFlush); i++ { // the list may grow: a flush can mark another link
		l := io.PendingFlush[i]
		l.pendingFlush = false
		l.End.Flush()
	}
	io.PendingFlush = io.PendingFlush[:0]
	out := io.effects
	io.effects, io.handed = io.handed[:0], out
	return out
}
