package guard

// This file has the reads of guarded keys that need a task. Plain hits need none: see reader.go.

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/failover"
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

// touches reports whether t is a read that sets a new time to live.
func touches(t *task.Task) bool {
	return t.Op == wire.Gat || t.Op == wire.Gats || t.Op == wire.Get && t.Req.Dialect == wire.Meta && t.Req.Letters.Has('T')
}

// mustBeFresh reports whether t must not get an old value, because it requests a cas or changes
// the item. A binary get may get an old value, although its reply always shows a cas.
func mustBeFresh(t *task.Task) bool {
	return t.Op == wire.Gets || touches(t) || t.Req.Dialect == wire.Meta && t.Req.Letters.Has('c') && t.Req.Flags&wire.Binary == 0
}

// readLine returns the mg that reads t's key under the given name, with flags of the guard. If general is
// set, the mg requests flags, value and cas, whatever t requests. Every get that waits for the key can
// then use its reply.
func (l *rule) readLine(t *task.Task, name, flags []byte, general bool) []byte {
	if general || t.Req.Dialect == wire.Text || touches(t) {
		return t.Meta("mg", name, " f v c"+string(flags), nil)
	}
	return t.WithKey(name, appendToLine(t, l.more(t, flags)))
}

// guardFlags returns the meta flags of a guarded read of t's key.
func (l *rule) guardFlags(t *task.Task) []byte {
	return l.g.appendFlags(nil, l.RouteGuard, mustBeFresh(t), l.Hide)
}

// more returns the meta flags that the guard needs and that the client's mg does not have.
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

// byRecache sends t, an mg with the flag R and without N, as its client wrote it. A client that does not
// use N does not expect a placeholder: it gets a miss.
func (l *rule) byRecache(t *task.Task) {
	t.Rule = l
	t.Step(t.Raw, func(r *upstream.Result, token task.Token) {
		if s := parseItem(&r.Reply, r.Bytes); !s.IsSpecial() {
			t.Answer(r, token)
			return
		}
		kept := t.Keep(r)
		l.look(t, func(l *rule, t *task.Task, r *upstream.Result, s *Item) {
			switch {
			case !l.answered(t, r):
			case s.IsAbsent() || s.IsPlaceholder() || s.IsTombstone():
				l.miss(t, s)
			case !s.IsSpecial() && l.tries < maxTries: // another client has just stored a value
				l.tries++
				l.byRecache(t)
			default:
				t.Answer(&kept, token)
			}
		})
	})
}

// read reads the key. A key with several replicas is read as the route says: a value that need not be
// rebuilt is served. For any other reply, readAny asks the primary with the guard's flags, which can grant
// the lease.
func (l *rule) read(t *task.Task) {
	if l.copies == nil {
		l.inspect(t, l.at, l.readLine(t, l.name, l.guardFlags(t), false), (*rule).judge)
		return
	}
	l.flags = l.guardFlags(t)
	first := t.Meta("mg", l.name, " f v t", nil)
	switch {
	case t.Req.Dialect == wire.Meta && !touches(t) && l.copies.moves: // a read of the cas would move the key first
		first = t.WithKey(l.name, appendToLine(t, strings.Replace(l.more(t, nil), " c", "", 1)))
	case t.Req.Dialect == wire.Meta && !touches(t):
		first = l.readLine(t, l.name, nil, false)
	case mustBeFresh(t) || t.Route.ReadsFirst() && l.replicated() || t.Req.Flags&wire.Binary != 0:
		first = t.Meta("mg", l.name, " f v c t", nil)
	}
	l.inspect(t, l.at, first, (*rule).readAny)
}

// readAny handles the reply of any replica.
func (l *rule) readAny(t *task.Task, r *upstream.Result, s *Item) {
	switch {
	case !l.answered(t, r):
	case !s.IsAbsent() && !s.IsSpecial() && s.Tags == stamp.Stands && s.SecondsLeft() >= dueBelow(l.flags):
		l.serve(t, r, s)
	default:
		l.inspect(t, l.at, l.readLine(t, l.name, l.flags, false), (*rule).readPrimary)
	}
}

