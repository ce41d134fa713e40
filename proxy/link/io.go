package link

// What all connections of one loop share.

import (
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// IO is what all connections of one loop share: what time it is, buffers, the
// input being parsed, and what the driver is to do when the wakeup ends.
type IO struct {
	Log      *slog.Logger
	logLimit *LogLimit
	Debug    bool // Log wants to know of every connection

	Now    int64        // when the wakeup began, in nanoseconds on the driver's clock
	Wall   int64        // the same in Unix seconds, for clients that say when a value is to expire
	Clock  func() int64 // the driver's clock as it goes; nil: it stands still within a wakeup
	Timers timers       // what is to happen by itself, and when
	First  int64        // the earliest of Timers: where nothing is due, one comparison says so
	Count  stats.Counters
	Wire   wire.Limits // bounds of clients' requests, as the table has them

	Buffers Buffers
	accounts
	Scratch *Chunk // where reads go that continue nothing
	Input   *Chunk // the input being parsed: Scratch, or what was the In of a link

	PendingFlush []*Link  // links that were marked: they have bytes to send, or something to decide
	effects      []Effect // for the driver, when the wakeup ends
	handed       []Effect // what Flush returned last; its room is used again

	// Tune trades a little latency for CPU. It is not changed while the loop runs.
	Tune Tune

	Line       []byte // scratch: a line being made
	Key        []byte // scratch: a base64 key, decoded
	EncodedKey []byte // scratch: a base64 key, encoded again
}

// Tune holds the settings that trade a little latency for CPU.
type Tune struct {
	HoldDue   int           // answers due from a server at which its queue is held; 0: never
	HoldMax   int           // requests held for it at most
	GroupWait time.Duration // how long a client's answers wait for their group; 0: not
	GroupSize int           // bytes of them that end the wait
}

// DefaultTune is what engine.coalesce_server and engine.coalesce_client are by
// default.
var DefaultTune = Tune{HoldDue: 4, HoldMax: 16, GroupWait: time.Millisecond, GroupSize: 16 << 10}

// Moment is the time now. The thread may have stood still since the wakeup began, and
// have read since then what a server has answered later.
func (io *IO) Moment() int64 {
	if io.Clock == nil {
		return io.Now
	}
	return io.Clock()
}

// Init makes io ready. memory counts what all loops hold; limit is the same for all.
func (io *IO) Init(tune Tune, memory *atomic.Int64, log *slog.Logger, limit *LogLimit) {
	io.all = memory
	io.logLimit = limit
	io.Tune = tune
	io.Log = log
	io.Scratch = io.Buffers.Get(ScratchSize)
	io.First = Never
	for t := range io.Timers {
		io.Timers[t] = Never
	}
}

// Never is a moment that does not come.
const Never = math.MaxInt64

// Timer is something that a loop does by itself.
type Timer uint8

// The timers, in the order in which End looks at them.
const (
	RequestTimer Timer = iota // requests, dials and redials that are due
	IdleTimer                 // clients that say nothing
	KeeperTimer               // keepers that have something to do
	ParkedTimer               // commands that wait for a phase
	TaskTimer                 // commands that go on at a time, such as reads that ask one more copy
	ResyncTimer               // copies that something is missing from
	CounterTimer              // increments that wait
	GuardTimer                // held reads, and what is asked for them
	NearTimer                 // values that are kept too long
	LogTimer                  // log lines that wait: see LogLimited
	numTimers
)

// timers are the moments, by timer, at which End must be called even if
// nothing happens. Each is a lower bound: who is called looks what is due.
type timers [numTimers]int64

// At makes sure that t fires at the time when, or before.
func (io *IO) At(t Timer, when int64) {
	if when < io.Timers[t] {
		io.Timers[t] = when
		io.First = min(io.First, when)
	}
}

// Soon makes t fire in this wakeup, or in the next if it has had its turn.
func (io *IO) Soon(t Timer) { io.At(t, io.Now) }

// Fire calls do for each timer that is due, which is disarmed before.
func (io *IO) Fire(do func(t Timer)) {
	for t := range io.Timers {
		if io.Timers[t] <= io.Now {
			io.Timers[t] = Never
			do(Timer(t))
		}
	}
	io.First = slices.Min(io.Timers[:])
}

// Space is where the driver should read to next for l.
func (io *IO) Space(l *Link) []byte {
	if l.In != nil && l.In.free() > 0 {
		return l.In.Data[l.In.End:]
	}
	return io.Scratch.Data
}

// Filled says that n bytes from l were read into what Space returned.
func (io *IO) Filled(l *Link, n int) {
	if l.Closed || n == 0 {
		return
	}
	l.BytesIn += uint64(n)
	io.Count.Reads++
	l.End.Came(n)
	if l.In != nil && l.In.free() > 0 {
		l.In.End += n
		if l.In.Len() < l.Need {
			return
		}
		io.Enter(l)
	} else {
		io.Scratch.Start, io.Scratch.End = 0, n
		io.Input = io.Scratch
		if l.In != nil { // full, and still not a whole request: move to a larger one
			c := io.Buffers.Get(max(l.Need, 2*l.In.Len()+n))
			c.End = copy(c.Data, l.In.Bytes())
			c.End += copy(c.Data[c.End:], io.Scratch.Bytes())
			io.Buffers.Put(l.In)
			l.In = c
			io.Enter(l)
		}
	}
	l.Need = 0
	l.End.Parse()
	io.Leave(l)
	if io.Buffers.Held-io.Booked.Load() >= memoryStep {
		io.Account()
	}
}

// Bytes is Space and Filled for a driver that has its own buffer.
func (io *IO) Bytes(l *Link, b []byte) {
	for len(b) > 0 && !l.Closed {
		n := copy(io.Space(l), b)
		io.Filled(l, n)
		b = b[n:]
	}
}

// Enter makes l's In the input being parsed. Until Leave it is not l's: parsing may
// hand the chunk over, and l may be closed meanwhile.
func (io *IO) Enter(l *Link) {
	io.Input, l.In = l.In, nil
}

// Leave ends Enter: l keeps what parsing has left of the input.
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
		l.In = io.Buffers.Get(max(l.Need, rest+rest/2+256))
		l.In.End = copy(l.In.Data, c.Bytes())
		c.Start, c.End = 0, 0
	case len(c.Data)-c.Start < l.Need || c.free() == 0 && c.Start > 0:
		if len(c.Data) >= l.Need && rest < c.Start { // slide down: cheaper than another chunk
			c.End = copy(c.Data, c.Bytes())
			c.Start = 0
			l.In = c
			return
		}
		l.In = io.Buffers.Get(max(l.Need, rest+rest/2+256))
		l.In.End = copy(l.In.Data, c.Bytes())
		io.Buffers.Put(c)
	default:
		l.In = c
	}
}

