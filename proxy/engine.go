package proxy

// The engine: events in, effects out, one clock reading a wakeup.

import (
	"slices"

	"ringside/proxy/client"
	"ringside/proxy/copies"
	"ringside/proxy/counters"
	"ringside/proxy/failover"
	"ringside/proxy/guard"
	"ringside/proxy/health"
	"ringside/proxy/health/roll"
	"ringside/proxy/link"
	"ringside/proxy/near/serve"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/tags"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/watch"
	"ringside/proxy/watch/why"
)

// Engine serves clients on one loop. It knows no sockets, starts no
// goroutines and has no clock of its own: the same calls give the same
// effects. It must only be used by one goroutine at a time.
//
// A driver brackets what one wakeup brought:
//
//	e.Begin(now, wall)
//	e.Accepted, e.Space + e.Filled (or e.Bytes), e.Up, e.Closed …
//	for effects := e.End(); len(effects) > 0; effects = e.End() { carry out, e.Wrote }
//
// and then sleeps until e.Next() or the next event.
type Engine struct {
	// The rooms, each told by an interface what it can't know: see the package's doc.
	link.IO
	upstream.Servers
	client.Clients
	task.Tasks
	failover.Keepers
	copies.Copies
	guards   *guard.Guard // does what it does for guarded keys
	tags     *tags.Tags   // and for those with tags
	Counters counters.Counters
	near     *serve.Near // values that are kept here
	Watch    watch.Watch // sees which keys are asked for
	Shared   *Proxy      // what all engines of the process share

	// Post runs f on the goroutine that drives this engine, as an event: after
	// Begin and before End. It is the driver's, set before the engine is used,
	// and safe to call from anywhere. A driver that has ended drops f.
	Post func(f func(e *Engine))

	gen *generation // the table in force, tied to this engine's servers

	overrides *overrideMap // of Shared, those that are obeyed

	// Of servers that other Ringsides eject, by network and address: the loop that lets the
	// keepers work knows them.
	shared  map[string]*roll.Pools
	refusal string // of the server that place found: why a person keeps it from getting requests; empty: nobody does

	parts []*upstream.Conn // scratch: the connections that the read which is being split goes to

	draining  bool  // Drain was called: every client is closed when it is answered
	relieveAt int64 // not before this, on the loop's clock, is it looked again who holds most memory
}

