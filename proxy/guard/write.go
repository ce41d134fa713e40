package guard

// This file has the writes of guarded keys.

import (
	"slices"
	"strconv"

	"ringside/proxy/stats"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

const ownFlags = "these flags are Ringside's own"

// takesOwn reports whether t would store client flags that Ringside reserves for its
// own items.
func (l *rule) takesOwn(t *task.Task) bool {
	if !t.Op.Stores() || l.Hide {
		return false
	}
	flags := t.Req.ClientFlags.Of(t.Raw)
	return wire.SameFlags(flags, tombstoneFlags) || l.tags != nil && wire.SameFlags(flags, stamp.Flags)
}

func (l *rule) write(t *task.Task) {
	if l.takesOwn(t) {
		l.refuse(t)
		t.Reject(wire.AppendClientError(nil, ownFlags))
		return
	}
	if l.tags != nil && l.tags.Read && len(l.tags.named) > 0 && t.Op.Stores() { // Ringside stores no tags on this route (Read), so no read could check the named tags
		l.refuse(t)
		l.say(t, wire.NotStored)
		return
	}
	switch t.Op {
	case wire.Set:
		l.set(t)
	case wire.Cas:
		l.compare(t)
	case wire.Add:
		l.add(t)
	case wire.Replace:
		l.replace(t)
	case wire.Append, wire.Prepend:
		l.extend(t)
	case wire.Incr, wire.Decr:
		l.count(t)
	case wire.Touch:
		l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
			if l.nothing(t, s, epoch) && !l.g.Ablation.Touch {
				l.say(t, wire.NotFound)
				return
			}
			l.ask(t, t.WithKey(l.name), func(r *upstream.Result) { l.pass(t, r) })
		})
	default:
		if t.Removal() {
			l.refuse(t)
		}
		l.remove(t, func(found bool) {
			l.knows(t, Deleted)
			if found {
				l.say(t, wire.Deleted)
			} else {
				l.say(t, wire.NotFound)
			}
		})
	}
}

// byToken sends t as its client wrote it, and then handles the reply. If t is a cas command and
// the server reports another version, byToken reads the item. If that is a placeholder or
// deleted, the client gets NOT_FOUND.
func (l *rule) byToken(t *task.Task) {
	t.Rule = l
	t.Step(t.Raw, func(r *upstream.Result, token task.Token) {
		l.g.wake(t)
		if hasChanged(t, r.Reply.Kind) {
			l.knows(t, Changed)
		}
		if !compares(t) || r.Reply.Kind != wire.Exists && r.Reply.Kind != wire.ClientError {
			t.Answer(r, token)
			return
		}
		kept := t.Keep(r)
		l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
			if l.nothing(t, s, epoch) {
				t.AnswerKind(wire.NotFound)
			} else {
				t.Answer(&kept, token)
			}
		})
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
		l.knows(t, Changed)
	}
	kept := t.Keep(l.counterReply(t, r))
	kept.Server = l.server(t)
	l.end(t, func() { t.Answer(&kept, l.token()) })
}

// counterReply returns the reply r to an incr or decr. If r is a meta reply with a TTL, it
// replaces the TTL by the one that clients must see: the server keeps the item longer.
func (l *rule) counterReply(t *task.Task, r *upstream.Result) *upstream.Result {
	rep := &r.Reply
	if l.Stale == 0 || t.Req.Dialect != wire.Meta || !t.Req.Letters.Has('t') || rep.Kind != wire.Value && rep.Kind != wire.Header {
		return r
	}
	s := parseItem(rep, r.Bytes)
	return t.Result(r.Server, l.asMeta(t, r, &s))
}

// storeLine returns the request that stores t's value in the mode S, E, A, P or R. If cas is not
// empty, the server stores the value only if the item has this cas. A server without cas shows 0
// for each item, so 0 is not sent. If token is set, the reply shows the new cas.
func (l *rule) storeLine(t *task.Task, mode byte, cas string, token bool) []byte {
	var flags string
	if cas != "" && cas != "0" {
		flags = " C" + cas
	}
	if t.Req.Dialect == wire.Meta {
		edits, head := l.stamped(t)
		flags += head
		switch at := t.Req.Unique; {
		case at.Len() == 0:
		case flags == head: // an add with C is an add
			edits = append(edits, task.Edit{At: wire.Span{Start: at.Start - uint32(len(" C")), End: at.End}})
		default:
			edits, flags = append(edits, task.Edit{At: at, With: []byte(cas)}), head
		}
		if at, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'M'); ok {
			edits = append(edits, task.Edit{At: at, With: []byte{mode}})
		} else {
			flags += " M" + string(mode)
		}
		if token && !t.Req.Letters.Has('c') {
			flags += " c"
		}
		return t.WithKey(l.name, append(edits, appendToLine(t, flags))...)
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
	if flags += " M" + string(mode); token {
		flags += " c"
	}
	return t.Meta("ms", l.name, flags, body)
}

