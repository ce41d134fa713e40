package failover

// This file serves commands on unreplicated keys while a server of the pool is out or rejoins. The
// package comment lists the phases, and to which server a command is sent in each phase.

import (
	"cmp"
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/health/resize"
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

// Handle serves the task t, or parks it until a phase changes. It accepts every task that no other
// handler has accepted.
func (SingleCopy) Handle(t *task.Task) {
	l := &single{read: t.Op <= wire.Gats || t.Op == wire.Debug}
	if l.read && t.Route.Serving(t.Key) == resize.Staying {
		t.AnswerKind(task.MissKind(t))
		return
	}
	if trouble, parked := l.Locate(t, l.read); trouble.Why != "" {
		t.Fail(trouble.Why, trouble.Outcome)
		return
	} else if parked {
		return
	}
	t.Rule = l
	t.Run(0, nil)
	if !l.InTransition() { // the request is in flight on the connection that the client's next command uses, so that command can't overtake it
		t.ReleaseLine()
	}
}

// Spot is the result of a lookup: the servers that serve an unreplicated key at the time of the lookup.
type Spot struct {
	health.Route
	Owner int          // index of the key's own server
	View  *health.View // decisions of the pool's keeper; nil: the pool moves no keys
	Gen   uint64       // generation of View at the lookup
	n     uint32       // phase number of the key's own server at the lookup
	known int64        // if the own server is in RETURN: what View.KnownUntil returned at the lookup; 0: the phases were changing then
	Keys  [2][]byte    // names of the key: [0] on its own server, or on the substitute server while that is out; [1] on the substitute server while the own server rejoins
}

// Locate finds the servers that serve t's key now. If no server does, Locate returns the reason
// (trouble), or parks t. A parked task is dispatched again when the phase of a server has changed.
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
	s, by := t.Route.ServingBy(t.Key)
serving:
	switch s {
	case resize.Nothing:
		return unavailable(routing.Outdated)
	case resize.Staying, resize.Paused, resize.Turning:
		switch {
		case s == resize.Paused && task.CommandOf(t).Reads():
			break serving
		case read && s == resize.Staying || e.Now >= t.Deadline:
			return unavailable("the key moves to another server")
		}
		e.Park(t, t.Deadline, w.Gen)
		return upstream.Failure{}, true
	case resize.Moving, resize.Settling, resize.Cooling: // package replication serves the key, unless its stage has just begun
		return unavailable("the key moves to another server")
	}
	if w == nil { // the pool moves no keys
		l.First.Server = owner
	} else {
		l.Gen, l.n = w.Gen(), w.N(owner)
		l.Route = t.Route.Find(part, h, owner)
		if l.Role == health.Returning {
			if l.known = w.KnownUntil(l.First.Server); w.Gen() != l.Gen {
				l.known = 0
			}
		}
	}
	name, policy := t.Route.Servers[owner].Label(), &t.Route.Pool.Failover
	waits := t.Deadline - int64(t.Route.Timeouts.Deadline) + int64(policy.Wait)
	switch first := l.First.Server; {
	case l.Role == health.Leaving && (read || policy.Mode == table.FailFast || e.Now >= waits || w.WritesBy(owner) > waits):
		t.Route.Servers[owner].Count.Refused++
		return unavailable("server " + name + " is not in use: " + w.Phase(owner).String())
	case l.Role == health.Leaving:
		e.Park(t, waits, w.Gen)
		return upstream.Failure{}, true
	case l.Role == health.Warming && w.WritesBy(first) != 0 && !task.CommandOf(t).Reads():
		if e.Now >= t.Deadline || w.WritesBy(first) > t.Deadline {
			return unavailable("server " + t.Route.Server(first).Label() + " is rejoining, and its keys are not changed until all instances know that: try again")
		}
		e.Park(t, t.Deadline, func() uint64 { return w.Gen()<<1 | min(1, uint64(w.WritesBy(first))) })
		return upstream.Failure{}, true
	case s == resize.All && !e.Ablation.Substitute && t.Route.Diverges(by, t.Key, l.Route):
		if read && !by.Superseded() || e.Now >= waits {
			return unavailable("the key moves to another server")
		}
		e.Park(t, waits, w.Gen)
		return upstream.Failure{}, true
	case s == resize.Paused && read && l.First.Diverted && !e.Ablation.Substitute: // values on a substitute server do not move, and an instance in the next stage does not remove them
		return unavailable("the key moves to another server")
	case l.Role == health.In && w != nil && w.Suspected(first):
		srv := t.Route.Server(first)
		srv.Count.Refused++
		if srv.Down { // this loop has seen the failure itself
			return unavailable(srv.Why)
		}
		return unavailable("server " + srv.Label() + " is not in use: " + w.SuspectWhy(first))
	case e.Now >= t.Deadline:
		return upstream.Failure{Why: cmp.Or(t.WaitReason, task.TooLong), Outcome: stats.TimedOut}, false
	}
	l.Keys[0] = divert.AppendKey(nil, l.First.Number, t.Key)
	l.Keys[1] = divert.AppendKey(nil, l.Interim.Number, t.Key)
	return upstream.Failure{}, false
}

