package failover

// Commands on unreplicated keys while a server of the pool is out or rejoins. The package
// doc lists the phases, and the server of a command in each.

import (
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// SingleCopy is the handler of commands on unreplicated keys.
type SingleCopy struct{}

// Handle serves t, or parks it. It accepts every task that no other handler has accepted.
func (SingleCopy) Handle(t *task.Task) bool {
	l := &single{read: t.Op <= wire.Gats || t.Op == wire.Debug}
	if trouble, parked := l.Locate(t, l.read); trouble.Why != "" {
		t.Fail(trouble.Why, trouble.Outcome)
		return true
	} else if parked {
		return true
	}
	t.Rule = l
	t.Run(0, nil)
	if !l.InTransition() { // all requests of the command are in flight, on the connection that the client's next command uses
		t.ReleaseLine()
	}
	return true
}

// Spot is the result of a lookup: the servers that serve an unreplicated key at that time.
type Spot struct {
	health.Route
	Owner int          // index of the key's own server
	View  *health.View // nil: the pool moves no keys
	Gen   uint64       // generation of View at the lookup
	n     uint32       // the owner's phase number at the lookup
	Keys  [2][]byte    // the key at First and at Interim
}

// Locate finds the server of t's key now. If no server serves the key, Locate returns why, or parks
// t. A parked task is dispatched again when that may have changed.
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
	if w == nil { // the pool moves no keys: t is a task only because it had to wait for an earlier task
		l.First.Server = owner
	} else {
		l.Gen, l.n = w.Gen(), w.N(owner)
		l.Route = t.Route.Find(part, h, owner)
	}
	name, policy := t.Route.Servers[owner].Label(), &t.Route.Pool.Failover
	waits := t.Deadline - int64(t.Route.Timeouts.Deadline) + int64(policy.Wait)
	switch first := l.First.Server; {
	case l.Role == health.Leaving && (read || policy.Mode == table.FailFast || e.Now >= waits || w.OutBy(owner) > waits):
		t.Route.Servers[owner].Count.Refused++
		return unavailable("server " + name + " is not in use: " + w.Phase(owner).String())
	case l.Role == health.Leaving:
		e.Park(t, waits, w.Gen)
		return upstream.Failure{}, true
	case l.Role == health.In && w != nil && w.Suspected(first):
		srv := t.Route.Server(first)
		srv.Count.Refused++
		if srv.Down { // this loop has seen the failure itself
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

// InTransition reports whether the key is between two servers.
func (l *Spot) InTransition() bool { return l.Role != health.In }

// Place returns the server and the name of the key at First (i is 0) or Interim (i is 1).
func (l *Spot) Place(i int) health.Place {
	if i == 0 {
		return l.First
	}
	return l.Interim
}

// Sure reports whether the client may get the replies that arrive now. In strict mode, no instance
// may have learned since the lookup that another server serves the key. If the key's own server
// serves it, that depends only on the server's number, which only grows. Otherwise the result may
// depend on any server of the pool. The leases are checked first, against the current time: see
// package replication.
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

// single is the rule of a command on an unreplicated key. It sends several requests (asks); the
// client gets the reply to the main ask. While the value may be on the key's own server or on its
// substitute server, a write at one of them also deletes the key at the other. The client gets its
// reply when both are done.
type single struct {
	Spot
	read bool // the command changes nothing

	checked bool             // the value at the substitute server was copied back
	removed bool             // for a delete in WARM: the substitute server had the key, which reads still found there
	marked  bool             // the read before a delete or an me found a placeholder at the key's own server
	look    upstream.Result  // reply to the last look of a command that depends on the existing value
	added   byte             // the meta flag that the main ask of a read adds to the client's; 0: none
	from    int              // where the main ask is sent: 0 First, 1 Interim
	waiting int              // asks in flight that the reply depends on
	line    []byte           // request line of the main ask
	inTurn  bool             // the ask named in second is sent only after the other one has succeeded
	second  int              // which ask is sent last: mainAsk or sideAsk
	main    upstream.Result  // the reply for the client
	failed  *upstream.Result // the first ask without a reply; nil: all got one

	building            // of a command that depends on the existing value, while First may have placeholders
	next      step      // what to do when no ask is in flight, as the embedded building has decided
	sideAsked bool      // the delete of the key was sent to the substitute server
	respelled bool      // the main ask differs from the client's request, so its reply is translated
	told      wire.Kind // kind of the reply to the client; NoReply: the client gets the reply in main
}

// The numbers of the requests (asks) that a single sends.
const (
	mainAsk    = iota
	sideAsk    // delete at the other server
	interimAsk // read at the substitute server, after a miss at the key's own
	lookAsk    // read at the key's own server: before a delete or an me, or before a command that depends on the existing value
	undoAsk    // deletes the value that the main ask has stored, because the command fails and no client may see the value
	dropAsk    // removes a placeholder that was found
)

// Begin sends the main ask, after the asks that it depends on.
func (l *single) Begin(t *task.Task) {
	if !l.Sure(t) {
		t.Fail("not sure who serves the key now", stats.Unavailable)
		return
	}
	if l.Role == health.Returning {
		l.from = 1
	}
	if l.Role == health.Warming && task.NeedsValue(t) && !l.checked {
		if !l.mayFill(t) {
			l.dispatchLater(t)
			return
		}
		l.checked = true
		t.Open++ // the backfill counts as an open ask, so the task does not end before it
		l.backfill(t, func(what fillOutcome) {
			t.Open--
			makes := t.Op == wire.Add || task.CommandOf(t).Vivify // creates a missing key
			switch {
			case what == fillThere && t.Op == wire.Add:
				t.AnswerKind(wire.NotStored)
			case what == fillThere, what == fillForeign, what == fillNowhere && makes && l.Sure(t):
				l.Begin(t)
			case what == fillLate:
				l.dispatchLater(t)
			case what == fillUnsure || !l.Sure(t):
				t.Fail("what server "+t.Route.Server(l.Interim.Server).Label()+" keeps for it could not be brought back", stats.Unavailable)
			default:
				t.AnswerKind(task.MissKind(t))
			}
			t.CatchUp()
		})
		return
	}
	line, ok := l.request(t, l.from)
	if !ok { // the cas token is of another server, or of an earlier outage
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
	at := [2]int{sideAsk, mainAsk} // number of the ask that is sent to Interim, and of the ask that is sent to First
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

// dispatchLater dispatches t again after a moment, because this instance must first learn
// the current phases. No part of the command has been executed yet. At its deadline it
// fails.
func (l *single) dispatchLater(t *task.Task) {
	t.Open++ // the wait counts as an open ask, so the task does not end before it
	t.Loop.After(t.Loop.Now+task.ParkedLook, func() {
		t.Open--
		t.Loop.DispatchAgain(t)
	})
}

// sendHalf sends one of the two requests of a write to a key between two servers.
//
// A write that removes the key at First is sent to Interim first, and to First when Interim has
// replied. In the other order, a backfill of another instance could store its placeholder at First
// after the delete there, and read the old value from Interim before the write.
func (l *single) sendHalf(t *task.Task, id int) {
	if id == mainAsk {
		srv := t.Route.Server(l.Place(l.from).Server)
		if (t.Op == wire.Delete || t.Op == wire.Debug) && l.mayMeetTombstone() {
			l.waiting++
			t.Ask(lookAsk, srv, task.StepRequest(t, replicate.Look, l.Keys[0], "", 0))
		}
		t.Ask(mainAsk, srv, l.line)
		return
	}
	other := 1 - l.from
	t.Ask(sideAsk, t.Route.Server(l.Place(other).Server), t.Meta("md", l.Keys[other], "", nil))
}

// request returns t's request for First (at is 0) or Interim (1). It returns false if the cas token
// in the request can't be valid on that server.
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
		edits = append(edits, t.ShortLived(t.Route.Pool.Failover.SubstituteTTL)...)
	}
	if at == 0 && l.mayMeetTombstone() && t.Op <= wire.Gats && t.Req.Dialect == wire.Meta {
		var edit task.Edit
		edit, l.added = task.Show(t, 'f', "")
		edits = append(edits, edit)
	}
	return t.WithKey(l.Keys[at], edits...), true
}

// HandleReply continues after the request with the number id has ended.
func (l *single) HandleReply(t *task.Task, id int, r *upstream.Result) {
	switch {
	case id == undoAsk:
		return
	case l.building.class == peeks && id != interimAsk:
		if !l.peeked(t, id, r) {
			return
		}
		id, r = mainAsk, &l.main
		fallthrough
	case id == mainAsk && l.read && l.mayMeetTombstone():
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
		l.marked = task.HasTombstone(r)
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

// mayMeetTombstone reports whether the key may have a placeholder at its own server.
func (l *single) mayMeetTombstone() bool {
	return l.Role == health.Warming || l.Role == health.Settling
}

// checkMiss handles a reply to a read from a server in WARM or SETTLE. A placeholder is a
// miss, and does not grant the right to fill. checkMiss returns true if it has sent a read
// of the missing key to the substitute server.
func (l *single) checkMiss(t *task.Task, r *upstream.Result) bool {
	marked := task.HasTombstone(r) || l.marked
	missed := marked || task.Missed(r)
	task.Hide(r, t.Op, t.Req.Dialect, l.added)
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
	if !missed || !ok || marked && task.CommandOf(t).Vivify || !l.mayFill(t) {
		return false
	}
	l.from = 1
	t.Ask(interimAsk, t.Route.Server(l.Interim.Server), line)
	if t.Route.Pool.Failover.OnRejoin == health.Warm {
		l.backfill(t, nil)
	}
	return true
}

// end sends the client its reply if Sure returns true. Otherwise the command starts again or fails.
func (l *single) end(t *task.Task) {
	number := l.Place(l.from).Number
	switch sure := l.Sure(t); {
	case l.read && !sure && l.InTransition() && t.Open == 0 && t.Loop.Now < t.Deadline:
		t.Loop.DispatchAgain(t) // the client's later commands on the key still wait for t
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
		if l.main.Bytes != nil && t.Op.Stores() && (l.building.class == blind || isStored(l.main.Reply.Kind)) { // if there was no reply, the late delete removes the value: see upstream/latedelete.go
			t.AskAs(true, undoAsk, t.Route.Server(l.Place(l.from).Server), t.Meta("md", l.Keys[l.from], "", nil))
		}
		if l.failed != nil {
			t.Fail(l.failed.Why, l.failed.Outcome)
		} else {
			t.Fail("not sure that everybody sees the write: it was undone", stats.Unavailable)
		}
	}
}