// store sends the request of storeLine, and calls the function `then` with the kind of its reply.
// An error ends t. If a tag of the value may have changed, nothing is sent, and the function gets
// Exists and a nil result.
func (l *rule) store(t *task.Task, mode byte, cas string, token bool, then func(k wire.Kind, r *upstream.Result)) {
	switch {
	case l.tags == nil:
	case mode == 'A' || mode == 'P':
		l.tags.head = nil
	default:
		l.stamp(t, func(ok bool) {
			if ok {
				l.storeNow(t, mode, cas, token, then)
			} else {
				then(wire.Exists, nil)
			}
		})
		return
	}
	l.storeNow(t, mode, cas, token, then)
}

func (l *rule) storeNow(t *task.Task, mode byte, cas string, token bool, then func(k wire.Kind, r *upstream.Result)) {
	l.ask(t, l.storeLine(t, mode, cas, token), func(r *upstream.Result) {
		if r.Reply.Kind.Failed() {
			// The value is too large, or the server has no memory for it. The server has removed the
			// old item, unless Ringside has not sent the request.
			if b := l.bound; b != nil && r.Unsent {
				l.cancelBound(b)
			}
			l.release(Refused, 0, upstream.ConnEpoch{})
			l.g.neverFilled.AddMiss(t.Hash, Unfilled+1, l.RouteGuard, l.g.Now)
			l.g.wake(t)
		}
		if l.answered(t, r) {
			l.wrote = r.Reply.Kind == wire.Stored
			then(r.Reply.Kind, r)
		}
	})
	if l.sealed && mode == 'S' {
		l.seal(t)
	}
}

// cancelBound cancels the lease of the miss that the set b follows, if no other set can store a value
// over its item. b is not sent to the server.
func (l *rule) cancelBound(b *boundSet) {
	if b.Wins && b.Gone && b.N == 1 {
		l.Learned.Count(stats.GuardLeaseCanceled)
		l.g.cancelLeaseAt(b.missOrigin.itemPlace, formatCas(b.CAS), b.missOrigin.Via, b.missOrigin.Placeholder, 0)
	}
}

// seal uses up the lease for an early rebuild of the value that t has just stored. It reads the
// value with N and R, so that no later get is granted that lease.
func (l *rule) seal(t *task.Task) {
	here := l.here(t)
	l.Learned.Count(stats.GuardExtraRequest)
	told := func(r *upstream.Result) {
		if r.Reply.Kind == wire.NoReply {
			return
		}
		at := here
		if l.copies != nil { // the cas token belongs to the server that has sent the last reply, so the lease is canceled there
			at = l.here(t)
		}
		if s := parseItem(&r.Reply, r.Bytes); s.HasLease() { // cancelLease leaves a stored value unchanged; if nothing was stored, it removes the placeholder that this read has created
			l.g.cancelLease(l.RouteGuard, at, &s, r.ConnEpoch)
		}
	}
	line := " s f c N" + strconv.FormatInt(leaseSeconds(l.RouteGuard), 10) + " R100000"
	if l.copies != nil {
		l.ask(t, t.Meta("mg", l.name, line, nil), told)
		return
	}
	l.then = append(l.then, told)
	t.AskAs(true, len(l.then)-1, here.Server, t.Meta("mg", l.name, line, nil))
}

// answerStore answers the store t with the kind k of the server's reply r.
func (l *rule) answerStore(t *task.Task, k wire.Kind, r *upstream.Result) {
	if t.Req.Dialect == wire.Text || t.Req.Letters.Has('I') || r.Reply.Kind == wire.NoReply {
		l.say(t, k)
		return
	}
	s := parseItem(&r.Reply, r.Bytes)
	b := l.asMeta(t, r, &s)
	l.end(t, func() { t.Answer(t.Result(l.server(t), b), l.token()) })
}

// set stores a value. If the set follows a miss of its client, it is stored only if the key still
// has the item of that miss.
func (l *rule) set(t *task.Task) {
	if l.rebuild(t, Set, 'S') {
		return
	}
	l.store(t, 'S', "", false, func(k wire.Kind, r *upstream.Result) {
		if k == wire.Stored {
			delete(l.g.neverFilled, t.Hash)
		}
		l.answerStore(t, k, r)
	})
}

// add stores a value if the key has none. A placeholder counts as none.
func (l *rule) add(t *task.Task) {
	if l.rebuild(t, Add, 'S') {
		return
	}
	l.store(t, 'E', "", false, func(k wire.Kind, r *upstream.Result) {
		if k != wire.NotStored {
			l.answerStore(t, k, r)
			return
		}
		l.inspectItem(t, func(s *Item, _ upstream.ConnEpoch) {
			switch {
			case s.IsAbsent():
				l.again(t, func() { l.add(t) })
			case !l.isGone(s) || s.IsTombstone():
				l.say(t, wire.NotStored)
			default:
				l.over(t, 'S', s, func() { l.add(t) })
			}
		})
	})
}

