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
	buckets stamp.Known        // versions of the buckets of these tags that were requested, by tag
	via     upstream.ConnEpoch // epoch of the connection on which all these versions have arrived
	trouble *upstream.Result   // reply to a request for a version that has failed; nil: none has failed
	open    int                // number of requests for versions without a reply
	next    onReply            // continues when there are none; nil: nothing waits for the versions

	at     int              // the server whose versions are requested: see rule.at
	second *upstream.Result // the reply with a value whose missing versions have been requested; nil: none

	c0   uint64 // cas of the item that the client has read before it stores a value; 0: unknown, or it has read none
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

// askVersion requests the version of a tag, or of its bucket. The server creates the version if there
// is none.
func (l *rule) askVersion(t *task.Task, tag stamp.Tag, bucket bool) {
	tg, renamed := l.tags, uint64(0)
	key, into := tag.AppendKey(nil), &tg.known
	if bucket {
		key, into = tag.AppendBucket(nil), &tg.buckets
	}
	if l.View != nil { // a server that has rejected a flush has other names of tags
		renamed = uint64(l.View.Renamed(l.Place(tg.at).Server))
	}
	tg.open++
	line := append([]byte("mg "), divert.AppendKey(nil, renamed, key)...)
	l.send(t, tg.at, append(line, " c N0\r\n"...), func(l *rule, t *task.Task, r *upstream.Result) {
		l.heardVersion(t, tag, into, r)
	})
}

// heardVersion handles r, the reply to a request for the version of a tag, or of its bucket. It adds the version
// to the list `into`.
func (l *rule) heardVersion(t *task.Task, tag stamp.Tag, into *stamp.Known, r *upstream.Result) {
	tg := l.tags
	if !r.Reply.Kind.Answered() {
		tg.trouble = new(t.Keep(r))
	} else {
		if len(tg.known)+len(tg.buckets) > 0 && !l.oneProcess(t, tg.via, r.ConnEpoch) {
			tg.known, tg.buckets = nil, nil
		}
		tg.via = r.ConnEpoch
		s := itemOf(r)
		cas, _ := strconv.ParseUint(string(s.Cas), 10, 64)
		into.Set(tag, cas)
	}
	if tg.open--; tg.open == 0 && tg.next != nil {
		tg.next(l, t, r)
	}
}

// oneProcess reports whether two replies with the connection epochs v and w were sent by the same
// process of the server whose versions are requested. They may have arrived on connections of different
// loops.
func (l *rule) oneProcess(t *task.Task, v, w upstream.ConnEpoch) bool {
	if v.Same(w) {
		return true
	}
	c, _, _ := t.Route.Server(l.Place(l.tags.at).Server).Pick(t.Asker, t.ClientDone)
	return c != nil && c.IsSameProcess(v) && c.IsSameProcess(w)
}

// inspect sends line, a read of the key's item, to the server that `at` selects. Before this read
// it requests the versions of the key's tags, so that judged can check the value. Then the method
// `judges` gets the reply.
func (l *rule) inspect(t *task.Task, at int, line []byte, judges onItem) {
	l.judges = judges
	if tg := l.tags; tg != nil {
		tg.forget(at)
		list := tg.mine()
		for _, tag := range tg.also {
			list = stamp.Add(list, tag)
		}
		for _, tag := range list {
			l.askVersion(t, tag, false)
		}
	}
	if at == l.at {
		l.ask(t, line, (*rule).judged)
	} else {
		l.send(t, at, line, (*rule).judged)
	}
}

// forget forgets the known versions, before those of the server `at` are requested.
func (tg *tagged) forget(at int) {
	tg.at, tg.known, tg.buckets, tg.trouble, tg.next = at, nil, nil, nil, nil
}

// unreadable is the verdict on a value if its header can't be parsed.
const unreadable = stamp.Unknown

