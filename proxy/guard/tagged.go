package guard

// This file has the additional steps of commands on routes with tags. The versions of a key's
// tags are requested before the key itself, in the same write. So they are known when the reply
// for the key arrives, and the value can be checked at once.

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// tagged is the state of the tags of one command, on a route with tags.
type tagged struct {
	*routing.RouteTags
	always []stamp.Tag // tags that the route's patterns assign to the key
	named  []stamp.Tag // tags that the client has named for the value that it stores
	also   []stamp.Tag // tags that the key's last value had, so that the next read requests their versions too

	known   stamp.Known        // versions of the tags that were requested
	via     upstream.ConnEpoch // epoch of the connection on which all versions in known have arrived
	trouble *upstream.Result   // reply to a request for a version that has failed; nil: none has failed

	changed bool // a tag's version has changed between a miss of the client and the set that follows the miss

	c0   uint64 // cas that the client's cas command compares; 0: t is not a cas
	head []byte // header of the value to store, or of the value that a look has found; nil: no tags
	body []byte // the value that a look has found, without its header
}

// Tag records which tags t's client has named for the value in its request. It must be called
// after Enroll, and before t is admitted.
func Tag(t *task.Task, named []stamp.Tag) {
	t.Rule.(*rule).named = slices.Clone(named)
}

// tag records which tags of t's key are known before any request is sent.
func (l *rule) tag(t *task.Task) {
	if l.tags = nil; t.Route.Tags == nil {
		return
	}
	tg := &tagged{RouteTags: t.Route.Tags, named: l.named}
	tg.always = tg.AppendTags(nil, []byte(t.Route.Strip+string(t.Key)))
	tg.also = tg.Learned.AppendKnown(nil, t.Hash)
	if l.fast.Result != nil {
		tg.known, tg.via = l.fast.Known, l.fast.ConnEpoch
	}
	l.tags = tg
}

// mine returns the tags that the value in t's request gets when it is stored.
func (tg *tagged) mine() []stamp.Tag {
	list := slices.Clip(tg.always)
	for _, tag := range tg.named {
		list = stamp.Add(list, tag)
	}
	return list
}

// renamed returns the number that is part of the names of all keys and tags on a server that has
// rejected a flush; 0: the names are unchanged. The parameter `at` selects the server: see
// rule.at.
func (l *rule) renamed(at int) uint64 {
	if l.View == nil {
		return 0
	}
	return uint64(l.View.Renamed(l.Place(at).Server))
}

// askVersion requests the version of a tag, or of a bucket of tags. The server creates the
// version if there is none.
func (l *rule) askVersion(t *task.Task, at int, key []byte, then func(cas uint64, r *upstream.Result)) {
	line := append([]byte("mg "), divert.AppendKey(nil, l.renamed(at), key)...)
	l.askAt(t, at, append(line, " c N0\r\n"...), func(r *upstream.Result) {
		if !r.Reply.Kind.Answered() {
			kept := t.Keep(r)
			l.tags.trouble = &kept
			then(0, r)
			return
		}
		s := parseItem(&r.Reply, r.Bytes)
		cas, _ := strconv.ParseUint(string(s.Cas), 10, 64)
		then(cas, r)
	})
}

// askKnown requests the version of a tag, adds it to l.tags.known, and then calls the function
// `then`.
func (l *rule) askKnown(t *task.Task, at int, tag stamp.Tag, then func()) {
	tg := l.tags
	l.askVersion(t, at, tag.AppendKey(nil), func(cas uint64, r *upstream.Result) {
		if len(tg.known) > 0 && !l.oneProcess(t, at, tg.via, r.ConnEpoch) {
			tg.known = tg.known[:0]
		}
		tg.via = r.ConnEpoch
		if i := slices.IndexFunc(tg.known, func(v stamp.Version) bool { return v.Tag == tag }); i >= 0 {
			tg.known[i].Cas = cas
		} else {
			tg.known = append(tg.known, stamp.Version{Tag: tag, Cas: cas})
		}
		then()
	})
}