// NewEngine makes one more engine for p.
func (p *Proxy) NewEngine(tune link.Tune) *Engine {
	e := &Engine{
		Shared: p, shared: map[string]*roll.Pools{},
	}
	e.IO.Init(tune, &p.memory, p.Log, &p.logLimit)
	e.Servers = upstream.Servers{IO: &e.IO, Observer: observer{e}, ByAddress: map[string]*upstream.Server{}}
	e.Clients = client.Clients{IO: &e.IO, Servers: &e.Servers, Sessions: map[*client.Session]struct{}{}}
	e.OnGone = func(s *client.Session) {
		p.clients.Add(-1)
		e.EndReads(s)
	}
	e.Tasks = task.Tasks{
		Servers: &e.Servers, Clients: &e.Clients, Listeners: map[string]*routing.Listener{}, Loops: loops{p},
		Post: func(f func(*task.Tasks)) { e.Post(func(e *Engine) { f(&e.Tasks) }) },
	}
	e.Concluding = e.placed
	e.Tasks.Ended = func(t *task.Task, key []byte, o stats.Outcome, size int) {
		e.fateOf(t, o)
		if e.Watch.Left--; e.Watch.Left < 0 {
			e.Watch.Ended(e.Now, key, len(t.Strip), t.Op, o, t.Asker&^upstream.Bulky, size)
		}
	}
	e.Keepers = failover.Keepers{
		Tasks: &e.Tasks, Overrides: e.handOverrides, Gone: func(srv *upstream.Server) { e.lost(srv, e.Now, false) }, Parted: p.part, StartedAnew: e.Copies.StartedAnew,
		OnKeeperLoop: func(f func(*failover.Keepers)) { p.keeperLoop().Post(func(e *Engine) { f(&e.Keepers) }) },
	}
	e.Copies = copies.Copies{Tasks: &e.Tasks, Keepers: &e.Keepers, Doubtful: &p.doubtful, Moving: &p.moving}
	e.Counters = counters.Counters{Tasks: &e.Tasks}
	e.near = serve.New(&e.Tasks, &e.Watch, p.Hash, e.admit)
	e.TrimMore = func() {
		e.near.Clear()
		e.TrimExchanges()
		e.TrimAttempts()
	}
	e.Relieve = e.makeRoom
	p.mu.Lock()
	before := p.Engines()
	e.Watch = watch.New(p.Hash, p.Seed+uint64(len(before)))
	e.Watch.Judged = func(key []byte) why.Reason {
		if b := p.book.Load(); b != nil {
			return b.Judged(key)
		}
		return why.Unsure
	}
	e.guards = guard.New(&e.Tasks, uint64(len(before)))
	e.guards.EachLoop, e.guards.OnLoop, e.guards.Ablation = e.eachGuard, e.onGuard, p.GuardAblation
	e.Copies.Unbound, e.Copies.Unasked, e.Copies.Unpaused = p.GuardAblation.Rest, p.GuardAblation.Former, p.GuardAblation.Pause
	e.Copies.Unseen = p.GuardAblation.Sight
	e.tags = tags.New(e.guards, &p.invalidations)
	e.Leaders = []task.Leader{e.near, e.tags, e.guards, &e.Counters, &e.Copies, failover.SingleCopy{}}
	e.RunsKeepers = len(before) == 0
	list := append(slices.Clip(before), e)
	p.engines.Store(&list)
	p.mu.Unlock()
	return e
}

// Begin opens a wakeup at now, in nanoseconds of a clock that never goes back,
// counts the time that the machine sleeps, and is one for all engines of p. wall is
// the same moment in Unix seconds.
func (e *Engine) Begin(now, wall int64) {
	e.Now, e.Wall = now, wall
	e.Count.Wakeups++
	e.BeginRound()
	if cur := e.Shared.published.Load(); e.gen == nil || e.gen.Published != cur {
		e.adopt(cur)
	}
	if e.MemoryFull { // another engine may have made room
		e.Account()
	}
	e.takeOverrides()
}

// TooManyConnections is what a client gets that is one too many, as from memcached.
const TooManyConnections = "ERROR Too many open connections\r\n"

// Accepted makes a Link for a client that connected to a listener of the
// current table, named by its network and address. A client over
// Limits.Clients gets a link too: one that says so and closes. One that comes too
// late, because Ringside stops or the table has no such listener any more, is
// reset without a word: so does the kernel with those whom a listener that closes
// leaves behind, and every client takes it for a server that is not there.
func (e *Engine) Accepted(network, address string, sock link.Sock) *link.Link {
	lst := e.Listeners[network+" "+address]
	s := e.NewSession(e.Shared.lastClient.Add(1), &door{e, lst}, sock)
	if e.Debug {
		e.Log.Debug("client connected", "client", s.Peer(), "listener", address)
	}
	e.Count.Accepted++
	switch clients := e.Shared.clients.Add(1); {
	case lst == nil || e.draining:
		e.Count.TooLate++
		s.Abort()
	case int(clients) > e.Limits.Clients:
		e.Count.Refused++
		s.Out.AppendString(&e.Buffers, TooManyConnections)
		s.Quit()
	case lst.Users != nil:
		s.RequireLogin(lst.Users)
		e.WatchIdle()
	default:
		e.WatchIdle()
	}
	return &s.Link
}

// End closes the wakeup: it does what time demands, decides what is sent now
// and what is held, and returns what the driver must do. Call it until it
// returns nothing. The effects are valid until the next call.
func (e *Engine) End() []link.Effect {
	if e.Now >= e.First {
		e.IO.Fire(e.due)
	}
	e.LeadRunnable()
	e.Resume()
	for len(e.ToTranslate) > 0 { // a client that goes on may ask for more that a server must be of the right release for
		e.TranslateHeld()
		e.LeadRunnable()
		e.Resume()
	}
	e.Release()
	if e.MemoryShort || e.Buffers.Held != e.Booked.Load() {
		e.Account()
	}
	out := e.Flush()
	e.Book() // closed connections have given memory back
	return out
}

