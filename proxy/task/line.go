package task

// Who waits for whom on one key. A client's commands on a key take effect in
// the order in which it sent them, though each may take several asks at several
// servers; and writes to a key of several copies come one after another, so that
// all copies see them in one order.

import (
	"cmp"
	"maps"
	"slices"

	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// queue is the commands of one line: those at work, and those that wait. Reads are
// at work together, and everything else alone.
//
// A command that waits in a line has begun nothing. One that has its turn in the
// line of its client may wait for the line of the key, but never the other way
// round. So nobody waits in a circle, and each ends by its own deadline: also behind
// a repair, which has none that a client knows.
type queue struct {
	reads int     // tasks at work that only read
	alone *Task   // the task at work that changes something; nil: none
	queue []*Task // those that wait, in order
}

// Line names a line: that of a client on a key, on the client's loop; or, with
// client 0, that of all who write a key of several copies, on the loop that leads
// the key. Keys are told apart by their hash: two keys that share one hash wait for
// each other, and that is all.
type Line struct{ client, key uint64 }

// maxLine is how many commands may wait in one line.
const maxLine = 1000

// TooLong is why a command fails that has waited in a line until its deadline.
const TooLong = "the commands before it on this key took too long"

// ownLine is the line of t's client on t's key.
func (t *Task) ownLine() Line { return ownLine(t.Asker, t.Hash) }

// ownLine is the line of a client on a key. Its number is told apart from others' also
// where it is upstream.Bulky by now.
func ownLine(client, hash uint64) Line { return Line{client &^ upstream.Bulky, hash} }

// KeyLine is the line of those who write a key, by its hash.
func KeyLine(hash uint64) Line { return Line{0, hash} }

// Admit leads t, which its client has just sent, as soon as the client's commands on
// the key before it are done.
func (e *Tasks) Admit(t *Task) {
	t.x.Session.Tasks++
	if t.inLine = true; e.Claim(t, t.ownLine()) {
		e.lead(t)
	}
}

// Follows says whether a command of the client on key must wait for one before it,
// which is a task: not done, and not even on its way on the connection where the next
// command would go.
func (e *Tasks) Follows(s *client.Session, rt *routing.Route, key []byte) bool {
	return rt != nil && e.FollowsHash(s, e.Loops.HashKey(key[len(rt.Strip):]))
}

// FollowsHash is Follows for a key with that hash.
func (e *Tasks) FollowsHash(s *client.Session, hash uint64) bool {
	return e.Works(s.ID, hash)
}

// Works reports whether a command of a client on a key with that hash is at work, or waits for
// one that is. A client that is gone may have some still.
func (e *Tasks) Works(client, hash uint64) bool { return e.Lines[ownLine(client, hash)] != nil }

// A read may need no task where the other commands on its key do: it is a request on its way,
// and stands in no line. So that what its client sends behind it waits for it all the same if
// that changes the key, Session.Reads has the hash of its key, and a line begins with the
// reads on the key that are on their way.

// line is the line of that name. If there is none it is made, with the reads of s on
// the key that are on their way.
func (e *Tasks) line(name Line, s *client.Session) *queue {
	l := e.Lines[name]
	if l == nil {
		if e.Lines == nil {
			e.Lines = map[Line]*queue{}
		}
		l = &queue{}
		e.Lines[name] = l
		if s != nil {
			for _, hash := range s.Reads {
				if hash == name.key {
					l.reads++
				}
			}
		}
	}
	return l
}

// TakeOver leads t, which takes over from a read of its client that needed no task so far.
// It has the place of that in the client's line.
func (e *Tasks) TakeOver(t *Task) {
	s := t.x.Session
	s.Tasks++
	t.inLine = true
	e.line(t.ownLine(), s)
	e.readsLess(s, t.Hash)
	e.lead(t)
}

// EndRead ends a read of s that needed no task, of the key with that hash.
func (e *Tasks) EndRead(s *client.Session, hash uint64) {
	e.readsLess(s, hash)
	name := ownLine(s.ID, hash)
	if l := e.Lines[name]; l != nil {
		l.reads--
		e.advance(name, l)
	}
}

// readsLess forgets one of the reads of s that need no task.
func (e *Tasks) readsLess(s *client.Session, hash uint64) {
	i := slices.Index(s.Reads, hash)
	s.Reads = slices.Delete(s.Reads, i, i+1)
}

// EndReads ends the reads of a client that is gone: those that stand behind them may begin.
func (e *Tasks) EndReads(s *client.Session) {
	for len(s.Reads) > 0 {
		e.EndRead(s, s.Reads[0])
	}
}

// ReleaseLine lets the client's next command on t's key begin though t has no answer yet.
// Where another loop leads t the line is not this loop's to release, and the next command
// may take another connection: there conclude releases it.
func (t *Task) ReleaseLine() {
	if t.ClientLoop == t.Loop && !t.Backfilling {
		t.Loop.releaseLine(t)
	}
}

// releaseLine lets the client's next command on t's key begin. e is the loop of t's client.
func (e *Tasks) releaseLine(t *Task) {
	if t.inLine {
		t.inLine = false
		e.Unclaim(t, t.ownLine())
	}
}

// Backfilled is called when t's backfill has ended, whose mark may have been in the way of
// the client's next command on the key.
func (t *Task) Backfilled() {
	t.Backfilling = false
	switch {
	case !t.ClientDone: // conclude releases the line
	case t.ClientLoop == t.Loop:
		t.Loop.releaseLine(t)
	default:
		t.ClientLoop.Post(func(e *Tasks) { e.releaseLine(t) })
	}
}

// Claim puts t into a line. It reports whether t may begin now; if not, t is led
// when its turn comes, or has failed because the line is full.
func (e *Tasks) Claim(t *Task, name Line) bool {
	var s *client.Session
	if name.client != 0 {
		s = t.x.Session
	}
	l := e.line(name, s)
	switch {
	case l.alone == t: // it has its turn: it was parked meanwhile, or is led again
		return true
	case e.LineFull(name):
		t.inLine = t.inLine && name.client == 0
		t.Fail("too many commands wait on this key", stats.Crowded)
		return false
	}
	if len(l.queue) == 0 && l.begins(t) { // most meet nobody: they need no room to wait in
		return true
	}
	l.queue = append(l.queue, t)
	if t.forSomebody() {
		e.At(link.ParkedTimer, t.Deadline)
	}
	return false
}

// forSomebody says whether t has a deadline while it waits: Ringside's own tasks get
// theirs with their turn.
func (t *Task) forSomebody() bool { return t.x != nil || t.step != nil }

// next gives the first that waits its turn, if it may begin; else it is nil.
func (l *queue) next() *Task {
	if len(l.queue) == 0 || !l.begins(l.queue[0]) {
		return nil
	}
	t := l.queue[0]
	l.queue = l.queue[1:]
	return t
}

// begins gives t its turn, if it may begin.
func (l *queue) begins(t *Task) bool {
	switch {
	case l.alone != nil || l.reads > 0 && !t.reads:
		return false
	case t.reads:
		l.reads++
	default:
		l.alone = t
	}
	return true
}

// holdsKey reports whether t is at work in the line of its key.
func (e *Tasks) holdsKey(t *Task) bool {
	l := e.Lines[KeyLine(t.Hash)]
	return l != nil && l.alone == t
}

// LineFull says whether no more can wait in a line.
func (e *Tasks) LineFull(name Line) bool {
	l := e.Lines[name]
	return l != nil && len(l.queue) >= maxLine
}

// Unclaim takes t out of a line, if it is at work there, and gives those their turn
// who may begin now.
func (e *Tasks) Unclaim(t *Task, name Line) {
	l := e.Lines[name]
	switch {
	case l == nil:
		return
	case t.reads && name.client != 0: // in the line of a key there are only writes
		l.reads--
	case l.alone != t:
		return
	default:
		l.alone = nil
	}
	e.advance(name, l)
}

// advance gives those their turn who may begin now.
func (e *Tasks) advance(name Line, l *queue) {
	for next := l.next(); next != nil; next = l.next() {
		e.Runnable = append(e.Runnable, next)
		e.Soon(link.KeeperTimer) // so that End is called, which leads it
	}
	if l.reads == 0 && l.alone == nil {
		delete(e.Lines, name)
	}
}

// expire fails those whose deadline has come while they wait in a line. It looks at
// all lines, and that once in about a deadline: the next look is when the first of
// those that wait now is due, and whoever comes later is due later.
func (e *Tasks) expire() {
	var late []*Task
	names := slices.SortedFunc(maps.Keys(e.Lines), func(a, b Line) int { // not in the order of a map
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.key, b.key))
	})
	for _, name := range names {
		l, n := e.Lines[name], len(late)
		l.queue = slices.DeleteFunc(l.queue, func(t *Task) bool {
			if !t.forSomebody() || e.Now < t.Deadline {
				return false
			}
			t.inLine = t.inLine && name.client == 0
			late = append(late, t)
			return true
		})
		if len(late) > n {
			e.advance(name, l)
		}
		for _, t := range l.queue {
			if t.forSomebody() {
				e.At(link.ParkedTimer, t.Deadline)
			}
		}
	}
	for _, t := range late {
		t.Fail(TooLong, stats.TimedOut)
	}
}