// judged checks the tags of the value in r, the reply to a read. It passes the item, and the reply
// without the header, to l.judges. If the versions of some tags are unknown, or are older than the
// value, judged requests these versions first. So a value is invalid only if a version differs that was
// read after the value, or that is newer than the value's. If the server has restarted in between,
// judged starts the command again.
func (l *rule) judged(t *task.Task, r *upstream.Result) {
	tg, s := l.tags, itemOf(r)
	if tg == nil || !s.Kind.Answered() {
		l.judges(l, t, r, &s)
		return
	}
	second := tg.second != nil
	tg.head, tg.body, tg.second = nil, nil, nil
	switch {
	case tg.trouble != nil:
		r, s = tg.trouble, itemOf(tg.trouble)
	case s.Kind != wire.Value || s.IsPlaceholder() || s.IsTombstone():
	case string(s.Flags) == stamp.Flags:
		h, ok := stamp.ReadHead(r.Reply.Body.Of(r.Bytes))
		if !ok {
			tg.Learned.Count(stats.TagBroken)
			s.Tags = unreadable
			break
		}
		if !tg.via.Same(r.ConnEpoch) && !(second && l.oneProcess(t, tg.via, r.ConnEpoch)) {
			tg.known = nil
		}
		if s.Tags = tg.known.Judge(h); second {
			s.Tags = tg.known.JudgeAgain(h)
		}
		switch {
		case second && s.Tags == stamp.Unknown:
			l.again(t)
			return
		case s.Tags == stamp.Unknown && !s.HasLease():
			l.askMore(t, r, h)
			return
		}
		tg.count(h, &s.Tags)
		r = tg.uncover(r, h, &s)
	case len(tg.always) > 0 && !tg.Read: // the value was stored by a client that does not use tags, although the key must have some
		tg.Learned.Count(stats.TagInvalid)
		s.Tags = stamp.Fallen
	}
	t.Invalidated = s.Tags == stamp.Fallen
	l.judges(l, t, r, &s)
}

// askMore requests the versions that are missing to judge the value with the header h in the reply r.
func (l *rule) askMore(t *task.Task, r *upstream.Result, h stamp.Head) {
	tg := l.tags
	kept := t.Keep(r)
	tg.Learned.Count(stats.TagSecondRound)
	tg.remember(t, h)
	tg.second, tg.next = &kept, (*rule).judgedAgain
	for i := range h.Len() {
		v := h.At(i)
		if cas, ok := tg.known.Of(v.Tag); !ok || v.Cas > cas {
			l.askVersion(t, v.Tag, false)
		}
	}
}

// judgedAgain judges the value of askMore, after the missing versions have arrived.
func (l *rule) judgedAgain(t *task.Task, _ *upstream.Result) { l.judged(t, l.tags.second) }

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

// uncover removes the header h from the value of the item s, and returns the reply r without it. The
// client flags in the text of the reply stay those of the stored value: s has the client's.
func (tg *tagged) uncover(r *upstream.Result, h stamp.Head, s *Item) *upstream.Result {
	tg.head, tg.body = bytes.Clone(h), bytes.Clone(r.Reply.Body.Of(r.Bytes)[len(h):])
	s.Flags, s.Size = strconv.AppendUint(nil, uint64(h.Flags()), 10), len(tg.body)
	bare := *r
	bare.Reply.Body.Start += uint32(len(h))
	return &bare
}

// retouch reads the key again, and sets the time to live that t's client requests. It serves the
// value that this second read finds. If another client has deleted the value in between, it starts t
// again.
func (l *rule) retouch(t *task.Task) {
	flags := " f v c T" + t.Exptime()
	if t.Req.Dialect == wire.Meta {
		flags = l.more(t, nil)
	}
	if l.copies != nil && t.Op != wire.Gats && !t.Req.Letters.Has('c') { // c is sent only if the client has requested it, because package replication serves reads with a cas differently
		flags = strings.Replace(flags, " c", "", 1)
	}
	line := t.Meta("mg", l.name, flags, nil)
	if t.Req.Dialect == wire.Meta {
		line = t.WithKey(l.name, appendToLine(t, flags))
	}
	l.inspect(t, l.at, line, (*rule).retouched)
}