// InTransition reports whether the key's own server is rejoining, so that the key may also be on the
// substitute server.
func (l *Spot) InTransition() bool { return l.Role != health.In }

// Place returns one of the two places of the key. Place 0 is on its own server, or on the substitute
// server while the own server is out. Place 1 is on the substitute server while the own server
// rejoins.
func (l *Spot) Place(i int) health.Place {
	if i == 0 {
		return l.First
	}
	return l.Interim
}

// Sure reports whether the client may get the replies that arrive now. With strict consistency, this
// process must have valid leases, and the servers of the key must be those of the lookup. If the
// key's own server serves it, they depend only on the phase number of that server, which only grows.
// Otherwise they may depend on any server of the pool. The leases are read before the phases, because
// health.View.Publish stores a longer lease after the phases.
//
// Without strict consistency, a client gets the replies of other servers, too. There are two exceptions: a change of
// the server list (served), and a command that changes a key of a server in RETURN (stillReturns).
func (l *Spot) Sure(t *task.Task) bool {
	v := l.View
	switch {
	case v == nil:
		return true
	case !t.Route.Pool.Failover.Strict && l.Role == health.Returning && !task.CommandOf(t).Reads() && !l.stillReturns(t):
		return false
	case !t.Route.Pool.Failover.Strict:
		return t.Route.Pool.Resize != table.ResizeWarm || l.served(t)
	}
	switch now := t.Loop.Moment(); {
	case !l.served(t):
		return false
	case now >= v.ValidUntil(l.First.Server) || l.InTransition() && now >= v.ValidUntil(l.Interim.Server):
		return false
	case l.InTransition() || l.First.Diverted:
		return v.Gen() == l.Gen
	}
	return v.N(l.Owner) == l.n
}

// Begins reports whether t may send its first request. If it is not sure which server has the key, Begins fails
// t. Without strict consistency, t waits until this process knows the phases.
func (l *Spot) Begins(t *task.Task) bool {
	switch {
	case l.Sure(t):
		return true
	case l.Role == health.Returning && !t.Route.Pool.Failover.Strict:
		dispatchLater(t)
	default:
		t.Fail("it is not certain which server has the key now", stats.Unavailable)
	}
	return false
}

// stillReturns reports whether no other proxy can serve the key on its own server yet, which was in RETURN at the
// lookup. Otherwise t must not delete the key there. If the phases have changed since the lookup, only what this
// process knew at that time counts.
func (l *Spot) stillReturns(t *task.Task) bool {
	until := l.View.KnownUntil(l.First.Server)
	if l.View.Gen() != l.Gen {
		until = l.known
	}
	return t.Loop.Moment() < until
}