// LeadAgain lets t, of which no ask is on its way, be led once more, with what is known
// by then.
func (e *Tasks) LeadAgain(t *Task) {
	e.Runnable = append(e.Runnable, t)
	e.Soon(link.KeeperTimer)
}

// LeadRunnable leads the tasks whose turn has come. It is called by End, not where
// the task before has ended: a long line must not become a deep stack.
func (e *Tasks) LeadRunnable() {
	for i := 0; i < len(e.Runnable); i++ { // it may grow
		e.lead(e.Runnable[i])
	}
	clear(e.Runnable)
	e.Runnable = e.Runnable[:0]
}

// handOver lets another loop lead t. Its answer comes back to the client's loop:
// see conclude.
func (t *Task) handOver(o *Tasks) {
	listener, prefix, match, deadline := t.Route.Listener, t.Route.Prefix, t.Route.Match, t.Deadline
	t.Loop.Buffers.Hold(-t.held)
	o.Post(func(o *Tasks) {
		t.Loop, t.leader = o, nil
		o.Buffers.Hold(t.held)
		t.Deadline = deadline
		if l := o.Listeners[listener]; l != nil {
			for i := range l.Routes {
				if l.Routes[i].Prefix == prefix && l.Routes[i].Match == match && l.Routes[i].OneLoop() {
					t.Route = &l.Routes[i]
					o.lead(t)
					return
				}
			}
		}
		o.refuse(t, "the configuration has just changed")
	})
}

// conclude ends the task's part of its exchange by f, on the client's loop, which says
// how it has ended and of how many bytes is the value that it found. server has
// answered; where none has, why says so.
func (t *Task) conclude(server, why string, f func(e *Tasks, x *client.Exchange) (o stats.Outcome, found int)) {
	if t.ClientDone {
		return
	}
	t.ClientDone = true
	t.Loop.Concluding(t)
	brought := len(t.Raw)        // which is gone when the client's loop looks
	backfilling := t.Backfilling // which is not the client's loop's to see
	end := func(e *Tasks) {
		if !backfilling {
			e.releaseLine(t)
		}
		if s := t.x.Session; s != nil {
			s.Tasks--
		}
		o, size := f(e, t.x)
		key := []byte(t.Strip + string(t.Key))
		if t.Op > wire.Gats {
			size = brought
		}
		e.Ended(t, key, o, size)
		if t.x.Slow() {
			t.x.LogSlow(client.Slow{Key: key, Keys: 1, Server: server, Phase: stats.Several, Why: why})
		}
		t.x.FinishOne()
	}
	if t.ClientLoop == t.Loop {
		end(t.Loop)
		return
	}
	t.ClientLoop.Post(end)
}
