package guard

// Reads of guarded keys that are led by a task: all but those that a value answers
// at once.

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/guard/copied"
	"ringside/proxy/guard/item"
	"ringside/proxy/guard/misses"
	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// touches says that t is a read that gives a value a new time to live.
func touches(t *task.Task) bool {
	return t.Op == wire.Gat || t.Op == wire.Gats || t.Op == wire.Get && t.Req.Dialect == wire.Meta && t.Req.Letters.Has('T')
}

// mustBeFresh says that t asks for a token, or changes the item: neither may meet an old
// value. A get of a binary client, which always shows a token, does not ask for it.
func mustBeFresh(t *task.Task) bool {
	return t.Op == wire.Gets || touches(t) || t.Req.Dialect == wire.Meta && t.Req.Letters.Has('c') && t.Req.Flags&wire.Binary == 0
}

// readLine asks for t's key; general: in the form that any waiter understands.
func (l *rule) readLine(t *task.Task, general bool) []byte {
	flags := l.g.AppendFlags(nil, l.Guard, mustBeFresh(t), l.Hide)
	if general || t.Req.Dialect == wire.Text || touches(t) {
		return t.Meta("mg", l.name, " f v c"+string(flags), nil)
	}
	return t.WithKey(l.name, appendToLine(t, l.more(t, flags)))
}

// more are the flags that t's own mg lacks.
func (l *rule) more(t *task.Task, flags []byte) (more string) {
	letters := "fcs"
	if l.tags != nil {
		letters = "fcsv"
	}
	for _, f := range []byte(letters) {
		if !t.Req.Letters.Has(f) && (f != 's' || !t.Req.Letters.Has('v')) {
			more += " " + string(f)
		}
	}
	if t.Req.Letters.Has('t') {
		flags = bytes.TrimPrefix(flags, []byte(" t"))
	}
	return more + string(flags)
}

func (l *rule) read(t *task.Task) {
	if l.copies != nil {
		l.readCopies(t)
		return
	}
	l.inspect(t, l.at, l.readLine(t, false), func(r *upstream.Result) {
		l.own = t.Req.Dialect == wire.Meta && !touches(t)
		l.found(t, r)
	})
}

// readCopies reads as the route's copies are read. What is there and not to be rebuilt
// is served. For all else the authority is asked as the server of any other key: it says
// who is to rebuild.
func (l *rule) readCopies(t *task.Task) {
	flags := l.g.AppendFlags(nil, l.Guard, mustBeFresh(t), l.Hide)
	meta := t.Req.Dialect == wire.Meta && !touches(t)
	first, second := t.Meta("mg", l.name, " f v t", nil), t.Meta("mg", l.name, " f v c"+string(flags), nil)
	switch {
	case meta:
		first, second = t.WithKey(l.name, appendToLine(t, l.more(t, nil))), t.WithKey(l.name, appendToLine(t, l.more(t, flags)))
	case mustBeFresh(t) || t.Route.ReadsFirst() || t.Req.Flags&wire.Binary != 0:
		first = t.Meta("mg", l.name, " f v c t", nil)
	}
	l.ask(t, first, func(r *upstream.Result) {
		if !r.Reply.Kind.Answered() {
			l.unanswered(t, r)
			return
		}
		s := item.See(&r.Reply, r.Bytes)
		if l.own = meta; !s.Absent() && !s.Special() && s.Left() >= copied.DueBelow(flags) {
			l.serve(t, r, &s)
			return
		}
		l.ask(t, second, func(r *upstream.Result) { l.foundCopy(t, r) })
	})
}

// foundCopy is found for the authority of several copies. Where it has a mark it says
// that there is nothing: somebody deletes the key, or copies it, and is soon done.
func (l *rule) foundCopy(t *task.Task, r *upstream.Result) {
	if r.Reply.Kind == wire.Miss && !l.copies.Looked && !l.Hide {
		l.copies.Looked = true
		s := item.Seen{Kind: wire.Value, Flags: []byte(item.MarkFlags)}
		l.late(t, r, &s)
		return
	}
	l.found(t, r)
}

// FastAnswer is what a get has brought that was sent as an ordinary exchange (package
// fast).
type FastAnswer struct {
	*upstream.Result             // nil: there was none
	Name             []byte      // of the key that it asked for
	Known            stamp.Known // versions of tags that came with it
}

