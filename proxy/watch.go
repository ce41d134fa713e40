package proxy

// The keepers of pools that move keys: one engine lets them work, all engines
// read what they have decided.

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync/atomic"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// watch is a pool's keeper, and what it has decided, for all engines. It
// outlives reloads that change neither the pool's members nor its settings.
type watch struct {
	pool     string
	members  []Target // the pool's servers, then its gutter's
	failover Failover
	print    string         // of the pool's rule, and its gutter's
	keeper   *health.Keeper // the first engine's alone
	ripe     bool           // it has got something to work on; the first engine's alone

	// What the first pings have brought, by member; the first engine's alone.
	// Before most of them are answered, or all have ended, nothing is known of
	// who is out, and a server that answers may hold what is old.
	heard          []bool
	ended, brought int

	// Written by the first engine when the keeper has decided, read by all.
	known atomic.Bool   // who is out
	gen   atomic.Uint64 // changes whenever anything below but leases does
	quiet atomic.Bool   // every member is in and nobody suspects it
	seen  []seen

	own    int                  // members that are the pool's own; the first engine's alone, like all below
	events map[[2]string]uint64 // what was decided so far: by server and what became of it
}

// seen is what engines see of one member.
type seen struct {
	state   atomic.Uint64 // n in the high half; the low bits are marks
	renamed atomic.Uint32 // the number its own keys carry; 0: none
	valid   atomic.Int64  // strict: until when its answers are sure
	asks    atomic.Uint64 // reads while it was filling up
	hits    atomic.Uint64 // those it could answer
}

const suspected = 1 // a mark of seen.state

func (s *seen) n() uint32       { return uint32(s.state.Load() >> 32) }
func (s *seen) suspected() bool { return s.state.Load()&suspected != 0 }

// phase is the phase of a member.
func (w *watch) phase(i int) health.Phase { return health.PhaseOf(w.seen[i].n()) }

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

// live is a table and the keepers of its pools.
type live struct {
	*Table
	watches map[*Pool]*watch
}

// watchers makes the keepers of t, or takes them over from old.
func (p *Proxy) watchers(t *Table, old *live) *live {
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
		case same && !pool.watched(t) && !before.quiet.Load():
			// Its keys don't move any more, but a server is still out: it must
			// come back by the phases, or its old values would be served.
			l.watches[pool] = before
		case pool.watched(t):
			w.start(pool, p.Seed)
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
		print: pool.fingerprint(), events: map[[2]string]uint64{}}
	if g := pool.Failover.Gutter; g != nil {
		w.members = append(w.members, g.Servers...)
		w.print += g.fingerprint()
	}
	w.failover.Gutter = nil // a reload makes another of the same members
	return w
}

// fingerprint changes when the pool's rule gives keys to other servers.
func (p *Pool) fingerprint() string {
	h := fnv.New64a()
	for i := range 256 {
		_, _, owner := p.Place.Locate(strconv.AppendInt([]byte("fingerprint"), int64(i), 10))
		h.Write([]byte{byte(owner), byte(owner >> 8)})
	}
	return p.Distribution + " " + strconv.FormatUint(h.Sum64(), 36) + " "
}

func (w *watch) start(pool *Pool, seed uint64) {
	members := make([]health.Member, len(w.members))
	for i, m := range w.members {
		members[i] = health.Member{Name: m.Name, Address: m.Network + " " + m.Address, Gutter: i >= len(pool.Servers)}
	}
	// What all proxies of a pool must agree on goes into the hash of the view
	// record with its first member.
	members[0].Address += fmt.Sprintf(" %s%s %v %v", w.print, w.failover.Mode, w.failover.Lease, w.failover.Request)
	w.keeper = health.New(pool.Name, members, w.failover.Settings, seed)
	w.seen = make([]seen, len(members))
	w.heard = make([]bool, len(members))
	w.publish()
	w.ripe = true
}

// publish lets the engines see what the keeper has decided.
func (w *watch) publish() {
	quiet := true
	for i := range w.seen {
		v := w.keeper.Verdict(i)
		state := uint64(v.N) << 32
		if v.Suspect {
			state |= suspected
		}
		w.seen[i].state.Store(state)
		w.seen[i].renamed.Store(w.keeper.Renamed(i))
		w.seen[i].valid.Store(v.ValidUntil)
		quiet = quiet && health.PhaseOf(v.N) == health.In && !v.Suspect && w.keeper.Renamed(i) == 0
	}
	known := 2*w.brought > len(w.heard) || w.ended == len(w.heard)
	w.known.Store(known)
	w.quiet.Store(quiet && known)
	if known {
		w.gen.Store(w.keeper.Gen())
	}
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
func (e *Engine) tend() {
	e.keepAt = never
	for _, w := range e.watches {
		for i := range w.seen {
			if w.phase(i) == health.Warming {
				w.keeper.Warmed(i, w.seen[i].asks.Load(), w.seen[i].hits.Load(), e.now)
				w.ripe = true
			}
		}
		if w.keeper.Next() <= e.now {
			w.keeper.Tick(e.now)
			e.handOrders(w)
			w.ripe = true
		}
		if w.ripe {
			e.carryOut(w)
		}
		e.keepAt = min(e.keepAt, w.keeper.Next())
	}
}

// carryOut does what a keeper wants.
func (e *Engine) carryOut(w *watch) {
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
		e.parkAt = e.now
	}
}

