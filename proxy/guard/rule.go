package guard

// The rule of a command on a guarded key, and what all commands have in common.

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
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

	first      *upstream.Result // of a get that was sent as an ordinary exchange: its answer
	firstName  []byte           // of the key that it asked for
	firstKnown stamp.Known      // versions of tags that came with it

	named []stamp.Tag // by the client
	tags  *tagged     // nil: the route has none

	then   []func(r *upstream.Result) // what goes on when ask i has ended
	tries  int
	own    bool // a read has asked in the client's own words
	sealed bool // what it stores is not to be refreshed
	wrote  bool // a server has done something: in strict it may have to be undone
}

// maxTries is how often a command begins again because somebody came in between.
const maxTries = 3

func (l *rule) server(t *task.Task) *upstream.Server { return t.Route.Member(l.Place(l.at).Server) }

// pooled says that the client's set may come on another connection than its miss.
func (l *rule) pooled() bool {
	return l.Clients == table.Pooled || l.Clients == table.ByEvidence && l.party.shared.Load()
}

// ask sends line to the server that the key is read from.
func (l *rule) ask(t *task.Task, line []byte, then func(r *upstream.Result)) {
	l.askAt(t, l.at, line, then)
}

func (l *rule) askAt(t *task.Task, at int, line []byte, then func(r *upstream.Result)) {
	l.then = append(l.then, then)
	t.Ask(len(l.then)-1, t.Route.Member(l.Place(at).Server), line)
}

func (l *rule) Told(_ *task.Task, id int, r *upstream.Result) {
	if f := l.then[id]; f != nil {
		f(r)
	}
}

func (l *rule) Begin(t *task.Task) {
	switch {
	case l.first != nil:
		l.resume(t)
	case t.Op <= wire.Gats:
		l.read(t)
	default:
		l.Learned.Count(stats.GuardWrite)
		if l.Role == health.Warming || l.Role == health.Settling {
			l.side(t, 1, func() { l.write(t) })
			return
		}
		l.write(t)
	}
}

// side deletes what the other server has of a key that is between two.
func (l *rule) side(t *task.Task, at int, then func()) {
	l.askAt(t, at, t.Meta("md", l.Keys[at], "", nil), func(r *upstream.Result) {
		if !r.Parsed(wire.Delete, wire.Meta, &t.Loop.Rep) || t.Loop.Rep.Kind.Failed() {
			l.broken(t, r)
			return
		}
		then()
	})
}

// broken ends a write that could not be done everywhere.
func (l *rule) broken(t *task.Task, r *upstream.Result) {
	l.undo(t)
	if r.Bytes != nil {
		t.Answer(r, nil)
	} else {
		t.Fail(r.Why, r.Outcome)
	}
}

// undo deletes what was stored.
func (l *rule) undo(t *task.Task) {
	if l.wrote && t.Op.Stores() {
		l.then = append(l.then, nil)
		t.AskAs(true, len(l.then)-1, l.server(t), t.Meta("md", l.name, "", nil))
	}
}

// end answers a write by f, when all servers have done it and if that is safe.
func (l *rule) end(t *task.Task, f func()) {
	l.g.wake(t)
	safely := func() {
		if !l.Sure(t) {
			l.undo(t)
			t.Fail("not sure that everybody sees the write: it was undone", stats.Unavailable)
			return
		}
		f()
	}
	if l.Role == health.Returning {
		l.side(t, 0, safely)
		return
	}
	safely()
}

func (l *rule) say(t *task.Task, k wire.Kind) { l.end(t, func() { t.AnswerKind(k) }) }

// answered reads r, a server's answer to one of the guard's own meta commands, and
// ends t's command if it is none or an error.
func (l *rule) answered(t *task.Task, op wire.Op, r *upstream.Result) (rep *wire.Reply, ok bool) {
	rep = &t.Loop.Rep
	if r.Parsed(op, wire.Meta, rep) && !rep.Kind.Failed() {
		return rep, true
	}
	if t.Op <= wire.Gats {
		l.unanswered(t, r)
	} else {
		l.broken(t, r)
	}
	return rep, false
}

// look asks what is there, without a win of an item that is not deleted.
func (l *rule) look(t *task.Task, then func(s *seen, via upstream.Via)) {
	l.Learned.Count(stats.GuardLook)
	flags := " s f c t R0"
	if l.tags != nil {
		flags = " v" + flags
	}
	l.inspect(t, l.at, t.Meta("mg", l.name, flags, nil), func(r *upstream.Result) {
		l.judged(t, l.at, r, func(r *upstream.Result, v stamp.Verdict) {
			if rep, ok := l.answered(t, wire.Get, r); ok {
				s := see(rep, r.Bytes)
				s.flags, s.cas, s.ttl = slices.Clone(s.flags), slices.Clone(s.cas), slices.Clone(s.ttl)
				s.fallen = v != stamp.Stands
				then(&s, r.Via)
			}
		})
	})
}