// Resume makes a task of a read that found more or less than a value.
func (g *Guard) Resume(x *client.Exchange, share int32, rt *routing.Route, whole []byte, fast FastAnswer) {
	req := &g.Clients.Req
	before := *req
	command := "get "
	if x.Op == wire.Gets {
		command = "gets "
	}
	line := append(append([]byte(command), whole...), wire.CRLF...)
	g.Wire.Next(line, req)
	req.Flags |= x.Flags & wire.Binary
	t := g.NewTask(x, share, rt, line, whole, whole)
	*req = before
	t.Rule = &rule{fast: fast}
	g.Enroll(x.Session, x, t)
	g.Admit(t)
}

// resume goes on with what an ordinary exchange has found, unless the key is
// elsewhere by now.
func (l *rule) resume(t *task.Task) {
	r := l.fast.Result
	if r.Bytes != nil && (r.Server.Target.Address != l.server(t).Target.Address || !bytes.Equal(l.fast.Name, l.name)) {
		l.giveFastBack()
		l.fast = FastAnswer{}
		l.read(t)
		return
	}
	l.fast = FastAnswer{}
	l.found(t, r)
}

// giveFastBack gives back what an ordinary exchange has won, if it was anything.
func (l *rule) giveFastBack() {
	if r := l.fast.Result; r != nil && r.Reply.Kind != wire.NoReply {
		if s := item.See(&r.Reply, r.Bytes); s.Wins() {
			own := l.g.ByAddress[r.Server.Target.Network+" "+r.Server.Target.Address]
			if own != nil {
				l.g.giveBack(l.Guard, misses.Spot{Server: own, Name: string(l.fast.Name)}, &s, r.Via)
			}
		}
	}
}

// found goes on with a server's answer to a read.
func (l *rule) found(t *task.Task, r *upstream.Result) {
	l.judged(t, l.at, r, func(r *upstream.Result, v stamp.Verdict) { l.judge(t, r, v) })
}

// judge is found for an answer of which it is known whether its value stands.
func (l *rule) judge(t *task.Task, r *upstream.Result, v stamp.Verdict) {
	if !r.Reply.Kind.Answered() {
		l.unanswered(t, r)
		return
	}
	s := item.See(&r.Reply, r.Bytes)
	if l.g.Heard(l.server(t), r.Via, &s); l.g.Blind(l.conn(t)) && !l.Hide {
		l.Guard = item.Hiding(l.Guard)
	}
	if l.copies == nil && !l.Sure(t) {
		if s.Wins() {
			l.g.giveBack(l.Guard, l.here(t), &s, r.Via)
		}
		l.failed(t, "what the server said is not sure any more", stats.Unavailable)
		return
	}
	switch {
	case s.Absent(): // there was no memory for a stub
		l.miss(t, missed{})
	case s.Mark():
		l.late(t, r, &s)
	case s.Wins() && !l.Hide:
		l.won(t, r, &s)
	case s.Stub() || l.Hide && s.Soft():
		l.late(t, r, &s)
	case v != stamp.Stands && !s.Soft():
		l.fallen(t, r, &s, v)
	case l.tags != nil && v == unreadable:
		l.late(t, r, &s)
	case !l.old(&s):
		l.serve(t, r, &s)
	case l.servesOld(t, &s):
		l.serveOld(t, r, &s)
	default:
		l.late(t, r, &s)
	}
}

// old says that a value is to be rebuilt, and may be served only to those who want it
// all the same.
func (l *rule) old(s *item.Seen) bool {
	return s.Soft() || s.Taken() && s.Left() <= int64(l.Stale/time.Second)
}

// waitsFirst reports whether gets wait for a rebuild before they are served the old value.
func (l *rule) waitsFirst() bool { return l.Stale > 0 && l.Late == table.LateStale }

// servesOld reports whether t is answered with the old value s now, while another client
// rebuilds it.
func (l *rule) servesOld(t *task.Task, s *item.Seen) bool {
	return l.Stale > 0 && (l.final || !l.waitsFirst()) && !mustBeFresh(t) && !l.rebuilds(t, s)
}

// unanswered ends a read that no server could answer. Where that is shown as a
// miss, the client may well store what it reads elsewhere now; nobody knows what
// happens to the key meanwhile, so that is not kept.
func (l *rule) unanswered(t *task.Task, r *upstream.Result) {
	if t.Op <= wire.Gats && !t.Route.GetErrors && l.g != nil && !l.g.Ablation.Failed {
		l.record(t, missed{})
	}
	t.Answer(r, nil)
}

// failed is unanswered for a read that was answered, and can't be used.
func (l *rule) failed(t *task.Task, why string, o stats.Outcome) {
	l.unanswered(t, &upstream.Result{Failure: upstream.Failure{Why: why, Outcome: o}})
}

