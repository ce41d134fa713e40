package guard

// This file has the writes of guarded keys.

import (
	"cmp"
	"slices"
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

const ownFlags = "these client flags are reserved for Ringside"

// takesOwn reports whether t would store client flags that Ringside reserves for its
// own items.
func (l *rule) takesOwn(t *task.Task) bool {
	if !t.Op.Stores() || l.Hide {
		return false
	}
	flags := t.Req.ClientFlags.Of(t.Raw)
	return wire.SameFlags(flags, tombstoneFlags) || l.tags != nil && wire.SameFlags(flags, stamp.Flags)
}

// write begins a write. r is the reply to the delete at the other server of a key that moves; nil: there
// was no such delete.
//
// Some commands are sent at once: set, add, cas, and incr and decr of values without tags that are not
// old. All others look at the item first. After the look, or if the first request could not be
// executed because of what is stored, looked decides.
func (l *rule) write(t *task.Task, r *upstream.Result) {
	switch {
	case r != nil && !l.answered(t, r):
	case l.takesOwn(t):
		l.refuse(t)
		t.Reject(wire.AppendClientError(nil, ownFlags))
	case l.tags != nil && l.tags.Read && len(l.tags.named) > 0 && t.Op.Stores(): // Ringside stores no tags on this route (Read), so no read could check the named tags
		l.refuse(t)
		l.say(t, wire.NotStored)
	case t.Op <= wire.Replace && l.rebuild(t, overItem[t.Op].kind, overItem[t.Op].mode):
	case t.Op == wire.Set:
		l.store(t, 'S', nil)
	case t.Op == wire.Add:
		l.store(t, 'E', nil)
	case t.Op == wire.Cas:
		l.compare(t)
	case (t.Op == wire.Incr || t.Op == wire.Decr) && l.Stale == 0 && l.tags == nil:
		l.kept.Bytes = nil
		l.sendAsIs(t)
	case t.Removal():
		l.refuse(t)
		l.erase(t)
	case t.Op == wire.Delete && (l.Stale == 0 || l.Hide):
		l.erase(t)
	default:
		l.look(t, (*rule).looked)
	}
}

// looked continues a write after a look. Each request that it sends changes the item only if the item
// has not changed since. So it can't change or restore a value that was deleted in between.
func (l *rule) looked(t *task.Task, r *upstream.Result, s *Item) {
	counts := t.Op == wire.Incr || t.Op == wire.Decr
	switch s.Void = s.Tags != stamp.Stands; {
	case !l.answered(t, r):
	case t.Op == wire.Delete:
		l.retire(t, s)
	case s.IsTombstone() && l.InTransition(): // another instance is copying the value back
		l.againLater(t)
	case t.Op == wire.Add && s.IsAbsent():
		l.again(t)
	case t.Op == wire.Add && (!l.isGone(s) || s.IsTombstone()):
		l.say(t, wire.NotStored)
	case t.Op == wire.Add:
		l.storeOver(t, s)
	case counts && t.Req.Letters.Has('N') && t.Req.Dialect == wire.Meta && l.isGone(s):
		l.create(t, s)
	case makes(t) && l.isGone(s) && !s.IsTombstone() && l.makesAtServer(t):
		l.createByAppend(t, s)
	case l.nothing(t, s) && !(t.Op == wire.Touch && l.g.Ablation.Touch):
		l.say(t, task.MissKind(t))
	case t.Op == wire.Touch:
		l.sendAsIs(t)
	case l.kept.Bytes != nil: // the server's reply to the client's own command
		l.reply(t, &l.kept)
	case t.Op == wire.Replace:
		l.storeOver(t, s)
	case t.Op == wire.Cas, !l.matches(t, s):
		l.say(t, wire.Exists)
	case counts:
		l.count(t, s)
	default:
		l.extend(t, s)
	}
}

// makes reports whether t is an ms with mode append or prepend that creates a missing item.
func makes(t *task.Task) bool {
	return (t.Op == wire.Append || t.Op == wire.Prepend) && t.Req.Letters.Has('N')
}

// makesAtServer reports whether the key's server would create the item for a client of its own: see
// wire.AppendCreates.
func (l *rule) makesAtServer(t *task.Task) bool {
	has := l.server(t).FeaturesFor(t.Asker)
	return has == 0 || has&wire.AppendCreates != 0
}

// createByAppend creates the item of an append or prepend. The command is then a set, so it may follow a miss of its
// client. Without a miss, it is an add, or replaces the placeholder or old value s.
func (l *rule) createByAppend(t *task.Task, s *Item) {
	switch {
	case l.rebuild(t, Set, 'S'):
	case s.IsAbsent():
		l.store(t, 'E', nil)
	default:
		l.store(t, 'S', s.Cas)
	}
}

// sendAsIs sends the client's own command, which is not bound to the item that a look has found.
func (l *rule) sendAsIs(t *task.Task) { l.ask(t, t.WithKey(l.name), (*rule).sentAsIs) }

func (l *rule) sentAsIs(t *task.Task, r *upstream.Result) {
	if r.Reply.Kind == wire.ClientError && t.Op != wire.Touch && l.kept.Bytes == nil { // there is no number: perhaps the item is a placeholder
		l.lookAfter(t, r)
		return
	}
	l.pass(t, r)
}

// lookAfter looks at the item, because the reply r could have another reason than clients must see. If it
// has not, the client gets r.
func (l *rule) lookAfter(t *task.Task, r *upstream.Result) {
	l.kept = t.Keep(r)
	l.look(t, (*rule).looked)
}

// byToken sends t as its client wrote it, and then handles the reply. If t compares a cas and
// the server reports another version, byToken reads the item. If that is a placeholder or
// deleted, the client gets NOT_FOUND.
func (l *rule) byToken(t *task.Task) {
	t.Rule = l
	t.Step(t.Raw, func(r *upstream.Result, token task.Token) {
		l.g.wrote(l.key, noSet)
		if hasChanged(t, r.Reply.Kind) {
			l.knows(Changed)
		}
		if !compares(t) || r.Reply.Kind != wire.Exists && r.Reply.Kind != wire.ClientError {
			t.Answer(r, token)
			return
		}
		kept := t.Keep(r)
		l.look(t, func(l *rule, t *task.Task, r *upstream.Result, s *Item) {
			switch s.Void = s.Tags != stamp.Stands; {
			case !l.answered(t, r):
			case l.nothing(t, s) && t.Req.Letters.Has('N') && (t.Op == wire.Incr || t.Op == wire.Decr): // memcached ignores the cas if the command creates its item
				l.create(t, s)
			case l.nothing(t, s):
				t.AnswerKind(wire.NotFound)
			default:
				t.Answer(&kept, token)
			}
		})
	})
}

// invalidate serves an md with I, or a cas with I. Both could succeed on an item that is none for
// clients: a placeholder, a tombstone, or a value that is deleted or has expired on a route with stale. So
// invalidate looks first. If there is such an item, a cas loses its I, so that the server compares the
// token, and an md without a token removes the placeholder, or marks the old value again. A rebuild that
// has begun is then not stored, as after any delete.
func (l *rule) invalidate(t *task.Task) {
	t.Rule = l
	l.look(t, func(l *rule, t *task.Task, r *upstream.Result, s *Item) {
		s.Void = s.Tags != stamp.Stands
		byHand := s.IsInvalidated() && !s.IsPlaceholder() && l.Stale == 0 // a client has marked the value with md I
		switch {
		case !l.answered(t, r):
		case s.IsAbsent() || byHand || !l.isGone(s):
			l.byToken(t)
		case t.Op == wire.Cas:
			t.Rewrite(withoutInvalidate(t)...)
			l.byToken(t)
		case t.Req.Letters.Has('C'):
			l.byToken(t)
		default:
			flags := " C" + string(s.Cas)
			if !s.IsPlaceholder() && !s.IsTombstone() {
				flags = " I" + flags
			}
			l.ask(t, t.Meta("md", l.name, flags, nil), func(l *rule, t *task.Task, r *upstream.Result) {
				switch {
				case !l.answered(t, r):
				case r.Reply.Kind != wire.Exists || l.tries == maxTries:
					l.deleted(t, wire.NotFound)
				default: // the item has changed since the look
					l.tries++
					l.invalidate(t)
				}
			})
		}
	})
}

// hasChanged reports whether t has changed an item, according to the kind k of the server's
// reply.
func hasChanged(t *task.Task, k wire.Kind) bool {
	switch k {
	case wire.Stored, wire.Deleted, wire.Number, wire.Value, wire.Header:
		return changes(t)
	}
	return false
}

// changes reports whether t is a command that changes an item, or deletes it.
func changes(t *task.Task) bool {
	return t.Op.Stores() || t.Op == wire.Incr || t.Op == wire.Decr || t.Op == wire.Delete
}

// pass answers t with r, the server's reply to the client's own command.
func (l *rule) pass(t *task.Task, r *upstream.Result) {
	if r.Bytes == nil {
		l.broken(t, r)
		return
	}
	if hasChanged(t, r.Reply.Kind) {
		l.wrote = true
		l.knows(Changed)
	}
	l.reply(t, r)
}

// reply answers t with the server's reply r. A meta reply has the flags that the client has asked for.
func (l *rule) reply(t *task.Task, r *upstream.Result) {
	switch {
	case t.Req.Dialect == wire.Meta && r.Reply.Kind.Answered():
		s := itemOf(r)
		if l.tags != nil && t.Op.Stores() {
			s.Size -= len(l.tags.head)
		}
		r = t.Result(nil, l.asMeta(t, r, &s))
	case t.Op.Stores():
		l.say(t, r.Reply.Kind)
		return
	}
	l.end(t, 0, r)
}

// storeLine returns the request that stores t's value in the mode S, E, A, P or R (l.mode). If l.cas is
// not empty, the server stores the value only if the item has this cas. A server without cas shows 0
// for each item, so 0 is not sent. If other misses follow the one of a bound set, the reply shows the
// new cas, which their sets need.
func (l *rule) storeLine(t *task.Task) []byte {
	flags, mode, token := "", " M"+string(l.mode), ""
	if l.cas != "" && l.cas != "0" {
		flags = " C" + l.cas
	}
	if l.bound != nil && (l.scope() != Scope{} || l.bound.N > 1) && !t.Req.Letters.Has('c') {
		token = " c"
	}
	if t.Req.Dialect == wire.Meta {
		edits, head := l.stamped(t)
		if makes(t) && (l.mode == 'S' || l.mode == 'E') {
			edits = append(edits, t.LifeOfCreated()...)
		}
		flags += head
		switch at := t.Req.Unique; {
		case at.Len() == 0:
		case flags == head: // an add with C is an add
			edits = append(edits, task.Edit{At: wire.Span{Start: at.Start - uint32(len(" C")), End: at.End}})
		default:
			edits, flags = append(edits, task.Edit{At: at, With: []byte(l.cas)}), head
		}
		if at, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'M'); ok {
			edits, mode = append(edits, task.Edit{At: at, With: []byte{l.mode}}), ""
		}
		return t.WithKey(l.name, append(edits, appendToLine(t, flags+mode+token))...)
	}
	body := t.Body()
	if l.tags != nil && l.tags.head != nil {
		flags += " F" + stamp.Flags
		body = slices.Concat(l.tags.head, body)
	} else if f := t.ClientFlags(); f != "0" {
		flags += " F" + f
	}
	if e := t.Exptime(); e != "0" {
		flags += " T" + e
	}
	return t.Meta("ms", l.name, flags+mode+token, body)
}