// oneProcess reports whether two replies with the connection epochs v and w were sent by the same
// process of the server that `at` selects. They may have arrived on connections of different
// loops.
func (l *rule) oneProcess(t *task.Task, at int, v, w upstream.ConnEpoch) bool {
	if v.Same(w) {
		return true
	}
	c, _, _ := t.Route.Server(l.Place(at).Server).Pick(t.Asker, t.ClientDone)
	return c != nil && c.IsSameProcess(v) && c.IsSameProcess(w)
}

// inspect sends line, a read of the key's item, to the server that `at` selects. Before this read
// it requests the versions of the key's tags, so that judged can check the value.
func (l *rule) inspect(t *task.Task, at int, line []byte, then func(r *upstream.Result)) {
	if tg := l.tags; tg != nil {
		tg.known, tg.trouble = nil, nil
		list := tg.mine()
		for _, tag := range tg.also {
			list = stamp.Add(list, tag)
		}
		for _, tag := range list {
			l.askKnown(t, at, tag, func() {})
		}
	}
	l.askAt(t, at, line, then)
}

// unreadable is the verdict on a value if its header can't be parsed.
const unreadable = stamp.Unknown

// judged checks the tags of the value in r, the reply to a read. It calls the function `then`
// with the verdict, and with the reply without the header. If the versions of some tags are
// unknown, or are older than the value, judged requests these versions first. So a value is
// invalid only if a version differs that was read after the value, or that is newer than the
// value's. If the server has restarted in between, judged calls the function `again`, which
// repeats the read.
func (l *rule) judged(t *task.Task, at int, r *upstream.Result, again func(), then func(r *upstream.Result, v stamp.Verdict)) {
	tg, rep := l.tags, &r.Reply
	if tg == nil || !rep.Kind.Answered() {
		then(r, stamp.Stands)
		return
	}
	told := then
	then = func(r *upstream.Result, v stamp.Verdict) {
		t.Invalidated = v == stamp.Fallen
		told(r, v)
	}
	if tg.trouble != nil {
		then(tg.trouble, stamp.Stands)
		return
	}
	tg.head, tg.body = nil, nil
	s := parseItem(rep, r.Bytes)
	switch {
	case rep.Kind != wire.Value || s.IsPlaceholder() || s.IsTombstone():
		then(r, stamp.Stands)
		return
	case string(s.Flags) != stamp.Flags:
		v := stamp.Stands
		if len(tg.always) > 0 && !tg.Read { // the value was stored by a client that does not use tags, although the key must have some
			tg.Learned.Count(stats.TagInvalid)
			v = stamp.Fallen
		}
		then(r, v)
		return
	}
	h, ok := stamp.ReadHead(rep.Body.Of(r.Bytes))
	if !ok {
		tg.Learned.Count(stats.TagBroken)
		then(r, unreadable)
		return
	}
	if !tg.via.Same(r.ConnEpoch) {
		tg.known = nil
	}
	if v := tg.known.Judge(h); v != stamp.Unknown || rep.Letters.Has('W') {
		tg.count(h, &v)
		then(tg.without(r, h), v)
		return
	}
	kept := t.Keep(r)
	tg.Learned.Count(stats.TagSecondRound)
	tg.remember(t, h)
	open := 1
	done := func() {
		if open--; open > 0 {
			return
		}
		if tg.trouble != nil {
			then(tg.trouble, stamp.Stands)
			return
		}
		h, _ := stamp.ReadHead(kept.Reply.Body.Of(kept.Bytes))
		if !tg.known.HasAll(h) || !l.oneProcess(t, at, tg.via, kept.ConnEpoch) {
			tg.known = nil
			l.again(t, again)
			return
		}
		v := tg.known.Judge(h)
		if v == stamp.Unknown { // the version in the header was assigned by another process of the server
			v = stamp.Fallen
		}
		tg.count(h, &v)
		then(tg.without(&kept, h), v)
	}
	for i := range h.Len() {
		v := h.At(i)
		if cas, ok := tg.known.Of(v.Tag); !ok || v.Cas > cas {
			open++
			l.askKnown(t, at, v.Tag, done)
		}
	}
	done()
}

