package guard

// This file has the guard of one loop: its state, and the entry point for the commands on guarded
// keys.

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"

	"ringside/proxy/ablation"
	"ringside/proxy/client"
	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Guard is the dogpile guard of one loop. It serves the commands on guarded keys that
// belong to this loop. Only its loop may use it.
type Guard struct {
	*task.Tasks
	EachLoop func(f func(*Guard))              // runs f on all loops of the process; on the calling loop it runs f before it returns
	OnLoop   func(hash uint64, f func(*Guard)) // runs f on the loop that owns the keys with that hash; if this is the calling loop, it runs f before it returns
	Ablation ablation.Set                      // rules that tests turn off

	misses  *missTable
	leaving []leaving // closed client connections with leases that are not canceled yet
	piece   int       // number of Miss records that clearLeft may still process before the next Tick

	polls    []*poll                    // polls of servers: one for each key that has waiting gets
	waiting  int                        // number of waiting gets
	nextPoll map[*upstream.Server]int64 // by server: earliest time of the next poll, on the loop's clock

	rebuilds rebuilds                       // what is remembered of rebuilds that have not ended
	off      map[*upstream.Server]offReason // servers for which the guard is off

	chance *rand.Rand
}

// New returns the guard of the loop with the number n, which seeds its random numbers.
func New(tasks *task.Tasks, n uint64) *Guard {
	return &Guard{
		Tasks: tasks, misses: newMissTable(), piece: leavePiece, nextPoll: map[*upstream.Server]int64{},
		rebuilds: rebuilds{}, off: map[*upstream.Server]offReason{}, chance: rand.New(rand.NewPCG(n, 13)),
	}
}

// nameOf returns the name of a key across pools: the same key in another pool is
// another key. Different listeners and stripped prefixes can refer to the same key.
func nameOf(rt *routing.Route, key []byte) string { return rt.Pool.ID + "\x00" + string(key) }

// clientState is what the guard knows of a client connection that uses guarded routes. All loops
// of the process share it.
type clientState struct {
	missClient
	g         *Guard        // the guard of the loop that has the client's connection
	followers atomic.Uint64 // number of requests that arrived before the client had the replies to all its earlier requests
	held      atomic.Int64  // number of the client's gets that wait for a rebuild by another client
	gone      atomic.Bool
}

// Enroll attaches the client connection s to the task t of the exchange x. It must be called on
// the client's loop, before t is admitted.
func (g *Guard) Enroll(s *client.Session, x *client.Exchange, t *task.Task) {
	p, _ := s.Companion.(*clientState)
	if p == nil {
		p = &clientState{g: g, missClient: missClient{ID: s.ID}}
		s.Companion = p
		p.overlaps(s, x)
	}
	if s.Head == x && x.Next == nil && x.Keys <= 1 {
		p.Idle()
	}
	l, _ := t.Rule.(*rule)
	if l == nil {
		l = &rule{}
		t.Rule = l
	}
	l.party, l.since, l.followers = p, x.Start, p.followers.Load()
	l.many, l.quiet = x.Keys > 1, x.Quiet()
	if x.Next != nil {
		l.followers-- // the client's next request has arrived already, so the get counts as followed and does not wait
	}
}

// overlaps marks the connection as shared (Shared) if its client waits for the reply to x and for
// another reply at the same time. The other reply may be complete already: without a request to a
// server, the first of two requests has its reply before the second one is parsed.
func (p *clientState) overlaps(s *client.Session, x *client.Exchange) {
	if p.Shared.Load() || x.Quiet() {
		return
	}
	shared := s.Owes
	for o := s.Head; o != nil && !shared; o = o.Next {
		shared = o != x && !o.Quiet()
	}
	if shared {
		p.Shared.Store(true)
	}
}

// Followed records that the request x arrived before the client had the replies to its earlier
// requests. It ends the waits of the client's earlier gets.
func (p *clientState) Followed(s *client.Session, x *client.Exchange) {
	p.overlaps(s, x)
	p.followers.Add(1)
	if p.held.Load() > 0 {
		p.g.EachLoop(func(g *Guard) { g.endWaits(p) })
	}
}

// Gone cancels the leases of the client s, because its connection is closed. Commands that the
// client has sent before still run, so a set in progress still counts as the rebuild after its
// miss.
func (p *clientState) Gone(s *client.Session) {
	p.gone.Store(true)
	sets := p.g.Writes(s)
	p.g.EachLoop(func(g *Guard) { g.leave(p, sets) })
}

// handler serves the tasks of a guarded route. It passes tasks that are served as on a route without
// a guard to next.
type handler struct {
	*Guard
	next task.Handler
}

