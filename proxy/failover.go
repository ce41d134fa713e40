package proxy

// Where a key goes while a server of its pool is out or on its way back, and
// the rules that lead its commands then. The phases are those of package
// health.

import (
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// SingleCopy leads the commands on keys of one copy.
type SingleCopy struct{}

// Lead serves the request of t, or parks it.
func (SingleCopy) Lead(t *task) bool {
	leadSingle(t)
	return true
}

func leadSingle(t *task) {
	e := t.e
	part, h, owner := t.rt.pool.Place.Locate(t.key)
	if owner < 0 {
		t.fail(noServer, Unavailable)
		return
	}
	if why := t.rt.refusal(owner); why != "" {
		t.rt.servers[owner].count.Ordered++
		t.fail(why, Unavailable)
		return
	}
	w := t.rt.view
	l := &led{view: w, read: t.op <= wire.Gats || t.op == wire.Debug}
	if w == nil { // nothing moves: it is only behind another
		l.First.Server = owner
	} else {
		l.gen = w.Gen()
		l.Route = t.rt.find(part, h, owner)
	}
	name := t.rt.servers[owner].label()
	switch first := l.First.Server; {
	case l.Role == health.Leaving && (l.read || t.rt.pool.Failover.Mode == FailFast || e.now >= t.deadline):
		t.fail("server "+name+" is not in use: "+w.Phase(owner).String(), Unavailable)
		return
	case l.Role == health.Leaving:
		e.park(t, w.Gen)
		return
	case l.Role == health.In && w != nil && w.Suspected(first):
		t.fail("server "+t.rt.member(first).label()+" is not in use: it does not answer", Unavailable)
		return
	case e.now >= t.deadline:
		t.fail(tooLong, TimedOut)
		return
	}
	l.keys[0] = health.AppendKey(nil, l.First.Number, t.key)
	l.keys[1] = health.AppendKey(nil, l.Interim.Number, t.key)
	if len(l.keys[0]) > maxKey || l.two() && len(l.keys[1]) > maxKey {
		t.fail("server "+name+" is not in use, and the key is too long to be kept elsewhere", Unavailable)
		return
	}
	t.rule = l
	t.run(0, nil)
	if !l.two() { // all it asks is on its way, on the connection where the next goes
		e.letGo(t)
	}
}

const maxKey = 250 // bytes, of memcached

// led is the rule of a command on a key of one copy. There is a main ask,
// which the client's answer comes from, and for writes between two servers a
// delete of what the other has; the client hears when both are done.
type led struct {
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
	main    Result // the client's
	failed  *Result
}

const (
	mainAsk    = iota
	sideAsk    // delete at the other server
	interimAsk // what the server that is warming doesn't have
	checkAsk   // is there anything that it doesn't have
	undoAsk
)

// two says that the key is between two servers.
func (l *led) two() bool { return l.Role != health.In }

// place is where the key is at First or at Interim.
func (l *led) place(i int) health.Place {
	if i == 0 {
		return l.First
	}
	return l.Interim
}

func (l *led) begin(t *task) {
	if !l.sure(t) {
		t.fail("not sure who serves the key now", Unavailable)
		return
	}
	if l.Role == health.Returning {
		l.from = 1
	}
	if l.Role == health.Warming && t.op == wire.Add && !l.checked {
		t.ask(checkAsk, t.rt.member(l.Interim.Server), t.meta("mg", l.keys[1], " s", nil))
		return
	}
	if l.Role == health.Warming && builds(t.op) && !l.checked {
		l.checked = true
		t.open++ // it goes on
		l.backfill(t, func(what found) {
			t.open--
			switch {
			case what == there:
				l.begin(t)
			case what == unsure || !l.sure(t):
				t.fail("what server "+t.rt.member(l.Interim.Server).label()+" keeps for it could not be brought back", Unavailable)
			default:
				t.say(absence(t))
			}
			t.catchUp()
		})
		return
	}
	line, ok := l.request(t, l.from)
	if !ok { // a cas token of another server, or of an outage that is over
		t.say(wire.Exists)
		return
	}
	if l.read || !l.two() {
		l.waiting = 1
		t.ask(mainAsk, t.rt.member(l.place(l.from).Server), line)
		return
	}
	l.line, l.waiting = line, 2
	at := [2]int{sideAsk, mainAsk} // at Interim, at First
	if l.from == 1 {
		at = [2]int{mainAsk, sideAsk}
	}
	l.put(t, at[0])
	if l.inTurn = l.Role == health.Returning || t.op == wire.Delete; l.inTurn {
		l.second = at[1]
		return
	}
	l.put(t, at[1])
}

// put sends one of the two halves of a write between two servers.
//
// What leaves First without the key goes to Interim first and then, when that
// is done, to First: in the other order a backfill of another proxy could make
// its stub at First behind it and fetch from Interim before it.
func (l *led) put(t *task, id int) {
	if id == mainAsk {
		t.ask(mainAsk, t.rt.member(l.place(l.from).Server), l.line)
		return
	}
	other := 1 - l.from
	t.ask(sideAsk, t.rt.member(l.place(other).Server), t.meta("md", l.keys[other], "", nil))
}

// request is t's request as it goes to one of the two places.
func (l *led) request(t *task, at int) (line []byte, ok bool) {
	place := l.place(at)
	var edits []edit
	if token, has := t.token(); has {
		cas, ok := health.UntagCas(token, place.Number)
		if l.view != nil && (!ok || token>>52 != 0 && place.Number == 0) {
			return nil, false
		}
		edits = append(edits, edit{at: t.tokenSpan(), with: strconv.AppendUint(nil, cas, 10)})
	}
	if place.Diverted {
		edits = append(edits, t.shortLived(t.rt.pool.Failover.InterimTTL)...)
	}
	return t.spelled(l.keys[at], edits...), true
}

// sure says whether what the servers answer now may be told: in strict mode
// nobody may have learnt since that others are to be asked.
func (l *led) sure(t *task) bool {
	if l.view == nil || !t.rt.pool.Failover.Strict {
		return true
	}
	return l.view.Gen() == l.gen && t.e.now < l.view.ValidUntil(l.First.Server) &&
		(!l.two() || t.e.now < l.view.ValidUntil(l.Interim.Server))
}

func (l *led) told(t *task, id int, r *Result) {
	switch {
	case id == undoAsk:
		return
	case id == checkAsk && r.bytes == nil:
		t.fail(r.Why, r.Outcome)
		return
	case id == checkAsk && string(r.bytes) == wire.AnswerMiss:
		l.checked = true
		l.begin(t)
		return
	case id == checkAsk:
		t.say(wire.NotStored)
		return
	case id == mainAsk && l.read && (l.Role == health.Warming || l.Role == health.Settling):
		if l.hollow(t, r) {
			return
		}
	}
	if r.bytes == nil && l.failed == nil {
		kept := *r
		l.failed = &kept
	}
	if id != sideAsk {
		l.main = t.keep(r)
	}
	l.waiting--
	if l.inTurn {
		l.inTurn = false
		if l.failed == nil && l.sure(t) {
			l.put(t, l.second)
			return
		}
		l.waiting = 0
	}
	switch rep := &t.e.rep; {
	case l.waiting > 0:
	case l.Role == health.Warming && !l.again && (t.op == wire.Incr || t.op == wire.Decr) && l.main.parsed(t.op, t.req.Dialect, rep) && rep.Kind == wire.ClientError:
		l.again, l.checked = true, false // perhaps it met the stub of another's backfill
		l.begin(t)
	default:
		l.end(t)
	}
}

// hollow looks at what a server that fills up says to a read, and reports
// whether another is asked first: the server itself, whether an empty value is
// the stub of a backfill, or the interim server for what it doesn't have.
func (l *led) hollow(t *task, r *Result) bool {
	missed := !l.stub && (t.missed(r) || t.isStub(r))
	if l.stub {
		l.stub = false
		rep := &t.e.rep
		switch known := r.parsed(wire.Get, wire.Meta, rep); {
		case !known: // no answer
			return false
		case rep.Kind == wire.Value && rep.Body.Len() > 0: // a stub that has been filled since
			line, _ := l.request(t, 0)
			t.ask(mainAsk, r.srv, line)
			return true
		case rep.Kind == wire.Value && !rep.Letters.Has('Z'):
			*r = l.main // truly empty
			return false
		}
		missed = true
	}
	switch {
	case missed:
		*r = Result{srv: r.srv, bytes: []byte(wire.AnswerEnd)}
		if t.req.Dialect == wire.Meta {
			r.bytes = wire.AppendAnswer(nil, t.raw, &t.req, wire.Miss)
		}
	case r.parsed(t.op, t.req.Dialect, &t.e.rep) && mayBeStub(t, &t.e.rep):
		l.stub = true
		l.main = t.keep(r)
		t.ask(mainAsk, r.srv, t.meta("mg", l.keys[0], " v s", nil))
		return true
	}
	if l.Role == health.Settling {
		return false
	}
	if r.bytes != nil {
		l.view.CountWarmRead(l.First.Server, !missed)
	}
	line, ok := l.request(t, 1)
	if !missed || !ok {
		return false
	}
	l.from = 1
	t.ask(interimAsk, t.rt.member(l.Interim.Server), line)
	if t.rt.pool.Failover.OnRejoin == health.Warm {
		l.backfill(t, nil)
	}
	return true
}

// end answers the client, if that is safe.
func (l *led) end(t *task) {
	number := l.place(l.from).Number
	switch sure := l.sure(t); {
	case l.read && !sure:
		t.fail("what the server said is not sure any more", Unavailable)
	case l.read || l.failed == nil && sure:
		t.settle(&l.main, func(cas uint64) uint64 { return health.TagCas(cas, number) })
	default:
		if l.main.bytes != nil && t.op.Stores() { // else it is undone behind itself: see undo.go
			t.askAs(true, undoAsk, t.rt.member(l.place(l.from).Server), t.meta("md", l.keys[l.from], "", nil))
		}
		if l.failed != nil {
			t.fail(l.failed.Why, l.failed.Outcome)
		} else {
			t.fail("not sure that everybody sees the write: it was undone", Unavailable)
		}
	}
}
