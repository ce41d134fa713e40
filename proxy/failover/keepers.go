package failover

// This file implements the agents, which host the keepers of pools. One loop runs all keepers, and
// all loops read the decisions of the keepers.

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/event"
	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Agent hosts the keeper of a pool. It outlives reloads that change neither the pool's
// servers nor its settings. All loops use Pool, Servers, failover, print and View. The other
// fields belong to the loop that runs the keepers.
type Agent struct {
	Pool     string
	read     func(text []byte) (*table.List, error) // as in table.Pool
	Servers  []table.Target                         // the pool's servers, then those that only the list Next has, in mode ResizeWarm, or those of its gutter
	listed   int                                    // number of servers of the list in use: the first elements of Servers
	next     []string                               // in mode ResizeWarm, the names of Servers in the list Next: see health.Server.Next; nil: there is no such list
	failover table.Failover                         // the pool's failover settings when the agent was created
	print    string                                 // fingerprints of the distributions of the pool and of its gutter
	departed map[string]departure                   // states of the servers that reloads have removed from the pool, by name

	joined bool // the pool uses the list of its peers: see table.Table.Join

	coordinates bool // changes of the server list are coordinated: package health/resize

	waits string // what a change of the servers waits for, as last logged: the name of a server, or what is known about other instances; empty: nothing
	sweep *sweep // the flush of the servers that gain keys by a change of the server list; nil: none

	inherited []inheritance // for each server, its state before the reload that has created the agent

	Keeper  *health.Keeper
	hasWork bool  // the keeper has got input since its last run
	Began   int64 // when the loop that runs the keeper took over this agent

	// pinged says for each server whether its first ping has ended, with a reply or without. It is
	// unknown which servers are ejected until more than half of the first pings have got replies, or
	// all have ended. Before that, a server that replies may have old values.
	pinged  []bool
	learned []bool // for each server, whether only a learned list has it: see table.Pool.IsLearned
	brought int    // number of first pings that got a reply

	// parting is set if the pool needs its keeper only until an ejected server has rejoined
	// by the phases, or until a handover of its keys has ended. No other server is ejected then.
	parting atomic.Bool

	// View is written after each decision of the keeper, and read by all loops.
	View *health.View

	OwnServers int                  // number of the pool's own servers: the first elements of Servers
	Events     map[[2]string]uint64 // number of decisions of the keeper, by name of the server and its new state
}

// Keepers has the keepers of all pools that need one, as one loop knows them. One loop of the
// process runs all keepers and sends their requests. The other loops report failures of servers
// to the loop that runs the keepers.
type Keepers struct {
	*task.Tasks
	RunsKeepers   bool                                                              // this loop runs the keepers
	Agents        []*Agent                                                          // all agents, if this loop runs the keepers; else empty
	Registrations map[*upstream.Server][]Registration                               // for each server, the pools with a keeper that contain the server
	OnKeeperLoop  func(f func(*Keepers))                                            // runs f on the loop that runs the keepers
	Overrides     func(w *Agent)                                                    // applies the overrides that an operator has set in this process to a keeper
	Gone          func(srv *upstream.Server)                                        // called for each server that is ejected
	StartedAnew   func(srv *upstream.Server)                                        // called if a restarted process of a server replies, which has lost all items
	Resized       func()                                                            // publishes the table again, with the servers that the configuration requires, because they are in force
	Walk          func(w *Agent, bp *routing.BoundPool, change [2]uint32, due bool) // in mode ResizeWarm, does the work on the servers that is due for a change, or ends it
	Learned       func(w *Agent, list, next *table.List, turned bool)               // publishes the table again, with the lists of the peers that a pool has learned
	Joined        func(w *Agent, list *table.List)                                  // publishes the table again, with a list of the peers to which replicated keys move
	Parted        func()                                                            // publishes the table again, without the keepers that are no longer needed
}