// readPrimary handles r, the reply of the primary, or of the new owner of a key that moves, to the read t. A
// miss without a placeholder means that the primary has a tombstone: another client is deleting or copying the
// key. That ends soon, so t waits if this is its first such reply.
func (l *rule) readPrimary(t *task.Task, r *upstream.Result, s *Item) {
	if r.Reply.Kind == wire.Miss && !l.copies.Looked && !l.Hide && l.replicated() {
		l.copies.Looked = true
		s := Item{Kind: wire.Value, Flags: []byte(tombstoneFlags), Via: r.ConnEpoch, At: r.Asked}
		l.late(t, &s)
		return
	}
	l.judge(t, r, s)
}

// FastAnswer is the reply to a get that was sent as an ordinary exchange, without a task
// (reader.go).
type FastAnswer struct {
	*upstream.Result             // the server's reply; nil: no get was sent before the task. The loop of the key sets Server: see FastAnswer.arrive
	from             string      // network and address of the server
	Name             []byte      // the key as it was sent to the server
	Known            stamp.Known // versions of tags that were read together with the value
}

// arrive sets the server of the reply to that of the loop of the key. The reply may have arrived on
// another loop, and each loop has its own upstream.Server for a memcached.
func (f *FastAnswer) arrive(g *Guard) {
	if f.Result != nil {
		f.Server = g.ByAddress[f.from]
	}
}

// resume continues a read that was sent without a task, with its reply l.fast. If the key has
// moved since the read was sent, resume reads it again.
func (l *rule) resume(t *task.Task) {
	r := l.fast.Result
	if r.Bytes != nil && (l.copies != nil || r.Server != l.server(t) || !bytes.Equal(l.fast.Name, l.name)) {
		l.cancelFastLease()
		l.read(t)
	} else {
		l.found(t, r)
	}
}

// cancelFastLease cancels the lease that a read without a task was granted, if there is one.
func (l *rule) cancelFastLease() {
	if r := l.fast.Result; r != nil && r.Reply.Kind != wire.NoReply {
		if s := itemOf(r); s.HasLease() && r.Server != nil {
			l.g.cancelLease(l.RouteGuard, itemPlace{Server: r.Server, Name: string(l.fast.Name)}, &s)
		}
	}
}

// found handles r, a server's reply to the read t, which was not sent by inspect.
func (l *rule) found(t *task.Task, r *upstream.Result) {
	if l.judges = (*rule).judge; l.tags != nil {
		l.tags.at = l.at
	}
	l.judged(t, r)
}

// judge handles r, the reply to the read t, which has found the item s.
func (l *rule) judge(t *task.Task, r *upstream.Result, s *Item) {
	if !l.answered(t, r) {
		return
	}
	if l.g.Heard(l.server(t), r.ConnEpoch, s); l.g.Blind(l.conn(t)) && !l.Hide {
		l.RouteGuard = hidingRoute(l.RouteGuard)
	}
	switch {
	case !l.isSure(t, s):
	case l.Hide && l.Role == health.Warming && !l.copied && s.IsMiss() && !s.IsInvalidated() && l.MayFill(t):
		l.copied = true
		l.View.CountWarmRead(l.First.Server, false)
		l.CopyBack(t, func(failover.FillOutcome) { l.read(t) })
	case s.IsAbsent(), // the read has found no item and created no placeholder, because the server had no memory for one
		l.Hide && s.Tags != stamp.Stands && !s.IsInvalidated():
		l.miss(t, nil)
	case s.IsTombstone():
		l.late(t, s)
	case s.HasLease() && !l.Hide && l.ends(s):
		l.prolong(t, r, s)
	case s.HasLease() && !l.Hide:
		l.onLease(t, s)
	case s.IsPlaceholder() || l.Hide && s.IsInvalidated():
		l.late(t, s)
	case s.Tags != stamp.Stands && !s.IsInvalidated():
		l.mark(t, r, s, l.keep(), s.Tags != unreadable) // as a delete does, so that one client rebuilds the value
	case l.tags != nil && s.Tags == unreadable:
		l.late(t, s)
	case !l.isOld(s):
		l.serve(t, r, s)
	case l.servesOld(t, s):
		l.serveOld(t, r, s)
	default:
		l.late(t, s)
	}
}