// replace stores a value if the key has one. A placeholder counts as none.
func (l *rule) replace(t *task.Task) {
	if m := l.misses(t); m != nil && m.N > 0 {
		if m.Gone { // at the miss there was no value to replace, and a newer value of another client must not be replaced
			l.refuse(t)
			l.say(t, wire.NotStored)
			return
		}
		if l.rebuild(t, Set, 'R') {
			return
		}
	}
	l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
		if l.nothing(t, s, epoch) {
			l.say(t, wire.NotStored)
		} else {
			l.over(t, 'R', s, func() { l.replace(t) })
		}
	})
}

// extend serves append and prepend. It reads the item first, and changes the item only if it has
// not changed since. Otherwise it could restore a value that was deleted in between.
func (l *rule) extend(t *task.Task) {
	mode := byte('A')
	if t.Op == wire.Prepend {
		mode = 'P'
	}
	l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
		if l.nothing(t, s, epoch) {
			l.say(t, wire.NotStored)
			return
		}
		if !l.matches(t, s) {
			l.say(t, wire.Exists)
			return
		}
		if l.outgrows(t, s) {
			l.say(t, wire.NotStored)
			return
		}
		headed := l.tags != nil && l.tags.head != nil
		change := func(body []byte) {
			more := ""
			if t.Req.Letters.Has('c') {
				more = " c"
			}
			l.change(t, s, body, more, func(r *upstream.Result) { l.extended(t, r) }, func() { l.extend(t) })
		}
		switch {
		case s.IsPlainEmpty(): // the flags of an empty value are special: the longer value must get the client's flags
			if headed {
				l.tags.head = stamp.Head(l.tags.head).WithFlags(0)
			}
			change(t.Body())
		case headed && mode == 'P': // the header must stay in front of the value, so the value is written as a whole
			change(slices.Concat(t.Body(), l.tags.body))
		default:
			l.over(t, mode, s, func() { l.extend(t) })
		}
	})
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

// extended answers an append or prepend after Ringside has stored the longer value with an ms. r
// is the reply to the ms.
func (l *rule) extended(t *task.Task, r *upstream.Result) {
	l.knows(t, Changed)
	if t.Req.Dialect == wire.Text {
		l.say(t, wire.Stored)
		return
	}
	s := parseItem(&r.Reply, r.Bytes)
	flags, _ := l.echo(t, forEver, false, s.Cas)
	line := slices.Concat([]byte("HD"), flags, []byte(wire.CRLF))
	l.end(t, func() { t.Answer(t.Result(l.server(t), line), l.token()) })
}

// over stores t's value in place of s, the item that a look has found. If the item has changed
// since the look, over calls the function `again`.
func (l *rule) over(t *task.Task, mode byte, s *Item, again func()) {
	l.store(t, mode, string(s.Cas), false, func(k wire.Kind, r *upstream.Result) {
		if k == wire.Stored {
			l.knows(t, Changed)
			l.answerStore(t, k, r)
		} else {
			l.again(t, again)
		}
	})
}

// remove deletes the key, or marks its value as stale so that it is served during the
// rebuild. It calls the function `then` with true if the key had a value.
func (l *rule) remove(t *task.Task, then func(found bool)) {
	if l.Stale == 0 || l.Hide || t.Removal() {
		l.erase(t, then)
		return
	}
	l.inspectItem(t, func(s *Item, _ upstream.ConnEpoch) {
		if s.IsAbsent() {
			then(false)
			return
		}
		flags := " C" + string(s.Cas)
		if s.IsInvalidated() && !s.IsPlaceholder() || !l.isGone(s) {
			flags = " I" + flags
			if !s.IsInvalidated() { // a second delete must not extend how long the old value is served
				flags += " T" + strconv.FormatInt(l.keep(), 10)
			}
		}
		l.ask(t, t.Meta("md", l.name, flags, nil), func(r *upstream.Result) {
			switch {
			case !l.answered(t, r):
			case r.Reply.Kind == wire.Deleted:
				then(!l.isGone(s))
			case l.tries >= maxTries:
				l.erase(t, then)
			default:
				l.tries++
				l.remove(t, then)
			}
		})
	})
}

// erase deletes the key. A read before the delete finds out whether the key had a value. If the read
// fails, the reply to the delete says so, although the deleted item may have been a placeholder.
func (l *rule) erase(t *task.Task, then func(found bool)) {
	found, known, removed, open := false, false, false, 2
	done := func() {
		if open--; open == 0 {
			then(found || !known && removed)
		}
	}
	l.Learned.Count(stats.GuardExtraRequest)
	l.ask(t, t.Meta("mg", l.name, " s f R0", nil), func(r *upstream.Result) {
		if known = r.Reply.Kind.Answered(); known {
			s := parseItem(&r.Reply, r.Bytes)
			found = !s.IsMiss()
		}
		done()
	})
	l.ask(t, t.Meta("md", l.name, "", nil), func(r *upstream.Result) {
		if l.answered(t, r) {
			removed = r.Reply.Kind == wire.Deleted
			done()
		}
	})
}