// retouched handles the reply to the read of retouch.
func (l *rule) retouched(t *task.Task, r *upstream.Result, s *Item) {
	switch {
	case !l.answered(t, r):
		return
	case s.Tags == stamp.Stands && !s.IsMiss():
		l.show(t, r, s)
		return
	case s.HasLease() && s.IsInvalidated() && !l.replicated() && !l.Hide: // this read has used up the lease of a deleted item, so md I makes the next read the lease holder
		l.first(t, t.Meta("md", l.name, " I C"+string(s.Cas)+" T"+strconv.FormatInt(l.keep(), 10), nil), nil, func() { l.again(t) })
		return
	}
	l.again(t)
}

// stamp creates the header of the value that t stores, and then sends the value (put).
//
// A value with the tag versions of its miss is never valid if a tag has changed since the miss.
// So the present versions are only needed for the reply to the client (rebuilt). They are
// requested in the same write as the set. If the set may replace a live value, it is sent after
// the present versions are known, because a set that is not stored must not remove anything.
//
// There is no version from the time of the miss for a tag that the client names only now. For
// such a tag, stamp relies on the order of the server's cas ids, which only grow. The tag must be
// older than the miss. If the tag was created since, its bucket must be older. An invalidation
// writes the bucket first and then deletes the tag, so stamp reads the tag first.
func (l *rule) stamp(t *task.Task) {
	tg := l.tags
	tags := tg.mine()
	if tg.head = nil; len(tags) == 0 || tg.Read {
		l.put(t)
		return
	}
	b := l.bound
	if b != nil {
		tg.c0 = b.missOrigin.First ^ b.missOrigin.Seal
	}
	waits := b == nil || !b.Gone
	tg.forget(l.at)
	for _, tag := range tags {
		l.askVersion(t, tag, false)
		if l.readBefore(tag) == 0 {
			if waits = true; tg.c0 != 0 {
				l.askVersion(t, tag, true)
			}
		}
	}
	if waits {
		tg.next = (*rule).stampNow
	} else {
		l.putStamped(t, tags)
	}
}

// readBefore returns the version of a tag that was read before the miss that the set t follows; 0: none
// was read.
func (l *rule) readBefore(tag stamp.Tag) uint64 {
	if l.bound == nil || l.g.Ablation.Stamp {
		return 0
	}
	cas, _ := l.bound.missOrigin.Known.Of(tag)
	return cas
}

// tagsChanged reports whether the version of a tag has changed since the miss that the set t follows.
func (l *rule) tagsChanged() bool {
	return slices.ContainsFunc(l.tags.known, func(v stamp.Version) bool {
		cas := l.readBefore(v.Tag)
		return cas != 0 && cas != v.Cas
	})
}

// stampNow continues stamp when the present versions are known.
func (l *rule) stampNow(t *task.Task, _ *upstream.Result) {
	tg, tags, c := l.tags, l.tags.mine(), l.conn(t)
	late := c != nil && (!c.IsSameProcess(tg.via) || l.bound != nil && !l.bound.missOrigin.Reachable(l.here(t), c)) // a tag may have changed since the miss
	for _, tag := range tags {
		if l.readBefore(tag) == 0 {
			now, _ := tg.known.Of(tag)
			bucket, _ := tg.buckets.Of(tag)
			late = late || !l.g.Ablation.Order && stamp.Late(tg.c0, now, bucket)
		}
	}
	switch {
	case tg.trouble != nil:
		l.broken(t, tg.trouble)
	case !l.tagsChanged() && !late:
		l.putStamped(t, tags)
	case !l.tagsChanged() && tg.c0 == 0:
		l.again(t)
	default:
		tg.Learned.Count(stats.TagLateSet)
		if l.bound == nil {
			l.look(t, (*rule).looked)
			return
		}
		if !l.tagsChanged() {
			l.cancelBound()
		}
		l.tooLate(t, wire.Exists)
	}
}

