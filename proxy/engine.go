package proxy

// The engine: events in, effects out, one clock reading a wakeup.

import (
	"slices"

	"ringside/proxy/health"
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
	IO
	Servers
	Clients
	Tasks
	Keepers
	Copies
	Shared *Proxy

	// Post runs f on the goroutine that drives this engine, as an event: after
	// Begin and before End. It is the driver's, set before the engine is used,
	// and safe to call from anywhere. A driver that has ended drops f.
	Post func(f func(e *Engine))

	gen *generation

	orders  *orders // that are obeyed
	refusal string  // why a person keeps the server that place found from getting requests

	parts []*Conn // of the read that is being split

	draining  bool
	relieveAt int64 // not before this it is looked again who holds most
}

// NewEngine makes one more engine for p.
func (p *Proxy) NewEngine(tune Tune) *Engine {
	e := &Engine{
		Shared: p,
	}
	e.IO.init(tune, &p.memory, p.Log)
	e.Servers = Servers{IO: &e.IO, observer: observer{e}, byAddress: map[string]*Server{}}
	e.Clients = Clients{IO: &e.IO, servers: &e.Servers, closed: func() { p.clients.Add(-1) }, sessions: map[*Session]struct{}{}}
	e.Tasks = Tasks{
		Servers: &e.Servers, clients: &e.Clients, listeners: map[string]*listener{}, loops: loops{p},
		post: func(f func(*Tasks)) { e.Post(func(e *Engine) { f(&e.Tasks) }) },
	}
	e.Keepers = Keepers{
		Tasks: &e.Tasks, overrides: e.handOrders,
		host: func(f func(*Keepers)) { p.first().Post(func(e *Engine) { f(&e.Keepers) }) },
	}
	e.Copies = Copies{Tasks: &e.Tasks, keepers: &e.Keepers}
	e.trimMore = func() {
		e.trimExchanges()
		e.trimAttempts()
	}
	e.relieve = e.makeRoom
	e.leaders = []Leader{&e.Copies, SingleCopy{}}
	p.mu.Lock()
	before := p.Engines()
	e.keeps = len(before) == 0
	list := append(slices.Clip(before), e)
	p.engines.Store(&list)
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
	if e.full { // another engine may have made room
		e.account()
	}
	e.obey()
}

// Accepted makes a Link for a client that connected to a listener of the
// current table, named by its network and address. A client over
// Limits.Clients gets a link too: one that says so and closes. One that comes too
// late, because Ringside stops or the table has no such listener any more, is
// reset without a word: so does the kernel with those whom a listener that closes
// leaves behind, and every client takes it for a server that is not there.
func (e *Engine) Accepted(network, address string, sock Sock) *Link {
	lst := e.listeners[network+" "+address]
	s := e.newSession(e.Shared.lastClient.Add(1), &door{e, lst}, sock)
	if e.debug {
		e.log.Debug("client connected", "client", s.peer(), "listener", address)
	}
	e.count.Accepted++
	switch clients := e.Shared.clients.Add(1); {
	case lst == nil || e.draining:
		e.count.Refused++
		s.abort()
	case int(clients) > e.limits.Clients:
		e.count.Refused++
		s.out.appendString(&e.pool, "ERROR Too many open connections\r\n")
		s.quit()
	case e.limits.Idle > 0:
		e.at(idleTimer, e.now+int64(e.limits.Idle))
	}
	return &s.Link
}

// End closes the wakeup: it does what time demands, decides what is sent now
// and what is held, and returns what the driver must do. Call it until it
// returns nothing. The effects are valid until the next call.
func (e *Engine) End() []Effect {
	if e.now >= e.first {
		e.IO.fire(e.due)
	}
	e.takeTurns()
	for len(e.misfits) > 0 {
		e.suit()
		e.takeTurns()
	}
	e.resume()
	e.release()
	if e.pressed || e.pool.held != e.booked.Load() {
		e.account()
	}
	out := e.flush()
	e.book() // what closing gave back
	return out
}

// due does what a timer is for.
func (e *Engine) due(t timer) {
	switch t {
	case requestTimer:
		e.Servers.expire()
	case idleTimer:
		e.sweepIdle()
	case keeperTimer:
		e.tend()
	case parkedTimer:
		e.unpark()
	case hedgeTimer:
		e.hurry()
	case resyncTimer:
		e.refill()
	}
}

// Next is when End must be called again even if nothing happens, on the
// clock of Begin; far in the future if never.
func (e *Engine) Next() int64 {
	return min(e.first, e.held.due())
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

// observer tells those who keep copies and phases what happens to servers.
type observer struct{ e *Engine }

func (o observer) Down(srv *Server, why string) {
	o.e.Keepers.tell(srv, func(k *health.Keeper, server int, now int64) { k.Trouble(server, true, why, now) })
}

func (o observer) Up(*Server) {
	if len(o.e.ledgers) > 0 { // what it missed is deleted before anybody reads it
		o.e.at(resyncTimer, o.e.now)
	}
}

func (o observer) Connected(c *Conn) { o.e.introduce(c) }

func (o observer) LateDeleted(srv *Server, key []byte) { o.e.undid(srv, key) }

// Drain makes every client finish what it has asked for and then closes it;
// what arrives later is not read.
func (e *Engine) Drain() {
	e.draining = true
	for s := range e.sessions {
		s.endInput()
	}
}