// Published is a table and the keepers of its pools.
type Published struct {
	*table.Table
	Print  uint64                 // hash of the table's pools and routes: see Table.Print
	Copies map[*table.Pool]uint64 // for each pool with a keeper, the hash of its placement of replicas: see Table.PrintCopies
	Agents map[*table.Pool]*Agent // for each pool with a keeper, its agent

	// unflushed has the states of servers, by address, that were out or rejoining when a reload
	// removed them, and that no pool with a keeper contains now. These servers still have old values.
	unflushed map[string]departure
}

// Publish returns the table t with the keepers of its pools. It reuses the keepers of old, the
// table and keepers before a reload, and creates the others. old may be nil.
func Publish(t *table.Table, old *Published, seed uint64, without ablation.Set) *Published {
	l := &Published{Table: t, Print: t.Print(), Copies: map[*table.Pool]uint64{}, Agents: map[*table.Pool]*Agent{}}
	for _, pool := range t.Pools {
		before, w := old.Agent(pool.Name), newAgent(pool, pool.Stays(t))
		was := old
		if before != nil && w.joined && !before.joined { // the former agent was for the configured list, and this process has served no key by it
			before, was = nil, nil
		}
		same := before != nil && slices.Equal(before.Servers, w.Servers) && slices.Equal(before.next, w.next)
		from, out := w.inherit(before, was)
		// A pool that needs no keeper by its settings keeps its keeper while a server is out. That
		// server must rejoin by the phases, or its old values would be served. It also keeps the keeper while keys that have had
		// replicas are handed over.
		switch needed := pool.NeedsKeeper(t); {
		case !needed && !out && (before == nil || before.View.AllIn() && !before.View.KeepsReplicas()):
			continue
		case same && (!needed || before.print == w.print && before.failover == w.failover && before.coordinates == w.coordinates):
			before.parting.Store(!needed)
			w = before
		default:
			if w.parting.Store(!needed); !needed && from != nil {
				w.failover = from.failover // keep the failover settings of the former agent, because instances that have not reloaded yet still have these settings
			}
			w.start(pool, before, seed, without)
			if before == nil && pool.Copied(t) && pool.ReadList != nil {
				w.Keeper.SeekFormers()
			}
			if before == nil && !w.joined && old.has(pool.Name) {
				w.Keeper.AwaitHandover()
			}
		}
		w.View.SetLists(lists(pool), w.texts(pool), func(i int) bool { return pool.Next != nil && find(pool.Required().Servers, w.Servers[i]) < 0 })
		l.Agents[pool], l.Copies[pool] = w, t.PrintCopies(pool)
	}
	l.keepUnflushed(old)
	return l
}

// has reports whether l has a pool with the given name. l may be nil.
func (l *Published) has(name string) bool {
	return l != nil && slices.ContainsFunc(l.Pools, func(p *table.Pool) bool { return p.Name == name })
}

// Agent returns the agent of the pool with the given name, which hosts the pool's keeper; nil: the
// pool has no keeper. l may be nil.
func (l *Published) Agent(name string) *Agent {
	if l != nil {
		for pool, w := range l.Agents {
			if pool.Name == name {
				return w
			}
		}
	}
	return nil
}

// newAgent creates the agent of a pool, without a keeper yet. stays means that the pool has a keeper only to
// coordinate changes of its servers.
func newAgent(pool *table.Pool, stays bool) *Agent {
	w := &Agent{Pool: pool.Name, read: pool.ReadList, Servers: slices.Clone(pool.Servers), listed: len(pool.Servers), failover: pool.Failover,
		print: pool.Place.Fingerprint, Events: map[[2]string]uint64{}, joined: pool.Joins != nil, coordinates: pool.Resize != table.ResizePlain}
	if pool.Resize == table.ResizeWarm && pool.Next != nil {
		w.Servers = append(w.Servers, pool.Joining()...)
	}
	if w.OwnServers = len(w.Servers); pool.Resize == table.ResizeWarm && pool.Next != nil {
		for _, m := range w.Servers {
			name := ""
			if i := find(pool.Next.Servers, m); i >= 0 {
				name = pool.Next.Servers[i].Name
			}
			w.next = append(w.next, name)
		}
	}
	if g := pool.Failover.Gutter; g != nil {
		w.Servers = append(w.Servers, g.Servers...)
		w.print += " " + g.Place.Fingerprint
	}
	if w.failover.Stays = stays; stays {
		w.failover.OnRejoin = health.Flush
	}
	w.failover.Gutter, w.failover.Wait = nil, 0 // a reload creates another Gutter with the same servers, and the keeper does not depend on how long writes wait
	return w
}