// nothing says that there is nothing for a command that does not store where nothing
// is. Its look has taken the win of a deleted item all the same: that goes back.
func (l *rule) nothing(t *task.Task, s *seen, via upstream.Via) bool {
	if s.nothing() && s.wins() {
		l.rearmAt(l.here(t), string(s.cas), via, s.stub())
	}
	return l.gone(s)
}

// gone says that there is nothing to clients: a value may have expired for them that
// is kept to be served while it is rebuilt.
func (l *rule) gone(s *seen) bool {
	return s.nothing() || l.Stale > 0 && s.left() <= int64(l.Stale/time.Second)
}

// again begins once more, because somebody came in between.
func (l *rule) again(t *task.Task, f func()) {
	if l.tries++; l.tries > maxTries {
		t.Fail("others change this key all the time", stats.Crowded)
		return
	}
	f()
}

// rearmAt takes away a stub of that cas, or marks an item of it as to be rebuilt:
// only if it has that cas still.
func (l *rule) rearmAt(at spot, cas string, via upstream.Via, stub bool) {
	if cas == "" || cas == "0" {
		return
	}
	c, _, _ := at.srv.Pick(0, true)
	if c == nil || !c.Reaches(via) {
		return
	}
	flags := " I C"
	if stub {
		flags = " C"
	}
	l.g.demand(c, spelled("md ", at.name, flags+cas), nil)
}

// demand is an ask of the guard itself.
func (g *Guard) demand(c *upstream.Conn, line string, told func(r *upstream.Result)) {
	limit := ownTimeouts
	g.Servers.Ask(c, asker(told), 0, &limit, []byte(line), true)
}

// ownTimeouts are those of the guard's own asks, of which nobody waits for the answer.
var ownTimeouts = table.Timeouts{Connect: time.Second, Request: time.Second, Deadline: time.Second}

// spelled is a meta command on a key, which may not be a word.
func spelled(command, name, flags string) string {
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 127 }) {
		name = base64.StdEncoding.EncodeToString([]byte(name)) + " b"
	}
	return command + name + flags + "\r\n"
}

type asker func(r *upstream.Result)

func (a asker) Client() uint64 { return 0 }

func (a asker) Answered(_ int, r *upstream.Result) {
	if a != nil {
		a(r)
	}
}

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
			edits = append(edits, appendToLine(t, " F"+emptyFlags))
		case string(flags) == "0":
			edits = append(edits, task.Edit{At: t.Req.ClientFlags, With: []byte(emptyFlags)})
		}
	}
	moves := stores || t.Op == wire.Touch || t.Op == wire.Gat || t.Op == wire.Gats || t.Op == wire.Get
	if at := t.Req.Exptime; moves && at.Len() > 0 && !l.Hide {
		if n, err := strconv.ParseInt(string(at.Of(t.Raw)), 10, 64); err == nil {
			longer, sealed := l.longer(n, time.Now().Unix())
			l.sealed = sealed && stores
			edits = append(edits, task.Edit{At: at, With: strconv.AppendInt(nil, longer, 10)})
		}
	}
	t.Rewrite(edits...)
	if l.Place(l.at).Diverted {
		t.Rewrite(t.ShortLived(t.Route.Pool.Failover.InterimTTL)...)
	}
}

// maxRelative is the longest exptime that memcached takes as a time from now.
const maxRelative = 30 * 24 * 60 * 60

// longer is the time for which a value is kept whose client says n, so that it can
// be served while it is rebuilt. A value that lives short must not be due from the
// beginning; where its time can't be longer, it is sealed: nobody is to refresh it.
func (l *rule) longer(n, now int64) (kept int64, sealed bool) {
	stale, early := int64(l.Stale/time.Second), int64(early(l.Guard)/time.Second)
	left := n
	if n > maxRelative {
		left = n - now
	}
	if left <= 0 {
		return n, false
	}
	more := stale
	if left < 4*early {
		if stale == 0 {
			return n, true
		}
		more += early - left/4
	}
	switch {
	case n > maxRelative:
		return n + more, false
	case n+more > maxRelative:
		return now + n + more, false
	}
	return n + more, false
}