// due does what a timer is for.
func (e *Engine) due(t link.Timer) {
	switch t {
	case link.RequestTimer:
		e.Servers.Expire()
	case link.IdleTimer:
		e.SweepIdle()
	case link.KeeperTimer:
		e.RunKeepers()
	case link.ParkedTimer:
		e.Unpark()
	case link.TaskTimer:
		e.FireTimers()
	case link.ResyncTimer:
		e.Tend()
	case link.CounterTimer:
		e.Counters.Flush()
	case link.GuardTimer:
		e.guards.Tick()
	case link.NearTimer:
		e.near.Sweep()
	case link.LogTimer:
		e.FlushLog()
	}
}

// Next is when End must be called again even if nothing happens, on the
// clock of Begin; far in the future if never, and now while clients wait for their turn.
func (e *Engine) Next() int64 {
	if e.HasBacklog() {
		return e.Now
	}
	return min(e.First, e.Held.Due())
}

// Unanswered is how many requests server connections have that have no answer
// yet.
func (e *Engine) Unanswered() int { return e.Outstanding }

// Waiting is how many clients wait for an answer, of all clients.
func (e *Engine) Waiting() (n, of int) { return e.Awaiting, len(e.Sessions) }

// Asked is how many requests were given to server connections so far.
func (e *Engine) Asked() uint64 { return e.Requests }

// Idle reports whether nothing is in flight and nothing is unsent.
func (e *Engine) Idle() bool {
	if e.LateDeletes > 0 || e.Counters.Owing() || e.HasBacklog() { // a connection that is closed now would lose them
		return false
	}
	for s := range e.Sessions {
		if s.Head != nil || s.Out.Size > 0 || s.Full {
			return false
		}
	}
	return true
}

// Guarded is what e does for guarded keys.
func (e *Engine) Guarded() *guard.Guard { return e.guards }

// eachGuard runs f on all loops: here at once.
func (e *Engine) eachGuard(f func(*guard.Guard)) {
	for _, o := range e.Shared.Engines() {
		if o == e {
			f(e.guards)
		} else {
			o.Post(func(o *Engine) { f(o.guards) })
		}
	}
}

// onGuard runs f on the loop that leads the keys with that hash: here at once.
func (e *Engine) onGuard(hash uint64, f func(*guard.Guard)) {
	switch o := e.Loops.Owner(hash); o {
	case &e.Tasks:
		f(e.guards)
	default:
		for _, other := range e.Shared.Engines() {
			if &other.Tasks == o {
				other.Post(func(o *Engine) { f(o.guards) })
			}
		}
	}
}

// observer tells keepers and copies what happens to servers: upstream.Observer.
type observer struct{ e *Engine }

func (o observer) Down(srv *upstream.Server, why string, refused bool) {
	o.e.lost(srv, o.e.Now, false)
	o.e.Keepers.Notify(srv, func(k *health.Keeper, server int, now int64) { k.ServerFailed(server, refused, why, now) })
}

func (o observer) Up(*upstream.Server) {
	if len(o.e.Ledgers) > 0 { // what it missed is deleted before anybody reads it
		o.e.At(link.ResyncTimer, o.e.Now)
	}
}

func (o observer) Connected(c *upstream.Conn) { o.e.Keepers.Connected(c) }

func (o observer) LateDeleted(srv *upstream.Server, key []byte) { o.e.LateDeleted(srv, key) }

// Drain makes every client finish what it has asked for and then closes it;
// what arrives later is not read.
func (e *Engine) Drain() {
	e.draining = true
	e.Counters.FlushAll()
	e.guards.Drain()
	for s := range e.Sessions {
		s.EndInput()
	}
}
