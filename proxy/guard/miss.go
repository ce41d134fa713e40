package guard

// This file records the misses that clients get, and runs the sets that may be rebuilds after
// these misses.

import (
	"math"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// here returns the server that t's key has now, and the name of the key on that server.
func (l *rule) here(t *task.Task) itemPlace {
	if l.copies != nil {
		return l.copies.Spot(t.Route, t.Key)
	}
	s := itemPlace{Server: l.server(t), Name: string(l.name)}
	if l.View != nil {
		s.Gen = uint64(l.View.N(l.Owner))<<32 | uint64(l.View.N(l.Place(l.at).Server))
	}
	return s
}

// scope returns which sets can follow a miss of this command's client as its rebuild.
func (l *rule) scope() Scope {
	return Scope{
		Shared:    l.Clients == table.Shared || l.Clients == table.Detected && l.party.Shared.Load(),
		AfterMiss: l.OnlyAfterMiss,
		Pooled:    l.Clients == table.Pooled && !l.OnlyAfterMiss,
	}
}

// misses returns the record of the misses of t's key that no set has followed yet, in the scope
// of t's client. It returns nil if there is none.
func (l *rule) misses() *Miss {
	return l.g.misses.Find(l.scope(), &l.party.missClient, l.key)
}

// event returns an Event of kind k with the present time.
func (l *rule) event(k Kind) Event {
	ev := At(l.RouteGuard, l.g.Now)
	ev.Kind = k
	return ev
}

// record records that t's client gets a miss. s is the item that its get has seen. If it is unknown (nil)
// or absent, no set can be bound to it. record must be called before the client gets the reply. If the client's
// connection is closed, record cancels the lease instead and returns nil.
func (l *rule) record(t *task.Task, s *Item) *Miss {
	g := l.g
	if l.Hide {
		return nil
	}
	seen := Seen{Event: l.event(Missed), Hash: t.Hash, Route: l.RouteGuard}
	if seen.At = g.Now; s != nil && s.At != 0 {
		seen.At = s.At
	}
	if s != nil && !s.IsTombstone() && !s.IsAbsent() {
		seen.CAS, _ = strconv.ParseUint(string(s.Cas), 10, 64)
		seen.itemPlace, seen.Via, seen.Placeholder, seen.Gone, seen.Won = l.here(t), s.Via, s.IsPlaceholder(), l.isGone(s), s.Won
		if left := s.SecondsLeft(); l.Stale > 0 && !s.IsPlaceholder() && !s.IsInvalidated() && left <= math.MaxInt32 {
			seen.Left = int32(left)
		}
		if seen.First = seen.CAS; l.tags != nil && l.tags.via.Same(s.Via) {
			seen.Known = slices.Clone(l.tags.known)
		}
	}
	if l.party.gone.Load() {
		if s != nil && s.Won {
			l.Learned.Count(stats.GuardLeaseCanceled)
			g.cancelLease(l.RouteGuard, l.here(t), s)
		}
		return nil
	}
	loops, _ := g.Loops.Count(g.Tasks)
	return g.misses.Record(l.scope(), &l.party.missClient, l.key, seen, max(g.Clients.Limits.Tickets/max(loops, 1), 1))
}

// knows ends the recorded miss of t's key, if t's client sends one request at a time. The kind k
// says why: the client gets the value (Found), the reply to its delete (Deleted), or the reply to
// another command that has changed the item (Changed).
func (l *rule) knows(k Kind) {
	if m := l.misses(); m != nil {
		l.g.misses.Apply(l.scope(), m, l.event(k))
	}
}

// Expects reports whether the client of s may have got a miss that no set has followed yet.
func Expects(s *client.Session) bool {
	p, _ := s.Companion.(*clientState)
	return p != nil && p.HasMisses()
}

// Shown ends the recorded miss of t's client, because another package answers the read t with a
// value. It runs on the loop of t.
func (g *Guard) Shown(t *task.Task) {
	if l, _ := t.Rule.(*rule); l != nil && t.Route.Guard != nil {
		l.g, l.RouteGuard, l.key = g, t.Route.Guard, nameOf(t.Route, t.Key)
		l.knows(Found)
	}
}

// Found ends the recorded miss of key that the client of s may have. It is called when the client
// gets the value without a task: by an ordinary exchange, or from the near cache.
func (g *Guard) Found(s *client.Session, rt *routing.Route, key []byte) {
	p, _ := s.Companion.(*clientState)
	hash := g.Loops.HashKey(key)
	if p == nil || !p.Expects(hash) {
		return
	}
	l := &rule{RouteGuard: rt.Guard, party: p, key: nameOf(rt, key)}
	g.OnLoop(hash, func(g *Guard) {
		l.g = g
		l.knows(Found)
	})
}

// reachable reports whether a set with the cas of the item o, sent on c to the server `here`, can
// only replace this same item: see missOrigin.Reachable.
func (g *Guard) reachable(o *missOrigin, here itemPlace, c *upstream.Conn) bool {
	if elsewhere := o.itemPlace != here; g.Ablation.Phase && elsewhere || g.Ablation.Life && !elsewhere {
		return c != nil
	}
	return o.Reachable(here, c)
}

// conn returns the connection on which t's next command will be sent, or nil.
func (l *rule) conn(t *task.Task) *upstream.Conn {
	c, _, _ := l.server(t).Pick(t.Asker, t.ClientDone)
	return c
}

// reaches reports whether the set t can only replace the item o, or fails because there is no connection. If the client has begun to
// use another connection since the miss, because of the size of its values, t uses the one of the miss: the
// other one may be newer than the miss.
func (l *rule) reaches(t *task.Task, o *missOrigin) bool {
	c, here := l.conn(t), l.here(t)
	if c == nil && !l.replicated() || l.g.reachable(o, here, c) {
		return true
	}
	other := t.Asker ^ upstream.Bulky
	if !l.g.reachable(o, here, l.server(t).ConnFor(other)) {
		return false
	}
	t.Asker = other
	return true
}

// decide returns what to do with a set, add or replace. It also returns the recorded miss m that
// the command follows, and the cas to send. m is nil if there is no miss.
func (l *rule) decide(t *task.Task, k Kind) (m *Miss, act Act, cas uint64) {
	if l.Hide {
		return nil, Write, 0
	}
	if m = l.misses(); m == nil {
		_, act, _ = Decide(l.scope(), KeyMisses{}, l.event(k))
		return nil, act, 0
	}
	if !l.reaches(t, &m.missOrigin) {
		l.g.misses.Apply(l.scope(), m, l.event(Unplaced))
	}
	act, cas = l.g.misses.Apply(l.scope(), m, l.event(k))
	return m, act, cas
}

// overItem has the mode of the ms that stores the value of a command over an item, and the event that
// Decide gets if the command can follow a miss. A client that has missed the key can add it, but has
// nothing to replace.
var overItem = [wire.NumOps]struct {
	kind Kind
	mode byte
}{wire.Set: {Set, 'S'}, wire.Add: {Add, 'S'}, wire.Replace: {Replace, 'R'}, wire.Append: {mode: 'A'}, wire.Prepend: {mode: 'P'}}

// rebuild serves a set, add or replace that follows a miss of its client. It also rejects a set that is
// only allowed after a miss, if there was none. It returns false if it has done nothing. Decide gets the
// event k, and the value is stored with an ms of the given mode.
func (l *rule) rebuild(t *task.Task, k Kind, mode byte) bool {
	m, act, cas := l.decide(t, k)
	switch act {
	case Write:
		return false
	case Wait:
		m.waiting = append(m.waiting, t)
	case Refuse:
		if m != nil {
			l.came(m.Win, refused)
		}
		l.Learned.Count(stats.GuardVoid)
		l.say(t, wire.NotStored)
	case Bind:
		l.bound = m.Bind(cas)
		l.store(t, mode, strconv.AppendUint(nil, cas, 10))
	}
	return true
}

// rebuilt handles r, the reply to a set with the cas that the miss of its client has seen.
func (l *rule) rebuilt(t *task.Task, r *upstream.Result) {
	switch b, k := l.bound, r.Reply.Kind; {
	case k != wire.Stored:
		l.tooLate(t, k)
	case l.tags != nil && l.tags.trouble != nil: // a tag version could not be read, so it is not known whether the stored value is valid
		l.broken(t, l.tags.trouble)
	case l.tags != nil && l.tagsChanged(): // a tag has changed since the miss, so the stored value is invalid
		l.tooLate(t, wire.Exists)
	default:
		s := itemOf(r)
		l.came(b.Win, filled)
		if b.Wins {
			l.Learned.Count(stats.GuardFill)
			l.Learned.Rebuilt(time.Duration(l.g.Now - b.At))
		}
		n, _ := strconv.ParseUint(string(s.Cas), 10, 64)
		l.release(Stored, n, r.ConnEpoch)
		l.reply(t, r)
	}
}

// release ends the set t that was sent with the cas that an earlier miss has seen, if t is such a
// set. It then runs the sets of the same key that have waited for this set.
func (l *rule) release(o Outcome, cas uint64, epoch upstream.ConnEpoch) {
	b := l.bound
	if b == nil {
		return
	}
	l.bound = nil
	ev := l.event(SetDone)
	ev.Outcome, ev.CAS = o, cas
	for _, t := range l.g.misses.Done(l.scope(), b, ev, epoch) {
		t.Rule.(*rule).write(t, nil)
		t.CatchUp()
	}
}

// refuse uses up one recorded miss of t's key, because Ringside itself rejects the set t.
func (l *rule) refuse(t *task.Task) {
	if m, act, _ := l.decide(t, Set); act == Bind {
		l.bound = m.Bind(m.CAS)
		if !t.Removal() { // a removal deletes the item anyway
			l.cancelBound()
		}
		l.release(Refused, 0, upstream.ConnEpoch{})
	}
}

// came records that a set of the key has arrived. w is the lease of the miss before the set.
func (l *rule) came(w *leaseRecord, f fill) {
	w.End(true)
	l.fill = f
}

// tooLate ends a set after a miss that was not stored, because the item had changed (k is Exists) or was
// gone. If the rebuild took longer than the lease, the guard learns a longer lease.
func (l *rule) tooLate(t *task.Task, k wire.Kind) {
	b := l.bound
	l.came(b.Win, refused)
	if k == wire.Exists {
		l.Learned.Count(stats.GuardExists)
	} else {
		l.Learned.Count(stats.GuardGone)
	}
	age := time.Duration(l.g.Now - b.At)
	if b.Wins && age > l.Learned.Lease(l.Lease) {
		l.Learned.TookTooLong(age, l.LeaseMax, l.g.Now)
	}
	l.release(Refused, 0, upstream.ConnEpoch{})
	l.say(t, wire.NotStored)
}

// leavePiece is how many Miss records of closed client connections a loop processes before the
// next Tick. The limit keeps other clients from waiting while the loop cancels the leases of a
// client with very many misses.
const leavePiece = 256

// leaving is a closed client connection. The guard may still have Miss records of it.
type leaving struct {
	p    *clientState
	sets []uint64
}

// leave cancels the leases of a client with a closed connection, and drops its Miss records. The
// parameter `sets` has the sorted hashes of the keys for which a set, or another write, of the
// client is in progress. The records of these keys stay.
func (g *Guard) leave(p *clientState, sets []uint64) {
	if p.held.Load() > 0 { // this check avoids a search through all waiting gets
		g.endWaits(p)
	}
	g.leaving = append(g.leaving, leaving{p, sets})
	g.clearLeft()
}

// clearLeft cancels leases of closed client connections until it has processed g.piece Miss
// records. The other leases are canceled after the next Tick, which sets g.piece again.
func (g *Guard) clearLeft() {
	for len(g.leaving) > 0 && g.piece > 0 {
		c := g.leaving[0]
		before := g.misses.visits
		list, more := g.misses.DropClient(&c.p.missClient, c.sets, g.piece)
		g.piece -= g.misses.visits - before
		for _, m := range list {
			g.cancel(c.p, m)
		}
		if !more {
			g.leaving[0] = leaving{}
			g.leaving = g.leaving[1:]
		}
	}
	if len(g.leaving) > 0 {
		g.Soon(link.GuardTimer)
	}
}

// cancel cancels the lease that the miss m of the client p was granted. p has closed its
// connection.
func (g *Guard) cancel(p *clientState, m *Miss) {
	rt := m.Route
	l := rule{RouteGuard: rt, g: g, party: p}
	_, act, _ := Decide(l.scope(), m.KeyMisses, l.event(Closed))
	left := max(int64(m.Left)-(g.Now-m.At)/int64(time.Second), 0)
	expired := m.Won && !m.Gone && m.Left > 0 && hasExpired(rt, left) && !l.scope().Shared // with this lease in force, no client would rebuild the expired value until its server drops it
	if act != RemovePlaceholder && !expired && !(g.Ablation.CancelLease && m.CAS != 0) {
		return
	}
	rt.Learned.Count(stats.GuardLeaseCanceled)
	if m.Win != nil && m.Win.Strike {
		g.rebuildOf(m.name).Add(-1, rt, g.Now)
	}
	keep := int64(0)
	if m.Left > 0 {
		keep = left + spare(rt)
	}
	g.cancelLeaseAt(m.itemPlace, formatCas(m.CAS), m.Via, m.Placeholder, keep)
}
