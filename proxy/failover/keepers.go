package failover

// The hosts of keepers: one loop lets them work, all loops read what they have
// decided.

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Agent hosts the keeper of a pool. It outlives reloads that change neither the
// pool's members nor its settings. Pool, Members, failover, print and View are for
// all loops; the rest belongs to the loop that lets the keepers work.
type Agent struct {
	Pool     string
	Members  []table.Target       // the pool's servers, then its gutter's
	failover table.Failover       // the settings that it was made for
	print    string               // fingerprints of the pool's placement and of its gutter's
	departed map[string]departure // servers that reloads have taken out of the pool, by name
	Keeper   *health.Keeper
	HasWork  bool  // the keeper was told something since it worked last
	Began    int64 // when it was given to the loop that runs it

	// What the first pings have brought, by member. Before most of them are answered,
	// or all have ended, nobody knows which servers are out, and a server that answers
	// may hold what is old.
	pinged         []bool
	ended, brought int // first pings that have ended; of these, those that were answered

	// The pool needs no keeper any more, but for a server that is to come back by the
	// phases. Nobody else is taken out meanwhile.
	parting atomic.Bool

	// View is written when the keeper has decided, and read by all loops.
	View *health.View

	OwnMembers int                  // how many of Members are the pool's own
	Events     map[[2]string]uint64 // how often what was decided, by server and what became of it
}

// Keepers are the keepers of all pools that need one, as one loop knows them. One
// loop of the process lets them work and carries their requests; the others tell
// it what they see of the servers.
type Keepers struct {
	*task.Tasks
	RunsKeepers   bool                                // this loop lets them work
	Agents        []*Agent                            // of all keepers, if this loop lets them work
	Registrations map[*upstream.Server][]Registration // of a server, by the pools with a keeper that name it
	OnKeeperLoop  func(f func(*Keepers))              // runs f on the loop that lets them work
	Overrides     func(w *Agent)                      // gives a new keeper the orders of people
	Gone          func(srv *upstream.Server)          // is told of servers that leave
	StartedAnew   func(srv *upstream.Server)          // is told where another process answers, which knows nothing of what there was
	Parted        func()                              // publishes the table without a keeper that has no more to do
}

// Published is a table and the keepers of its pools.
type Published struct {
	*table.Table
	Print  uint64                 // of the table: Table.Print
	Copies map[*table.Pool]uint64 // Table.PrintCopies of the pools that have a keeper
	Agents map[*table.Pool]*Agent // of the pools that have a keeper
}

// Publish makes the keepers of t, or takes them over from old.
func Publish(t *table.Table, old *Published, seed uint64, without health.Ablation) *Published {
	l := &Published{Table: t, Print: t.Print(), Copies: map[*table.Pool]uint64{}, Agents: map[*table.Pool]*Agent{}}
	for _, pool := range t.Pools {
		before, w := old.Agent(pool.Name), newAgent(pool)
		same := before != nil && slices.Equal(before.Members, w.Members)
		switch needed := pool.NeedsKeeper(t); {
		case !needed && (!same || before.View.AllIn()):
			continue
		case same && (!needed || before.print == w.print && before.failover == w.failover):
			// One that is not needed any more stays while a server is out: that must come
			// back by the phases, or its old values would be served.
			before.parting.Store(!needed)
			w = before
		default:
			w.start(pool, before, seed, without)
		}
		l.Agents[pool], l.Copies[pool] = w, t.PrintCopies(pool)
	}
	return l
}

// Agent is the keeper of a pool by its name.
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

// newAgent makes the agent of a pool, without a keeper yet.
func newAgent(pool *table.Pool) *Agent {
	w := &Agent{Pool: pool.Name, OwnMembers: len(pool.Servers), Members: slices.Clone(pool.Servers), failover: pool.Failover,
		print: pool.Place.Fingerprint, Events: map[[2]string]uint64{}}
	if g := pool.Failover.Gutter; g != nil {
		w.Members = append(w.Members, g.Servers...)
		w.print += " " + g.Place.Fingerprint
	}
	w.failover.Gutter, w.failover.Wait = nil, 0 // a reload makes another of the same members; how long writes wait is no matter of the keeper's
	return w
}

// departure is what was known of a server when it was taken out of a pool.
type departure struct{ n, renamed uint32 }

