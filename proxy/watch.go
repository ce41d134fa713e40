package proxy

// The keepers of pools that move keys: one engine lets them work, all engines
// read what they have decided.

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// watch is a pool's keeper, and what it has decided, for all engines. It
// outlives reloads that change neither the pool's members nor its settings.
type watch struct {
	pool     string
	members  []Target // the pool's servers, then its gutter's
	failover Failover
	print    string         // fingerprints of the pool's placement and of its gutter's
	keeper   *health.Keeper // the first engine's alone
	ripe     bool           // it has got something to work on; the first engine's alone

	// What the first pings have brought, by member; the first engine's alone.
	// Before most of them are answered, or all have ended, nothing is known of
	// who is out, and a server that answers may hold what is old.
	heard          []bool
	ended, brought int

	// view is written by the first engine when the keeper has decided, and read
	// by all.
	view *health.View

	own    int                  // members that are the pool's own; the first engine's alone, like all below
	events map[[2]string]uint64 // what was decided so far: by server and what became of it
}

// watched says that a pool's keys move, so it needs a keeper.
func (p *Pool) watched(t *Table) bool {
	return p.Failover.Mode != FailFast || p.copied(t)
}

// copied says that a route of t keeps copies in p.
func (p *Pool) copied(t *Table) bool {
	for _, l := range t.Listeners {
		for _, r := range l.Routes {
			if (r.Copies.Copies != 0 && r.Copies.Copies != 1 || len(r.Also) > 0) && (r.Pool == p || slices.Contains(r.Also, p)) {
				return true
			}
		}
	}
	return false
}

// Keepers are the keepers of all pools that need one, as one loop knows them. One
// loop of the process lets them work and carries their requests; the others tell
// it what they see of the servers.
type Keepers struct {
	*Tasks
	keeps     bool                   // it is this loop that lets them work
	watches   []*watch               // then: all of them
	watched   map[*Server][]member   // by the keepers of its pools
	host      func(f func(*Keepers)) // runs f on the loop that lets them work
	overrides func(w *watch)         // gives a new keeper what people have ordered
}

// live is a table and the keepers of its pools.
type live struct {
	*Table
	watches map[*Pool]*watch
}

// watchers makes the keepers of t, or takes them over from old.
func watchers(t *Table, old *live, seed uint64, without health.Ablation) *live {
	l := &live{Table: t, watches: map[*Pool]*watch{}}
	for _, pool := range t.Pools {
		before := old.watch(pool.Name)
		if before == nil && !pool.watched(t) {
			continue
		}
		w := newWatch(pool)
		switch same := before != nil && slices.Equal(before.members, w.members); {
		case same && before.print == w.print && before.failover == w.failover:
			l.watches[pool] = before
		case same && !pool.watched(t) && !before.view.AllIn():
			// Its keys don't move any more, but a server is still out: it must
			// come back by the phases, or its old values would be served.
			l.watches[pool] = before
		case pool.watched(t):
			w.start(pool, seed, without)
			l.watches[pool] = w
		}
	}
	return l
}

// watch is the keeper of a pool by its name.
func (l *live) watch(name string) *watch {
	if l != nil {
		for pool, w := range l.watches {
			if pool.Name == name {
				return w
			}
		}
	}
	return nil
}

func newWatch(pool *Pool) *watch {
	w := &watch{pool: pool.Name, own: len(pool.Servers), members: slices.Clone(pool.Servers), failover: pool.Failover,
		print: pool.Place.Fingerprint, events: map[[2]string]uint64{}}
	if g := pool.Failover.Gutter; g != nil {
		w.members = append(w.members, g.Servers...)
		w.print += " " + g.Place.Fingerprint
	}
	w.failover.Gutter = nil // a reload makes another of the same members
	return w
}

func (w *watch) start(pool *Pool, seed uint64, without health.Ablation) {
	members := make([]health.Member, len(w.members))
	for i, m := range w.members {
		members[i] = health.Member{Name: m.Name, Address: m.Network + " " + m.Address, Gutter: i >= len(pool.Servers)}
	}
	// What all proxies of a pool must agree on goes into the hash of the view
	// record with its first member.
	members[0].Address += fmt.Sprintf(" %s %s %v %v", w.print, w.failover.Mode, w.failover.Lease, w.failover.Request)
	w.keeper = health.New(pool.Name, members, w.failover.Settings, seed)
	w.keeper.Ablate(without)
	w.view = health.NewView(len(members))
	w.heard = make([]bool, len(members))
	w.publish()
	w.ripe = true
}

// publish lets the engines see what the keeper has decided.
func (w *watch) publish() {
	w.view.Publish(w.keeper, 2*w.brought > len(w.heard) || w.ended == len(w.heard))
}

// hear notes that the first request to a member has ended: a ping.
func (w *watch) hear(member int, answered bool) {
	if w.heard[member] {
		return
	}
	w.heard[member] = true
	w.ended++
	if answered {
		w.brought++
	}
}