// departure is the last known state of a server in a pool: its phase number n, and the number that
// its keys carry because it rejected a flush (renamed; 0: none).
type departure struct{ n, renamed uint32 }

// whole reports whether the server served its keys itself (phase IN), under their own names.
func (d departure) whole() bool { return health.PhaseOf(d.n) == health.In && d.renamed == 0 }

// inheritance is the state of a server before the reload that creates a keeper.
type inheritance struct {
	departure
	elsewhere bool  // before the reload, the pool or the server had another name
	outSince  int64 // since when the server has been out; 0: it is not out, or that is not known
}

// inherit sets w.inherited, the states of the servers before a reload. It finds the state of a server
// by its name at before, the pool's previous agent, which may be nil, and otherwise by its address at
// any agent. While the list of servers changes, two servers at before can have the same name, and then the address decides. A server that is out stays out if the reload renames the server or its pool, or
// moves the server to another pool. The result out reports whether any server was out, rejoining or
// renamed before the reload. from is the agent that had most of these servers; nil: no agent had one.
func (w *Agent) inherit(before *Agent, old *Published) (from *Agent, out bool) {
	w.inherited = make([]inheritance, len(w.Servers))
	counts, most := map[*Agent]int{}, 0
	for i, m := range w.Servers {
		in, source := &w.inherited[i], before
		j := before.index(m, !w.joins(i) && !(before.changes() && w.coordinates))
		if j >= 0 {
			in.departure, in.outSince = before.state(j), before.View.OutSince(j)
		}
		if j < 0 && before != nil && w.coordinates { // it is flushed before: see resize.go
			continue
		}
		if (j < 0 || !together(before.Servers[j], m)) && !old.served(w.Pool, m) {
			there, at := old.at(m)
			switch {
			case j < 0:
				*in, source = inheritance{departure: there, elsewhere: true}, at
			case !there.whole() && in.whole(): // before the reload, the server at this address had another name and was out, so it still has old values
				*in, source = inheritance{departure: departure{health.NextOut(max(in.n, there.n)), there.renamed}, elsewhere: true}, at
			}
		}
		if in.whole() {
			continue
		}
		out = true
		if counts[source]++; source != nil && counts[source] > most {
			from, most = source, counts[source]
		}
	}
	return from, out
}

// Stays reports whether the pool has a keeper only to coordinate changes of its servers.
func (w *Agent) Stays() bool { return w.failover.Stays }

// changes reports whether w has the servers of two lists: a change of the list was due. w may be nil.
func (w *Agent) changes() bool { return w != nil && w.next != nil }

// joins reports whether only the list Next has server i.
func (w *Agent) joins(i int) bool { return w.changes() && i < w.OwnServers && i >= w.listed }

// index returns the index in w.Servers of the server m; -1: there is none, or w is nil. If named is set, a server
// at another address with the name of m is the same one.
func (w *Agent) index(m table.Target, named bool) int {
	if w == nil {
		return -1
	}
	same := func(o table.Target) bool { return o.Name == m.Name && together(o, m) }
	if i := slices.IndexFunc(w.Servers, same); i >= 0 {
		return i
	}
	if named {
		return slices.IndexFunc(w.Servers, func(o table.Target) bool { return o.Name == m.Name })
	}
	return find(w.Servers[:w.OwnServers], m)
}