// Refused is told of a task that nobody has led: its client may be shown a miss.
func (g *Guard) Refused(t *task.Task) {
	if l, _ := t.Rule.(*rule); l != nil && t.Route.Guard != nil && t.Op <= wire.Gats && !t.Route.GetErrors {
		l.g, l.Guard = g, t.Route.Guard
		l.record(t, missed{})
	}
}

// miss tells the client that there is nothing, and records it.
func (l *rule) miss(t *task.Task, what missed) *misses.Miss {
	m := l.record(t, what)
	t.AnswerKind(task.Absence(t))
	return m
}

// won lets the client rebuild. While its server is filling up, the interim server
// may still have the value.
func (l *rule) won(t *task.Task, r *upstream.Result, s *item.Seen) {
	seen := s.Clone()
	what := missed{s: &seen, via: r.Via, at: r.Asked, won: true}
	if l.Role == health.Warming && s.Stub() {
		if l.tags != nil {
			l.lent(t, what)
			return
		}
		l.askAt(t, 1, t.Meta("mg", l.Keys[1], " f v t", nil), func(r *upstream.Result) { l.bring(t, r, what) })
		return
	}
	if !s.Stub() && !s.Soft() {
		l.Learned.Count(stats.GuardEarly)
	}
	l.winner(t, what)
}

// winner lets the client rebuild what its get has seen, if its set can be bound to that.
func (l *rule) winner(t *task.Task, what missed) {
	if l.copies != nil {
		l.crown(t, what)
		return
	}
	if c, _, _ := l.server(t).Pick(t.Asker, false); c == nil || !c.Reaches(what.via) {
		// The answer came to another loop, and the connection on which the set will go is
		// younger: the item is looked at once more, before the client is told anything.
		l.look(t, func(s *item.Seen, via upstream.Via) {
			what.won, what.via = string(s.Cas) == string(what.s.Cas), via
			if what.s = s; s.Absent() {
				what.s = nil
			}
			l.crown(t, what)
		})
		return
	}
	l.crown(t, what)
}

// crown tells the client the miss by which it is to rebuild.
func (l *rule) crown(t *task.Task, what missed) {
	l.Learned.Won(l.g.Now)
	strike := l.g.neverFilled.Won(t.Hash, l.Guard, l.g.Now)
	if m := l.miss(t, what); m != nil && what.won {
		l.g.misses.Won(m, strike, l.g.Now)
	}
}

// bring stores what the interim server has, guarded by the stub of this very get.
func (l *rule) bring(t *task.Task, r *upstream.Result, what missed) {
	rep := &r.Reply
	l.View.CountWarmRead(l.First.Server, false)
	if rep.Kind != wire.Value || task.Expiring(r.Bytes, rep) {
		l.winner(t, what)
		return
	}
	s := item.See(rep, r.Bytes)
	if s.Nothing() { // somebody was to rebuild it there
		l.winner(t, what)
		return
	}
	flags := " C" + string(what.s.Cas) + " F" + string(s.Flags)
	if left, err := strconv.Atoi(string(s.TTL)); err == nil && left > 0 {
		flags += " T" + strconv.Itoa(left)
	}
	l.ask(t, t.Meta("ms", l.name, flags, rep.Body.Of(r.Bytes)), func(r *upstream.Result) {
		if l.answered(t, r) { // there, or others came in between
			l.again(t, func() { l.read(t) })
		}
	})
}

// late goes on with a read behind which another client rebuilds: t's waits, or is told a
// miss too.
func (l *rule) late(t *task.Task, r *upstream.Result, s *item.Seen) {
	if l.Hide {
		l.miss(t, missed{})
		return
	}
	what := missed{s: s, via: r.Via, at: r.Asked}
	if m := l.misses(t); l.rebuilds(t, s) { // it must not wait for itself
		what.won = m.Won
		won := m.Win
		if m = l.record(t, what); m != nil {
			m.Win = won
		}
		t.AnswerKind(task.Absence(t))
		return
	}
	l.watch(t, r, s)
	seen := s.Clone()
	if what.s = &seen; l.g.hold(t, l, what) {
		return
	}
	if l.waitsFirst() && !l.final && !s.Stub() && !mustBeFresh(t) {
		l.final = true
		l.read(t)
		return
	}
	l.missLate(t, what)
}

// missLate tells a client that there is nothing though somebody else rebuilds. Its set
// is bound all the same: it may come after the other's, and after a delete of that.
func (l *rule) missLate(t *task.Task, what missed) {
	if l.g.Ablation.Late {
		t.AnswerKind(task.Absence(t))
		return
	}
	l.miss(t, what)
}

