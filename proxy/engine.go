package proxy

// This file defines the engine: it consumes events, returns effects and reads the clock
// once in each wakeup.

import (
	"slices"

	"ringside/proxy/client"
	"ringside/proxy/counters"
	"ringside/proxy/failover"
	"ringside/proxy/guard"
	"ringside/proxy/health"
	"ringside/proxy/health/roll"
	"ringside/proxy/link"
	"ringside/proxy/replication"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/tags"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/watch"
	"ringside/proxy/watch/missreason"
)

// Engine serves clients on one loop. It has no sockets, goroutines or clock: the same
// calls produce the same effects. Only one goroutine at a time may use it.
//
// A driver encloses the events of a wakeup in Begin and End:
//
//	e.Begin(now, wall)
//	e.Accepted, e.Space + e.Filled (or e.Bytes), e.Up, e.Closed …
//	for effects := e.End(); len(effects) > 0; effects = e.End() { carry out, e.Wrote }
//
// Then it sleeps until e.Next() or the next event.
type Engine struct {
	// The parts of the engine, one of each package: see the package's doc.
	link.IO
	upstream.Servers
	client.Clients
	task.Tasks
	failover.Keepers
	replication.Replicator
	guards   *guard.Guard // handles tasks on guarded keys
	tags     *tags.Tags   // handles tasks on keys with tags
	Counters counters.Counters
	near     *nearReads  // near cache: values kept in this process
	Watch    watch.Watch // samples the keys that clients request
	Shared   *Proxy      // shared by all engines of the process

	// Post runs f as an event, after Begin and before End, on the goroutine that drives
	// this engine. The driver sets it before the engine is used. Any goroutine may call
	// it. A driver that has ended drops f.
	Post func(f func(e *Engine))

	// Local returns the host:port at which the client of a link has connected to this process. It
	// returns "" if the client uses a unix socket. The driver sets it before the engine is used.
	Local func(l *link.Link) string

	gen *generation // the adopted table, bound to this engine's servers; nil before the first Begin

	overrides *overrideMap // the overrides that were last applied, as read from Shared

	// shared describes servers that other instances eject, by network and address. Only
	// the loop that runs the keepers fills it.
	shared  map[string]*roll.Pools
	refusal string // why an operator keeps requests from the server that Engine.place has returned last; empty: no override

	reads [routing.FeatureSets]task.ReadStrategy // how reads are sent without a task, by the features of the route; nil: they are not

	listings int // number of servers that have not answered the stats command in progress that lists keys: see askListing

	parts []*upstream.Conn // scratch: connections with an open command line of the read that is being split

	draining  bool              // Drain was called: each client is closed when its requests are answered
	ended     []*client.Session // clients that send no more and wait for replies, as dropEnded has found them; the one that has waited for the longest time is first
	endedAt   int64             // time on the loop's clock before which dropEnded does not search again
	relieveAt int64             // time on the loop's clock before which makeRoom does not search again for the largest memory users
}