// state returns the state of server i, as the keeper of w has published it.
func (w *Agent) state(i int) departure { return departure{w.View.N(i), w.View.Renamed(i)} }

func address(m table.Target) string { return m.Network + " " + m.Address }

// together reports whether a and b have the same address.
func together(a, b table.Target) bool { return a.Address == b.Address && a.Network == b.Network }

// at returns the state of the server at the address of where, and the agent with that state; nil: no
// agent has the server. If several agents have the server, at prefers the state from an agent in
// which the server is out, rejoining or renamed. l may be nil.
func (l *Published) at(where table.Target) (is departure, by *Agent) {
	if l == nil {
		return is, nil
	}
	is = l.unflushed[address(where)]
	for _, pool := range l.Pools {
		w := l.Agents[pool]
		if w == nil {
			continue
		}
		for i, m := range w.Servers {
			if d := w.state(i); together(m, where) && (is.whole() && !d.whole() || is.whole() == d.whole() && d.n > is.n) {
				is, by = d, w
			}
		}
	}
	return is, by
}

// served reports whether the pool with the given name has no keeper and contains the server at the
// address of where. Such a pool has always used the server. l may be nil.
func (l *Published) served(pool string, where table.Target) bool {
	return l != nil && slices.ContainsFunc(l.Pools, func(p *table.Pool) bool {
		return p.Name == pool && l.Agents[p] == nil && slices.ContainsFunc(p.Servers, func(m table.Target) bool { return together(m, where) })
	})
}

// keepUnflushed sets l.unflushed: the states of the servers that were out or rejoining in old, and
// that no keeper in l knows. From now on these servers miss writes, so they count as OUT.
func (l *Published) keepUnflushed(old *Published) {
	if old == nil {
		return
	}
	l.unflushed = maps.Clone(old.unflushed)
	for _, pool := range old.Pools {
		w := old.Agents[pool]
		if w == nil {
			continue
		}
		for i, m := range w.Servers {
			if d := w.state(i); !d.whole() {
				if l.unflushed == nil {
					l.unflushed = map[string]departure{}
				}
				l.unflushed[address(m)] = departure{max(health.NextOut(d.n), l.unflushed[address(m)].n), d.renamed}
			}
		}
	}
	for _, w := range l.Agents {
		for _, m := range w.Servers {
			delete(l.unflushed, address(m))
		}
	}
	for _, pool := range l.Pools {
		if l.Agents[pool] == nil && l.hasRoute(pool) { // a pool without a keeper uses its servers without a flush, so they do not count as out for a later keeper
			for _, m := range pool.Servers {
				delete(l.unflushed, address(m))
			}
		}
	}
}

// hasRoute reports whether a route uses the pool. A gutter has none.
func (l *Published) hasRoute(pool *table.Pool) bool {
	return slices.ContainsFunc(l.Listeners, func(at table.Listener) bool {
		return slices.ContainsFunc(at.Routes, func(r table.Route) bool { return r.Pool == pool || slices.Contains(r.Also, pool) })
	})
}

// start creates the keeper of w. before is the pool's previous agent, or nil.
func (w *Agent) start(pool *table.Pool, before *Agent, seed uint64, without ablation.Set) {
	for _, m := range w.Servers {
		w.learned = append(w.learned, pool.IsLearned(m))
	}
	servers := w.members()
	w.Keeper = health.New(pool.Name, servers, w.failover.Settings, seed)
	w.Keeper.SetLists(lists(pool), 0)
	w.Keeper.Ablate(without)
	for i, in := range w.inherited {
		w.Keeper.Inherit(i, in.n, in.renamed, in.elsewhere)
		w.Keeper.OutSince(i, in.outSince)
	}
	w.depart(before)
	w.View = health.NewView(len(servers))
	w.pinged = make([]bool, len(servers))
	w.publish()
	w.hasWork = true
}

