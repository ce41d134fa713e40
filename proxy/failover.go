package proxy

// Where a key goes while a server of its pool is out or on its way back, and
// the rules that lead its commands then. The phases are those of package
// health.

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/ring"
)

// find works out who serves a key, by its hashed part and its hash.
func (lp *livePool) find(part []byte, h uint64, owner int) health.Route {
	var p health.Path
	if lp.pass(&p, owner) {
		return p.Route()
	}
	switch {
	case lp.pool.Failover.Mode == FailFast:
	case lp.pool.Failover.Mode == Gutter:
		part, h, _ = lp.pool.Failover.Gutter.Place.Locate(part)
		for n := 0; ; n++ {
			if i := lp.gutter.At(part, h, n); i < 0 || lp.pass(&p, len(lp.servers)+i) {
				break
			}
		}
	case lp.pool.Without != nil:
		lp.findRebuilt(&p, part, h, owner)
	default:
		for n := 1; ; n++ {
			if i := lp.order.At(part, h, n); i < 0 || i != owner && lp.pass(&p, i) {
				break
			}
		}
	}
	return p.Route()
}

// pass adds a member to the path of a key.
func (lp *livePool) pass(p *health.Path, i int) (done bool) {
	s := &lp.watch.seen[i]
	return p.Add(i, s.n(), s.renamed.Load())
}

// findRebuilt asks the rule of a client that rebuilds its ring. The ring
// depends on everybody who is out, so the diverted key does too; and while
// anybody is between in and out, the ring of those who are in is not settled.
func (lp *livePool) findRebuilt(p *health.Path, part []byte, h uint64, owner int) {
	out := make([]bool, len(lp.servers))
	out[owner] = true
	for i := range out {
		if phase := lp.watch.phase(i); i != owner && phase != health.In {
			out[i] = true
			if lp.pass(p, i) {
				return
			}
		}
	}
	if r := lp.without(out); r != nil {
		if i := r.At(part, h, 0); i >= 0 {
			lp.pass(p, i)
		}
	}
}

// without is the ring without the servers that are out, made once for each
// set of them; nil if there is none.
func (lp *livePool) without(out []bool) ring.Ring {
	set := make([]byte, len(out))
	for i, o := range out {
		if o {
			set[i] = 1
		}
	}
	if r, ok := lp.rebuilt[string(set)]; ok {
		return r
	}
	r, err := lp.pool.Without(out)
	if err != nil {
		r = nil
	}
	if lp.rebuilt == nil || len(lp.rebuilt) >= maxRebuilt {
		lp.rebuilt = map[string]ring.Ring{}
	}
	lp.rebuilt[string(set)] = r
	return r
}

// maxRebuilt bounds how many rings a pool keeps for sets of servers that are
// out.
const maxRebuilt = 64

// plain says that the keys of srv need nothing special.
func (lp *livePool) plain(srv *Server) bool {
	for i, s := range lp.servers {
		if s == srv {
			seen := &lp.watch.seen[i]
			return lp.watch.known.Load() && lp.watch.phase(i) == health.In && !seen.suspected() && seen.renamed.Load() == 0
		}
	}
	return false
}

// unknown is the keeper of one of the route's pools that does not know yet who
// is out; nil if all know.
func (rt *route) unknown() *watch {
	if w := rt.watch; w != nil && !w.known.Load() {
		return w
	}
	for _, lp := range rt.also {
		if w := lp.watch; w != nil && !w.known.Load() {
			return w
		}
	}
	return nil
}