// storeOver stores t's value over the item s.
func (l *rule) storeOver(t *task.Task, s *Item) { l.store(t, overItem[t.Op].mode, s.Cas) }

// store stores t's value with an ms of the given mode, only over the item with the given cas if that
// is not empty. The value gets the present versions of its tags. While the key's own server is in WARM or
// SETTLE, a set first deletes the older value on the substitute server. If it needs a cas, it may be refused, so
// it deletes that value afterwards.
func (l *rule) store(t *task.Task, mode byte, cas []byte) {
	l.mode, l.cas = mode, string(cas)
	switch moves := t.Op == wire.Set && (l.Role == health.Warming || l.Role == health.Settling); {
	case moves && l.cas == "":
		l.deleteAt(t, 1, (*rule).storeOwn)
	default:
		l.uncopied = l.uncopied || moves
		l.storeOwn(t, nil)
	}
}

// storeOwn continues store. r is the reply to the delete on the substitute server; nil: there was no such
// delete.
func (l *rule) storeOwn(t *task.Task, r *upstream.Result) {
	switch b := l.bound; {
	case r != nil && !l.answered(t, r):
	case r != nil && b != nil && !l.reaches(t, &b.missOrigin): // the server has restarted during the delete
		l.tooLate(t, wire.NotFound)
	case l.tags == nil:
		l.put(t)
	case l.mode == 'A' || l.mode == 'P':
		l.tags.head = nil
		l.put(t)
	default:
		l.stamp(t)
	}
}

