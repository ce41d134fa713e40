package guard

// Reads of guarded keys that are led by a task: all but those that a value answers
// at once.

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// touches says that t is a read that gives a value a new time to live.
func touches(t *task.Task) bool {
	return t.Op == wire.Gat || t.Op == wire.Gats || t.Op == wire.Get && t.Req.Dialect == wire.Meta && t.Req.Letters.Has('T')
}

// gets says that t asks for a token, or changes the item: neither may meet an old value.
func gets(t *task.Task) bool {
	return t.Op == wire.Gets || touches(t) || t.Req.Dialect == wire.Meta && t.Req.Letters.Has('c')
}

// readLine asks for t's key; general: in the form that any waiter understands.
func (l *rule) readLine(t *task.Task, general bool) []byte {
	flags := l.g.appendFlags(nil, l.Guard, gets(t), l.Hide)
	if general || t.Req.Dialect == wire.Text || touches(t) {
		return t.Meta("mg", l.name, " f v c"+string(flags), nil)
	}
	return t.WithKey(l.name, appendToLine(t, l.more(t, flags)))
}

// more are the flags that t's own mg lacks.
func (l *rule) more(t *task.Task, flags []byte) (more string) {
	for _, f := range []byte("fcs") {
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
	l.ask(t, l.readLine(t, false), func(r *upstream.Result) {
		l.own = t.Req.Dialect == wire.Meta && !touches(t)
		l.found(t, r)
	})
}

// resume goes on with what an ordinary exchange has found, unless the key is
// elsewhere by now.
func (l *rule) resume(t *task.Task) {
	r := l.first
	if r.Bytes != nil && (r.Server.Target.Address != l.server(t).Target.Address || !bytes.Equal(l.firstName, l.name)) {
		l.giveFirstBack()
		l.first = nil
		l.read(t)
		return
	}
	l.first = nil
	l.found(t, r)
}

// giveFirstBack gives back what an ordinary exchange has won, if it was anything.
func (l *rule) giveFirstBack() {
	if r := l.first; r != nil && r.Bytes != nil && r.Parsed(wire.Get, wire.Meta, &l.g.Rep) {
		if s := see(&l.g.Rep, r.Bytes); s.wins() {
			own := l.g.ByAddress[r.Server.Target.Network+" "+r.Server.Target.Address]
			if own != nil {
				l.rearmAt(spot{srv: own, name: string(l.firstName)}, string(s.cas), r.Via, s.stub())
			}
		}
	}
}

// found goes on with a server's answer to a read.
func (l *rule) found(t *task.Task, r *upstream.Result) {
	rep := &t.Loop.Rep
	if !r.Parsed(wire.Get, wire.Meta, rep) || rep.Kind.Failed() {
		l.unanswered(t, r)
		return
	}
	s := see(rep, r.Bytes)
	if l.g.heard(l.server(t), r.Via, &s); l.g.blind(l.conn(t)) && !l.Hide {
		l.Guard = hiding(l.Guard)
	}
	if !l.Sure(t) {
		if s.wins() {
			l.rearmAt(l.here(t), string(s.cas), r.Via, s.stub())
		}
		t.Fail("what the server said is not sure any more", stats.Unavailable)
		return
	}
	switch {
	case s.absent(): // there was no memory for a stub
		l.miss(t, ticket{void: true})
	case s.mark():
		l.late(t, r, &s)
	case s.wins() && !l.Hide:
		l.won(t, r, &s)
	case s.stub() || l.Hide && s.soft():
		l.late(t, r, &s)
	case !l.old(&s):
		l.serve(t, r, &s)
	case l.Stale > 0 && !gets(t) && !l.rebuilds(t, &s):
		l.Learned.Count(stats.GuardStale)
		l.watch(t, r, &s)
		l.serve(t, r, &s)
	default:
		l.late(t, r, &s)
	}
}

// old says that a value is to be rebuilt, and may be served only to those who want it
// all the same.
func (l *rule) old(s *seen) bool {
	return s.soft() || s.taken() && s.left() <= int64(l.Stale/time.Second)
}

// unanswered ends a read that no server could answer. Where that is shown as a
// miss, the client may well store what it reads elsewhere now; nobody knows what
// happens to the key meanwhile, so that is not kept.
func (l *rule) unanswered(t *task.Task, r *upstream.Result) {
	if t.Op <= wire.Gats && !t.Route.GetErrors && l.g != nil {
		l.g.grant(t, l, ticket{void: true})
	}
	if r.Bytes != nil {
		t.Answer(r, nil)
	} else {
		t.Fail(r.Why, r.Outcome)
	}
}

// miss tells the client that there is nothing, and binds it.
func (l *rule) miss(t *task.Task, tk ticket) {
	if !l.Hide {
		l.g.grant(t, l, tk)
	}
	t.AnswerKind(task.Absence(t))
}

// won lets the client rebuild. While its server is filling up, the interim server
// may still have the value.
func (l *rule) won(t *task.Task, r *upstream.Result, s *seen) {
	tk := ticket{cas: string(s.cas), via: r.Via, at: r.Asked, win: true, stub: s.stub()}
	if l.Role == health.Warming && tk.stub {
		l.askAt(t, 1, t.Meta("mg", l.Keys[1], " f v t", nil), func(r *upstream.Result) { l.bring(t, r, tk) })
		return
	}
	if !tk.stub && !s.soft() {
		l.Learned.Count(stats.GuardEarly)
	}
	l.winner(t, tk)
}

func (l *rule) winner(t *task.Task, tk ticket) {
	if c, _, _ := l.server(t).Pick(t.Asker, false); c == nil || !c.Reaches(tk.via) {
		// The answer came to another loop, and the connection on which the set will go is
		// younger: the item is looked at once more, before the client is told anything.
		l.look(t, func(s *seen, via upstream.Via) {
			tk.win = string(s.cas) == tk.cas
			tk.cas, tk.via, tk.void = string(s.cas), via, s.absent()
			l.crown(t, tk)
		})
		return
	}
	l.crown(t, tk)
}

func (l *rule) crown(t *task.Task, tk ticket) {
	l.Learned.Won(l.g.Now)
	l.g.strike(t.Hash, 1, l)
	l.miss(t, tk)
}

// bring stores what the interim server has, guarded by the stub of this very get.
func (l *rule) bring(t *task.Task, r *upstream.Result, tk ticket) {
	rep := &t.Loop.Rep
	known := r.Parsed(wire.Get, wire.Meta, rep)
	l.View.CountWarmRead(l.First.Server, false)
	if !known || rep.Kind != wire.Value || task.Expiring(r.Bytes, rep) {
		l.winner(t, tk)
		return
	}
	s := see(rep, r.Bytes)
	flags := " C" + tk.cas + " F" + string(s.flags)
	if left, err := strconv.Atoi(string(s.ttl)); err == nil && left > 0 {
		flags += " T" + strconv.Itoa(left)
	}
	l.ask(t, t.Meta("ms", l.name, flags, bytes.Clone(rep.Body.Of(r.Bytes))), func(r *upstream.Result) {
		if _, ok := l.answered(t, wire.Set, r); ok { // there, or others came in between
			l.again(t, func() { l.read(t) })
		}
	})
}

// late is told that another client rebuilds: t's waits, or misses too.
func (l *rule) late(t *task.Task, r *upstream.Result, s *seen) {
	if l.Hide {
		l.miss(t, ticket{})
		return
	}
	cas := string(s.cas)
	if l.rebuilds(t, s) {
		t.AnswerKind(task.Absence(t)) // it must not wait for itself
		return
	}
	l.watch(t, r, s)
	if l.g.hold(t, l, cas, r.Via, s.mark()) {
		return
	}
	l.miss(t, ticket{cas: cas, via: r.Via, at: r.Asked, void: s.mark()})
}

// rebuilds says that t's client has been told already to rebuild what a read has
// found. It must neither wait for itself nor get the value that it replaces.
func (l *rule) rebuilds(t *task.Task, s *seen) bool {
	own := l.g.ownTicket(t, l)
	return own != nil && own.cas == string(s.cas) && !l.pooled()
}

// winner is whom a client waits for.
type winner struct {
	cas   string
	since int64
}

// watch lets another client rebuild when a winner has not come back for a lease.
func (l *rule) watch(t *task.Task, r *upstream.Result, s *seen) {
	g := l.g
	if s.mark() || len(s.cas) == 0 {
		return
	}
	w := g.winners[t.Hash]
	switch {
	case w.cas != string(s.cas):
		if len(g.winners) >= maxWatched {
			clear(g.winners)
		}
		g.winners[t.Hash] = winner{string(s.cas), g.Now}
	case g.Now-w.since > int64(time.Second)*lease(l.Guard):
		l.Learned.Count(stats.GuardRearmed)
		l.rearmAt(l.here(t), w.cas, r.Via, s.stub())
		delete(g.winners, t.Hash)
	}
}

// serve answers with the value that a read has found.
func (l *rule) serve(t *task.Task, r *upstream.Result, s *seen) {
	number := l.Place(l.at).Number
	tag := func(cas uint64) uint64 { return health.TagCas(cas, number) }
	switch {
	case touches(t):
		l.touch(t, tag)
	case t.Req.Dialect == wire.Text:
		t.Answer(&upstream.Result{Server: l.server(t), Bytes: l.asText(t, r, s)}, tag)
	case !l.own: // somebody else's answer: it has not the flags that this client wants
		l.ask(t, t.WithKey(l.name, appendToLine(t, l.more(t, nil))), func(r *upstream.Result) {
			l.own = true
			l.found(t, r)
		})
	default:
		t.Answer(&upstream.Result{Server: l.server(t), Bytes: l.asMeta(t, r, s)}, tag)
	}
}

// asText is the value r as the answer to a text get.
func (l *rule) asText(t *task.Task, r *upstream.Result, s *seen) []byte {
	rep := &t.Loop.Rep
	b := append(append([]byte("VALUE "), l.name...), ' ')
	b = append(append(b, s.shown()...), ' ')
	b = strconv.AppendInt(b, int64(rep.Body.Len()), 10)
	if t.Op == wire.Gets || t.Req.Flags&wire.Binary != 0 && !l.old(s) { // without one a frame says wire.NoMatch: no cas may store what is made of an old value
		b = append(append(b, ' '), s.cas...)
	}
	b = append(append(b, wire.LineEnd...), r.Bytes[rep.Body.Start:rep.Size]...)
	return append(b, wire.AnswerEnd...)
}

// asMeta is the answer r without what the client has not asked for.
func (l *rule) asMeta(t *task.Task, r *upstream.Result, s *seen) []byte {
	rep := &t.Loop.Rep
	word := rep.Line.Of(r.Bytes)
	b := slices.Clone(word[:2])
	if rep.Kind == wire.Value {
		b = strconv.AppendInt(append(b, ' '), int64(rep.Body.Len()), 10)
	}
	asked := t.Req.Letters
	for rest := rep.MetaFlags; ; {
		var flag wire.Span
		if flag, rest = wire.NextKey(r.Bytes, rest); flag.Len() == 0 {
			break
		}
		switch letter := r.Bytes[flag.Start]; {
		case !asked.Has(letter):
			continue
		case letter == 'f':
			b = append(append(b, " f"...), s.shown()...)
		case letter == 't' && l.Stale > 0 && s.left() < 1<<40:
			b = strconv.AppendInt(append(b, " t"...), max(s.left()-int64(l.Stale/time.Second), 0), 10)
		default:
			b = append(append(b, ' '), flag.Of(r.Bytes)...)
		}
	}
	return append(b, r.Bytes[rep.Line.End:rep.Size]...)
}

// touch gives a value that is there the time that the client asks for.
func (l *rule) touch(t *task.Task, tag func(uint64) uint64) {
	l.ask(t, t.WithKey(l.name), func(r *upstream.Result) {
		rep := &t.Loop.Rep
		switch {
		case !r.Parsed(t.Op, t.Req.Dialect, rep) || rep.Kind.Failed():
			l.unanswered(t, r)
		case t.Missed(r):
			l.miss(t, ticket{void: true})
		case t.Req.Dialect == wire.Text && string(rep.ClientFlags.Of(r.Bytes)) == emptyFlags:
			at := rep.ClientFlags
			b := slices.Concat(r.Bytes[:at.Start], []byte{'0'}, r.Bytes[at.End:])
			t.Answer(&upstream.Result{Server: l.server(t), Bytes: b}, tag)
		case t.Req.Dialect == wire.Meta:
			s := see(rep, r.Bytes)
			t.Answer(&upstream.Result{Server: l.server(t), Bytes: l.asMeta(t, r, &s)}, tag)
		default:
			t.Answer(&upstream.Result{Server: l.server(t), Bytes: bytes.Clone(r.Bytes)}, tag)
		}
	})
}