// isSure reports whether the reply to the read t counts: see Spot.Sure. If it does not, isSure fails t, and
// cancels the lease that t's client was granted with the item s of the key's own server.
func (l *rule) isSure(t *task.Task, s *Item) bool {
	if l.copies != nil || l.Sure(t) {
		return true
	}
	if s.HasLease() {
		l.g.cancelLease(l.RouteGuard, l.here(t), s)
	}
	l.failed(t, "the server may not have the key any more, so its reply does not count", stats.Unavailable)
	return false
}

// isOld reports whether the item s has an old value: the value is deleted, or has expired while
// another client rebuilds it. Only clients that accept an old value may get it.
func (l *rule) isOld(s *Item) bool {
	return s.IsInvalidated() || s.IsLeased() && s.SecondsLeft() <= int64(l.Stale/time.Second)
}

// waitsFirst reports whether gets wait for a rebuild before they may get the old value.
func (l *rule) waitsFirst() bool { return l.Stale > 0 && l.Late == table.LateStale }

// servesOld reports whether t may get the old value s now, while another client rebuilds the
// value.
func (l *rule) servesOld(t *task.Task, s *Item) bool {
	return l.mayServe(s) && (l.final || !l.waitsFirst()) && !mustBeFresh(t) && !l.rebuilds(l.misses(), s)
}

// spare returns how long an old value is kept after the time in which it may be served, in
// seconds. A rebuild that began in that time can then still replace the value.
func spare(rt *routing.RouteGuard) int64 { return int64(rt.Lease / time.Second) }

// keep returns how long a value is kept after its delete or its invalidation, in seconds.
func (l *rule) keep() int64 {
	if l.Stale == 0 {
		return leaseSeconds(l.RouteGuard)
	}
	return int64(l.Stale/time.Second) + spare(l.RouteGuard)
}

// mayServe reports whether the item s is an old value that may be served during its
// rebuild.
func (l *rule) mayServe(s *Item) bool {
	return l.Stale > 0 && !s.IsPlaceholder() && (!s.IsInvalidated() || s.SecondsLeft() > spare(l.RouteGuard))
}

// ends reports whether the old value s may expire before its rebuild is done. t's client has the
// lease of s.
func (l *rule) ends(s *Item) bool {
	return l.Stale > 0 && l.copies == nil && !s.IsPlaceholder() && l.isGone(s) && s.SecondsLeft() < spare(l.RouteGuard)
}

// prolong makes the server keep the old value s until its rebuild is done. The value is not
// served any longer than before.
func (l *rule) prolong(t *task.Task, r *upstream.Result, s *Item) {
	keep := spare(l.RouteGuard)
	if !s.IsInvalidated() {
		keep += s.SecondsLeft()
	}
	l.mark(t, r, s, keep, true)
}

// mark marks the value s of the reply r as stale with md I, so that one client rebuilds it. The
// server keeps the value for another `keep` seconds. The lease is granted to t's client, unless
// another client reads first. If show is set, t may then serve the value.
func (l *rule) mark(t *task.Task, r *upstream.Result, s *Item, keep int64, show bool) {
	if l.kept.Bytes = nil; show {
		l.kept, l.old = t.Keep(r), s.Clone()
	}
	l.first(t, t.Meta("md", l.name, " I C"+string(s.Cas)+" T"+strconv.FormatInt(keep, 10), nil), nil, func() {
		l.ask(t, t.Meta("mg", l.name, " s f c t N"+strconv.FormatInt(leaseSeconds(l.RouteGuard), 10)+" R0", nil), (*rule).marked)
	})
}

// marked handles the reply to the read after mark.
func (l *rule) marked(t *task.Task, r *upstream.Result) {
	if !l.answered(t, r) {
		return
	}
	switch s := itemOf(r); {
	case s.HasLease():
		l.onLease(t, &s)
	case s.IsAbsent():
		l.miss(t, nil)
	case !s.IsInvalidated() && !s.IsPlaceholder():
		l.again(t)
	case l.kept.Bytes != nil && s.IsInvalidated() && l.servesOld(t, &s):
		l.serveOld(t, &l.kept, &l.old)
	default:
		l.late(t, &s)
	}
}