// put sends the ms of store, or that of create.
func (l *rule) put(t *task.Task) {
	if l.number != nil {
		_, exptime := l.echo(t, nil)
		l.change(t, nil, l.number, " T"+exptime+" c")
		return
	}
	if l.bound != nil && l.copies != nil {
		l.copies.via = l.bound.missOrigin.Via
	}
	l.ask(t, l.storeLine(t), (*rule).stored)
	if l.sealed && l.mode == 'S' {
		l.seal(t)
	}
}

// stored handles the reply to the ms of store.
func (l *rule) stored(t *task.Task, r *upstream.Result) {
	k := r.Reply.Kind
	if k.Failed() {
		// The value is too large, or the server has no memory for it, or a replica rejects it. The old item
		// may still exist, because perhaps no request with the value was sent.
		l.cancelBound()
		l.release(Refused, 0, upstream.ConnEpoch{})
		l.g.rebuildOf(l.key).Add(Unfilled+1, l.RouteGuard, l.g.Now)
		l.g.wrote(l.key, noSet)
	}
	if !l.answered(t, r) {
		return
	}
	switch l.wrote = k == wire.Stored; {
	case l.bound != nil:
		l.rebuilt(t, r)
	case l.wrote:
		if l.knows(Changed); t.Op == wire.Set {
			l.fill = filled
		}
		l.reply(t, r)
	case l.mode == 'E' && k == wire.NotStored && makes(t): // another client has stored an item since the look
		l.again(t)
	case l.mode == 'E' && k == wire.NotStored || t.Op == wire.Cas && k == wire.Exists: // perhaps the item is a placeholder
		l.lookAfter(t, r)
	case l.cas != "" && t.Op != wire.Cas:
		l.again(t)
	default:
		l.reply(t, r)
	}
}