// count changes the verdict *v to invalid if the value with the header h lacks a tag that the
// route's patterns assign to its key. It then counts the verdict for the statistics.
func (tg *tagged) count(h stamp.Head, v *stamp.Verdict) {
	if *v == stamp.Stands && !h.HasAll(tg.always) {
		*v = stamp.Fallen
	}
	if *v == stamp.Stands {
		tg.Learned.Count(stats.TagHit)
	} else {
		tg.Learned.Count(stats.TagInvalid)
	}
}

// remember records the tags of t's key that its value has and that no pattern of the route
// assigns. The next read requests the versions of these tags too.
func (tg *tagged) remember(t *task.Task, h stamp.Head) {
	var tags []stamp.Tag
	for i := range h.Len() {
		if tag := h.At(i).Tag; !slices.Contains(tg.always, tag) {
			tags = append(tags, tag)
		}
	}
	tg.Learned.Remember(t.Hash, tags, t.Loop.Clients.Limits.TagKeys)
}

// without returns the reply r without the header h of its value.
func (tg *tagged) without(r *upstream.Result, h stamp.Head) *upstream.Result {
	tg.head, tg.body = bytes.Clone(h), bytes.Clone(r.Reply.Body.Of(r.Bytes)[len(h):])
	bare := *r
	bare.SetAnswer(wire.Get, wire.Meta, appendBare(nil, r.Bytes, &r.Reply, h))
	return &bare
}

// fallen handles the reply r if its value is invalid, because a tag has changed. It marks the
// value as stale, as a delete does, so that one client rebuilds it.
func (l *rule) fallen(t *task.Task, r *upstream.Result, s *Item, v stamp.Verdict) {
	if l.Hide {
		l.miss(t, missed{})
		return
	}
	l.mark(t, r, s, l.keep(), v != unreadable)
}

// lent serves the value of the substitute server, while the key's own server is in WARM. Values
// with tags are not copied between servers, because their versions do not match those of another
// server. So lent cancels the lease.
func (l *rule) lent(t *task.Task, what missed) {
	known, epoch := l.tags.known, l.tags.via // the tag versions and the connection epoch of the key's own server are kept, because a rebuild is stored there; the reads below overwrite them
	rebuild := func() {
		l.tags.known, l.tags.via = known, epoch
		l.checkLease(t, what)
	}
	line := t.Meta("mg", l.Keys[1], " f v c", nil)
	if t.Req.Dialect == wire.Meta && !touches(t) {
		line = t.WithKey(l.Keys[1], appendToLine(t, l.more(t, nil)))
	}
	l.inspect(t, 1, line, func(r *upstream.Result) {
		l.judged(t, 1, r, rebuild, func(r *upstream.Result, v stamp.Verdict) {
			l.View.CountWarmRead(l.First.Server, false)
			if v != stamp.Stands || mustBeFresh(t) || r.Reply.Kind != wire.Value {
				rebuild()
				return
			}
			s := parseItem(&r.Reply, r.Bytes)
			if s.IsMiss() {
				rebuild()
				return
			}
			l.g.cancelLease(l.RouteGuard, l.here(t), what.s, what.via)
			s.Cas = nil // the cas of the substitute server has no meaning on the key's own server
			l.show(t, r, &s, nil)
		})
	})
}

// retouch reads the key again, and sets the time to live that t's client requests. It serves the
// value that this second read finds. If another client has deleted the value in between, retouch
// starts t again.
func (l *rule) retouch(t *task.Task, tag task.Token) {
	flags := l.more(t, nil)
	if l.copies != nil && t.Op != wire.Gats && !t.Req.Letters.Has('c') { // c is sent only if the client has requested it, because package replication serves reads with a cas differently
		flags = strings.Replace(flags, " c", "", 1)
	}
	line := t.WithKey(l.name, appendToLine(t, flags))
	if t.Req.Dialect == wire.Text {
		flags = " f v c T"
		if l.copies != nil && t.Op != wire.Gats {
			flags = " f v T"
		}
		line = t.Meta("mg", l.name, flags+t.Exptime(), nil)
	}
	again := func() { l.read(t) }
	l.inspect(t, l.at, line, func(r *upstream.Result) {
		l.judged(t, l.at, r, again, func(r *upstream.Result, v stamp.Verdict) {
			if !l.answered(t, r) {
				return
			}
			s := parseItem(&r.Reply, r.Bytes)
			if v == stamp.Stands && !s.IsMiss() {
				l.show(t, r, &s, tag)
				return
			}
			if s.HasLease() && s.IsInvalidated() && l.copies == nil && !l.Hide { // this read has used up the lease of a deleted item, so md I makes the next read the lease holder
				l.ask(t, t.Meta("md", l.name, " I C"+string(s.Cas)+" T"+strconv.FormatInt(l.keep(), 10), nil), func(*upstream.Result) {})
			}
			l.again(t, again)
		})
	})
}