// unanswered ends a read that no server has answered. If the route shows such a
// failure as a miss, the client may rebuild the value and set it. The guard can't know
// what happens to the key in between. So it records a miss without a cas, and that set
// is not stored. A meta get that the server rejects is no miss: its client gets the server's error.
func (l *rule) unanswered(t *task.Task, r *upstream.Result) {
	rejected := t.Req.Dialect == wire.Meta && (r.Reply.Kind == wire.ClientError || r.Reply.Kind == wire.Error)
	if t.Op <= wire.Gats && !rejected && !t.Route.GetErrors && !l.g.Ablation.Failed {
		l.record(t, nil)
	}
	t.Answer(r, nil)
}

// Refused is called for a task that no handler has served. If its client gets a miss, Refused
// records the miss.
func (g *Guard) Refused(t *task.Task) {
	l, _ := t.Rule.(*rule)
	if l == nil || t.Route.Guard == nil {
		return
	}
	l.g, l.RouteGuard = g, t.Route.Guard
	l.fast.arrive(g)
	l.cancelFastLease()
	if t.Op <= wire.Gats && !t.Route.GetErrors {
		l.record(t, nil)
	}
}

// miss records a miss and answers t with it. s is the item that t has seen: see record.
func (l *rule) miss(t *task.Task, s *Item) *Miss {
	m := l.record(t, s)
	t.AnswerKind(task.MissKind(t))
	return m
}

// onLease handles the reply to the read t, which grants the lease of the item s to t's client. While
// the server of the key is in WARM, onLease first reads the value from the substitute server.
func (l *rule) onLease(t *task.Task, s *Item) {
	if l.readInterim(t, s) {
		return
	}
	l.lease = s.Clone()
	l.lease.Won = true
	if !s.IsPlaceholder() && !s.IsInvalidated() {
		l.Learned.Count(stats.GuardEarly)
	}
	l.checkLease(t)
}

// readInterim reads the value from the substitute server and returns true, if the key's own server is in
// WARM and has only s, a placeholder or a tombstone. It returns false if the substitute server had no
// value already, or if another instance may know the own server as IN: see Spot.MayFill.
func (l *rule) readInterim(t *task.Task, s *Item) bool {
	if l.copies != nil || l.Role != health.Warming || l.unlent || !s.IsPlaceholder() && !s.IsTombstone() || !l.MayFill(t) {
		return false
	}
	l.lease = s.Clone()
	l.lease.Won = s.HasLease()
	line := t.Meta("mg", l.Keys[1], " f v t", nil)
	if l.tags != nil {
		line = l.readLine(t, l.Keys[1], []byte(" t"), false)
	}
	l.inspect(t, 1, line, (*rule).lent)
	return true
}

// checkLease grants the lease to t. If the later set of t's client may be sent to another server
// process than the one that sent the item's cas, checkLease first reads the item again.
func (l *rule) checkLease(t *task.Task) {
	if l.copies == nil {
		if c, _, _ := l.server(t).Pick(t.Asker, false); c == nil || !c.IsSameProcess(l.lease.Via) {
			// Another loop got the reply, and the connection that will carry the set was opened
			// later. So the item is read again before the client gets its reply.
			l.look(t, (*rule).lookedAtLease)
			return
		}
	}
	l.grantLease(t, &l.lease)
}

// lookedAtLease handles the reply to the look of checkLease.
func (l *rule) lookedAtLease(t *task.Task, r *upstream.Result, s *Item) {
	if l.answered(t, r) {
		s.At, s.Won, s.Void = l.lease.At, string(s.Cas) == string(l.lease.Cas), s.Tags != stamp.Stands
		l.grantLease(t, s)
	}
}

