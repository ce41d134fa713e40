package failover

// Commands on keys of one copy while a server of the pool is out or comes back.
// The phases, and where a command goes in each, are in the doc of this package.

import (
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/task/deed"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// SingleCopy leads the commands on keys of one copy.
type SingleCopy struct{}

// Lead serves t, or parks it. Every task that no other leader has taken is its kind.
func (SingleCopy) Lead(t *task.Task) bool {
	l := &single{read: t.Op <= wire.Gats || t.Op == wire.Debug}
	if trouble, parked := l.Locate(t, l.read); trouble.Why != "" {
		t.Fail(trouble.Why, trouble.Outcome)
		return true
	} else if parked {
		return true
	}
	t.Rule = l
	t.Run(0, nil)
	if !l.InTransition() { // all it asks is on its way, on the connection where the next goes
		t.ReleaseLine()
	}
	return true
}

// Spot is where a key of one copy is served, as it was when that was looked up.
type Spot struct {
	health.Route
	Owner int          // the key's own server
	View  *health.View // nil: nothing moves
	Gen   uint64       // of View
	n     uint32       // the owner's number
	Keys  [2][]byte    // at First, at Interim
}

// Locate finds where t's key is served now. If nobody serves it, it says why, or
// parks t, to be led again when that may have changed.
func (l *Spot) Locate(t *task.Task, read bool) (trouble upstream.Failure, parked bool) {
	e := t.Loop
	unavailable := func(why string) (upstream.Failure, bool) {
		return upstream.Failure{Why: why, Outcome: stats.Unavailable}, false
	}
	part, h, owner := t.Route.Pool.Place.Locate(t.Key)
	if owner < 0 {
		return unavailable(routing.NoServer)
	}
	if why := t.Route.Refusal(owner); why != "" {
		t.Route.Servers[owner].Count.Overridden++
		return unavailable(why)
	}
	w := t.Route.View
	*l = Spot{Owner: owner, View: w}
	if w == nil { // nothing moves: t is a task only because it follows another one
		l.First.Server = owner
	} else {
		l.Gen, l.n = w.Gen(), w.N(owner)
		l.Route = t.Route.Find(part, h, owner)
	}
	name, policy := t.Route.Servers[owner].Label(), &t.Route.Pool.Failover
	waits := t.Deadline - int64(t.Route.Timeouts.Deadline) + int64(policy.Wait)
	switch first := l.First.Server; {
	case l.Role == health.Leaving && (read || policy.Mode == table.FailFast || e.Now >= waits || w.OutBy(owner) > waits):
		return unavailable("server " + name + " is not in use: " + w.Phase(owner).String())
	case l.Role == health.Leaving:
		e.Park(t, waits, w.Gen)
		return upstream.Failure{}, true
	case l.Role == health.In && w != nil && w.Suspected(first):
		srv := t.Route.Member(first)
		if srv.Down { // this loop has seen why itself
			return unavailable(srv.Why)
		}
		return unavailable("server " + srv.Label() + " is not in use: it does not answer")
	case e.Now >= t.Deadline:
		return upstream.Failure{Why: task.TooLong, Outcome: stats.TimedOut}, false
	}
	l.Keys[0] = divert.AppendKey(nil, l.First.Number, t.Key)
	l.Keys[1] = divert.AppendKey(nil, l.Interim.Number, t.Key)
	return upstream.Failure{}, false
}

// InTransition says that the key is between two servers.
func (l *Spot) InTransition() bool { return l.Role != health.In }

// Place is where the key is at First (0) or at Interim (1).
func (l *Spot) Place(i int) health.Place {
	if i == 0 {
		return l.First
	}
	return l.Interim
}

// Sure says whether what the servers answer now may be told: in strict mode
// nobody may have learnt since that others are to be asked. Where the key's own server
// serves it, that is a matter of that server's number, which only grows; elsewhere
// it may depend on any server of the pool. The leases are looked at first, and by the time
// now: see package copies.
func (l *Spot) Sure(t *task.Task) bool {
	v := l.View
	if v == nil || !t.Route.Pool.Failover.Strict {
		return true
	}
	switch now := t.Loop.Moment(); {
	case now >= v.ValidUntil(l.First.Server) || l.InTransition() && now >= v.ValidUntil(l.Interim.Server):
		return false
	case l.InTransition() || l.First.Diverted:
		return v.Gen() == l.Gen
	}
	return v.N(l.Owner) == l.n
}

// single is the rule of a command on a key of one copy. The client's answer comes
// from the main ask. A write of a key that is between two servers also deletes what
// the other one has, and the client is answered when both are done.
type single struct {
	Spot
	read bool // it changes nothing

	checked bool             // what the interim server has was brought
	removed bool             // of a delete: the interim server had the key, and reads still find it there
	marked  bool             // what a delete or an me took or shows at the key's own server was a mark; or there is one behind another command
	look    upstream.Result  // of a command that builds on a value: the last look
	added   byte             // the meta flag that the main ask of a read has besides the client's; 0: none
	from    int              // where the main ask goes: 0 First, 1 Interim
	waiting int              // asks that have not ended, of those that the answer needs
	line    []byte           // of the main ask
	inTurn  bool             // second is asked when the first ask has succeeded
	second  int              // mainAsk or sideAsk
	main    upstream.Result  // the answer that the client gets
	failed  *upstream.Result // of the asks, the first that got no answer; nil: all got one

	building            // of a command that builds on a value, while placeholders may be at First
	next      step      // of building, when no ask is outstanding
	sideAsked bool      // the interim server was told to delete the key
	respelled bool      // the main ask is not in the client's words
	told      wire.Kind // what the client is told; NoReply: what main is
}

// The asks of a single.
const (
	mainAsk    = iota
	sideAsk    // the delete at the other server
	interimAsk // a read of the interim server, behind a miss at the key's own
	lookAsk    // in front of a delete or an me at the key's own server, behind what may build on a mark
	undoAsk    // a delete of what the main ask has stored and nobody may see
	dropAsk    // removes a mark that the main ask has met
)

// Begin sends the main ask, after what has to be known before it.
func (l *single) Begin(t *task.Task) {
	if !l.Sure(t) {
		t.Fail("not sure who serves the key now", stats.Unavailable)
		return
	}
	if l.Role == health.Returning {
		l.from = 1
	}
	if l.Role == health.Warming && task.NeedsValue(t) && !l.checked {
		l.checked = true
		t.Open++ // the backfill counts as an ask: the task goes on meanwhile
		l.backfill(t, func(what fillOutcome) {
			t.Open--
			makes := t.Op == wire.Add || task.CommandOf(t).Vivify // what nobody has
			switch {
			case what == fillThere && t.Op == wire.Add:
				t.AnswerKind(wire.NotStored)
			case what == fillThere, what == fillForeign, what == fillNowhere && makes && l.Sure(t):
				l.Begin(t)
			case what == fillUnsure || !l.Sure(t):
				t.Fail("what server "+t.Route.Member(l.Interim.Server).Label()+" keeps for it could not be brought back", stats.Unavailable)
			default:
				t.AnswerKind(task.Absence(t))
			}
			t.CatchUp()
		})
		return
	}
	line, ok := l.request(t, l.from)
	if !ok { // the cas token is of another server, or of an outage that is over
		t.AnswerKind(wire.Exists)
		return
	}
	if l.line = line; l.Role == health.Warming || l.Role == health.Settling {
		if l.building.class == blind {
			l.building = building{class: classOf(t), warm: l.Role == health.Warming}
		}
		if l.building.class != blind && !l.read {
			l.round(t)
			return
		}
	}
	l.waiting = 2
	if l.read || !l.InTransition() {
		l.waiting = 1
		l.sendHalf(t, mainAsk)
		return
	}
	at := [2]int{sideAsk, mainAsk} // at Interim, at First
	if l.from == 1 {
		at = [2]int{mainAsk, sideAsk}
	}
	l.sendHalf(t, at[0])
	if l.inTurn = l.Role == health.Returning || t.Op == wire.Delete; l.inTurn {
		l.second = at[1]
		return
	}
	l.sendHalf(t, at[1])
}

// sendHalf sends one of the two requests of a write of a key between two servers.
//
// A write that leaves First without the key goes to Interim first, and to First when
// that is done. In the other order a backfill of another Ringside could make its
// mark at First behind the delete there, and fetch from Interim before the write.
func (l *single) sendHalf(t *task.Task, id int) {
	if id == mainAsk {
		srv := t.Route.Member(l.Place(l.from).Server)
		if (t.Op == wire.Delete || t.Op == wire.Debug) && l.mayMeetMark() {
			l.waiting++
			t.Ask(lookAsk, srv, deed.Spell(t, replicate.Look, l.Keys[0], "", 0))
		}
		t.Ask(mainAsk, srv, l.line)
		return
	}
	other := 1 - l.from
	t.Ask(sideAsk, t.Route.Member(l.Place(other).Server), t.Meta("md", l.Keys[other], "", nil))
}

// request is t's request as it goes to one of the two places. It reports false if the
// cas token in it can't fit there.
func (l *single) request(t *task.Task, at int) (line []byte, ok bool) {
	place := l.Place(at)
	var edits []task.Edit
	if token, has := t.Token(); has {
		cas, ok := divert.UntagCas(token, place.Number)
		if l.View != nil && (!ok || token>>52 != 0 && place.Number == 0) {
			return nil, false
		}
		edits = append(edits, task.Edit{At: t.TokenSpan(), With: strconv.AppendUint(nil, cas, 10)})
	}
	if place.Diverted {
		edits = append(edits, t.ShortLived(t.Route.Pool.Failover.InterimTTL)...)
	}
	if at == 0 && l.mayMeetMark() && t.Op <= wire.Gats && t.Req.Dialect == wire.Meta {
		var edit task.Edit
		edit, l.added = deed.Show(t, 'f', "")
		edits = append(edits, edit)
	}
	return t.WithKey(l.Keys[at], edits...), true
}

// Told goes on when an ask has ended.
func (l *single) Told(t *task.Task, id int, r *upstream.Result) {
	switch {
	case id == undoAsk:
		return
	case l.building.class == peeks && id != interimAsk:
		if !l.peeked(t, id, r) {
			return
		}
		id, r = mainAsk, &l.main
		fallthrough
	case id == mainAsk && l.read && l.mayMeetMark():
		if l.checkMiss(t, r) {
			return
		}
	}
	if r.Bytes == nil && l.failed == nil {
		kept := *r
		l.failed = &kept
	}
	if l.building.class != blind && l.building.class != peeks {
		l.built(t, id, r)
		return
	}
	if id == lookAsk {
		l.marked = deed.Marked(r)
	} else if id != sideAsk {
		l.main = t.Keep(r)
	} else if _, bound := t.Token(); t.Op == wire.Delete && l.Role == health.Warming && !bound {
		l.removed = r.Reply.Kind == wire.Deleted
	}
	l.waiting--
	if l.inTurn {
		l.inTurn = false
		if l.failed == nil && l.Sure(t) {
			l.sendHalf(t, l.second)
			return
		}
		l.waiting = 0
	}
	if l.waiting == 0 {
		l.end(t)
	}
}

// mayMeetMark says whether the key may have the mark of a backfill at its own server.
func (l *single) mayMeetMark() bool { return l.Role == health.Warming || l.Role == health.Settling }

// checkMiss handles the answer of a server that is WARM or in SETTLE to a read: a mark is
// nothing, and has no right to fill to give. It returns true if it has sent a follow-up,
// to the interim server for what is missing.
func (l *single) checkMiss(t *task.Task, r *upstream.Result) bool {
	marked := deed.Marked(r) || l.marked
	missed := marked || task.Missed(r)
	deed.Hide(r, t.Op, t.Req.Dialect, l.added)
	if missed {
		line := []byte(wire.AnswerEnd)
		if t.Req.Dialect == wire.Meta {
			line = wire.AppendAnswer(nil, t.Raw, &t.Req, wire.Miss)
		}
		*r = *t.Result(r.Server, line)
	}
	if l.Role == health.Settling {
		return false
	}
	if r.Bytes != nil {
		l.View.CountWarmRead(l.First.Server, !missed)
	}
	line, ok := l.request(t, 1)
	if !missed || !ok || marked && task.CommandOf(t).Vivify {
		return false
	}
	l.from = 1
	t.Ask(interimAsk, t.Route.Member(l.Interim.Server), line)
	if t.Route.Pool.Failover.OnRejoin == health.Warm {
		l.backfill(t, nil)
	}
	return true
}

// end answers the client, if the answer is sure.
func (l *single) end(t *task.Task) {
	number := l.Place(l.from).Number
	switch sure := l.Sure(t); {
	case l.read && !sure && l.InTransition() && t.Open == 0 && t.Loop.Now < t.Deadline:
		t.Loop.LeadAgain(t) // what its client has sent behind it still waits for it
	case l.read && !sure:
		t.Fail("what the server said is not sure any more", stats.Unavailable)
	case l.failed == nil && sure && l.told != wire.NoReply:
		t.AnswerKind(l.told)
	case l.failed == nil && sure && l.removed && l.main.Reply.Kind == wire.NotFound:
		t.AnswerKind(wire.Deleted)
	case l.failed == nil && sure && l.marked && !l.removed && l.main.Reply.Kind == wire.Deleted:
		t.AnswerKind(wire.NotFound)
	case l.read || l.failed == nil && sure:
		t.Answer(&l.main, func(cas uint64) uint64 { return divert.TagCas(cas, number) })
	default:
		if l.main.Bytes != nil && t.Op.Stores() && (l.building.class == blind || took(l.main.Reply.Kind)) { // without an answer the late delete does it: see upstream/latedelete.go
			t.AskAs(true, undoAsk, t.Route.Member(l.Place(l.from).Server), t.Meta("md", l.Keys[l.from], "", nil))
		}
		if l.failed != nil {
			t.Fail(l.failed.Why, l.failed.Outcome)
		} else {
			t.Fail("not sure that everybody sees the write: it was undone", stats.Unavailable)
		}
	}
}
