package guard

// This file has the state of one command on a guarded key, and the functions that all commands
// share.

import (
	"math"
	"strconv"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// rule runs one command on a guarded key.
type rule struct {
	failover.Spot
	*routing.RouteGuard
	g         *Guard
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
	copies *replicaReply // nil: the key has one replica only

	then     []func(r *upstream.Result) // functions that handle the replies to the requests of this command, by the number of the request; nil: the reply is ignored
	tries    int
	own      bool // the last reply is the reply to this command's own read, with the meta flags of its client, and not the reply to a poll
	sealed   bool // no client may refresh the stored value before it expires: see storedTTL
	wrote    bool // a server has stored a value of this command; if the command fails, it must remove that value
	final    bool // the get has waited for a rebuild already, so it may get an old value now
	outdated bool // the value that the client gets is an old one

	bound *boundSet // a set of this command that was sent with the cas that an earlier miss has seen; nil: none
}

// maxTries is how often a command starts again because the item has changed in
// between.
const maxTries = 3

func (l *rule) server(t *task.Task) *upstream.Server {
	if l.copies != nil {
		return l.copies.Server
	}
	return t.Route.Server(l.Place(l.at).Server)
}

// ask sends the request `line` to the server of the key. The function `then` gets the reply.
func (l *rule) ask(t *task.Task, line []byte, then func(r *upstream.Result)) {
	l.askAt(t, l.at, line, then)
}

func (l *rule) askAt(t *task.Task, at int, line []byte, then func(r *upstream.Result)) {
	if l.copies != nil {
		l.step(t, line, then)
		return
	}
	l.then = append(l.then, then)
	t.Ask(len(l.then)-1, t.Route.Server(l.Place(at).Server), line)
}

// step sends the request `line` of t through package replication. The function `then` gets the reply.
func (l *rule) step(t *task.Task, line []byte, then func(r *upstream.Result)) {
	t.Step(line, func(r *upstream.Result, token task.Token) {
		heard := *r
		l.copies.Heard(&heard, token, line)
		then(&heard)
	})
}

func (l *rule) HandleReply(_ *task.Task, id int, r *upstream.Result) {
	if f := l.then[id]; f != nil {
		f(r)
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
		if l.Role == health.Warming || l.Role == health.Settling {
			l.deleteAt(t, 1, func() { l.write(t) })
			return
		}
		l.write(t)
	}
}

// deleteAt deletes the key at the server that `at` selects (see rule.at), while the key moves
// between its two servers.
func (l *rule) deleteAt(t *task.Task, at int, then func()) {
	l.askAt(t, at, t.Meta("md", l.Keys[at], "", nil), func(r *upstream.Result) {
		if !r.Reply.Kind.Answered() {
			l.broken(t, r)
			return
		}
		then()
	})
}

// broken ends a write with the error r, because a server has not executed a request of the write.
func (l *rule) broken(t *task.Task, r *upstream.Result) {
	l.release(Failed, 0, upstream.ConnEpoch{})
	l.undo(t)
	t.Answer(r, nil)
}

func (l *rule) undo(t *task.Task) {
	if l.wrote && t.Op.Stores() && l.copies == nil {
		l.then = append(l.then, nil)
		t.AskAs(true, len(l.then)-1, l.server(t), t.Meta("md", l.name, "", nil))
	}
}

// end calls f, which answers a write. Before that, if the key's own server is in RETURN, end
// deletes the older item on that server. It also checks that all instances see the write.
func (l *rule) end(t *task.Task, f func()) {
	l.g.wake(t)
	safely := func() {
		if l.copies == nil && !l.Sure(t) {
			l.undo(t)
			t.Fail("not sure that everybody sees the write: it was undone", stats.Unavailable)
			return
		}
		f()
	}
	if l.Role == health.Returning {
		l.deleteAt(t, 0, safely)
		return
	}
	safely()
}

func (l *rule) say(t *task.Task, k wire.Kind) { l.end(t, func() { t.AnswerKind(k) }) }

// answered reports whether r is a server's reply and not an error. If r is an error, answered
// ends t.
func (l *rule) answered(t *task.Task, r *upstream.Result) bool {
	if r.Reply.Kind.Answered() {
		return true
	}
	if t.Op <= wire.Gats {
		l.unanswered(t, r)
	} else {
		l.broken(t, r)
	}
	return false
}

// inspectItem reads the item without starting a rebuild. Only a soft-deleted item (X) still grants
// its lease to such a read.
func (l *rule) inspectItem(t *task.Task, then func(s *Item, epoch upstream.ConnEpoch)) {
	l.Learned.Count(stats.GuardExtraRequest)
	flags := " s f c t R0"
	if l.tags != nil {
		flags = " v" + flags
	}
	l.inspect(t, l.at, t.Meta("mg", l.name, flags, nil), func(r *upstream.Result) {
		l.judged(t, l.at, r, func() { l.inspectItem(t, then) }, func(r *upstream.Result, v stamp.Verdict) {
			if l.answered(t, r) {
				s := parseItem(&r.Reply, r.Bytes)
				s = s.Clone()
				s.TagsChanged = v != stamp.Stands
				then(&s, r.ConnEpoch)
			}
		})
	})
}

// nothing reports whether the client sees no value, for a command that then stores nothing. If the
// read of the item was granted the lease of a deleted item, the function cancels that lease.
func (l *rule) nothing(t *task.Task, s *Item, epoch upstream.ConnEpoch) bool {
	if s.IsMiss() && s.HasLease() {
		l.g.cancelLease(l.RouteGuard, l.here(t), s, epoch)
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

// again starts the command again by calling f, because the item has changed in between. After
// maxTries attempts it fails t.
func (l *rule) again(t *task.Task, f func()) {
	if l.tries++; l.tries > maxTries {
		const why = "others change this key all the time"
		l.release(Failed, 0, upstream.ConnEpoch{})
		if t.Op <= wire.Gats {
			l.failed(t, why, stats.QueueFull)
		} else {
			t.Fail(why, stats.QueueFull)
		}
		return
	}
	f()
}

// cancelLease cancels the lease of the item s on the server `at`, so that the next get rebuilds.
// A value that is neither deleted nor expired stays unchanged.
func (g *Guard) cancelLease(rt *routing.RouteGuard, at itemPlace, s *Item, epoch upstream.ConnEpoch) {
	if s.IsPlaceholder() || s.IsInvalidated() || hasExpired(rt, s.SecondsLeft()) {
		keep := int64(0)
		if rt.Stale > 0 && !s.IsInvalidated() && s.SecondsLeft() < math.MaxInt64 { // an expired value is kept as long as it may be served, and for the spare time of a rebuild
			keep = s.SecondsLeft() + spare(rt)
		}
		g.cancelLeaseAt(at, string(s.Cas), epoch, s.IsPlaceholder(), keep)
	}
}

// cancelLeaseAt cancels a lease, so that the next get rebuilds. It removes a placeholder (if stub
// is set), or marks another item as stale. It does so only if the item still has the given cas.
// If keep is not 0, the stale item is kept for that many seconds.
func (g *Guard) cancelLeaseAt(at itemPlace, cas string, epoch upstream.ConnEpoch, stub bool, keep int64) {
	if cas == "" || cas == "0" {
		return
	}
	if at.Copied { // the item is removed: if it were only marked as stale, other replicas would still serve it as fresh
		n, _ := strconv.ParseUint(cas, 10, 64)
		cas, stub = strconv.FormatUint(n^at.Seal, 10), true
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
	c.Server.Loop().Ask(c, ignored{}, 0, &ownTimeouts, []byte(plainLine("md ", key, flags)), true)
}

// ignored receives the replies to requests that the guard sends for itself, and ignores them.
type ignored struct{}

func (ignored) Client() uint64                     { return 0 }
func (ignored) Answered(_ int, _ *upstream.Result) {}

// appendToLine returns the edit that appends meta flags to the first line of t's request.
func appendToLine(t *task.Task, flags string) task.Edit {
	at := t.Req.Line.End
	return task.Edit{At: wire.Span{Start: at, End: at}, With: []byte(flags)}
}

// rewrite changes the client's request to what the guard stores: a longer time to
// live, also of a counter, and special client flags for an empty value.
func (l *rule) rewrite(t *task.Task) {
	var edits []task.Edit
	stores := t.Op == wire.Set || t.Op == wire.Add || t.Op == wire.Replace || t.Op == wire.Cas
	if flags := t.Req.ClientFlags.Of(t.Raw); stores && t.Req.Body.Len() == 0 && !t.Req.Letters.Has('I') {
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
		l.sealed = sealed && stores
		edits = append(edits, task.Edit{At: at, With: strconv.AppendInt(nil, kept, 10)})
	}
	if moves {
		longer(t.Req.Exptime)
	}
	if counts && t.Req.Dialect == wire.Meta {
		made, _ := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'N') // N sets the time to live if the command creates the item
		longer(made)
	}
	t.Rewrite(edits...)
	if l.Place(l.at).Diverted {
		t.Rewrite(t.ShortLived(t.Route.Pool.Failover.SubstituteTTL)...)
	}
}