// Take hands over the first n bytes of the input being parsed as a chunk of
// its own, without copying them, and goes on with the rest in another.
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

// Wrote says that the socket of l took n bytes; full that it refuses more
// until it is writable again. The driver then sends what is Pending by itself
// when it is.
func (io *IO) Wrote(l *Link, n int, full bool) {
	l.Full = full
	if n > 0 {
		io.Count.Writes++
		l.Out.Consume(&io.Buffers, n)
		l.BytesOut += uint64(n)
	}
	l.End.Sent(n)
}

// Handed says that the driver holds n more bytes of l, or fewer, that Wrote has
// reported as written.
func (io *IO) Handed(l *Link, n int) {
	l.Handed += n
	io.Buffers.Hold(n)
}

// Up says that the connection an effect Dial asked for is there.
func (io *IO) Up(l *Link) {
	if !l.Closed {
		l.Dialer.Up()
	}
}

// Closed says that l's socket is gone or at its end: err is nil at a clean
// end of input. The driver has closed the socket, unless err is nil and l is a
// client's: that one may still wait for answers, and gets an effect Close. It
// is not called for a link that an effect Close or Abort has named.
func (io *IO) Closed(l *Link, err error) { l.End.Lost(err) }

// Mark lets l's End decide, when the wakeup ends, what is sent.
func (io *IO) Mark(l *Link) {
	if !l.pendingFlush {
		l.pendingFlush = true
		io.PendingFlush = append(io.PendingFlush, l)
	}
}

// Effect asks the driver for something.
func (io *IO) Effect(k EffectKind, l *Link) { io.effects = append(io.effects, Effect{k, l}) }

// Flush lets everybody who has something to send decide, and returns what the
// driver must do.
func (io *IO) Flush() []Effect {
	for i := 0; i < len(io.PendingFlush); i++ { // it may grow: a flush can mark another link
		l := io.PendingFlush[i]
		l.pendingFlush = false
		l.End.Flush()
	}
	io.PendingFlush = io.PendingFlush[:0]
	out := io.effects
	io.effects, io.handed = io.handed[:0], out
	return out
}