// served reports whether the key's servers are those of the lookup, as far as a change of the server list
// is concerned.
func (l *Spot) served(t *task.Task) bool {
	s := t.Route.Serving(t.Key)
	return s == resize.All || s == resize.Paused
}

// single is the rule of a command on an unreplicated key. It may send several requests (asks). The
// client gets the reply to the client's own request (the main ask). While the value may be on the
// key's own server or on the substitute server, a write at one of these two servers also deletes the
// key at the other. The client gets its reply when both requests are done.
type single struct {
	Spot
	read bool // the command changes nothing

	checked bool             // a backfill has copied the value from the substitute server, if it had one
	removed bool             // for a delete in WARM: the substitute server had the key, so the client's reply is DELETED
	marked  bool             // the read before a delete or an me has found a placeholder at the key's own server
	look    upstream.Result  // reply to the last look of a command that depends on the existing value
	added   byte             // the meta flag that is added to the client's read, so that the reply shows a placeholder; 0: none
	from    int              // where the client's request is sent; 0: to the server that Route.First names; 1: to the substitute server (Route.Interim)
	waiting int              // number of requests in flight that the client's reply depends on
	line    []byte           // the client's request (the main ask), as it is sent to the server
	inTurn  bool             // the first of the two requests of a write is in flight, and the second is sent only after a reply to the first
	second  int              // which of the two requests of a write is sent last: the client's (mainAsk), or the delete at the other server (sideAsk)
	main    upstream.Result  // the server's reply to the client's request
	failed  *upstream.Result // result of the first request that got no reply; nil: all requests have got replies

	building            // state of a command that depends on the existing value, while the key's own server may have a placeholder
	next      step      // what to do when no request is in flight, as building has decided
	sideAsked bool      // the delete of the key was sent to the substitute server
	respelled bool      // the client's request was sent as another command, so the reply must be translated
	told      wire.Kind // kind of the reply to the client; NoReply: the client gets the reply in the field main
}

// The numbers of the requests (asks) that a single sends.
const (
	mainAsk    = iota
	sideAsk    // the delete of a written key at the server that the write is not sent to
	interimAsk // a read at the substitute server, after a miss at the key's own server
	lookAsk    // a read at the key's own server, for a delete, an me, or a command that depends on the existing value
	undoAsk    // a delete of the value that the client's request has stored, because the command fails and no client may see the value
	dropAsk    // the removal of a placeholder that was found
)