// stamp creates the header of the value that t stores, and calls then(true). It calls then(false)
// if a tag may have changed since the miss that t follows.
//
// A value with the tag versions of that miss is never valid if a tag has changed since the miss.
// So the present versions are only needed for the reply to the client (changed). They are
// requested in the same write as the set. If the set may replace a live value, it is sent after
// the present versions are known, because a set that is not stored must not remove anything.
//
// There is no version from the time of the miss for a tag that the client names only now. For
// such a tag, stamp relies on the order of the server's cas ids, which only grow. The tag must be
// older than the miss. If the tag was created since, its bucket must be older. An invalidation
// writes the bucket first and then deletes the tag, so stamp reads the tag first.
func (l *rule) stamp(t *task.Task, then func(ok bool)) {
	tg := l.tags
	tags := tg.mine()
	if tg.head = nil; len(tags) == 0 || tg.Read {
		then(true)
		return
	}
	c0 := tg.c0
	if l.bound != nil {
		c0 = l.bound.missOrigin.First
	}
	versions := make([]stamp.Version, len(tags))
	open, late, asked, invalidated := 1, false, false, false
	var epoch upstream.ConnEpoch
	done := func() {
		if open--; open > 0 {
			return
		}
		switch c := l.conn(t); {
		case tg.trouble != nil:
			l.broken(t, tg.trouble)
			return
		case invalidated:
			tg.Learned.Count(stats.TagLateSet)
			then(false)
			return
		case c != nil && (asked && !c.IsSameProcess(epoch) || l.bound != nil && !l.bound.missOrigin.Reachable(l.here(t), c)):
			late = true
		}
		if late && c0 == 0 {
			l.again(t, func() { l.stamp(t, then) })
			return
		}
		if late {
			tg.Learned.Count(stats.TagLateSet)
			if l.bound != nil {
				l.cancelBound(l.bound)
			}
			then(false)
			return
		}
		tg.head = stamp.AppendHead(nil, wire.ClientFlags(t.Req.ClientFlags.Of(t.Raw)), versions)
		then(true)
	}
	note := func(cas uint64, r *upstream.Result) {
		if !asked {
			asked, epoch = true, r.ConnEpoch
		}
		late = late || cas == 0 || !epoch.Same(r.ConnEpoch)
		done()
	}
	tg.trouble, tg.changed = nil, false
	for i, tag := range tags {
		versions[i].Tag = tag
		if l.bound != nil && !l.g.Ablation.Stamp {
			if cas, ok := l.bound.missOrigin.Known.Of(tag); ok && cas != 0 {
				versions[i].Cas = cas
				waits := !l.bound.Gone
				if waits {
					open++
				}
				l.askVersion(t, l.at, tag.AppendKey(nil), func(now uint64, _ *upstream.Result) {
					if tg.changed = tg.changed || now != cas; waits {
						invalidated = invalidated || now != cas
						done()
					}
				})
				continue
			}
		}
		made := false // the tag was created after the miss, or after the client's read before its cas command
		open++
		l.askVersion(t, l.at, tag.AppendKey(nil), func(cas uint64, r *upstream.Result) {
			versions[i].Cas = cas
			made = c0 != 0 && cas >= c0
			note(cas, r)
		})
		if c0 != 0 {
			open++
			l.askVersion(t, l.at, tag.AppendBucket(nil), func(cas uint64, r *upstream.Result) {
				late = late || made && cas >= c0 && !l.g.Ablation.Order
				note(cas, r)
			})
		}
	}
	done()
}