// cancelBound cancels the lease of the miss that t's set follows, if no other set can store a value over
// its item. The set is not stored.
func (l *rule) cancelBound() {
	if b := l.bound; b != nil && b.Wins && b.Gone && b.N == 1 {
		l.Learned.Count(stats.GuardLeaseCanceled)
		l.g.cancelLeaseAt(b.missOrigin.itemPlace, formatCas(b.CAS), b.missOrigin.Via, b.missOrigin.Placeholder, 0)
	}
}

// seal uses up the lease for an early rebuild of the value that t has just stored. It reads the
// value with N and R, so that no later get is granted that lease.
func (l *rule) seal(t *task.Task) {
	l.Learned.Count(stats.GuardExtraRequest)
	line := t.Meta("mg", l.name, " s f c N"+strconv.FormatInt(leaseSeconds(l.RouteGuard), 10)+" R100000", nil)
	if l.copies != nil {
		l.ask(t, line, (*rule).sealedValue)
	} else {
		l.sendOwn(t, line, (*rule).sealedValue)
	}
}

// sealedValue handles r, the reply to the read of seal. cancelLease leaves a stored value unchanged; if
// nothing was stored, it removes the placeholder that this read has created.
func (l *rule) sealedValue(t *task.Task, r *upstream.Result) {
	if s := itemOf(r); s.HasLease() {
		l.g.cancelLease(l.RouteGuard, l.here(t), &s)
	}
}