// Over returns the handler for guarded routes. It passes tasks that are served as on a route without
// a guard to next.
func (g *Guard) Over(next task.Handler) task.Handler { return handler{g, next} }

// Handle serves t, or parks it until the state of its servers is known.
func (h handler) Handle(t *task.Task) {
	if !h.serves(t) {
		t.Pass(h.next)
	}
}

// serves is Handle for a task that the guard serves. For others it returns false.
func (g *Guard) serves(t *task.Task) bool {
	if t.Route.Guard == nil || t.IsStep() { // a reload has removed the guard, or t is a step that the guard itself has started
		return false
	}
	l, _ := t.Rule.(*rule)
	if l == nil { // the key was not guarded yet when the request arrived
		l = &rule{party: &clientState{g: g, missClient: missClient{ID: t.Asker}}}
	}
	l.g, l.RouteGuard, l.key, l.copies = g, t.Route.Guard, nameOf(t.Route, t.Key), nil
	l.fast.arrive(g)
	if t.Route.Copies.Copies != 0 {
		if l.name, l.copies = t.Key, replicaReplyFor(t.Route, t.Key); l.copies == nil {
			return l.unguard(t)
		}
		return l.start(t)
	}
	switch trouble, parked := l.locate(t, t.Op <= wire.Gats); {
	case parked:
		return true
	case trouble.Why != "":
		l.cancelFastLease()
		l.unanswered(t, &upstream.Result{Failure: trouble})
		return true
	case t.Op > wire.Gats && l.copies == nil && !l.Begins(t):
		return true
	}
	l.tag(t)
	srv := l.server(t)
	if speech := srv.FeaturesFor(t.Asker); speech != 0 && speech&wire.Metas == 0 {
		l.Learned.Count(stats.GuardOff)
		g.turnOff(srv, offReason{why: noMeta})
		return l.unguard(t) // such a server has no guarded items
	}
	if l.tags != nil && t.Op > wire.Gats && t.Op != wire.Delete && srv.LacksCas() { // the server could never store a value with tags
		t.Reject(srv.AppendNoCas(nil, "tags"))
		return true
	}
	if c, _, _ := srv.Pick(t.Asker, t.ClientDone); g.Blind(c) {
		l.Learned.Count(stats.GuardOff)
		l.RouteGuard = hidingRoute(l.RouteGuard)
	}
	return l.start(t)
}

// unguard makes t a task that is served as on a route without a guard.
func (l *rule) unguard(t *task.Task) (served bool) {
	if !l.rewrite(t) {
		return true
	}
	t.Rule = nil
	return false
}

// locate finds the server of t's key, and the name of the key on that server: see Spot.Locate. A command on
// a key that moves is served in steps, like one on a replicated key.
func (l *rule) locate(t *task.Task, read bool) (trouble upstream.Failure, parked bool) {
	if t.Route.Arrives(t.Key) {
		l.Spot, l.at, l.name = failover.Spot{View: t.Route.View}, 0, t.Key
		l.copies, l.Spot.Route = movingReplyFor(t.Route, t.Key)
		return upstream.Failure{}, false
	}
	trouble, parked = l.Locate(t, read)
	if l.at, l.copied = 0, false; l.Role == health.Returning {
		l.at = 1
	}
	l.name = l.Keys[l.at]
	return trouble, parked
}

// start serves t after its key has been located. It returns false if t must be served as on a route
// without a guard.
func (l *rule) start(t *task.Task) bool {
	why := unfit(t)
	if t.Req.Letters.Has('I') && t.Op.Stores() && t.Op != wire.Cas && why == "" {
		t.Rewrite(withoutInvalidate(t)...) // it becomes shorter, so it stays valid
	}
	switch {
	case !passes(t) && why != "":
		t.Reject(wire.AppendClientError(nil, why))
	case !l.replicated() && l.takesOwn(t): // t only changes the version that its client has seen, so it is no rebuild, and is rejected without a further step
		t.Reject(wire.AppendClientError(nil, ownFlags))
	case !l.rewrite(t):
		return true
	case !passes(t):
		t.Rule = l
		t.Run(0, nil)
	case t.Req.Letters.Has('I') && (t.Op == wire.Cas || t.Op == wire.Delete):
		l.invalidate(t)
	case compares(t) || changes(t) && l.misses() != nil:
		l.byToken(t)
	case t.Op == wire.Get && !t.Req.Letters.Has('N'):
		l.byRecache(t)
	default:
		return l.unguard(t)
	}
	t.CatchUp() // invalidate asks outside of Run
	return true
}