// stamped returns the edits of t's request that add the header to the value, and the meta flags
// to append.
func (l *rule) stamped(t *task.Task) (edits []task.Edit, flags string) {
	if l.tags == nil || l.tags.head == nil {
		return nil, ""
	}
	r := &t.Req
	size, _ := wire.NextKey(t.Raw, wire.Span{Start: r.Key.End, End: r.Line.End})
	edits = []task.Edit{
		{At: size, With: strconv.AppendInt(nil, int64(r.Body.Len()+len(l.tags.head)), 10)},
		{At: wire.Span{Start: r.Body.Start, End: r.Body.Start}, With: l.tags.head},
	}
	if r.ClientFlags.Len() > 0 {
		return append(edits, task.Edit{At: r.ClientFlags, With: []byte(stamp.Flags)}), ""
	}
	return edits, " F" + stamp.Flags
}

// compare serves a cas command: it replaces the value only if the value has the client's cas.
func (l *rule) compare(t *task.Task) {
	differs := func(exists func()) { // differs handles a cas that does not match: it calls exists if the client sees a value, and replies NOT_FOUND otherwise
		l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
			if l.nothing(t, s, epoch) {
				l.say(t, wire.NotFound)
			} else {
				exists()
			}
		})
	}
	sayExists := func() { l.say(t, wire.Exists) }
	cas, ok := l.clientCas(t)
	if !ok || cas == 0 { // memcached has no item with cas 0
		differs(sayExists)
		return
	}
	l.tags.c0 = cas
	l.store(t, 'S', strconv.FormatUint(cas, 10), false, func(k wire.Kind, r *upstream.Result) {
		if r == nil { // a tag may have changed since the client read the value
			differs(sayExists)
			return
		}
		switch k {
		case wire.Exists: // the cas may differ because the item is a placeholder, which clients see as a miss
			kept := t.Keep(r)
			differs(func() { l.answerStore(t, k, &kept) })
			return
		case wire.Stored:
			l.knows(t, Changed)
		}
		l.answerStore(t, k, r)
	})
}

// clientCas returns the cas on the server that the client's token stands for. ok is false if
// no item at the key's present place can have it.
func (l *rule) clientCas(t *task.Task) (cas uint64, ok bool) {
	token, ok := t.Token()
	cas, fits := divert.UntagCas(token, l.Place(l.at).Number)
	if !ok || l.View != nil && (!fits || token>>52 != 0 && l.Place(l.at).Number == 0) {
		return 0, false
	}
	return cas, true
}

// matches reports whether the item s has the cas of t, a meta command that changes an item
// on the condition C. It does if t has no condition. C0 is none, as in memcached.
func (l *rule) matches(t *task.Task, s *Item) bool {
	if t.TokenSpan().Len() == 0 {
		return true
	}
	cas, ok := l.clientCas(t)
	return ok && (cas == 0 || strconv.FormatUint(cas, 10) == string(s.Cas))
}

// change stores body in place of the value that a look has found (the item s). If the value has
// tags, the header stays in front of it. The meta flags in the parameter `more` are added. The
// time to live stays the same, unless these flags set it.
func (l *rule) change(t *task.Task, s *Item, body []byte, more string, then func(r *upstream.Result), again func()) {
	var flags string
	if string(s.Cas) != "0" { // a server without cas shows 0, and would reject a request with the cas 0
		flags = " C" + string(s.Cas)
	}
	if l.tags != nil && l.tags.head != nil {
		flags, body = flags+" F"+stamp.Flags, slices.Concat(l.tags.head, body)
	}
	if left := s.SecondsLeft(); left < math.MaxInt64 && !strings.Contains(more, " T") {
		flags += " T" + strconv.FormatInt(task.ExptimeFor(left, l.g.Wall), 10)
	}
	l.ask(t, t.Meta("ms", l.name, flags+more, body), func(r *upstream.Result) {
		switch {
		case !l.answered(t, r):
		case r.Reply.Kind == wire.Stored:
			l.wrote = true
			then(r)
		default:
			l.again(t, again)
		}
	})
}