// putStamped stores t's value with its tags.
func (l *rule) putStamped(t *task.Task, tags []stamp.Tag) {
	var versions []stamp.Version
	for _, tag := range tags {
		cas := l.readBefore(tag)
		if cas == 0 {
			cas, _ = l.tags.known.Of(tag)
		}
		versions = append(versions, stamp.Version{Tag: tag, Cas: cas})
	}
	l.tags.head = stamp.AppendHead(nil, wire.ClientFlags(t.Req.ClientFlags.Of(t.Raw)), versions)
	l.put(t)
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
	cas, ok := l.clientCas(t)
	if !ok || cas == 0 { // memcached has no item with cas 0
		l.look(t, (*rule).looked)
		return
	}
	l.tags.c0 = cas
	l.store(t, 'S', strconv.AppendUint(nil, cas^l.sealOf(), 10))
}

// sealOf returns the XOR of a cas of the key's server and the token that stands for it in steps.
func (l *rule) sealOf() uint64 {
	if l.copies == nil {
		return 0
	}
	return l.copies.place.Seal
}

// clientCas returns the cas on the server that the client's token stands for. ok is false if
// no item at the key's present place can have it.
func (l *rule) clientCas(t *task.Task) (cas uint64, ok bool) {
	token, ok := t.Token()
	if seal := l.sealOf(); seal != 0 {
		return token ^ seal, ok && divert.Fits(token, seal)
	}
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
	return ok && (cas == 0 || strconv.FormatUint(cas^l.sealOf(), 10) == string(s.Cas))
}

// change stores body in place of the value that a look has found (the item s), or creates the item if
// s is nil. If the value has tags, the header stays in front of it. The meta flags in the parameter
// `more` are added. The time to live stays the same, unless these flags set it.
func (l *rule) change(t *task.Task, s *Item, body []byte, more string) {
	var flags string
	switch {
	case s == nil:
		flags = " ME"
	case string(s.Cas) != "0": // a server without cas shows 0, and would reject a request with the cas 0
		flags = " C" + string(s.Cas)
	}
	if l.tags != nil && l.tags.head != nil {
		flags, body = flags+" F"+stamp.Flags, slices.Concat(l.tags.head, body)
	}
	if s != nil && s.SecondsLeft() < math.MaxInt64 && !strings.Contains(more, " T") {
		flags += " T" + strconv.FormatInt(task.ExptimeFor(s.SecondsLeft(), l.g.Wall), 10)
	}
	l.ask(t, t.Meta("ms", l.name, flags+more, body), (*rule).changed)
}

// changed handles the reply to the ms of change. It makes the reply to t that memcached would have sent.
func (l *rule) changed(t *task.Task, r *upstream.Result) {
	switch {
	case !l.answered(t, r):
		return
	case r.Reply.Kind != wire.Stored:
		l.again(t)
		return
	}
	l.wrote = true
	l.knows(Changed)
	line := append(slices.Clone(l.number), wire.CRLF...)
	if t.Req.Dialect == wire.Meta {
		s := itemOf(r)
		if len(s.Cas) == 0 { // the server has sent no cas
			s.Cas = strconv.AppendInt(nil, wire.NoMatch, 10)
		}
		flags, _ := l.echo(t, s.Cas)
		if l.number == nil {
			line = slices.Concat([]byte("HD"), flags, line)
		} else {
			line = slices.Concat(strconv.AppendInt([]byte("VA "), int64(len(l.number)), 10), flags, []byte(wire.CRLF), line)
		}
	} else if l.number == nil {
		line = []byte("STORED\r\n")
	}
	l.reply(t, t.Result(nil, line))
}