// members returns the servers of w for its keeper.
func (w *Agent) members() []health.Server {
	servers := make([]health.Server, len(w.Servers))
	for i, m := range w.Servers {
		servers[i] = health.Server{Name: m.Name, Address: m.Network + " " + m.Address, Gutter: i >= w.OwnServers, Learned: i < len(w.learned) && w.learned[i], Joins: w.joins(i)}
		if w.changes() {
			servers[i].Next = m.Name
			if i < w.OwnServers {
				servers[i].Next = w.next[i]
			}
		}
	}
	// The hash of the server list includes the servers' addresses. Settings that all proxies of a
	// pool must share are appended to the first address, so that the hash includes them, too.
	servers[0].Address += fmt.Sprintf(" %s %s %v %v", w.print, w.failover.Mode, w.failover.Lease, w.failover.Request)
	return servers
}

// depart reports to the keeper of w which servers reloads have removed from the pool, and which this
// reload has added again: they have missed the writes in between. before is the pool's previous
// agent, or nil.
func (w *Agent) depart(before *Agent) {
	if before == nil {
		return
	}
	w.Keeper.Resume(before.View)
	listed := func(name string) bool {
		return slices.ContainsFunc(w.Servers, func(m table.Target) bool { return m.Name == name })
	}
	w.departed = map[string]departure{}
	maps.Copy(w.departed, before.departed)
	for i, m := range before.Servers[:before.OwnServers] {
		if !listed(m.Name) {
			w.departed[m.Name] = departure{before.View.N(i), before.View.Renamed(i)}
		}
	}
	for name, d := range w.departed {
		w.Keeper.Departed(name, d.n, d.renamed)
	}
	maps.DeleteFunc(w.departed, func(name string, _ departure) bool { return listed(name) })
}

// publish makes the keeper's decisions visible to all loops.
func (w *Agent) publish() {
	known := w.Keeper.ListsKnown() && (2*w.brought > len(w.pinged) || !slices.Contains(w.pinged, false))
	for i, learned := range w.learned { // such a server is not used before its first ping has ended
		known = known && (!learned || w.pinged[i])
	}
	w.View.Publish(w.Keeper, known)
}

// firstPing records that a request of the keeper to a server has ended, with a reply or without. The
// first request to each server is a ping.
func (w *Agent) firstPing(server int, answered bool) {
	if w.pinged[server] {
		return
	}
	w.pinged[server] = true
	if answered {
		w.brought++
	}
}

// RunKeepers runs the keepers that are due or have got input, and sets the timer for the next run.
func (e *Keepers) RunKeepers() {
	for _, w := range e.Agents {
		w.View.Tell(w.Keeper, e.Now)
		w.Keeper.Part(w.parting.Load())
		for i := range w.Servers {
			if w.View.Phase(i) == health.Warming {
				asks, hits := w.View.WarmReads(i)
				w.Keeper.Warmed(i, asks, hits, e.Now)
				w.hasWork = true
			}
		}
		if w.Keeper.Next() <= e.Now {
			w.Keeper.Tick(e.Now)
			e.Overrides(w)
			w.hasWork = true
		}
		if w.hasWork {
			e.carryOut(w)
		}
		e.followResize(w)
		if w.parting.Load() && w.View.AllIn() && !w.View.KeepsReplicas() {
			e.Parted()
		}
		e.At(link.KeeperTimer, w.Keeper.Next())
	}
}

// SignOff publishes that this process ends, if this loop runs the keepers.
func (e *Keepers) SignOff() {
	if e.RunsKeepers {
		for _, w := range e.Agents {
			w.Keeper.SignOff(e.Now)
			e.Schedule(w)
		}
	}
}

