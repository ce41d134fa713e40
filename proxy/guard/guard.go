package guard

// What one loop knows of guarded keys, and who leads their commands.

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"ringside/proxy/client"
	"ringside/proxy/failover"
	"ringside/proxy/guard/copied"
	"ringside/proxy/guard/item"
	"ringside/proxy/guard/misses"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Guard is what one loop does for guarded keys: it leads the commands on those
// that are its own.
type Guard struct {
	*task.Tasks
	EachLoop func(f func(*Guard))              // runs f on all loops of the process; on this one before it returns
	OnLoop   func(hash uint64, f func(*Guard)) // runs f on the loop that leads the keys with that hash; on this one before it returns
	Ablation Ablation                          // what tests leave out

	misses *misses.Table

	polls    []*poll                    // one for each key that somebody waits for
	polling  map[string]*poll           // the same, by pool and name
	waiting  int                        // gets held
	nextPoll map[*upstream.Server]int64 // when each may be polled again, on the loop's clock

	neverFilled misses.NeverFilled             // by hash
	winners     misses.Winners                 // that have not come back yet, by hash
	off         map[*upstream.Server]offReason // for whom the guard is off

	chance *rand.Rand
}

// New is the guard of the loop number n.
func New(tasks *task.Tasks, n uint64) *Guard {
	return &Guard{
		Tasks: tasks, misses: misses.NewTable(), polling: map[string]*poll{}, nextPoll: map[*upstream.Server]int64{},
		neverFilled: misses.NeverFilled{}, winners: misses.Winners{}, off: map[*upstream.Server]offReason{}, chance: rand.New(rand.NewPCG(n, 13)),
	}
}

// nameOf tells keys apart: the same name in another pool is another key. Listeners
// and prefixes that are stripped may lead to the same one.
func nameOf(t *task.Task) string { return t.Route.Pool.Name + "\x00" + string(t.Key) }

// party is a client of guarded routes, as all loops see it.
type party struct {
	misses.Client
	g         *Guard        // of the client's loop
	followers atomic.Uint64 // requests that came before all others were answered
	held      atomic.Int64  // gets of it that wait
	gone      atomic.Bool
	sets      []uint64 // keys, by hash, that it stores while it may have a miss of them; used by its loop
}

// Enroll tells t who its client is. It must be called where the client is, before t
// is admitted.
func (g *Guard) Enroll(s *client.Session, x *client.Exchange, t *task.Task) {
	p, _ := s.Companion.(*party)
	if p == nil {
		p = &party{g: g, Client: misses.Client{ID: s.ID}}
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
	if t.Op.Stores() && p.Expects(t.Hash) {
		p.addSet(t.Hash)
	}
	if x.Next != nil {
		l.followers-- // somebody waits for it already
	}
}

// overlaps notes that the connection is shared if its client waits for x and another answer
// at once.
func (p *party) overlaps(s *client.Session, x *client.Exchange) {
	if p.Shared.Load() || x.Quiet() {
		return
	}
	for o := s.Head; o != nil; o = o.Next {
		if o != x && !o.Quiet() {
			p.Shared.Store(true)
			return
		}
	}
}

// Followed notes that x has come before the requests before it were answered. It ends the
// waiting of these.
func (p *party) Followed(s *client.Session, x *client.Exchange) {
	p.overlaps(s, x)
	p.followers.Add(1)
	if p.held.Load() > 0 {
		p.g.EachLoop(func(g *Guard) { g.endWaits(p) })
	}
}

// addSet notes that a set of a key has come that may answer a miss.
func (p *party) addSet(hash uint64) {
	if len(p.sets) == cap(p.sets) {
		p.dropSets()
	}
	p.sets = append(p.sets, hash)
}

// dropSets forgets the keys whose sets are over.
func (p *party) dropSets() {
	p.sets = slices.DeleteFunc(p.sets, func(hash uint64) bool { return !p.g.Works(p.ID, hash) })
}

// Gone gives back what the client was to rebuild. What it has sent before is carried out still:
// a set that waits answers its miss as if the client were there.
func (p *party) Gone() {
	p.gone.Store(true)
	p.dropSets()
	sets := p.sets
	p.g.EachLoop(func(g *Guard) { g.leave(p, sets) })
}

// Lead serves t, or parks it.
func (g *Guard) Lead(t *task.Task) bool {
	if t.Route.Guard == nil {
		return false
	}
	if t.IsStep() { // of the guard's own
		return t.Route.Copies.Copies == 0 && failover.SingleCopy{}.Lead(t)
	}
	l, _ := t.Rule.(*rule)
	if l == nil { // the key was not guarded yet when it was sent
		l = &rule{party: &party{g: g, Client: misses.Client{ID: t.Asker}}}
	}
	l.g, l.Guard = g, t.Route.Guard
	if t.Route.Copies.Copies != 0 {
		return l.leadCopied(t)
	}
	trouble, parked := l.locate(t, t.Op <= wire.Gats)
	switch {
	case parked:
		return true
	case trouble.Why != "":
		l.giveFastBack()
		l.unanswered(t, &upstream.Result{Failure: trouble})
		return true
	}
	l.tag(t)
	srv := l.server(t)
	speech := srv.Speech(t.Asker)
	old := speech != 0 && speech&wire.Metas == 0
	if old {
		l.Learned.Count(stats.GuardOff)
		g.turnOff(srv, offReason{why: noMeta})
	} else if c, _, _ := srv.Pick(t.Asker, t.ClientDone); g.Blind(c) {
		l.Learned.Count(stats.GuardOff)
		l.Guard = item.Hiding(l.Guard)
	}
	return l.lead(t, old) || failover.SingleCopy{}.Lead(t)
}

// locate finds where t's key is served now, and by what name: see Spot.Locate.
func (l *rule) locate(t *task.Task, read bool) (trouble upstream.Failure, parked bool) {
	trouble, parked = l.Locate(t, read)
	if l.at = 0; l.Role == health.Returning {
		l.at = 1
	}
	l.name = l.Keys[l.at]
	return trouble, parked
}

// leadCopied is Lead for a key of several copies.
func (l *rule) leadCopied(t *task.Task) bool {
	l.name, l.copies = t.Key, copied.Of(t.Route, t.Key)
	return l.copies != nil && l.lead(t, false)
}

// lead serves t, whose key is found. It reports false if t is as on a route without a guard,
// which it is where the server is an old one, that can't have any.
func (l *rule) lead(t *task.Task, old bool) bool {
	switch why := unfit(t); {
	case !old && l.copies == nil && passes(t) && l.takesOwn(t): // what is there stays, for it is all that it may change
		t.Reject(wire.AppendClientError(nil, ownFlags))
	case !old && passes(t) && compares(t):
		l.rewrite(t)
		l.byToken(t)
	case old || passes(t):
		l.rewrite(t)
		t.Rule = nil
		return false
	case why != "":
		t.Reject(wire.AppendClientError(nil, why))
	default:
		l.rewrite(t)
		t.Rule = l
		t.Run(0, nil)
	}
	return true
}

// passes says that a command runs the scheme itself, or shows what is there.
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
		return false // what is stored has a head
	case t.Op == wire.Get:
		return has('N') || has('R')
	case t.Op == wire.Incr || t.Op == wire.Decr:
		return has('C')
	}
	return has('C') || has('I')
}