// grantLease answers t with a miss of the item s. If s.Won is set, it records that t's client is the
// lease holder.
func (l *rule) grantLease(t *task.Task, s *Item) {
	l.Learned.Won(l.g.Now)
	strike := l.g.rebuildOf(l.key).Won(l.RouteGuard, l.g.Now)
	if m := l.miss(t, s); m != nil && s.Won {
		l.g.misses.Won(m, strike, l.g.Now)
	}
}

// lent handles r, the substitute server's reply to the read t, while the key's own server is in WARM and
// has only the placeholder or tombstone l.lease. A value is copied to the own server, where it replaces the
// placeholder. The value is only served in three cases: it has tags, because its tags have other versions on
// each server; another command copies it already; or it expires soon.
//
// If the substitute server has no value, another command may have just moved it to the own server. So lent
// reads the own server again.
func (l *rule) lent(t *task.Task, r *upstream.Result, s *Item) {
	l.View.CountWarmRead(l.First.Server, false)
	usable := s.Tags == stamp.Stands && s.Kind == wire.Value && !s.IsMiss() // otherwise, the substitute server has no value either, or only an item that is to be rebuilt
	c := l.conn(t)
	copies := l.tags == nil && l.lease.IsPlaceholder() && !task.Expiring(r.Bytes, &r.Reply) && c != nil && c.IsSameProcess(l.lease.Via) // another process may have given the cas to another item
	switch {
	case !l.isSure(t, &l.lease):
	case usable && copies:
		flags := " C" + string(l.lease.Cas) + " F" + string(s.Flags)
		if left := s.SecondsLeft(); left > 0 && left < math.MaxInt64 {
			flags += " T" + strconv.FormatInt(task.ExptimeFor(left, l.g.Wall), 10)
		}
		l.ask(t, t.Meta("ms", l.name, flags, r.Reply.Body.Of(r.Bytes)), (*rule).cleared) // the value is stored, or the item has changed since the read: t reads the key again in both cases
	case usable && !l.isGone(s) && !mustBeFresh(t) && !lacks(t, r):
		if l.lease.Won {
			l.g.cancelLease(l.RouteGuard, l.here(t), &l.lease)
		}
		s.Cas = nil // the cas of the substitute server has no meaning on the key's own server
		l.show(t, r, s)
	default:
		l.unlent = true
		l.look(t, (*rule).notLent)
	}
}

// notLent handles the reply to the read of the key's own server, after lent has found no value on the
// substitute server.
func (l *rule) notLent(t *task.Task, r *upstream.Result, s *Item) {
	switch {
	case !l.answered(t, r):
	case string(s.Cas) != string(l.lease.Cas) && l.tries < maxTries:
		l.again(t)
	case l.lease.Won:
		l.lookedAtLease(t, r, s)
	default:
		l.late(t, s)
	}
}

// late handles the reply that another client rebuilds the item s. t then waits, or gets a miss.
func (l *rule) late(t *task.Task, s *Item) {
	if l.Hide {
		l.miss(t, nil)
		return
	}
	m := l.misses()
	expected := l.rebuilds(m, s)
	if (l.tags != nil || expected) && l.readInterim(t, s) { // a value with tags is not copied, so a wait would not end
		return
	}
	if expected { // t's client is itself expected to rebuild, so it must not wait for the rebuild
		s.Won = m.Won
		won := m.Win
		if m = l.miss(t, s); m != nil {
			m.Win = won
		}
		return
	}
	l.watch(t, s)
	if seen := s.Clone(); !l.g.hold(t, l, seen) {
		l.unheld(t, &seen)
	}
}

// unheld continues the get t, which does not wait, or does not wait any longer, for the rebuild of the
// item s. A miss is recorded although another client rebuilds. So a set of t's client can't overwrite a
// newer value of the other client, or restore a value after a delete.
func (l *rule) unheld(t *task.Task, s *Item) {
	switch {
	case s.IsTombstone() && l.InTransition() && l.tries < maxTries: // another command is copying the value back
		l.againLater(t)
	case l.readInterim(t, s):
	case l.waitsFirst() && !l.final && l.mayServe(s) && !mustBeFresh(t):
		l.final = true
		l.read(t)
	case l.g.Ablation.Late:
		t.AnswerKind(task.MissKind(t))
	default:
		l.miss(t, s)
	}
}

