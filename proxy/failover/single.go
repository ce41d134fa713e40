package failover

// Where a key goes while a server of its pool is out or on its way back, and
// the rules that lead its commands then. The phases are those of package
// health.

import (
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// SingleCopy leads the commands on keys of one copy.
type SingleCopy struct{}

// Lead serves the request of t, or parks it.
func (SingleCopy) Lead(t *task.Task) bool {
	leadSingle(t)
	return true
}

func leadSingle(t *task.Task) {
	e := t.Loop
	part, h, owner := t.Route.Pool.Place.Locate(t.Key)
	if owner < 0 {
		t.Fail(routing.NoServer, stats.Unavailable)
		return
	}
	if why := t.Route.Refusal(owner); why != "" {
		t.Route.Servers[owner].Count.Overridden++
		t.Fail(why, stats.Unavailable)
		return
	}
	w := t.Route.View
	l := &single{view: w, read: t.Op <= wire.Gats || t.Op == wire.Debug}
	if w == nil { // nothing moves: it is only behind another
		l.First.Server = owner
	} else {
		l.gen = w.Gen()
		l.Route = t.Route.Find(part, h, owner)
	}
	name := t.Route.Servers[owner].Label()
	switch first := l.First.Server; {
	case l.Role == health.Leaving && (l.read || t.Route.Pool.Failover.Mode == table.FailFast || e.Now >= t.Deadline):
		t.Fail("server "+name+" is not in use: "+w.Phase(owner).String(), stats.Unavailable)
		return
	case l.Role == health.Leaving:
		e.Park(t, w.Gen)
		return
	case l.Role == health.In && w != nil && w.Suspected(first):
		t.Fail("server "+t.Route.Member(first).Label()+" is not in use: it does not answer", stats.Unavailable)
		return
	case e.Now >= t.Deadline:
		t.Fail(task.TooLong, stats.TimedOut)
		return
	}
	l.keys[0] = health.AppendKey(nil, l.First.Number, t.Key)
	l.keys[1] = health.AppendKey(nil, l.Interim.Number, t.Key)
	if len(l.keys[0]) > upstream.MaxKey || l.inTransition() && len(l.keys[1]) > upstream.MaxKey {
		t.Fail("server "+name+" is not in use, and the key is too long to be kept elsewhere", stats.Unavailable)
		return
	}
	t.Rule = l
	t.Run(0, nil)
	if !l.inTransition() { // all it asks is on its way, on the connection where the next goes
		e.ReleaseLine(t)
	}
}

// single is the rule of a command on a key of one copy. There is a main ask,
// which the client's answer comes from, and for writes between two servers a
// delete of what the other has; the client hears when both are done.
type single struct {
	health.Route
	view *health.View
	gen  uint64
	read bool
	keys [2][]byte // at First, at Interim

	checked bool // add: the interim has nothing; others: what it has was brought
	again   bool // a number was none: it is tried once more
	stub    bool // a read has found an empty value: it is being asked whether that is a stub
	from    int  // where the main ask went: 0 First, 1 Interim
	waiting int
	line    []byte // of the main ask of a write
	inTurn  bool   // second is asked when the first has done it
	second  int
	main    upstream.Result // the client's
	failed  *upstream.Result
}

const (
	mainAsk    = iota
	sideAsk    // delete at the other server
	interimAsk // what the server that is warming doesn't have
	checkAsk   // is there anything that it doesn't have
	undoAsk
)

// two says that the key is between two servers.
func (l *single) inTransition() bool { return l.Role != health.In }

// place is where the key is at First or at Interim.
func (l *single) place(i int) health.Place {
	if i == 0 {
		return l.First
	}
	return l.Interim
}

func (l *single) Begin(t *task.Task) {
	if !l.sure(t) {
		t.Fail("not sure who serves the key now", stats.Unavailable)
		return
	}
	if l.Role == health.Returning {
		l.from = 1
	}
	if l.Role == health.Warming && t.Op == wire.Add && !l.checked {
		t.Ask(checkAsk, t.Route.Member(l.Interim.Server), t.Meta("mg", l.keys[1], " s", nil))
		return
	}
	if l.Role == health.Warming && task.NeedsValue(t.Op) && !l.checked {
		l.checked = true
		t.Open++ // it goes on
		l.backfill(t, func(what fillOutcome) {
			t.Open--
			switch {
			case what == fillThere:
				l.Begin(t)
			case what == fillUnsure || !l.sure(t):
				t.Fail("what server "+t.Route.Member(l.Interim.Server).Label()+" keeps for it could not be brought back", stats.Unavailable)
			default:
				t.AnswerKind(task.Absence(t))
			}
			t.CatchUp()
		})
		return
	}
	line, ok := l.request(t, l.from)
	if !ok { // a cas token of another server, or of an outage that is over
		t.AnswerKind(wire.Exists)
		return
	}
	if l.read || !l.inTransition() {
		l.waiting = 1
		t.Ask(mainAsk, t.Route.Member(l.place(l.from).Server), line)
		return
	}
	l.line, l.waiting = line, 2
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

// put sends one of the two halves of a write between two servers.
//
// What leaves First without the key goes to Interim first and then, when that
// is done, to First: in the other order a backfill of another proxy could make
// its stub at First behind it and fetch from Interim before it.
func (l *single) sendHalf(t *task.Task, id int) {
	if id == mainAsk {
		t.Ask(mainAsk, t.Route.Member(l.place(l.from).Server), l.line)
		return
	}
	other := 1 - l.from
	t.Ask(sideAsk, t.Route.Member(l.place(other).Server), t.Meta("md", l.keys[other], "", nil))
}

// request is t's request as it goes to one of the two places.
func (l *single) request(t *task.Task, at int) (line []byte, ok bool) {
	place := l.place(at)
	var edits []task.Edit
	if token, has := t.Token(); has {
		cas, ok := health.UntagCas(token, place.Number)
		if l.view != nil && (!ok || token>>52 != 0 && place.Number == 0) {
			return nil, false
		}
		edits = append(edits, task.Edit{At: t.TokenSpan(), With: strconv.AppendUint(nil, cas, 10)})
	}
	if place.Diverted {
		edits = append(edits, t.ShortLived(t.Route.Pool.Failover.InterimTTL)...)
	}
	return t.WithKey(l.keys[at], edits...), true
}

// sure says whether what the servers answer now may be told: in strict mode
// nobody may have learnt since that others are to be asked.
func (l *single) sure(t *task.Task) bool {
	if l.view == nil || !t.Route.Pool.Failover.Strict {
		return true
	}
	return l.view.Gen() == l.gen && t.Loop.Now < l.view.ValidUntil(l.First.Server) &&
		(!l.inTransition() || t.Loop.Now < l.view.ValidUntil(l.Interim.Server))
}

func (l *single) Told(t *task.Task, id int, r *upstream.Result) {
	switch {
	case id == undoAsk:
		return
	case id == checkAsk && r.Bytes == nil:
		t.Fail(r.Why, r.Outcome)
		return
	case id == checkAsk && string(r.Bytes) == wire.AnswerMiss:
		l.checked = true
		l.Begin(t)
		return
	case id == checkAsk:
		t.AnswerKind(wire.NotStored)
		return
	case id == mainAsk && l.read && (l.Role == health.Warming || l.Role == health.Settling):
		if l.checkMiss(t, r) {
			return
		}
	}
	if r.Bytes == nil && l.failed == nil {
		kept := *r
		l.failed = &kept
	}
	if id != sideAsk {
		l.main = t.Keep(r)
	}
	l.waiting--
	if l.inTurn {
		l.inTurn = false
		if l.failed == nil && l.sure(t) {
			l.sendHalf(t, l.second)
			return
		}
		l.waiting = 0
	}
	switch rep := &t.Loop.Rep; {
	case l.waiting > 0:
	case l.Role == health.Warming && !l.again && (t.Op == wire.Incr || t.Op == wire.Decr) && l.main.Parsed(t.Op, t.Req.Dialect, rep) && rep.Kind == wire.ClientError:
		l.again, l.checked = true, false // perhaps it met the stub of another's backfill
		l.Begin(t)
	default:
		l.end(t)
	}
}

// hollow looks at what a server that fills up says to a read, and reports
// whether another is asked first: the server itself, whether an empty value is
// the stub of a backfill, or the interim server for what it doesn't have.
func (l *single) checkMiss(t *task.Task, r *upstream.Result) bool {
	missed := !l.stub && (t.Missed(r) || t.IsStub(r))
	if l.stub {
		l.stub = false
		rep := &t.Loop.Rep
		switch known := r.Parsed(wire.Get, wire.Meta, rep); {
		case !known: // no answer
			return false
		case rep.Kind == wire.Value && rep.Body.Len() > 0: // a stub that has been filled since
			line, _ := l.request(t, 0)
			t.Ask(mainAsk, r.Server, line)
			return true
		case rep.Kind == wire.Value && !rep.Letters.Has('Z'):
			*r = l.main // truly empty
			return false
		}
		missed = true
	}
	switch {
	case missed:
		*r = upstream.Result{Server: r.Server, Bytes: []byte(wire.AnswerEnd)}
		if t.Req.Dialect == wire.Meta {
			r.Bytes = wire.AppendAnswer(nil, t.Raw, &t.Req, wire.Miss)
		}
	case r.Parsed(t.Op, t.Req.Dialect, &t.Loop.Rep) && task.MayBeStub(t, &t.Loop.Rep):
		l.stub = true
		l.main = t.Keep(r)
		t.Ask(mainAsk, r.Server, t.Meta("mg", l.keys[0], " v s", nil))
		return true
	}
	if l.Role == health.Settling {
		return false
	}
	if r.Bytes != nil {
		l.view.CountWarmRead(l.First.Server, !missed)
	}
	line, ok := l.request(t, 1)
	if !missed || !ok {
		return false
	}
	l.from = 1
	t.Ask(interimAsk, t.Route.Member(l.Interim.Server), line)
	if t.Route.Pool.Failover.OnRejoin == health.Warm {
		l.backfill(t, nil)
	}
	return true
}

// end answers the client, if that is safe.
func (l *single) end(t *task.Task) {
	number := l.place(l.from).Number
	switch sure := l.sure(t); {
	case l.read && !sure:
		t.Fail("what the server said is not sure any more", stats.Unavailable)
	case l.read || l.failed == nil && sure:
		t.Answer(&l.main, func(cas uint64) uint64 { return health.TagCas(cas, number) })
	default:
		if l.main.Bytes != nil && t.Op.Stores() { // else it is undone behind itself: see latedelete.go
			t.AskAs(true, undoAsk, t.Route.Member(l.place(l.from).Server), t.Meta("md", l.keys[l.from], "", nil))
		}
		if l.failed != nil {
			t.Fail(l.failed.Why, l.failed.Outcome)
		} else {
			t.Fail("not sure that everybody sees the write: it was undone", stats.Unavailable)
		}
	}
}