// lead serves the request of t, or parks it.
func (e *Engine) lead(t *task) {
	if e.behindParked(t.client, t.rt, t.key) && e.now < t.deadline {
		e.park(t, nil)
		return
	}
	if w := t.rt.unknown(); w != nil {
		if e.now >= t.deadline {
			t.fail("the servers have not said yet who of them is in use", Unavailable)
		} else {
			e.park(t, func(*Engine) uint64 { return w.gen.Load() })
		}
		return
	}
	if t.rt.copies.Copies != 0 {
		e.leadCopies(t)
		return
	}
	part, h, owner := t.rt.pool.Place.Locate(t.key)
	if owner < 0 {
		t.fail(noServer, Unavailable)
		return
	}
	w := t.rt.watch
	l := &led{watch: w, gen: w.gen.Load(), read: t.op <= wire.Gats || t.op == wire.Debug}
	l.Route = t.rt.find(part, h, owner)
	name := t.rt.servers[owner].label()
	switch first := l.First.Server; {
	case l.Role == health.Leaving && (l.read || t.rt.pool.Failover.Mode == FailFast || e.now >= t.deadline):
		t.fail("server "+name+" is not in use: "+w.phase(owner).String(), Unavailable)
		return
	case l.Role == health.Leaving:
		e.park(t, func(*Engine) uint64 { return w.gen.Load() })
		return
	case l.Role == health.In && w.seen[first].suspected():
		t.fail("server "+t.rt.member(first).label()+" is not in use: it does not answer", Unavailable)
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
}

const maxKey = 250 // bytes, of memcached

// led is the rule of a command on a key of one copy. There is a main ask,
// which the client's answer comes from, and for writes between two servers a
// delete of what the other has; the client hears when both are done.
type led struct {
	health.Route
	watch *watch
	gen   uint64
	read  bool
	keys  [2][]byte // at First, at Interim

	checked bool // add: the interim has nothing; others: what it has was brought
	again   bool // a number was none: it is tried once more
	stub    bool // a read has found an empty value: it is being asked whether that is a stub
	from    int  // where the main ask went: 0 First, 1 Interim
	waiting int
	line    []byte // of the main ask of a write
	inTurn  bool   // second is asked when the first has done it
	second  int
	main    answer // the client's
	failed  *answer
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
		if !ok || token>>52 != 0 && place.Number == 0 {
			return nil, false
		}
		edits = append(edits, edit{t.tokenSpan(), strconv.AppendUint(nil, cas, 10)})
	}
	if place.Diverted {
		edits = append(edits, t.shortLived(t.rt.pool.Failover.InterimTTL)...)
	}
	return t.spelled(l.keys[at], edits...), true
}

// sure says whether what the servers answer now may be told: in strict mode
// nobody may have learnt since that others are to be asked.
func (l *led) sure(t *task) bool {
	if !t.rt.pool.Failover.Strict {
		return true
	}
	return l.watch.gen.Load() == l.gen && t.e.now < l.watch.seen[l.First.Server].valid.Load() &&
		(!l.two() || t.e.now < l.watch.seen[l.Interim.Server].valid.Load())
}

func (l *led) told(t *task, id int, r *answer) {
	switch {
	case id == undoAsk:
		return
	case id == checkAsk && r.bytes == nil:
		t.fail(r.why, r.outcome)
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
		l.main = *r
		l.main.bytes = bytes.Clone(r.bytes)
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
func (l *led) hollow(t *task, r *answer) bool {
	missed := !l.stub && (r.missed(t) || r.stub(t))
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
		*r = answer{srv: r.srv, bytes: []byte(wire.AnswerEnd)}
		if t.req.Dialect == wire.Meta {
			r.bytes = wire.AppendAnswer(nil, t.raw, &t.req, wire.Miss)
		}
	case r.parsed(t.op, t.req.Dialect, &t.e.rep) && mayBeStub(t, &t.e.rep):
		l.stub = true
		l.main = *r
		l.main.bytes = bytes.Clone(r.bytes)
		t.ask(mainAsk, r.srv, t.meta("mg", l.keys[0], " v s", nil))
		return true
	}
	if l.Role == health.Settling {
		return false
	}
	if r.bytes != nil {
		t.e.warmed(l.watch, l.First.Server, !missed)
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
			t.ask(undoAsk, t.rt.member(l.place(l.from).Server), t.meta("md", l.keys[l.from], "", nil))
		}
		if l.failed != nil {
			t.fail(l.failed.why, l.failed.outcome)
		} else {
			t.fail("not sure that everybody sees the write: it was undone", Unavailable)
		}
	}
}