// passes reports whether t is sent as the client wrote it. That is so if the client
// uses the guard's meta flags itself, compares a cas, or inspects the item.
func passes(t *task.Task) bool {
	if t.Op == wire.Debug || t.Op == wire.Cas && t.Route.Tags == nil {
		return true
	}
	if t.Req.Dialect == wire.Text {
		return false
	}
	has := t.Req.Letters.Has
	switch {
	case t.Route.Tags != nil && t.Op <= wire.Cas:
		return false // a stored value needs a header with tag versions, so the command is not sent as the client wrote it
	case t.Op == wire.Get:
		return has('N') || has('R')
	case t.Op == wire.Append || t.Op == wire.Prepend: // a placeholder counts as a missing key: memcached rejects an append with NS then
		return false
	case t.Op == wire.Add && t.Req.Flags&wire.Binary == 0: // memcached ignores the cas if the key is missing
		return false
	case t.Op == wire.Incr || t.Op == wire.Decr:
		return has('C') && t.Route.Tags == nil // the server can't count a value that has a head
	}
	return has('C') || has('I')
}

// compares reports whether t is a cas command, or a meta or binary command with a cas. Such a command
// changes only the version of the item that its client has seen.
func compares(t *task.Task) bool {
	return t.Op == wire.Cas || t.Op != wire.Get && t.Req.Letters.Has('C')
}

// withoutInvalidate returns the edit that removes the flag I from an ms that is no cas: memcached
// ignores the flag there. It returns nil if t has no such flag.
func withoutInvalidate(t *task.Task) []task.Edit {
	at, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'I')
	if !ok || t.Req.Dialect != wire.Meta {
		return nil
	}
	return []task.Edit{{At: wire.Span{Start: at.Start - uint32(len(" I")), End: at.End}}}
}

// unfit returns the error for a meta command with flags that can't be used on t's route; "" if
// there is no such flag.
func unfit(t *task.Task) string {
	switch has := t.Req.Letters.Has; {
	case t.Req.Dialect == wire.Text:
	case has('E'):
		return "flag E sets the cas token, which the guard of this route needs: leave it out"
	case t.Route.Tags != nil && (t.Op <= wire.Gats && (has('N') || has('R')) || t.Op.Stores() && has('I')):
		return "flags N, R and I control the guard, which is not possible on a route with tags: leave them out"
	}
	return t.UncheckedFlags()
}

// Tick ends waits that have timed out, polls servers for the gets that still wait, and cancels
// leases of closed connections.
func (g *Guard) Tick() {
	g.piece = leavePiece
	g.clearLeft()
	for i := 0; i < len(g.polls); i++ { // g.polls may grow during the loop
		g.polls[i].tick()
	}
	g.tidy()
}

// tidy removes the polls that no get waits for.
func (g *Guard) tidy() {
	kept := g.polls[:0]
	for _, p := range g.polls {
		if len(p.held) > 0 || p.asking {
			kept = append(kept, p)
			g.At(link.GuardTimer, p.next())
			continue
		}
		s := g.rebuilds[p.key]
		s.poll = nil
		g.rebuilds.tidy(p.key, s)
	}
	clear(g.polls[len(kept):])
	g.polls = kept
}

// Drain ends the waits of all gets on this loop.
func (g *Guard) Drain() {
	for _, p := range g.polls {
		p.endAll()
	}
}

// These texts say which missing feature of a server turns the guard off for that server.
const (
	noMeta = "it knows no meta commands"
	noCas  = "it has no cas: start it without -C"
)

// offReason is the reason why the guard is off for a server.
type offReason struct {
	why string
	via upstream.ConnEpoch // connection epoch of the reply that showed the missing feature; zero: the server's version shows it
}

func (g *Guard) turnOff(srv *upstream.Server, is offReason) {
	before := g.off[srv]
	g.off[srv] = is
	if before.why != is.why {
		g.LogLimited(slog.LevelWarn, srv.Label(), "guard disabled for a server", "server", srv.Label(), "address", srv.Target.Address, "why", is.why)
	}
}

// Heard turns the guard off for srv if s, an item in a reply of srv, has the cas 0. A server
// reports this cas if it was started without cas.
func (g *Guard) Heard(srv *upstream.Server, epoch upstream.ConnEpoch, s *Item) {
	if string(s.Cas) == "0" {
		g.turnOff(srv, offReason{noCas, epoch})
	}
}

// Blind reports whether the server process at the other end of c has no cas, so that
// the guard is off. Another process at the same address may have cas.
func (g *Guard) Blind(c *upstream.Conn) bool {
	if len(g.off) == 0 || c == nil {
		return false
	}
	is, known := g.off[c.Server]
	return known && c.IsSameProcess(is.via)
}
