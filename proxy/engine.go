package proxy

// The engine: events in, effects out, one clock reading a wakeup.

import (
	"math"
	"slices"
	"time"

	"ringside/proxy/wire"
	"ringside/replicate"
)

// Engine serves clients on one loop. It knows no sockets, starts no
// goroutines and has no clock of its own: the same calls give the same
// effects. It must only be used by one goroutine at a time.
//
// A driver brackets what one wakeup brought:
//
//	e.Begin(now)
//	e.Accepted, e.Space + e.Filled (or e.Bytes), e.Up, e.Closed …
//	for effects := e.End(); len(effects) > 0; effects = e.End() { carry out, e.Wrote }
//
// and then sleeps until e.Next() or the next event.
type Engine struct {
	Shared *Proxy
	Tune   Tune

	// Prompt holds requests only where a queue is so long that its requests
	// came in batches; without it from Tune.HoldDue on. The driver's to set.
	Prompt bool

	// Post runs f on the goroutine that drives this engine, as an event: after
	// Begin and before End. It is the driver's, set before the engine is used,
	// and safe to call from anywhere. A driver that has ended drops f.
	Post func(f func(e *Engine))

	now  int64 // nanoseconds on the drivers' clock
	gen  *generation
	keep map[string]*listener // by network and address, over generations

	orders  *orders // that are obeyed
	refusal string  // why a person keeps the server that place found from getting requests

	servers map[string]*Server // by network and address, over generations
	list    []*Server          // the same, in the order of the table

	pool    pool
	booked  int64  // of pool.held, what Shared.memory knows of
	scratch *chunk // where reads go that continue nothing
	cur     *chunk // the input being parsed: scratch, or a link's in

	sessions map[*Session]struct{}

	dirty   []*Link    // have bytes to send or a decision to make in End
	wake    []*Session // had to stop parsing and may go on
	held    holdList   // clients whose answers wait for the rest of their group
	effects []Effect   // for the driver
	handed  []Effect   // what End returned last

	expiry int64 // no request, dial or redial is due before this
	sweep  int64 // when idle clients are looked for next

	parts   []*Conn // of the read that is being split
	leaving []*Conn // of servers that no table names any more
	zombies []*Conn // wait for late answers only
	misfits []*Conn // hold what their servers may not understand, and have told their release
	undos   int     // in the lists of all connections
	unheard int     // requests in them that have no answer yet
	waiting int     // clients that wait for an answer

	gathered int // bytes of answers kept for commands to every server

	freeExchanges *Exchange
	freeAttempts  *Attempt

	key      []byte       // a base64 key, decoded
	key2     []byte       // a base64 key, encoded again
	req      wire.Request // the request being dispatched
	plain    wire.Request // the same, spelled plainly
	rep      wire.Reply
	line     []byte // a local answer being made
	draining bool

	keeps    bool           // it is the engine that lets the keepers work
	watches  []*watch       // then: all of them
	keepAt   int64          // when
	parked   []parked       // writes that wait for a server's next phase
	parkAt   int64          // when they are looked at
	parkedOf map[uint64]int // how many of them each client has
	hedges   []hedge        // reads that ask another member if they wait too long
	hedgeAt  int64          // when the first of them does

	// Of keys that routes keep copies of.
	keylines   map[uint64]*keyline // by hash of the key
	turns      []*task             // whose turn on their key has come
	wholes     map[string]*whole   // by pool
	graves     *replicate.Tombstones
	mends      int         // repairs at work
	turn       uint64      // of reads that are spread
	lastChosen uint64      // cas given to all copies of a value
	copied     []*livePool // that keep copies
	holders    []copyOf    // of a key that is being looked at
	refillAt   int64       // when it is looked who of their members lacks something

	asked uint64
	count Counters
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

const never = math.MaxInt64

// NewEngine makes one more engine for p.
func (p *Proxy) NewEngine(tune Tune) *Engine {
	e := &Engine{
		Shared:   p,
		Tune:     tune,
		keep:     map[string]*listener{},
		servers:  map[string]*Server{},
		sessions: map[*Session]struct{}{},
		expiry:   never,
		sweep:    never,
		keepAt:   never,
		parkAt:   never,
		hedgeAt:  never,
		refillAt: never,
	}
	e.scratch = e.pool.get(scratchSize)
	p.mu.Lock()
	e.keeps = len(p.engines) == 0
	p.engines = append(p.engines, e)
	p.mu.Unlock()
	return e
}

// Begin opens a wakeup at now, in nanoseconds of a clock that never goes back,
// counts the time that the machine sleeps, and is one for all engines of p.
func (e *Engine) Begin(now int64) {
	e.now = now
	e.count.Wakeups++
	if cur := e.Shared.live.Load(); e.gen == nil || e.gen.table != cur.Table {
		e.adopt(cur)
	}
	e.obey()
}

// Accepted makes a Link for a client that connected to a listener of the
// current table, named by its network and address. A client over
// Limits.Clients gets a link too: one that says so and closes.
func (e *Engine) Accepted(network, address string, sock Sock) *Link {
	s := &Session{e: e, lst: e.keep[network+" "+address], since: e.now, last: e.now}
	s.id = e.Shared.lastClient.Add(1) // tasks take it to other engines
	s.session = s
	s.Sock = sock
	e.sessions[s] = struct{}{}
	if e.Shared.debug {
		e.Shared.Log.Debug("client connected", "client", s.peer(), "listener", address)
	}
	e.count.Accepted++
	if max := e.gen.limits.Clients; int(e.Shared.clients.Add(1)) > max || s.lst == nil || e.draining {
		e.count.Refused++
		s.out.appendString(&e.pool, "ERROR Too many open connections\r\n")
		s.quit()
	} else if e.gen.limits.Idle > 0 {
		e.sweep = min(e.sweep, e.now+int64(e.gen.limits.Idle))
	}
	return &s.Link
}

// Space is where the driver should read to next for l.
func (e *Engine) Space(l *Link) []byte {
	if l.in != nil && l.in.free() > 0 {
		return l.in.b[l.in.w:]
	}
	return e.scratch.b
}

// Filled says that n bytes from l were read into what Space returned.
func (e *Engine) Filled(l *Link, n int) {
	if l.closed || n == 0 {
		return
	}
	l.bytesIn += uint64(n)
	e.count.Reads++
	if s := l.session; s != nil {
		e.count.ClientIn += uint64(n)
		s.last = e.now
	} else {
		l.conn.srv.count.BytesIn += uint64(n)
		l.conn.lastIn = e.now
		l.conn.came += n
	}
	if l.in != nil && l.in.free() > 0 {
		l.in.w += n
		if l.in.len() < l.need {
			return
		}
		e.enter(l)
	} else {
		e.scratch.r, e.scratch.w = 0, n
		e.cur = e.scratch
		if l.in != nil { // full, and still not a whole request: move to a larger one
			c := e.pool.get(max(l.need, 2*l.in.len()+n))
			c.w = copy(c.b, l.in.bytes())
			c.w += copy(c.b[c.w:], e.scratch.bytes())
			e.pool.put(l.in)
			l.in = c
			e.enter(l)
		}
	}
	l.need = 0
	if s := l.session; s != nil {
		s.parse()
	} else {
		l.conn.parse()
	}
	e.leave(l)
}

// Bytes is Space and Filled for a driver that has its own buffer.
func (e *Engine) Bytes(l *Link, b []byte) {
	for len(b) > 0 && !l.closed {
		n := copy(e.Space(l), b)
		e.Filled(l, n)
		b = b[n:]
	}
}

// enter makes what l has kept the input being parsed. Until leave it is not
// l's: parsing may hand it over, and l may be closed meanwhile.
func (e *Engine) enter(l *Link) {
	e.cur, l.in = l.in, nil
}

// leave keeps what parsing left over.
func (e *Engine) leave(l *Link) {
	c := e.cur
	e.cur = nil
	rest := c.len()
	switch {
	case rest == 0 || l.closed:
		if c == e.scratch {
			c.r, c.w = 0, 0
		} else {
			e.pool.put(c)
		}
	case c == e.scratch:
		if rest >= bigSpan && len(c.b)-c.r >= l.need {
			l.in = c
			e.scratch = e.pool.get(scratchSize)
			return
		}
		l.in = e.pool.get(max(l.need, rest+rest/2+256))
		l.in.w = copy(l.in.b, c.bytes())
		c.r, c.w = 0, 0
	case len(c.b)-c.r < l.need || c.free() == 0 && c.r > 0:
		if len(c.b) >= l.need && rest < c.r { // slide down: cheaper than another chunk
			c.w = copy(c.b, c.bytes())
			c.r = 0
			l.in = c
			return
		}
		l.in = e.pool.get(max(l.need, rest+rest/2+256))
		l.in.w = copy(l.in.b, c.bytes())
		e.pool.put(c)
	default:
		l.in = c
	}
}

// take hands over the first n bytes of the input being parsed as a chunk of
// its own, without copying them, and goes on with the rest in another.
func (e *Engine) take(n int) *chunk {
	c := e.cur
	rest := c.b[c.r+n : c.w]
	next := e.pool.get(max(scratchSize, len(rest)))
	next.w = copy(next.b, rest)
	c.w = c.r + n
	if c == e.scratch {
		e.scratch = next
	}
	e.cur = next
	return c
}

// Up says that the connection an effect Dial asked for is there.
func (e *Engine) Up(l *Link) {
	if !l.closed {
		l.conn.up()
	}
}

// Closed says that l's socket is gone or at its end: err is nil at a clean
// end of input. The driver has closed the socket, unless err is nil and l is a
// client's: that one may still wait for answers, and gets an effect Close. It
// is not called for a link that an effect Close or Abort has named.
func (e *Engine) Closed(l *Link, err error) {
	if s := l.session; s != nil {
		if err == nil && !l.closed {
			s.end()
			return
		}
		s.gone()
		return
	}
	l.conn.lost(err)
}

// Wrote says that the socket of l took n bytes; full that it refuses more
// until it is writable again. The driver then sends what is Pending by itself
// when it is.
func (e *Engine) Wrote(l *Link, n int, full bool) {
	l.full = full
	if n > 0 {
		e.count.Writes++
		l.out.consume(&e.pool, n)
		l.bytesOut += uint64(n)
	}
	if l.session != nil {
		e.count.ClientOut += uint64(n)
		l.session.wrote()
	} else {
		l.conn.srv.count.BytesOut += uint64(n)
		l.conn.taken += uint64(n)
		l.conn.lastOut = e.now
		if l.out.size == 0 {
			l.conn.holding = 0
		}
	}
}

// End closes the wakeup: it does what time demands, decides what is sent now
// and what is held, and returns what the driver must do. Call it until it
// returns nothing. The effects are valid until the next call.
func (e *Engine) End() []Effect {
	if e.now >= e.expiry {
		e.expire()
	}
	if e.now >= e.sweep {
		e.sweepIdle()
	}
	if e.now >= e.keepAt {
		e.tend()
	}
	if e.now >= e.parkAt {
		e.unpark()
	}
	if e.now >= e.hedgeAt {
		e.hurry()
	}
	if e.now >= e.refillAt {
		e.refill()
	}
	e.takeTurns()
	for len(e.misfits) > 0 {
		e.suit()
		e.takeTurns()
	}
	for i := 0; i < len(e.wake); i++ { // may grow: a parsed request can be answered at once
		e.wake[i].resume()
	}
	e.wake = e.wake[:0]
	e.release()
	if d := e.pool.held - e.booked; d != 0 {
		e.booked = e.pool.held
		if e.Shared.memory.Add(d) > e.gen.limits.Memory {
			e.closeLargest()
		}
	}
	for i := 0; i < len(e.dirty); i++ { // may grow: a flush can order another
		l := e.dirty[i]
		l.dirty = false
		if l.session != nil {
			l.session.flush()
		} else {
			l.conn.flush()
		}
	}
	e.dirty = e.dirty[:0]
	out := e.effects
	e.effects, e.handed = e.handed[:0], out
	return out
}

// Next is when End must be called again even if nothing happens, on the
// clock of Begin; far in the future if never.
func (e *Engine) Next() int64 {
	return min(e.expiry, e.sweep, e.keepAt, e.parkAt, e.hedgeAt, e.refillAt, e.held.due())
}

// Unanswered is how many requests server connections have that have no answer
// yet.
func (e *Engine) Unanswered() int { return e.unheard }

// Waiting is how many clients wait for an answer, of all clients.
func (e *Engine) Waiting() (n, of int) { return e.waiting, len(e.sessions) }

// Asked is how many requests were given to server connections so far.
func (e *Engine) Asked() uint64 { return e.asked }

// Idle reports whether nothing is in flight and nothing is unsent.
func (e *Engine) Idle() bool {
	if e.undos > 0 { // a connection that is closed now would lose them
		return false
	}
	for s := range e.sessions {
		if s.head != nil || s.out.size > 0 || s.full {
			return false
		}
	}
	return true
}

// Drain makes every client finish what it has asked for and then closes it;
// what arrives later is not read.
func (e *Engine) Drain() {
	e.draining = true
	for s := range e.sessions {
		s.end()
	}
}

func (e *Engine) mark(l *Link) {
	if !l.dirty {
		l.dirty = true
		e.dirty = append(e.dirty, l)
	}
}

func (e *Engine) effect(k EffectKind, l *Link) { e.effects = append(e.effects, Effect{k, l}) }

// due makes sure that expire runs at t.
func (e *Engine) due(t int64) {
	if t < e.expiry {
		e.expiry = t
	}
}

// expire fails what has waited too long, and finds the next moment it must
// look. The moment is a lower bound, so that a request costs one comparison
// and an answered one nothing.
func (e *Engine) expire() {
	e.expiry = never
	for _, srv := range e.list {
		srv.expire()
	}
	e.leaving = slices.DeleteFunc(e.leaving, func(c *Conn) bool { return c.state == connIdle && c.length == 0 })
	for _, c := range e.leaving {
		c.srv.expire()
	}
	e.expireZombies()
}

func (e *Engine) sweepIdle() {
	e.sweep = never
	idle := int64(e.gen.limits.Idle)
	if idle == 0 {
		return
	}
	for s := range e.sessions {
		if t := s.last + idle; s.head != nil || s.out.size > 0 || s.stalled {
			e.sweep = min(e.sweep, e.now+idle)
		} else if t <= e.now {
			e.count.IdleClosed++
			s.quit()
		} else {
			e.sweep = min(e.sweep, t)
		}
	}
}

// closeLargest frees memory by closing the client that holds most.
func (e *Engine) closeLargest() {
	var worst *Session
	most := 0
	for s := range e.sessions {
		n := s.out.size
		if s.in != nil {
			n += len(s.in.b)
		}
		for x := s.head; x != nil; x = x.next {
			n += x.kept()
		}
		if n > most || n == most && worst != nil && s.id < worst.id {
			worst, most = s, n
		}
	}
	if worst != nil && most > bigSpan {
		e.count.MemoryClosed++
		e.Shared.Log.Warn("closed the client that held most: limits.memory reached", "client", worst.peer(), "held", most, "limit", e.gen.limits.Memory)
		worst.abort()
	}
}

// holdList remembers clients whose answers wait for the rest of their group.
// The wait is the same for all, so the order of arrival is the order of
// release.
type holdList struct {
	list  []heldClient
	first int
}

type heldClient struct {
	s     *Session
	until int64
}

func (h *holdList) add(s *Session, until int64) {
	if h.first > 64 && h.first > len(h.list)/2 { // somebody always waits: due never empties it
		n := copy(h.list, h.list[h.first:])
		clear(h.list[n:])
		h.list, h.first = h.list[:n], 0
	}
	h.list = append(h.list, heldClient{s, until})
}

func (h *holdList) due() int64 {
	for h.first < len(h.list) {
		if c := &h.list[h.first]; c.s.holdUntil == c.until {
			return c.until
		}
		h.first++ // it was flushed meanwhile
	}
	h.list, h.first = h.list[:0], 0
	return never
}

// release lets go of the clients that have waited long enough.
func (e *Engine) release() {
	for e.held.due() <= e.now {
		s := e.held.list[e.held.first].s
		e.held.first++
		s.ready = true
		e.mark(&s.Link)
	}
}