// errand is one request of a keeper.
type errand struct {
	w      *watch
	member int
	conn   uint32
	close  bool
}

// askFor sends a keeper's request, also to a server that is down: that is how
// the keeper finds out that it is back.
func (e *Engine) askFor(w *watch, r health.Request) {
	m := w.members[r.Server]
	srv := e.servers[m.Network+" "+m.Address]
	if srv == nil { // a reload has just taken it away
		w.hear(r.Server, false)
		w.keeper.Unanswered(r.ID, true, "no pool names it any more", e.now)
		return
	}
	c := srv.conns[0]
	if r.Conn != 0 {
		c = srv.ownConn(r.Conn)
	}
	if c.length >= srv.queue {
		w.keeper.Unanswered(r.ID, false, srv.crowded, e.now)
		return
	}
	limit := Timeouts{Connect: srv.connect, Request: w.failover.Request, Deadline: srv.connect + w.failover.Request}
	e.demand(c, &errand{w, r.Server, r.Conn, r.Close}, int(r.ID), &limit, r.Line)
}

func (d *errand) answered(e *Engine, id int, r *answer) {
	if d.conn != 0 && d.close {
		r.srv.drop(d.conn)
	}
	if bytes.HasPrefix(r.bytes, []byte("VERSION ")) { // asked instead, for it has no meta commands: see translate
		r.bytes = []byte(wire.AnswerError)
	}
	d.w.hear(d.member, r.bytes != nil)
	if r.bytes != nil {
		d.w.keeper.Answered(uint64(id), r.bytes, e.now)
	} else {
		d.w.keeper.Unanswered(uint64(id), r.outcome == Unavailable, r.why, e.now)
	}
	d.w.ripe = true
	e.keepAt = 0
}

// ownConn is a connection for one errand alone, by the errand's number.
func (srv *Server) ownConn(n uint32) *Conn {
	c := srv.own[n]
	if c == nil {
		c = &Conn{srv: srv, deadline: never}
		c.conn = c
		if srv.own == nil {
			srv.own = map[uint32]*Conn{}
		}
		srv.own[n] = c
	}
	return c
}

// drop closes an errand's connection.
func (srv *Server) drop(n uint32) {
	c := srv.own[n]
	if c == nil {
		return
	}
	delete(srv.own, n)
	if c.state != connIdle {
		c.hangUp(Close)
	} else {
		c.clear() // what has been asked must not open it again
	}
	c.failAll("the errand is done", Lost)
}

// tell lets the keepers of a server's pools know something.
func (srv *Server) tell(what func(k *health.Keeper, server int, now int64)) {
	for _, m := range srv.watched {
		f := func(e *Engine) {
			what(m.w.keeper, m.member, e.now)
			m.w.ripe = true
			e.keepAt = 0
		}
		if srv.e.keeps {
			f(srv.e)
		} else {
			srv.e.Shared.first().Post(f)
		}
	}
}

// trouble tells the keepers that the server is down.
func (srv *Server) trouble(why string) {
	srv.tell(func(k *health.Keeper, server int, now int64) { k.Trouble(server, true, why, now) })
}

// member is one pool's view of a server.
type member struct {
	pool   string
	w      *watch
	member int
	live   *livePool
	copies bool // the pool keeps copies
}

// warmed counts a read of a server that is filling up, for its keeper.
func (e *Engine) warmed(w *watch, i int, hit bool) {
	w.seen[i].asks.Add(1)
	if hit {
		w.seen[i].hits.Add(1)
	}
}

// noteEvent counts and tells people what a keeper has decided.
func (e *Engine) noteEvent(w *watch, ev health.Event) {
	name := ""
	if ev.Server >= 0 {
		name = w.members[ev.Server].Name
	}
	w.events[[2]string{name, ev.To}]++
	if ev.Server < 0 {
		e.Shared.Log.Warn("failover of a pool", "pool", w.pool, "from", ev.From, "to", ev.To, "why", ev.Why)
		return
	}
	e.Shared.Log.Warn("failover of a server", "pool", w.pool, "server", name, "from", ev.From, "to", ev.To, "why", ev.Why)
}