// NewEngine adds an engine to p.
func (p *Proxy) NewEngine(tune link.Tune) *Engine {
	e := &Engine{
		Shared: p, shared: map[string]*roll.Pools{},
	}
	e.IO.Init(tune, &p.memory, p.Log, &p.logLimit)
	e.Servers = upstream.Servers{IO: &e.IO, Observer: observer{e}, ByAddress: map[string]*upstream.Server{}}
	e.Clients = client.Clients{IO: &e.IO, Servers: &e.Servers, Sessions: map[*client.Session]struct{}{}}
	e.Servers.Unread = e.Clients.NoteSize
	e.OnGone = func(s *client.Session) {
		p.clients.Add(-1)
		e.EndReads(s)
	}
	e.FreeForLarge = e.freeForLarge
	e.Tasks = task.Tasks{
		Servers: &e.Servers, Clients: &e.Clients, Listeners: map[string]*routing.Listener{}, Loops: loops{p},
		Post: func(f func(*task.Tasks)) { e.Post(func(e *Engine) { f(&e.Tasks) }) },
	}
	e.Concluding = e.placed
	e.Tasks.Ended = func(t *task.Task, key []byte, o stats.Outcome, size int) {
		e.recordOutcome(t, o)
		if e.Watch.Left--; e.Watch.Left < 0 {
			e.Watch.Ended(e.Now, key, len(t.Strip), t.Op, o, t.Asker&^upstream.Bulky, size)
		}
	}
	e.Keepers = failover.Keepers{
		Tasks: &e.Tasks, Overrides: e.handOverrides, Gone: func(srv *upstream.Server) { e.lost(srv, e.Now, false) }, Parted: p.part, Resized: p.resized, Learned: p.learnLists, Joined: p.join, StartedAnew: e.Replicator.StartedAnew, Walk: e.Replicator.Walk,
		OnKeeperLoop: func(f func(*failover.Keepers)) { p.keeperLoop().Post(func(e *Engine) { f(&e.Keepers) }) },
	}
	e.Replicator = replication.Replicator{Tasks: &e.Tasks, Keepers: &e.Keepers, Doubtful: &p.doubtful, Moving: &p.moving}
	e.Counters = counters.Counters{Tasks: &e.Tasks}
	e.TrimMore = func() {
		e.near.Clear()
		e.TrimExchanges()
		e.TrimReads()
		e.TrimAttempts()
	}
	e.Relieve = e.makeRoom
	p.mu.Lock()
	before := p.Engines()
	e.Watch = watch.New(p.Hash, p.Seed+uint64(len(before)))
	e.Watch.Judged = func(key []byte) missreason.Reason {
		if b := p.book.Load(); b != nil {
			return b.Reason(key)
		}
		return missreason.Unsure
	}
	e.guards = guard.New(&e.Tasks, uint64(len(before)))
	e.near = newNearReads(&e.Tasks, &e.Watch, e.guards, p.Hash, e.admit)
	e.guards.EachLoop, e.guards.OnLoop = e.eachGuard, e.onGuard
	e.Tasks.Ablation, e.guards.Ablation, e.Replicator.Ablation = p.Ablation, p.Ablation, p.Ablation
	e.tags = tags.New(e.guards, &p.invalidations)
	e.Refused = e.guards.Refused
	e.serve()
	e.RunsKeepers = len(before) == 0
	list := append(slices.Clip(before), e)
	p.engines.Store(&list)
	p.mu.Unlock()
	return e
}

// Begin starts a wakeup. now is in nanoseconds of a monotonic clock that also counts
// the time in which the machine sleeps; all engines of p use the same clock. wall is
// the same moment in Unix seconds.
func (e *Engine) Begin(now, wall int64) {
	e.Now, e.Wall = now, wall
	e.Count.Wakeups++
	e.BeginRound()
	if cur := e.Shared.published.Load(); e.gen == nil || e.gen.Published != cur {
		e.adopt(cur)
	}
	if e.MemoryFull { // limits.memory was reached, but another engine may have freed memory since
		e.Account()
	}
	e.takeOverrides()
}

// TooManyConnections is the reply to a client above the limit, the same as memcached's.
const TooManyConnections = "ERROR Too many open connections\r\n"

// Accepted returns a Link for a client that connected to the listener with this network
// and address. A client above Limits.Clients gets an error and is closed, unless another one that sends no more can be closed
// instead: see dropEnded. If the table
// no longer has the listener, or if Ringside is stopping, the client is reset without a
// reply. The kernel does the same with connections that a closing listener has not
// accepted yet, and clients treat it as an unavailable server.
func (e *Engine) Accepted(network, address string, sock link.Sock) *link.Link {
	lst := e.Listeners[network+" "+address]
	s := e.NewSession(e.Shared.lastClient.Add(1), &handler{e, lst}, sock)
	if e.gen.Permissions != nil {
		e.permit(s)
	}
	if e.Debug {
		e.Log.Debug("client connected", "client", s.Peer(), "listener", address)
	}
	e.Count.Accepted++
	switch clients := e.Shared.clients.Add(1); {
	case lst == nil || e.draining:
		e.Count.TooLate++
		s.Abort()
	case int(clients) > e.Limits.Clients && !e.dropEnded():
		e.Count.Refused++
		s.Out.Append(&e.Buffers, []byte(TooManyConnections))
		s.Quit()
	case lst.Users != nil:
		s.RequireLogin(lst.Users)
		e.WatchIdle()
	default:
		e.WatchIdle()
	}
	return &s.Link
}