// SigningOff reports whether the end of this process should wait until that is published.
func (e *Keepers) SigningOff() bool {
	return e.RunsKeepers && slices.ContainsFunc(e.Agents, func(w *Agent) bool { return w.Keeper.SigningOff(e.Now) })
}

// Schedule makes this loop run the keeper of w soon, because the keeper has got input.
func (e *Keepers) Schedule(w *Agent) {
	w.hasWork = true
	e.Soon(link.KeeperTimer)
}

// TakeOrders copies pending orders of operators from the keepers of the agents before a reload to the new keepers of their pools.
func (e *Keepers) TakeOrders(before []*Agent) {
	for _, w := range e.Agents {
		for _, b := range before {
			if b != w && b.Pool == w.Pool {
				w.Keeper.TakeOrders(b.Keeper, e.Now)
			}
		}
	}
}

// carryOut sends the requests of a keeper, and publishes its decisions.
func (e *Keepers) carryOut(w *Agent) {
	w.hasWork = false
	for list := w.Keeper.Requests(); len(list) > 0; list = w.Keeper.Requests() {
		for _, r := range list {
			e.askFor(w, r)
		}
	}
	for _, ev := range w.Keeper.Events() {
		e.noteEvent(w, ev)
	}
	w.publish()
	if len(e.Parked) > 0 { // commands that were parked until a phase changes may continue now
		e.Soon(link.ParkedTimer)
	}
}

// request is one request of a keeper. It is an upstream.Asker.
type request struct {
	e      *Keepers
	w      *Agent
	member int    // index in Agent.Servers of the server to which the request is sent
	conn   uint32 // number of a dedicated connection; 0: the first connection for clients' requests
	close  bool   // the dedicated connection is closed after the reply
}

// askFor sends the request r of the keeper of w. A request is also sent to a server that is down, so
// that the keeper notices when the server replies again.
func (e *Keepers) askFor(w *Agent, r health.Request) {
	m := w.Servers[r.Server]
	srv := e.ByAddress[m.Network+" "+m.Address]
	if srv == nil { // a reload has just removed the server
		w.firstPing(r.Server, false)
		w.Keeper.Unanswered(r.ID, true, "it is not in a pool any more", e.Now)
		return
	}
	c := srv.Conns[0]
	if r.Conn != 0 {
		c = srv.DedicatedConn(r.Conn)
	}
	if c.InternalFull() {
		w.firstPing(r.Server, false)
		w.Keeper.Unasked(r.ID, e.Now)
		return
	}
	e.Ask(c, &request{e, w, r.Server, r.Conn, r.Close}, int(r.ID), srv.OwnTimeouts(w.failover.Request), r.Line, true)
}

// Pings marks the receiver of a keeper's request for package upstream: a server without meta commands
// gets the command version in place of the request.
func (d *request) Pings() {}

func (d *request) Answered(id int, r *upstream.Result) {
	e := d.e
	if d.conn != 0 && d.close {
		r.Server.CloseDedicated(d.conn)
	}
	if bytes.HasPrefix(r.Bytes, []byte("VERSION ")) { // a server without meta commands got the command version in place of the request (see Pings); for the keeper that is an ERROR reply
		r.SetAnswer(wire.Get, wire.Meta, []byte(wire.AnswerError))
	}
	d.w.firstPing(d.member, r.Bytes != nil)
	switch {
	case r.Bytes != nil:
		d.w.Keeper.Answered(uint64(id), r.Bytes, e.Now)
	case r.Busy && r.Outcome == stats.TimedOut: // the server is not down: it was still replying to earlier requests of clients
		d.w.Keeper.Unasked(uint64(id), e.Now)
	default:
		d.w.Keeper.Unanswered(uint64(id), r.Outcome == stats.Unavailable, r.Why, e.Now)
	}
	e.Schedule(d.w)
}