// rebuilds says that t's client has been told already to rebuild what a read has
// found. It must neither wait for itself nor get the value that it replaces.
func (l *rule) rebuilds(t *task.Task, s *item.Seen) bool {
	own, scope := l.misses(t), l.scope()
	return own != nil && misses.Cas(own.CAS) == string(s.Cas) && !scope.Shared && !scope.AfterMiss
}

// Overdue says that who is to rebuild an item of that cas has not come back for a lease.
func (g *Guard) Overdue(rt *routing.Guard, hash uint64, cas []byte) bool {
	return g.winners.Overdue(rt, hash, cas, g.Now)
}

// watch lets another client rebuild when a winner has not come back for a lease.
func (l *rule) watch(t *task.Task, r *upstream.Result, s *item.Seen) {
	g := l.g
	if s.Mark() || len(s.Cas) == 0 || g.Ablation.Watch || g.winners.New(t.Hash, s.Cas, g.Now) || !g.Overdue(l.Guard, t.Hash, s.Cas) {
		return
	}
	l.Learned.Count(stats.GuardRearmed)
	g.giveBack(l.Guard, l.here(t), s, r.Via)
	delete(g.winners, t.Hash)
}

// serve answers with the value that a read has found.
func (l *rule) serve(t *task.Task, r *upstream.Result, s *item.Seen) {
	number := l.Place(l.at).Number
	tag := func(cas uint64) uint64 { return divert.TagCas(cas, number) }
	if l.copies != nil {
		tag = l.copies.Tag
	}
	switch {
	case touches(t) && l.tags != nil:
		l.retouch(t, tag)
	case touches(t):
		l.touch(t, tag)
	case t.Req.Dialect == wire.Meta && !l.own: // somebody else's answer: it has not the flags that this client wants
		l.inspect(t, l.at, t.WithKey(l.name, appendToLine(t, l.more(t, nil))), func(r *upstream.Result) {
			l.own = true
			l.found(t, r)
		})
	default:
		l.show(t, r, s, tag)
	}
}

// serveOld is serve for a value that no cas may store anything made of. It has no
// token: a frame says wire.NoMatch then.
func (l *rule) serveOld(t *task.Task, r *upstream.Result, s *item.Seen) {
	l.Learned.Count(stats.GuardStale)
	l.watch(t, r, s)
	s.Cas, l.outdated = nil, true
	l.serve(t, r, s)
}

// show gives the client the value r in its own dialect.
func (l *rule) show(t *task.Task, r *upstream.Result, s *item.Seen, tag task.Token) {
	if !l.outdated {
		l.knows(t, misses.Found)
	}
	b := []byte(nil)
	if t.Req.Dialect == wire.Meta {
		b = l.asMeta(t, r, s)
	} else {
		shown := t.Op == wire.Gets || t.Op == wire.Gats || t.Req.Flags&wire.Binary != 0
		b = item.AppendText(nil, l.name, &r.Reply, r.Bytes, s, shown)
	}
	t.Answer(t.Result(l.server(t), b), tag)
}

// asMeta is the answer r without what the client has not asked for.
func (l *rule) asMeta(t *task.Task, r *upstream.Result, s *item.Seen) []byte {
	return item.AppendMeta(nil, t.Req.Letters, int64(l.Stale/time.Second), &r.Reply, r.Bytes, s)
}

// touch gives a value that is there the time that the client asks for.
func (l *rule) touch(t *task.Task, tag func(uint64) uint64) {
	l.ask(t, t.WithKey(l.name), func(r *upstream.Result) {
		rep := &r.Reply
		if rep.Kind.Answered() && !task.Missed(r) {
			l.knows(t, misses.Found)
		}
		switch {
		case !rep.Kind.Answered():
			l.unanswered(t, r)
		case task.Missed(r):
			l.miss(t, missed{})
		case t.Req.Dialect == wire.Text && rep.Body.Len() == 0 && string(rep.ClientFlags.Of(r.Bytes)) == item.EmptyFlags:
			at := rep.ClientFlags
			b := slices.Concat(r.Bytes[:at.Start], []byte{'0'}, r.Bytes[at.End:])
			t.Answer(t.Result(l.server(t), b), tag)
		case t.Req.Dialect == wire.Meta:
			s := item.See(rep, r.Bytes)
			l.show(t, r, &s, tag)
		default:
			t.Answer(t.Result(l.server(t), bytes.Clone(r.Bytes)), tag)
		}
	})
}