// compares says that t is to change only the version that its client has seen.
func compares(t *task.Task) bool {
	return t.Op == wire.Cas || t.Req.Flags&wire.Binary != 0 && t.Req.Letters.Has('C')
}

// unfit says why a meta command can't be done on t's route; "" if it can.
func unfit(t *task.Task) string {
	switch has := t.Req.Letters.Has; {
	case t.Req.Dialect == wire.Text:
	case has('E'):
		return "flag E chooses the cas, on which the guard of this route rests: leave it out"
	case t.Route.Tags != nil && (t.Op <= wire.Gats && (has('N') || has('R')) || t.Op.Stores() && has('I')):
		return "flags N, R and I run the guard by hand, which can't be on a route with tags: leave them out"
	}
	return ""
}

// AppendFlags appends the flags of a guarded read; fresh: of one that may not meet an old
// value.
func (g *Guard) AppendFlags(dst []byte, rt *routing.Guard, fresh, hide bool) []byte {
	return item.AppendFlags(dst, rt, fresh, hide, g.chance)
}

// Tick does what time demands.
func (g *Guard) Tick() {
	for i := 0; i < len(g.polls); i++ { // may grow
		g.polls[i].tick()
	}
	g.tidy()
}

// tidy forgets the polls that nobody waits for.
func (g *Guard) tidy() {
	kept := g.polls[:0]
	for _, p := range g.polls {
		if len(p.held) > 0 || p.asking {
			kept = append(kept, p)
			g.At(link.GuardTimer, p.next())
			continue
		}
		delete(g.polling, p.key)
	}
	clear(g.polls[len(kept):])
	g.polls = kept
}

// Drain ends all waiting.
func (g *Guard) Drain() {
	for _, p := range g.polls {
		for len(p.held) > 0 {
			p.end(p.held[0], false)
		}
	}
}

// What a server lacks for which the guard is off.
const (
	noMeta = "it knows no meta commands"
	noCas  = "it has no cas: start it without -C"
)

// offReason says why the guard is off for a server.
type offReason struct {
	why string
	via upstream.Via // of the answer that has shown it; none: a connection says so itself
}

func (g *Guard) turnOff(srv *upstream.Server, is offReason) {
	before := g.off[srv]
	g.off[srv] = is
	if before.why != is.why {
		g.LogLimited(slog.LevelWarn, srv.Label(), "the guard is off for a server", "server", srv.Label(), "address", srv.Target.Address, "why", is.why)
	}
}

// Heard learns whether the server that said s has cas.
func (g *Guard) Heard(srv *upstream.Server, via upstream.Via, s *item.Seen) {
	if string(s.Cas) == "0" {
		g.turnOff(srv, offReason{noCas, via})
	}
}

// Blind says that the server at the other end of c has shown that it has no cas.
// Another process at its address may have.
func (g *Guard) Blind(c *upstream.Conn) bool {
	if len(g.off) == 0 || c == nil {
		return false
	}
	is, known := g.off[c.Server]
	return known && c.Reaches(is.via)
}

// Ablation leaves rules of the guard out, for tests that show what each is for. The
// zero Ablation leaves out nothing.
type Ablation struct {
	Late     bool // a miss because a wait is over is not recorded
	Failed   bool // nor is one because no server has answered
	Life     bool // a miss binds sets to its cas whatever process is at the server's address
	Phase    bool // and wherever the key is by now
	Touch    bool // touch does not look whether there is a stub
	Watch    bool // nobody sees that a winner does not come back
	GiveBack bool // every client that leaves gives back the items of its misses
	Rest     bool // of several copies, the others get a set at once when the authority has it
	Former   bool // of several copies, nobody asks who has kept the key before a reload
	Pause    bool // and nobody pauses before keys leave those who have kept them
	Sight    bool // of several copies, sets and deletes replace what they have not seen, in strict mode too
	Stamp    bool // a set has the versions that tags have then, not at its miss
	Order    bool // nobody looks whether a tag that a set names first is older than its miss
}