// missed says whether an answer to t's request is a miss.
func (r *answer) missed(t *task) bool {
	rep := &t.e.rep
	return r.parsed(t.op, t.req.Dialect, rep) && (rep.Kind == wire.End || rep.Kind == wire.Miss || rep.Kind == wire.NotFound)
}

// stub says whether an answer to t's request is a stub, and shows it.
func (r *answer) stub(t *task) bool {
	rep := &t.e.rep
	return t.req.Dialect == wire.Meta && r.parsed(t.op, wire.Meta, rep) && rep.Kind == wire.Value && rep.Body.Len() == 0 &&
		rep.Letters.Has('Z') && !commandOf(t).Vivify
}

// token is the cas token that the client gives.
func (t *task) token() (n uint64, ok bool) {
	at := t.tokenSpan()
	if at.Len() == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(at.Of(t.raw)), 10, 64)
	return n, err == nil
}

func (t *task) tokenSpan() wire.Span { return t.req.Unique }

// shortLived are the edits that let the item live no longer than limit.
func (t *task) shortLived(limit time.Duration) []edit {
	most := int64(limit / time.Second)
	now := time.Now().Unix()
	cap := func(at wire.Span) edit {
		n, err := strconv.ParseInt(string(at.Of(t.raw)), 10, 64)
		if err != nil {
			n = math.MaxInt32
		}
		return edit{at, strconv.AppendInt(nil, health.CapTTL(n, most, now), 10)}
	}
	switch {
	case t.req.Exptime.Len() > 0 && t.op != wire.FlushAll:
		return []edit{cap(t.req.Exptime)}
	case t.req.Dialect == wire.Meta && t.op.Stores():
		end := t.req.Line.End
		return []edit{{wire.Span{Start: end, End: end}, strconv.AppendInt([]byte(" T"), most, 10)}}
	}
	if at, ok := wire.FlagArg(t.raw, t.req.MetaFlags, 'N'); ok && t.req.Dialect == wire.Meta {
		return []edit{cap(at)}
	}
	return nil
}

// parked is a write that waits for the next phase, or a command behind one.
type parked struct {
	t       *task
	phases  func(*Engine) uint64 // changes when one does; nil: for the one before it
	changed uint64               // what it was
}

// park keeps t until phases changes, or what is parked before it on its key has
// gone on, or its time is over.
func (e *Engine) park(t *task, phases func(*Engine) uint64) {
	if len(e.parked) >= maxParked {
		t.fail("too many writes wait for a server that is being left", Crowded)
		return
	}
	p := parked{t: t, phases: phases}
	if phases != nil {
		p.changed = phases(e)
	}
	e.parked = append(e.parked, p)
	if e.parkedOf == nil {
		e.parkedOf = map[uint64]int{}
	}
	e.parkedOf[t.client]++
	e.parkAt = min(e.parkAt, t.deadline, e.now+parkedLook)
}

const (
	maxParked  = 10_000
	parkedLook = int64(10 * time.Millisecond) // between looks at the phases for those who wait
)

// behindParked says whether a client's request for a key has to wait behind one
// that is parked: the client may have sent both together, and the phase that
// the one waits for may be here already for the other.
func (e *Engine) behindParked(client uint64, rt *route, key []byte) bool {
	return rt != nil && rt.watch != nil && e.parkedOf[client] > 0 && slices.ContainsFunc(e.parked, func(p parked) bool {
		return p.t.client == client && p.t.rt.watch == rt.watch && bytes.Equal(p.t.key, key)
	})
}

// unpark leads the writes whose pools have changed, in their order.
func (e *Engine) unpark() {
	list := e.parked
	e.parked, e.parkAt = nil, never
	for _, p := range list {
		if p.phases != nil && p.phases(e) == p.changed && e.now < p.t.deadline {
			e.parked = append(e.parked, p)
			e.parkAt = min(e.parkAt, p.t.deadline, e.now+parkedLook)
			continue
		}
		if e.parkedOf[p.t.client]--; e.parkedOf[p.t.client] == 0 {
			delete(e.parkedOf, p.t.client)
		}
		e.lead(p.t)
	}
}