// Notify calls what for the keeper of each pool that contains the server srv, to report an event. The
// calls run on the loop that runs the keepers.
func (e *Keepers) Notify(srv *upstream.Server, what func(k *health.Keeper, server int, now int64)) {
	for _, m := range e.Registrations[srv] {
		f := func(e *Keepers) {
			what(m.Agent.Keeper, m.ServerIndex, e.Now)
			e.Schedule(m.Agent)
		}
		if e.RunsKeepers {
			f(e)
		} else {
			e.OnKeeperLoop(f)
		}
	}
}

// Registration is a pool with a keeper that contains a certain server.
type Registration struct {
	Pool        string             // the name of the pool
	Agent       *Agent             // agent of the pool
	ServerIndex int                // index of the server in the keeper of the pool
	Bound       *routing.BoundPool // the pool with this loop's servers
	Copies      bool               // the pool keeps replicas
}

// noteEvent counts and logs a decision of a keeper.
func (e *Keepers) noteEvent(w *Agent, ev health.Event) {
	name := ""
	if ev.Server >= 0 {
		name = w.Servers[ev.Server].Name
	}
	w.Events[[2]string{name, ev.To}]++
	step := []any{"from", ev.From, "to", ev.To, "why", ev.Why}
	if w.Stays() {
		step = append(step, "mode", table.FailFast.String())
	}
	if ev.Server < 0 {
		e.LogLimited(logLevel(ev), w.Pool+" "+ev.From+" "+ev.To, "pool state changed", append([]any{event.PoolState.Attr(), "pool", w.Pool}, step...)...)
		return
	}
	if w.joins(ev.Server) && w.View.Resize().Stage() == resize.Stable {
		step = append(step, "new", true)
	}
	if srv := e.ByAddress[w.Servers[ev.Server].Network+" "+w.Servers[ev.Server].Address]; srv != nil && ev.To == health.Out.String() {
		e.Gone(srv)
	}
	e.LogInOrder(logLevel(ev), w.Pool+" "+name, w.Pool+" "+name+" "+ev.From+" "+ev.To, "server state changed",
		append([]any{event.ServerPhase.Attr(), "pool", w.Pool, "server", name}, step...)...)
}

// logLevel is INFO for a return to normal, and WARN for all other decisions of a keeper.
func logLevel(ev health.Event) slog.Level {
	if ev.IsReturnToNormal() {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// AddTo adds to a snapshot the states of all keepers: the list of instances, counts of decisions, the
// change of the servers, and the phase of each server.
func (e *Keepers) AddTo(into *stats.Snapshot) {
	for _, w := range e.Agents {
		into.Rolls = append(into.Rolls, stats.Roll{Pool: w.Pool, Roll: w.Keeper.Roll()})
		w.addResize(into, e.Now)
		for what, n := range w.Events {
			into.Events = append(into.Events, stats.PhaseEvents{Pool: w.Pool, Server: what[0], To: what[1], Count: n})
		}
	}
	into.Phases = e.Phases(into.Phases)
}

// Phases appends the decisions about all servers to list.
func (e *Keepers) Phases(list []stats.PhaseSnapshot) []stats.PhaseSnapshot {
	for _, w := range e.Agents {
		for i := range w.Servers {
			v := w.Keeper.Verdict(i)
			m := stats.PhaseSnapshot{
				Pool: w.Pool, Target: w.Servers[i], Phase: health.PhaseOf(v.N), Number: v.N, Suspect: v.Suspect,
				Why: v.Why, Override: v.Override, Renamed: w.Keeper.Renamed(i) != 0,
				Since: time.Duration(e.Now - cmp.Or(v.Since, w.Began)), InPhase: time.Duration(e.Now - cmp.Or(v.InPhase, w.Began)), Lease: time.Duration(max(v.Lease, w.Began) - e.Now), ValidFor: time.Duration(v.ValidUntil - e.Now), Step: v.Step,
			}
			if v.Until > e.Now {
				m.Due = time.Duration(v.Until - e.Now)
			}
			list = append(list, m)
		}
	}
	return list
}
