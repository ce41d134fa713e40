package guard

// The rule of a command on a guarded key, and what all commands have in common.

import (
	"strconv"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/guard/copied"
	"ringside/proxy/guard/item"
	"ringside/proxy/guard/misses"
	"ringside/proxy/health"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// rule leads one command.
type rule struct {
	failover.Spot
	*routing.Guard
	g         *Guard
	party     *party
	since     int64  // when the command came
	followers uint64 // of the party, when the command came
	many      bool   // it is one key of several
	quiet     bool   // its client does not wait for its answer before it goes on

	at   int    // where the key is read: 0 First, 1 Interim
	name []byte // of the key there

	fast FastAnswer

	named  []stamp.Tag  // by the client
	tags   *tagged      // nil: the route has none
	copies *copied.Copy // nil: the key has one

	then     []func(r *upstream.Result) // what goes on when ask i has ended
	tries    int
	own      bool // a read has asked in the client's own words
	sealed   bool // what it stores is not to be refreshed
	wrote    bool // a server has done something: in strict it may have to be undone
	final    bool // its wait is over: an old value is served now
	outdated bool // it is served an old value

	bound *misses.Bound // the set that it has sent bound to a miss; nil: none
}

// maxTries is how often a command begins again because somebody came in between.
const maxTries = 3

func (l *rule) server(t *task.Task) *upstream.Server {
	if l.copies != nil {
		return l.copies.Server
	}
	return t.Route.Member(l.Place(l.at).Server)
}

// ask sends line to the server that the key is read from.
func (l *rule) ask(t *task.Task, line []byte, then func(r *upstream.Result)) {
	l.askAt(t, l.at, line, then)
}

func (l *rule) askAt(t *task.Task, at int, line []byte, then func(r *upstream.Result)) {
	if l.copies != nil {
		l.step(t, line, then)
		return
	}
	l.then = append(l.then, then)
	t.Ask(len(l.then)-1, t.Route.Member(l.Place(at).Server), line)
}

// step asks by a step of t, which package copies leads.
func (l *rule) step(t *task.Task, line []byte, then func(r *upstream.Result)) {
	t.Step(line, func(r *upstream.Result, token task.Token) {
		heard := *r
		l.copies.Heard(&heard, token, line)
		then(&heard)
	})
}

func (l *rule) Told(_ *task.Task, id int, r *upstream.Result) {
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

// deleteAt deletes what one of the servers has of a key that is between two.
func (l *rule) deleteAt(t *task.Task, at int, then func()) {
	l.askAt(t, at, t.Meta("md", l.Keys[at], "", nil), func(r *upstream.Result) {
		if !r.Reply.Kind.Answered() {
			l.broken(t, r)
			return
		}
		then()
	})
}

// broken ends a write that could not be done everywhere.
func (l *rule) broken(t *task.Task, r *upstream.Result) {
	l.release(misses.Failed, 0, upstream.Via{})
	l.undo(t)
	t.Answer(r, nil)
}

func (l *rule) undo(t *task.Task) {
	if l.wrote && t.Op.Stores() && l.copies == nil {
		l.then = append(l.then, nil)
		t.AskAs(true, len(l.then)-1, l.server(t), t.Meta("md", l.name, "", nil))
	}
}

// end answers a write by f, when all servers have done it and if that is safe.
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

// answered reports whether r, the answer to one of the guard's own meta commands, is one
// and no error. If it isn't, t's command has ended.
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

// look asks what is there, without a win of an item that is not deleted.
func (l *rule) look(t *task.Task, then func(s *item.Seen, via upstream.Via)) {
	l.Learned.Count(stats.GuardLook)
	flags := " s f c t R0"
	if l.tags != nil {
		flags = " v" + flags
	}
	l.inspect(t, l.at, t.Meta("mg", l.name, flags, nil), func(r *upstream.Result) {
		l.judged(t, l.at, r, func(r *upstream.Result, v stamp.Verdict) {
			if l.answered(t, r) {
				s := item.See(&r.Reply, r.Bytes)
				s = s.Clone()
				s.Fallen = v != stamp.Stands
				then(&s, r.Via)
			}
		})
	})
}

// nothing says that there is nothing for a command that does not store where nothing
// is. Its look has taken the win of a deleted item all the same: that goes back.
func (l *rule) nothing(t *task.Task, s *item.Seen, via upstream.Via) bool {
	if s.Nothing() && s.Wins() {
		l.g.giveBack(l.Guard, l.here(t), s, via)
	}
	return l.gone(s)
}

// gone says that there is nothing to clients: a value may have expired for them that
// is kept to be served while it is rebuilt.
func (l *rule) gone(s *item.Seen) bool {
	return s.Nothing() || l.Stale > 0 && s.Left() <= int64(l.Stale/time.Second)
}

// again begins once more, because somebody came in between.
func (l *rule) again(t *task.Task, f func()) {
	if l.tries++; l.tries > maxTries {
		const why = "others change this key all the time"
		l.release(misses.Failed, 0, upstream.Via{})
		if t.Op <= wire.Gats {
			l.failed(t, why, stats.Crowded)
		} else {
			t.Fail(why, stats.Crowded)
		}
		return
	}
	f()
}

// giveBack lets the next client that reads rebuild, where the win of s was not used. A value
// that nobody has deleted stays, unless the route serves old values while they are rebuilt.
func (g *Guard) giveBack(rt *routing.Guard, at misses.Spot, s *item.Seen, via upstream.Via) {
	if s.Stub() || s.Soft() || rt.Stale > 0 {
		g.giveBackAt(at, string(s.Cas), via, s.Stub())
	}
}

// giveBackAt lets the next who reads rebuild, where a win was not used: it takes away a
// stub of that cas, or marks an item of it as to be rebuilt, if it has that cas still.
func (g *Guard) giveBackAt(at misses.Spot, cas string, via upstream.Via, stub bool) {
	if cas == "" || cas == "0" {
		return
	}
	if at.Copied { // the others have the value still: what is due there is missing here
		n, _ := strconv.ParseUint(cas, 10, 64)
		cas, stub = strconv.FormatUint(n^at.Seal, 10), true
	}
	if c, _, _ := at.Server.Pick(0, true); c != nil && c.Reaches(via) {
		giveBackOn(c, at.Name, cas, stub)
	}
}

// ownTimeouts are those of the guard's own asks, of which nobody waits for the answer.
var ownTimeouts = table.Timeouts{Connect: time.Second, Request: time.Second, Deadline: time.Second}

// GiveBack gives back, on c, what a read of key has won whose client is gone.
func GiveBack(c *upstream.Conn, key string, s *item.Seen) {
	if s.Wins() && string(s.Cas) != "0" && (s.Stub() || s.Soft()) {
		giveBackOn(c, key, string(s.Cas), s.Stub())
	}
}

// giveBackOn asks to take away a stub, or to mark an item as to be rebuilt, of that cas.
func giveBackOn(c *upstream.Conn, key, cas string, stub bool) {
	flags := " I C" + cas
	if stub {
		flags = " C" + cas
	}
	c.Server.Loop().Ask(c, nobody{}, 0, &ownTimeouts, []byte(item.Spelled("md ", key, flags)), true)
}

// nobody waits for the answers to the guard's own asks.
type nobody struct{}

func (nobody) Client() uint64                     { return 0 }
func (nobody) Answered(_ int, _ *upstream.Result) {}

// appendToLine is an edit that adds flags to the request line.
func appendToLine(t *task.Task, flags string) task.Edit {
	at := t.Req.Line.End
	return task.Edit{At: wire.Span{Start: at, End: at}, With: []byte(flags)}
}

// rewrite gives the client's request what the guard keeps of it on the server: the
// longer time, and the flags of an empty value.
func (l *rule) rewrite(t *task.Task) {
	var edits []task.Edit
	stores := t.Op == wire.Set || t.Op == wire.Add || t.Op == wire.Replace || t.Op == wire.Cas
	if flags := t.Req.ClientFlags.Of(t.Raw); stores && t.Req.Body.Len() == 0 && !t.Req.Letters.Has('I') {
		switch {
		case t.Req.ClientFlags.Len() == 0 && t.Req.Dialect == wire.Meta:
			edits = append(edits, appendToLine(t, " F"+item.EmptyFlags))
		case wire.ClientFlags(flags) == 0:
			edits = append(edits, task.Edit{At: t.Req.ClientFlags, With: []byte(item.EmptyFlags)})
		}
	}
	moves := stores || t.Op == wire.Touch || t.Op == wire.Gat || t.Op == wire.Gats || t.Op == wire.Get
	if at := t.Req.Exptime; moves && at.Len() > 0 && !l.Hide {
		if n, err := strconv.ParseInt(string(at.Of(t.Raw)), 10, 64); err == nil {
			longer, sealed := item.Longer(l.Guard, n, l.g.Wall)
			l.sealed = sealed && stores
			edits = append(edits, task.Edit{At: at, With: strconv.AppendInt(nil, longer, 10)})
		}
	}
	t.Rewrite(edits...)
	if l.Place(l.at).Diverted {
		t.Rewrite(t.ShortLived(t.Route.Pool.Failover.InterimTTL)...)
	}
}
