package guard

// This file has the state of one command on a guarded key, and the functions that all commands
// share.

import (
	"math"
	"strconv"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// rule runs one command on a guarded key. It sends requests, and each request names the method that
// handles its reply. What the command must know between a request and its reply is in the fields of
// the rule.
type rule struct {
	failover.Spot
	*routing.RouteGuard
	g         *Guard
	key       string // the name of the key across pools: see nameOf
	party     *clientState
	since     int64  // when the command arrived, on the loop's clock
	followers uint64 // value of clientState.followers when the command arrived
	many      bool   // the command is one key of a request with several keys
	quiet     bool   // the client does not wait for the reply before it sends its next request

	at   int    // the server that gets the command; 0: First, the key's own server or, while that is out, its substitute; 1: Interim, the substitute during a rejoin
	name []byte // name of the key on the server that `at` selects

	fast FastAnswer

	named  []stamp.Tag   // tags that the client has named
	tags   *tagged       // nil: the route has no tags
	copies *replicaReply // nil: the key has one replica only, and does not move

	sent      []onReply // by the number of a request of this command: gets its reply; nil: the reply is ignored
	flags     []byte    // of a read of a key with several replicas: the guard's meta flags, for the read at the primary
	judges    onItem    // gets the reply to the read of the item that is in progress
	tries     int
	rewritten bool // the client's request is changed to what the guard stores: see rewrite
	sealed    bool // no client may refresh the stored value before it expires: see storedTTL
	wrote     bool // a server has stored a value of this command; if the command fails, it must remove that value
	copied    bool // of a get on a route that only hides placeholders: the value was copied back from the substitute server, if it had one
	final     bool // the get has waited for a rebuild already, so it may get an old value now
	outdated  bool // the value that the client gets is an old one
	onInterim bool // of a delete in WARM: the substitute server had the value
	uncopied  bool // of a write in WARM: the substitute server may have a value with tags, which the write replaces
	unlent    bool // of a get in WARM: the substitute server has no value
	asWritten bool // the item was read with the flags of the client's mg, because an earlier reply lacked some of them

	lease Item            // of a get that was granted a lease, or that reads from the substitute server: the item on the key's own server
	old   Item            // of a get that may serve the old value in the kept reply: the item with this value
	kept  upstream.Result // the server's reply that the client gets, unless the reply to another request changes that; Bytes is nil if there is none
	kind  wire.Kind       // the kind of reply that the client of a write gets if there is no kept reply

	mode byte   // mode of the ms with the client's value
	cas  string // cas that this ms requires; empty: none

	number  []byte // of an incr or decr: the number that Ringside stores; nil: the server computes it
	left    int64  // of the item that an incr or decr finds: its time to live, in seconds
	created bool   // the incr or decr creates its item

	fill  fill      // of a write: what it says about the rebuild of the value
	bound *boundSet // a set of this command that was sent with the cas that an earlier miss has seen; nil: none
}

// onReply handles r, the reply to a request of the command t.
type onReply func(l *rule, t *task.Task, r *upstream.Result)

// onItem handles r, the reply to a read of the item s. The verdict on the tags of its value is known.
type onItem func(l *rule, t *task.Task, r *upstream.Result, s *Item)

// maxTries is how often a command starts again because the item has changed in
// between.
const maxTries = 3

// replicated reports whether the key has several replicas.
func (l *rule) replicated() bool { return l.copies != nil && !l.copies.moves }

func (l *rule) server(t *task.Task) *upstream.Server {
	if l.copies != nil {
		return l.copies.Server
	}
	return t.Route.Server(l.Place(l.at).Server)
}

// ask sends the request `line` to the server of the key. The function `then` gets the reply; if it is
// nil, the reply is ignored.
func (l *rule) ask(t *task.Task, line []byte, then onReply) {
	if l.copies == nil {
		l.send(t, l.at, line, then)
		return
	}
	t.StepOn(l.copies.via, line, func(r *upstream.Result, token task.Token) {
		heard := *r
		l.copies.Heard(&heard, token, line)
		if then != nil {
			then(l, t, &heard)
		}
	})
}

// first sends the request `line`, and then calls next, which sends another one. The function `then`, which
// may be nil, gets the reply to the first. Of two steps, the second begins when the first has ended.
func (l *rule) first(t *task.Task, line []byte, then onReply, next func()) {
	if l.copies == nil {
		l.ask(t, line, then)
		next()
		return
	}
	l.ask(t, line, func(l *rule, t *task.Task, r *upstream.Result) {
		if then != nil {
			then(l, t, r)
		}
		next()
	})
}

// send sends the request `line` to the server that `at` selects: see rule.at. The key has one replica. If the key has
// begun to move since t was located, the request is not sent: the server may not have the key any more.
func (l *rule) send(t *task.Task, at int, line []byte, then onReply) {
	id := l.add(then)
	if s := t.Route.Serving(t.Key); l.copies == nil && s != resize.All && !(s == resize.Paused && task.CommandOf(t).Reads()) {
		t.InjectResult(id, &upstream.Result{Failure: upstream.Failure{Why: "the key moves to another server: try again", Outcome: stats.Unavailable, Unsent: true}})
		return
	}
	t.Ask(id, t.Route.Server(l.Place(at).Server), line)
}

// sendOwn sends the request `line` to the server of the key although t's client does not wait for it.
func (l *rule) sendOwn(t *task.Task, line []byte, then onReply) {
	t.AskAs(true, l.add(then), l.server(t), line)
}

// add returns the number of the request that is sent next. The function `then` gets its reply.
func (l *rule) add(then onReply) int {
	l.sent = append(l.sent, then)
	return len(l.sent) - 1
}

func (l *rule) HandleReply(t *task.Task, id int, r *upstream.Result) {
	if then := l.sent[id]; then != nil {
		then(l, t, r)
	}
}

func (l *rule) Begin(t *task.Task) {
	switch {
	case l.fast.Result != nil:
		l.resume(t)
	case t.Op <= wire.Gats:
		l.read(t)
	default:
		l.Learned.Count(stats.GuardWrite)
		switch {
		case l.Role == health.Warming && task.NeedsValue(t):
			l.CopyBack(t, func(what failover.FillOutcome) { l.copiedBack(t, what) })
		case l.Role == health.Warming && t.Op == wire.Delete:
			l.send(t, 1, t.Meta("mg", l.Keys[1], " s f t R0", nil), (*rule).sawInterim)
			l.deleteAt(t, 1, (*rule).write)
		case (l.Role == health.Warming || l.Role == health.Settling) && (t.Op != wire.Set || t.Removal()): // a set that is refused must not delete: see store
			l.deleteAt(t, 1, (*rule).write)
		default:
			l.write(t, nil)
		}
	}
}

// copiedBack continues a write that depends on the value, after a backfill with the given outcome. A value
// with tags is not copied: for an add, copiedBack reads it on the substitute server. Other commands do not
// find it. It stays there, unless the command stores something: see end.
func (l *rule) copiedBack(t *task.Task, what failover.FillOutcome) {
	switch {
	case l.tags == nil || what == failover.FillThere:
		l.deleteAt(t, 1, (*rule).write)
	case t.Op == wire.Add:
		l.inspect(t, 1, l.readLine(t, l.Keys[1], []byte(" t"), true), func(l *rule, t *task.Task, r *upstream.Result, s *Item) {
			switch s.Void = s.Tags != stamp.Stands; {
			case !l.answered(t, r):
			case !l.isGone(s):
				l.say(t, wire.NotStored)
			default:
				l.deleteAt(t, 1, (*rule).write)
			}
		})
	default:
		l.uncopied = true
		l.write(t, nil)
	}
}

// sawInterim handles the reply to a read at the substitute server, before the key is deleted there and on
// its own server.
func (l *rule) sawInterim(t *task.Task, r *upstream.Result) {
	if s := itemOf(r); s.Kind.Answered() {
		l.onInterim = !l.isGone(&s)
	}
}

// deleteAt deletes the key at the server that `at` selects (see rule.at), while the key moves
// between its two servers.
func (l *rule) deleteAt(t *task.Task, at int, then onReply) {
	l.send(t, at, t.Meta("md", l.Keys[at], "", nil), then)
}

// broken ends a write with the error r, because a server has not executed a request of the write.
func (l *rule) broken(t *task.Task, r *upstream.Result) {
	l.release(Failed, 0, upstream.ConnEpoch{})
	switch {
	case !l.wrote || !t.Op.Stores() || l.replicated():
	case l.copies != nil:
		l.ask(t, t.Meta("md", l.name, "", nil), nil)
	default:
		l.sendOwn(t, t.Meta("md", l.name, "", nil), nil)
	}
	t.Answer(r, nil)
}

// end answers a write with r, or with a reply of kind k if r is nil. Before that, end deletes the older item
// on the other server: on the key's own server in RETURN, and on the substitute server in WARM. It also checks that all instances
// see the write.
func (l *rule) end(t *task.Task, k wire.Kind, r *upstream.Result) {
	l.g.wrote(l.key, l.fill)
	if l.kind = k; r == nil {
		l.kept.Bytes = nil
	} else {
		l.kept = t.Keep(r)
		l.kept.Server = l.server(t)
	}
	switch {
	case l.Role == health.Returning && l.Sure(t): // otherwise, the server may serve the key already
		l.deleteAt(t, 0, (*rule).finish)
	case l.uncopied && l.wrote:
		l.deleteAt(t, 1, (*rule).finish)
	default:
		l.finish(t, nil)
	}
}

// finish is the last step of end. r is the reply to the delete of the older item; nil: none was sent.
func (l *rule) finish(t *task.Task, r *upstream.Result) {
	switch {
	case r != nil && !l.answered(t, r):
	case l.copies == nil && !l.Sure(t):
		why := "other instances may not see the write"
		if l.wrote && t.Op.Stores() { // see broken
			why += ": the key was deleted"
		}
		l.failed(t, why, stats.Unavailable)
	case l.kept.Bytes != nil:
		t.Answer(&l.kept, l.token())
	default:
		t.AnswerKind(l.kind)
	}
}

func (l *rule) say(t *task.Task, k wire.Kind) { l.end(t, k, nil) }

// answered reports whether r is a server's reply and not an error. If r is an error, answered
// ends t.
func (l *rule) answered(t *task.Task, r *upstream.Result) bool {
	switch {
	case r.Reply.Kind.Answered():
		return true
	case t.Op <= wire.Gats:
		l.unanswered(t, r)
	default:
		l.broken(t, r)
	}
	return false
}

// failed ends t with the error message `why`.
func (l *rule) failed(t *task.Task, why string, o stats.Outcome) {
	l.answered(t, &upstream.Result{Failure: upstream.Failure{Why: why, Outcome: o}})
}

// again starts t again, because the item has changed in between. After maxTries attempts it fails t.
func (l *rule) again(t *task.Task) {
	switch l.tries++; {
	case l.tries > maxTries:
		l.failed(t, "other clients change this key at each attempt", stats.QueueFull)
	case l.bound != nil: // nothing was stored yet, but the miss is used up
		l.stamp(t)
	case t.Op <= wire.Gats:
		l.read(t)
	default:
		l.write(t, nil)
	}
}

// againLater starts t again after a moment.
func (l *rule) againLater(t *task.Task) {
	t.Open++ // the wait counts as a request in flight, so the task does not end before it
	t.Loop.After(t.Loop.Now+int64(task.MarkWait), func() {
		t.Open--
		l.again(t)
		t.CatchUp()
	})
}

// look reads the item without starting a rebuild. Only a soft-deleted item (X) still grants its lease
// to such a read.
func (l *rule) look(t *task.Task, then onItem) {
	l.Learned.Count(stats.GuardExtraRequest)
	flags := " s f c t R0"
	if l.tags != nil {
		flags = " v" + flags
	}
	l.inspect(t, l.at, t.Meta("mg", l.name, flags, nil), then)
}

// nothing reports whether the client sees no value, for a command that then stores nothing. If the
// read of the item was granted the lease of a deleted item, the function cancels that lease.
func (l *rule) nothing(t *task.Task, s *Item) bool {
	if s.IsMiss() && s.HasLease() {
		l.g.cancelLease(l.RouteGuard, l.here(t), s)
	}
	return l.isGone(s)
}

// isGone reports whether the client sees no value. That includes an expired value, which
// the server keeps so that it can be served during its rebuild.
func (l *rule) isGone(s *Item) bool {
	return s.IsMiss() || hasExpired(l.RouteGuard, s.SecondsLeft())
}

// hasExpired reports whether a value has expired for clients, if its server keeps it for another
// `left` seconds.
func hasExpired(rt *routing.RouteGuard, left int64) bool {
	return rt.Stale > 0 && left <= int64(rt.Stale/time.Second)
}

// cancelLease cancels the lease of the item s on the server `at`, so that the next get rebuilds.
// A value that is neither deleted nor expired stays unchanged.
func (g *Guard) cancelLease(rt *routing.RouteGuard, at itemPlace, s *Item) {
	if s.IsPlaceholder() || s.IsInvalidated() || hasExpired(rt, s.SecondsLeft()) {
		keep := int64(0)
		if rt.Stale > 0 && !s.IsInvalidated() && s.SecondsLeft() < math.MaxInt64 { // an expired value is kept as long as it may be served, and for the spare time of a rebuild
			keep = s.SecondsLeft() + spare(rt)
		}
		g.cancelLeaseAt(at, string(s.Cas), s.Via, s.IsPlaceholder(), keep)
	}
}

// cancelLeaseAt cancels a lease, so that the next get rebuilds. It removes a placeholder (if stub
// is set), or marks another item as stale. It does so only if the item still has the given cas.
// If keep is not 0, the stale item is kept for that many seconds.
func (g *Guard) cancelLeaseAt(at itemPlace, cas string, epoch upstream.ConnEpoch, stub bool, keep int64) {
	if cas == "" || cas == "0" {
		return
	}
	if at.inSteps() {
		n, _ := strconv.ParseUint(cas, 10, 64)
		cas = strconv.FormatUint(n^at.Seal, 10)
		stub = stub || at.Copied // the item is removed: if it were only marked as stale, other replicas would still serve it as fresh
	}
	if c, _, _ := at.Server.Pick(0, true); c != nil && c.IsSameProcess(epoch) {
		cancelLeaseOn(c, at.Name, cas, stub, keep)
	}
}

// ownTimeouts are the timeouts of requests that the guard sends for itself. It ignores their
// replies.
var ownTimeouts = table.Timeouts{Connect: time.Second, Request: time.Second, Deadline: time.Second, Total: time.Second}

// CancelLease cancels a lease by a request on c. The lease was granted to a read of key, after
// the client of this read had closed its connection.
func CancelLease(c *upstream.Conn, key string, s *Item) {
	if s.HasLease() && string(s.Cas) != "0" && (s.IsPlaceholder() || s.IsInvalidated()) {
		cancelLeaseOn(c, key, string(s.Cas), s.IsPlaceholder(), 0)
	}
}

// cancelLeaseOn sends the delete of a placeholder (if stub is set), or md I, which marks an item
// as stale. The server executes it only if the item still has the given cas.
func cancelLeaseOn(c *upstream.Conn, key, cas string, stub bool, keep int64) {
	flags := " C" + cas
	if !stub {
		flags = " I" + flags
		if keep > 0 {
			flags += " T" + strconv.FormatInt(task.ExptimeFor(keep, c.Server.Loop().Wall), 10)
		}
	}
	c.Server.Loop().Ask(c, upstream.Ignore, 0, &ownTimeouts, []byte(plainLine("md ", key, flags)), true)
}

// appendToLine returns the edit that appends meta flags to the first line of t's request.
func appendToLine(t *task.Task, flags string) task.Edit {
	at := t.Req.Line.End
	return task.Edit{At: wire.Span{Start: at, End: at}, With: []byte(flags)}
}

// rewrite changes the client's request to what the guard stores: a longer time to
// live, also of a counter, and special client flags for an empty value. It returns false if it has rejected
// t, because memcached would not accept that.
func (l *rule) rewrite(t *task.Task) bool {
	if l.rewritten { // t has waited, and starts again
		return true
	}
	l.rewritten = true
	var edits []task.Edit
	stores := t.Op == wire.Set || t.Op == wire.Add || t.Op == wire.Replace || t.Op == wire.Cas
	if flags := t.Req.ClientFlags.Of(t.Raw); (stores || makes(t)) && t.Req.Body.Len() == 0 && !t.Req.Letters.Has('I') {
		switch {
		case t.Req.ClientFlags.Len() == 0 && t.Req.Dialect == wire.Meta:
			edits = append(edits, appendToLine(t, " F"+emptyFlags))
		case wire.ClientFlags(flags) == 0:
			edits = append(edits, task.Edit{At: t.Req.ClientFlags, With: []byte(emptyFlags)})
		}
	}
	counts := t.Op == wire.Incr || t.Op == wire.Decr
	moves := stores || counts || t.Op == wire.Touch || t.Op == wire.Gat || t.Op == wire.Gats || t.Op == wire.Get
	longer := func(at wire.Span) {
		n, err := strconv.ParseInt(string(at.Of(t.Raw)), 10, 64)
		if l.Hide || at.Len() == 0 || err != nil {
			return
		}
		kept, sealed := storedTTL(l.RouteGuard, n, l.g.Wall)
		l.sealed = sealed && (stores || makes(t))
		edits = append(edits, task.Edit{At: at, With: strconv.AppendInt(nil, kept, 10)})
	}
	if moves {
		longer(t.Req.Exptime)
	}
	if counts && t.Req.Dialect == wire.Meta || makes(t) {
		made, _ := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'N') // N sets the time to live if the command creates the item
		longer(made)
	}
	return t.Rewrite(edits...) && (!l.Place(l.at).Diverted || t.Rewrite(t.ShortLived(t.Route.Pool.Failover.SubstituteTTL)...))
}