// start makes the keeper. before is the agent that the pool had, if it had one.
func (w *Agent) start(pool *table.Pool, before *Agent, seed uint64, without health.Ablation) {
	members := make([]health.Member, len(w.Members))
	for i, m := range w.Members {
		members[i] = health.Member{Name: m.Name, Address: m.Network + " " + m.Address, Gutter: i >= len(pool.Servers)}
	}
	// What all proxies of a pool must agree on goes into the hash of the view
	// record with its first member.
	members[0].Address += fmt.Sprintf(" %s %s %v %v", w.print, w.failover.Mode, w.failover.Lease, w.failover.Request)
	w.Keeper = health.New(pool.Name, members, w.failover.Settings, seed)
	w.Keeper.Ablate(without)
	w.depart(before)
	w.View = health.NewView(len(members))
	w.pinged = make([]bool, len(members))
	w.publish()
	w.HasWork = true
}

// depart tells the keeper which servers reloads have taken out of the pool. One that
// is put back has missed what was written meanwhile.
func (w *Agent) depart(before *Agent) {
	if before == nil {
		return
	}
	w.Keeper.Resume(before.View)
	listed := func(name string) bool {
		return slices.ContainsFunc(w.Members, func(m table.Target) bool { return m.Name == name })
	}
	w.departed = map[string]departure{}
	maps.Copy(w.departed, before.departed)
	for i, m := range before.Members[:before.OwnMembers] {
		if !listed(m.Name) {
			w.departed[m.Name] = departure{before.View.N(i), before.View.Renamed(i)}
		}
	}
	for name, d := range w.departed {
		w.Keeper.Departed(name, d.n, d.renamed)
	}
	maps.DeleteFunc(w.departed, func(name string, _ departure) bool { return listed(name) })
}

// publish lets all loops see what the keeper has decided.
func (w *Agent) publish() {
	w.View.Publish(w.Keeper, 2*w.brought > len(w.pinged) || w.ended == len(w.pinged))
}

// firstPing notes that a request to a member has ended. The first is a ping.
func (w *Agent) firstPing(member int, answered bool) {
	if w.pinged[member] {
		return
	}
	w.pinged[member] = true
	w.ended++
	if answered {
		w.brought++
	}
}

// RunKeepers lets the keepers work whose time has come, or who were told something.
func (e *Keepers) RunKeepers() {
	for _, w := range e.Agents {
		w.View.Tell(w.Keeper, e.Now)
		w.Keeper.Part(w.parting.Load())
		for i := range w.Members {
			if w.View.Phase(i) == health.Warming {
				asks, hits := w.View.WarmReads(i)
				w.Keeper.Warmed(i, asks, hits, e.Now)
				w.HasWork = true
			}
		}
		if w.Keeper.Next() <= e.Now {
			w.Keeper.Tick(e.Now)
			e.Overrides(w)
			w.HasWork = true
		}
		if w.HasWork {
			e.carryOut(w)
		}
		if w.parting.Load() && w.View.AllIn() {
			e.Parted()
		}
		e.At(link.KeeperTimer, w.Keeper.Next())
	}
}

// carryOut sends what a keeper wants sent, and publishes what it has decided.
func (e *Keepers) carryOut(w *Agent) {
	w.HasWork = false
	for list := w.Keeper.Requests(); len(list) > 0; list = w.Keeper.Requests() {
		for _, r := range list {
			e.askFor(w, r)
		}
	}
	for _, ev := range w.Keeper.Events() {
		e.noteEvent(w, ev)
	}
	w.publish()
	if len(e.Parked) > 0 { // parked commands go before those that come
		e.Soon(link.ParkedTimer)
	}
}

// request is one request of a keeper, an upstream.Asker.
type request struct {
	e      *Keepers
	w      *Agent
	member int    // the server that is asked
	conn   uint32 // 0: the server's usual connection; else the number of a dedicated one
	close  bool   // the dedicated one is closed after the answer
}