// extend sends an append or prepend to the value s.
func (l *rule) extend(t *task.Task, s *Item) {
	headed := l.tags != nil && l.tags.head != nil
	body := t.Body()
	switch {
	case l.outgrows(t, s):
		l.say(t, wire.NotStored)
		return
	case s.IsPlainEmpty(): // the flags of an empty value are special: the longer value must get the client's flags
		if headed {
			l.tags.head = stamp.Head(l.tags.head).WithFlags(0)
		}
	case headed && t.Op == wire.Prepend: // the header must stay in front of the value, so the value is written as a whole
		body = slices.Concat(body, l.tags.body)
	default:
		l.storeOver(t, s)
		return
	}
	more := ""
	if t.Req.Letters.Has('c') {
		more = " c"
	}
	l.change(t, s, body, more)
}

// outgrows reports whether the value s would be too large for the server after the append or prepend
// t, although the new part alone is not too large. The reply is then NOT_STORED, as in memcached.
func (l *rule) outgrows(t *task.Task, s *Item) bool {
	srv, part, old, flags := l.server(t), len(t.Body()), s.Size, wire.ClientFlags(s.ClientFlags()) != 0
	if l.tags != nil && len(l.tags.head) > 0 {
		old, flags = old+len(l.tags.head), true
	}
	return srv.ExceedsItem(len(l.name), old+part, flags) && !srv.ExceedsItem(len(l.name), part, false)
}

// retire marks the value s as stale, so that it is served during its rebuild. It removes an item that is
// no value.
func (l *rule) retire(t *task.Task, s *Item) {
	if s.IsAbsent() {
		l.deleted(t, wire.NotFound)
		return
	}
	flags := " C" + string(s.Cas)
	if s.IsInvalidated() && !s.IsPlaceholder() || !l.isGone(s) {
		flags = " I" + flags
		if !s.IsInvalidated() { // a second delete must not extend how long the old value is served
			flags += " T" + strconv.FormatInt(l.keep(), 10)
		}
	}
	l.kind = kindOfDelete(!l.isGone(s))
	l.ask(t, t.Meta("md", l.name, flags, nil), (*rule).retired)
}

// retired handles the reply to the md of retire.
func (l *rule) retired(t *task.Task, r *upstream.Result) {
	switch {
	case !l.answered(t, r):
	case r.Reply.Kind == wire.Deleted:
		l.deleted(t, l.kind)
	case l.tries >= maxTries:
		l.erase(t)
	default:
		l.again(t)
	}
}

// erase deletes the key. A read before the delete finds out whether the key had a value. If the read
// fails, the reply to the delete says so, although the deleted item may have been a placeholder.
func (l *rule) erase(t *task.Task) {
	l.Learned.Count(stats.GuardExtraRequest)
	l.kind = wire.NoReply
	l.first(t, t.Meta("mg", l.name, " s f R0", nil), (*rule).sawErased, func() {
		l.ask(t, t.Meta("md", l.name, "", nil), (*rule).erased)
	})
}

// sawErased handles the reply to the read of erase.
func (l *rule) sawErased(_ *task.Task, r *upstream.Result) {
	if s := itemOf(r); s.Kind.Answered() {
		l.kind = kindOfDelete(!s.IsMiss())
	}
}

// erased handles the reply to the delete of erase, which arrives after that to the read.
func (l *rule) erased(t *task.Task, r *upstream.Result) {
	if l.answered(t, r) {
		l.deleted(t, cmp.Or(l.kind, r.Reply.Kind))
	}
}

// deleted answers a delete.
func (l *rule) deleted(t *task.Task, k wire.Kind) {
	if l.knows(Deleted); l.onInterim {
		k = wire.Deleted
	}
	l.say(t, k)
}

// kindOfDelete returns the reply to a delete of a key that had a value (found) or had none.
func kindOfDelete(found bool) wire.Kind {
	if found {
		return wire.Deleted
	}
	return wire.NotFound
}