// tend lets the keepers work whose time has come, or who were told something.
func (e *Keepers) tend() {
	for _, w := range e.watches {
		for i := range w.members {
			if w.view.Phase(i) == health.Warming {
				asks, hits := w.view.WarmReads(i)
				w.keeper.Warmed(i, asks, hits, e.now)
				w.ripe = true
			}
		}
		if w.keeper.Next() <= e.now {
			w.keeper.Tick(e.now)
			e.overrides(w)
			w.ripe = true
		}
		if w.ripe {
			e.carryOut(w)
		}
		e.at(keeperTimer, w.keeper.Next())
	}
}

// carryOut does what a keeper wants.
func (e *Keepers) carryOut(w *watch) {
	w.ripe = false
	for list := w.keeper.Requests(); len(list) > 0; list = w.keeper.Requests() {
		for _, r := range list {
			e.askFor(w, r)
		}
	}
	for _, ev := range w.keeper.Events() {
		e.noteEvent(w, ev)
	}
	w.publish()
	if len(e.parked) > 0 { // what waits goes before what comes
		e.soon(parkedTimer)
	}
}

// errand is one request of a keeper.
type errand struct {
	e      *Keepers
	w      *watch
	member int
	conn   uint32
	close  bool
}

// askFor sends a keeper's request, also to a server that is down: that is how
// the keeper finds out that it is back.
func (e *Keepers) askFor(w *watch, r health.Request) {
	m := w.members[r.Server]
	srv := e.byAddress[m.Network+" "+m.Address]
	if srv == nil { // a reload has just taken it away
		w.hear(r.Server, false)
		w.keeper.Unanswered(r.ID, true, "no pool names it any more", e.now)
		return
	}
	c := srv.conns[0]
	if r.Conn != 0 {
		c = srv.ownConn(r.Conn)
	}
	if c.crowded() {
		w.hear(r.Server, false)
		w.keeper.Unasked(r.ID, e.now)
		return
	}
	limit := Timeouts{Connect: srv.connect, Request: w.failover.Request, Deadline: srv.connect + w.failover.Request}
	e.demand(c, &errand{e, w, r.Server, r.Conn, r.Close}, int(r.ID), &limit, r.Line, true)
}

func (d *errand) Client() uint64 { return 0 }

// Pings says that a server without meta commands is asked something else.
func (d *errand) Pings() {}

func (d *errand) Answered(id int, r *Result) {
	e := d.e
	if d.conn != 0 && d.close {
		r.srv.drop(d.conn)
	}
	if bytes.HasPrefix(r.bytes, []byte("VERSION ")) { // asked instead, for it has no meta commands: see translate
		r.bytes = []byte(wire.AnswerError)
	}
	d.w.hear(d.member, r.bytes != nil)
	switch {
	case r.bytes != nil:
		d.w.keeper.Answered(uint64(id), r.bytes, e.now)
	case r.Busy && r.Outcome == TimedOut: // it waited behind clients' requests, which are answered
		d.w.keeper.Unasked(uint64(id), e.now)
	default:
		d.w.keeper.Unanswered(uint64(id), r.Outcome == Unavailable, r.Why, e.now)
	}
	d.w.ripe = true
	e.soon(keeperTimer)
}

// tell lets the keepers of a server's pools know something.
func (e *Keepers) tell(srv *Server, what func(k *health.Keeper, server int, now int64)) {
	for _, m := range e.watched[srv] {
		f := func(e *Keepers) {
			what(m.w.keeper, m.member, e.now)
			m.w.ripe = true
			e.soon(keeperTimer)
		}
		if e.keeps {
			f(e)
		} else {
			e.host(f)
		}
	}
}

// member is one pool's view of a server.
type member struct {
	pool   string
	w      *watch
	member int
	live   *livePool
	copies bool // the pool keeps copies
}

// noteEvent counts and tells people what a keeper has decided.
func (e *Keepers) noteEvent(w *watch, ev health.Event) {
	name := ""
	if ev.Server >= 0 {
		name = w.members[ev.Server].Name
	}
	w.events[[2]string{name, ev.To}]++
	if ev.Server < 0 {
		e.log.Warn("failover of a pool", "pool", w.pool, "from", ev.From, "to", ev.To, "why", ev.Why)
		return
	}
	e.log.Warn("failover of a server", "pool", w.pool, "server", name, "from", ev.From, "to", ev.To, "why", ev.Why)
}

// addTo adds what the keepers have decided.
func (e *Keepers) addTo(into *Snapshot) {
	for _, w := range e.watches {
		for what, n := range w.events {
			into.Events = append(into.Events, MemberEvents{Pool: w.pool, Server: what[0], To: what[1], Count: n})
		}
		for i := range w.members {
			v := w.keeper.Verdict(i)
			m := MemberSnapshot{
				Pool: w.pool, Target: w.members[i], Gutter: i >= w.own, Phase: health.PhaseOf(v.N), Number: v.N, Suspect: v.Suspect,
				Why: v.Why, Order: v.Ordered, Renamed: w.keeper.Renamed(i) != 0,
				Since: time.Duration(e.now - v.Since), Lease: time.Duration(v.Lease - e.now), Sure: time.Duration(v.ValidUntil - e.now), Step: v.Step,
			}
			if v.Until > e.now {
				m.Due = time.Duration(v.Until - e.now)
			}
			into.Members = append(into.Members, m)
		}
	}
}