// askFor sends a keeper's request, also to a server that is down: that is how
// the keeper finds out that it is back.
func (e *Keepers) askFor(w *Agent, r health.Request) {
	m := w.Members[r.Server]
	srv := e.ByAddress[m.Network+" "+m.Address]
	if srv == nil { // a reload has just taken it away
		w.firstPing(r.Server, false)
		w.Keeper.Unanswered(r.ID, true, "no pool names it any more", e.Now)
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
	limit := table.Timeouts{Connect: srv.Connect, Request: w.failover.Request, Deadline: srv.Connect + w.failover.Request}
	e.Ask(c, &request{e, w, r.Server, r.Conn, r.Close}, int(r.ID), &limit, r.Line, true)
}

func (d *request) Client() uint64 { return 0 }

// Pings says that a server without meta commands is asked something else.
func (d *request) Pings() {}

func (d *request) Answered(id int, r *upstream.Result) {
	e := d.e
	if d.conn != 0 && d.close {
		r.Server.CloseDedicated(d.conn)
	}
	if bytes.HasPrefix(r.Bytes, []byte("VERSION ")) { // it has no meta commands and was asked this instead: see Pings
		r.SetAnswer(wire.Get, wire.Meta, []byte(wire.AnswerError))
	}
	d.w.firstPing(d.member, r.Bytes != nil)
	switch {
	case r.Bytes != nil:
		d.w.Keeper.Answered(uint64(id), r.Bytes, e.Now)
	case r.Busy && r.Outcome == stats.TimedOut: // clients' requests before it are being answered: the server is there
		d.w.Keeper.Unasked(uint64(id), e.Now)
	default:
		d.w.Keeper.Unanswered(uint64(id), r.Outcome == stats.Unavailable, r.Why, e.Now)
	}
	d.w.HasWork = true
	e.Soon(link.KeeperTimer)
}

// Notify lets the keepers of a server's pools know something, on the loop that lets
// them work.
func (e *Keepers) Notify(srv *upstream.Server, what func(k *health.Keeper, server int, now int64)) {
	for _, m := range e.Registrations[srv] {
		f := func(e *Keepers) {
			what(m.Agent.Keeper, m.Member, e.Now)
			m.Agent.HasWork = true
			e.Soon(link.KeeperTimer)
		}
		if e.RunsKeepers {
			f(e)
		} else {
			e.OnKeeperLoop(f)
		}
	}
}

// Registration is one pool that names a server, and has a keeper.
type Registration struct {
	Pool   string             // its name
	Agent  *Agent             // of its keeper
	Member int                // the server, as the keeper counts
	Bound  *routing.BoundPool // the pool, as this loop has it
	Copies bool               // the pool keeps copies
}

// noteEvent counts and logs what a keeper has decided.
func (e *Keepers) noteEvent(w *Agent, ev health.Event) {
	name := ""
	if ev.Server >= 0 {
		name = w.Members[ev.Server].Name
	}
	w.Events[[2]string{name, ev.To}]++
	if ev.Server < 0 {
		e.LogLimited(slog.LevelWarn, w.Pool+" "+ev.From+" "+ev.To, "failover of a pool", "pool", w.Pool, "from", ev.From, "to", ev.To, "why", ev.Why)
		return
	}
	if srv := e.ByAddress[w.Members[ev.Server].Network+" "+w.Members[ev.Server].Address]; srv != nil && ev.To == health.Out.String() {
		e.Gone(srv)
	}
	e.LogInOrder(slog.LevelWarn, w.Pool+" "+name, w.Pool+" "+name+" "+ev.From+" "+ev.To, "failover of a server", "pool", w.Pool, "server", name, "from", ev.From, "to", ev.To, "why", ev.Why)
}

// AddTo adds what the keepers have decided.
func (e *Keepers) AddTo(into *stats.Snapshot) {
	for _, w := range e.Agents {
		into.Rolls = append(into.Rolls, stats.Roll{Pool: w.Pool, Roll: w.Keeper.Roll()})
		for what, n := range w.Events {
			into.Events = append(into.Events, stats.MemberEvents{Pool: w.Pool, Server: what[0], To: what[1], Count: n})
		}
		for i := range w.Members {
			v := w.Keeper.Verdict(i)
			m := stats.MemberSnapshot{
				Pool: w.Pool, Target: w.Members[i], Gutter: i >= w.OwnMembers, Phase: health.PhaseOf(v.N), Number: v.N, Suspect: v.Suspect,
				Why: v.Why, Override: v.Override, Renamed: w.Keeper.Renamed(i) != 0,
				Since: time.Duration(e.Now - max(v.Since, w.Began)), InPhase: time.Duration(e.Now - max(v.InPhase, w.Began)), Lease: time.Duration(v.Lease - e.Now), ValidFor: time.Duration(v.ValidUntil - e.Now), Step: v.Step,
			}
			if v.Until > e.Now {
				m.Due = time.Duration(v.Until - e.Now)
			}
			into.Members = append(into.Members, m)
		}
	}
}