// Begin begins the command of t: it sends the client's request, and the other requests that the
// phases require. Before a command that depends on the existing value it may start a backfill.
func (l *single) Begin(t *task.Task) {
	if !l.Begins(t) {
		return
	}
	if l.Role == health.Returning {
		l.from = 1
	}
	if l.Role == health.Warming && task.NeedsValue(t) && !l.checked {
		l.checked = true
		l.CopyBack(t, func(what FillOutcome) {
			makes := t.Op == wire.Add || task.CommandOf(t).Vivify // the command creates a missing key
			switch {
			case what == FillThere && t.Op == wire.Add:
				t.AnswerKind(wire.NotStored)
			case what == FillNowhere && !makes:
				t.AnswerKind(task.MissKind(t))
			default:
				l.Begin(t)
			}
		})
		return
	}
	line, ok := l.request(t, l.from)
	if !ok { // the cas token is of another server, or of an earlier outage
		t.AnswerKind(wire.Exists)
		return
	}
	if l.line = line; l.Role == health.Warming || l.Role == health.Settling {
		if l.class == blind {
			l.building = building{class: classOf(t), warm: l.Role == health.Warming}
		}
		if l.class != blind && !l.read {
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
	at := [2]int{sideAsk, mainAsk} // which request is sent to the substitute server (at[0]), and which to the key's own server (at[1])
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

// sendHalf sends one of the requests of a command: the client's request (mainAsk), or the delete at
// the other of the two servers that may have the key (sideAsk).
//
// If a command removes the key at its own server, its request at the substitute server is sent first,
// and the request at the own server follows after the reply. In the other order, a backfill of
// another instance could store its placeholder after the key was removed at the own server, and read
// the old value before the substitute server has run its request.
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

// request returns t's request in the form for one of the key's two places (see Spot.Place). It
// returns false if the cas token in the request can't be valid on the server of that place.
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

// HandleReply continues the command after its request with the number id has ended with the result r.
func (l *single) HandleReply(t *task.Task, id int, r *upstream.Result) {
	switch {
	case id == undoAsk:
		return
	case id == mainAsk && l.class == blind && l.read && l.mayMeetTombstone():
		if l.checkMiss(t, r) {
			return
		}
	}
	if r.Bytes == nil && l.failed == nil {
		l.failed = new(*r)
	}
	if l.class != blind && id != interimAsk {
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

// mayMeetTombstone reports whether a backfill may have stored a placeholder of the key at the key's
// own server.
func (l *single) mayMeetTombstone() bool {
	return l.Role == health.Warming || l.Role == health.Settling
}

// checkMiss handles the reply to a read from the key's own server in WARM or SETTLE. It changes the
// reply with a placeholder to a miss. checkMiss returns true if the command must wait, because a
// read of the missing key was sent to the substitute server.
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
	if !missed || !ok || marked && task.CommandOf(t).Vivify || !l.MayFill(t) {
		return false
	}
	l.from = 1
	t.Ask(interimAsk, t.Route.Server(l.Interim.Server), line)
	if t.Route.Pool.Failover.OnRejoin == health.Warm {
		l.Spot.backfill(t, nil)
	}
	return true
}

// end ends the command: it sends the client its reply if Spot.Sure returns true. Otherwise a read
// starts again or fails, and a write fails.
func (l *single) end(t *task.Task) {
	number := l.Place(l.from).Number
	switch sure := l.Sure(t); {
	case l.read && !sure && l.InTransition() && t.Open == 0 && t.Loop.Now < t.Deadline:
		t.Loop.Ready(t) // the client's later commands on the key still wait for t
	case l.read && !sure:
		t.Fail("the server may not have the key any more, so its reply does not count", stats.Unavailable)
	case l.failed == nil && sure && l.told != wire.NoReply:
		t.AnswerKind(l.told)
	case l.failed == nil && sure && l.removed && l.main.Reply.Kind == wire.NotFound:
		t.AnswerKind(wire.Deleted)
	case l.failed == nil && sure && l.marked && !l.removed && l.main.Reply.Kind == wire.Deleted:
		t.AnswerKind(wire.NotFound)
	case l.read || l.failed == nil && sure:
		t.Answer(&l.main, func(cas uint64) uint64 { return divert.TagCas(cas, number) })
	default:
		applied := l.main.Bytes != nil && isStored(l.main.Reply.Kind)
		undone := t.Op.Stores() && (applied || l.main.Bytes != nil && l.class == blind && !isRejected(l.main.Reply.Kind))
		if undone { // the value that was stored is deleted; without a reply, the late delete of upstream/latedelete.go does that
			t.AskAs(true, undoAsk, t.Route.Server(l.Place(l.from).Server), t.Meta("md", l.Keys[l.from], "", nil))
		}
		switch {
		case l.failed != nil && applied && !t.Op.Stores():
			t.Fail("the command was carried out, but the key could not be deleted at the other server that may have it: "+l.failed.Why, l.failed.Outcome)
		case l.failed != nil:
			t.Fail(l.failed.Why, l.failed.Outcome)
		case undone:
			t.Fail("other instances may not see the write: the key was deleted", stats.Unavailable)
		default:
			t.Fail("other instances may not see the write", stats.Unavailable)
		}
	}
}