// rebuilds reports whether own, the miss that the client already has, is a miss of the item s, so the
// client is expected to rebuild it. Such a client must not wait for itself, and must not get the value
// that it is about to replace.
func (l *rule) rebuilds(own *Miss, s *Item) bool {
	scope := l.scope()
	return own != nil && formatCas(own.CAS) == string(s.Cas) && !scope.Shared && !scope.AfterMiss
}

// watch cancels the lease of the item s if the lease holder has not filled it for the time of a
// lease. The next get then rebuilds.
func (l *rule) watch(t *task.Task, s *Item) {
	if s.IsTombstone() || len(s.Cas) == 0 || l.g.Ablation.Watch {
		return
	}
	switch is := l.g.rebuildOf(l.key); {
	case is.holder != string(s.Cas):
		is.holder, is.since = string(s.Cas), l.g.Now
	case is.Overdue(l.RouteGuard, s.Cas, l.g.Now):
		l.Learned.Count(stats.GuardLeaseExpired)
		l.g.cancelLease(l.RouteGuard, l.here(t), s)
		is.holder = ""
	}
}

// token returns the function that converts a cas of the key's server to the token that the client
// sees.
func (l *rule) token() task.Token {
	if l.copies != nil {
		return l.copies.Tag
	}
	number := l.Place(l.at).Number
	return func(cas uint64) uint64 { return divert.TagCas(cas, number) }
}

// serve answers t with the value r.
func (l *rule) serve(t *task.Task, r *upstream.Result, s *Item) {
	switch {
	case touches(t):
		l.retouch(t)
	case lacks(t, r) && !l.asWritten: // a server that does not send a flag does not send it with a second read either
		l.asWritten = true
		l.inspect(t, l.at, l.readLine(t, l.name, nil, false), (*rule).judge)
	default:
		l.show(t, r, s)
	}
}

// itemFlags are the meta flags that a read of the guard's own does not request, but a client can.
const itemFlags wire.Letters = 1<<('k'-'A') | 1<<('O'-'A') | 1<<('s'-'A') | 1<<('t'-'A') | 1<<('h'-'A') | 1<<('l'-'A')

// lacks reports whether the reply r, with which t is served, lacks meta flags that t has requested: it may
// be the reply to a poll, which has only f, v and c.
func lacks(t *task.Task, r *upstream.Result) bool {
	if t.Req.Dialect != wire.Meta || touches(t) {
		return false
	}
	missing := t.Req.Letters &^ r.Reply.Letters & itemFlags
	if missing.Has('k') && t.Req.RawKey(t.Raw) { // no request to a server has this k
		missing &^= 1 << ('k' - 'A')
	}
	return missing != 0
}

// serveOld answers t with r, a reply with an old value. The reply to the client has no cas, so no
// client can store a value that is derived from the old one by a cas command. A binary reply has
// the cas wire.NoMatch.
func (l *rule) serveOld(t *task.Task, r *upstream.Result, s *Item) {
	if !lacks(t, r) {
		l.Learned.Count(stats.GuardStale)
		l.watch(t, s)
		s.Cas, l.outdated = nil, true
	}
	l.serve(t, r, s)
}

// show answers t with the value r in the client's protocol.
func (l *rule) show(t *task.Task, r *upstream.Result, s *Item) {
	if !l.outdated {
		l.knows(Found)
	}
	b := []byte(nil)
	if t.Req.Dialect == wire.Meta {
		b = l.asMeta(t, r, s)
	} else {
		token := t.Op == wire.Gets || t.Op == wire.Gats || t.Req.Flags&wire.Binary != 0
		b = appendText(nil, l.name, &r.Reply, r.Bytes, s, token)
	}
	t.Answer(t.Result(l.server(t), b), l.token())
}

// asMeta returns the reply r without the flags that the client has not asked for.
func (l *rule) asMeta(t *task.Task, r *upstream.Result, s *Item) []byte {
	return appendMeta(nil, t.Req.Letters, int64(l.Stale/time.Second), &r.Reply, r.Bytes, s)
}