// End finishes the wakeup. It fires timers that are due, decides which bytes are sent
// now and which are held, and returns the effects that the driver must carry out. Call
// it until it returns nothing. The effects are valid until the next call.
func (e *Engine) End() []link.Effect {
	if e.Now >= e.First {
		e.IO.Fire(e.due)
	}
	e.DispatchRunnable()
	if e.HasLarge() {
		e.WakeLarge()
	}
	e.Resume()
	for len(e.ToTranslate) > 0 { // a client that resumes may send more requests, and these must be translated for older servers
		e.TranslateHeld()
		e.DispatchRunnable()
		e.Resume()
	}
	e.Release()
	if e.MemoryShort || e.Buffers.Held != e.Booked.Load() {
		e.Account()
	}
	out := e.Flush()
	e.Book() // subtracts the memory of the connections that Flush has closed from the memory in use
	return out
}

// due runs the action of a timer that fired.
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
	case link.GuardTimer:
		e.guards.Tick()
	case link.NearTimer:
		e.near.Sweep()
	case link.LogTimer:
		e.FlushLog()
	}
}

// Next returns when End must be called again even if nothing happens, on the clock of
// Begin. It is far in the future if no timer is set. It is the current time while
// clients or tasks wait for their turn.
func (e *Engine) Next() int64 {
	if e.HasBacklog() {
		return e.Now
	}
	return min(e.First, e.Held.Due())
}

// Unanswered returns how many requests on server connections have no reply yet.
func (e *Engine) Unanswered() int { return e.Outstanding }

// Waiting returns how many clients wait for a reply, and how many clients there are.
func (e *Engine) Waiting() (n, of int) { return e.Awaiting, len(e.Sessions) }

// Work returns how much the loop has done so far: the number of requests to servers, plus one for each
// link.BigSpan bytes from and to clients. So many bytes cost about as much CPU time as a request.
func (e *Engine) Work() uint64 {
	return e.Requests + (e.Count.ClientIn+e.Count.ClientOut)/link.BigSpan
}

// Idle reports whether nothing is in flight and nothing is unsent.
func (e *Engine) Idle() bool {
	if e.LateDeletes > 0 || e.Counters.Owing() || e.HasBacklog() || e.HasLarge() { // late deletes, buffered increments or requests in the input would be lost if connections were closed now
		return false
	}
	if e.draining && e.Keepers.SigningOff() {
		return false
	}
	for s := range e.Sessions {
		if s.Head != nil || s.Out.Size > 0 || s.Full {
			return false
		}
	}
	return true
}

// eachGuard calls f with the guard of each loop, on that loop. For this loop, f runs before
// eachGuard returns.
func (e *Engine) eachGuard(f func(*guard.Guard)) {
	for _, o := range e.Shared.Engines() {
		e.on(o, func(o *Engine) { f(o.guards) })
	}
}

// on calls f on the loop of o. If that is this loop, f runs before on returns.
func (e *Engine) on(o *Engine, f func(*Engine)) {
	if o == e {
		f(e)
	} else {
		o.Post(f)
	}
}

// onGuard calls f with the guard of the loop that runs the tasks of keys with this hash, on
// that loop. If that is this loop, f runs before onGuard returns.
func (e *Engine) onGuard(hash uint64, f func(*guard.Guard)) {
	e.on(e.Shared.owner(hash), func(o *Engine) { f(o.guards) })
}

// observer passes events of servers to the keepers, and to the Replicator, which handles
// replicated keys. It implements upstream.Observer.
type observer struct{ e *Engine }

func (o observer) Down(srv *upstream.Server, why string, refused bool) {
	o.e.lost(srv, o.e.Now, false)
	o.e.Keepers.Notify(srv, func(k *health.Keeper, server int, now int64) { k.ServerFailed(server, refused, why, now) })
}

func (o observer) Up(*upstream.Server) {
	if len(o.e.Ledgers) > 0 { // first, the replicated keys with a write that this server missed are deleted from it
		o.e.At(link.ResyncTimer, o.e.Now)
	}
}

func (o observer) Connected(c *upstream.Conn) { o.e.Keepers.Connected(c) }

func (o observer) LateDeleted(srv *upstream.Server, key []byte) { o.e.LateDeleted(srv, key) }

// Drain lets every client finish the requests that it has sent and then closes it.
// Input that arrives later is not read.
func (e *Engine) Drain() {
	e.draining = true
	e.Counters.FlushAll()
	e.guards.Drain()
	e.Keepers.SignOff()
	for s := range e.Sessions {
		s.EndInput()
	}
}
