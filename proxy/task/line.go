package task

// The order of the tasks on one key. One client's commands on a key take effect in the
// order in which it sent them, though each may need several requests to several servers.
// Writes to a replicated key run one after another, so that all replicas see them in one
// order.

import (
	"bytes"
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

// queue has the commands of one line: the running ones and the waiting ones. Reads run
// together, all other commands alone.
//
// A command that waits in a line has not begun. A command that has its turn in the line of
// its client may wait for the line of the key, but never the other way round. So there is
// no cycle of waits, and each command ends by its own deadline. So does a command that
// waits for a repair, which has no deadline of a client.
type queue struct {
	reads int     // running tasks that only read
	alone *Task   // the running task that changes something; nil: none
	queue []*Task // waiting tasks, in order
}

// Line identifies a line. A client's line on a key is on the client's loop. The line of all
// writes to a replicated key has client 0 and is on the key's loop (Loops.Owner). key is a
// hash: two keys with the same hash only wait for each other.
type Line struct{ client, key uint64 }

// maxLine is the most commands that may wait in one line.
const maxLine = 1000

// TooLong is the error of a command that has waited in a line until its deadline.
const TooLong = "the commands before it on this key took too long"

// ownLine returns the line of t's client on t's key.
func (t *Task) ownLine() Line { return ownLine(t.Asker, t.Hash) }

// ownLine returns the line of a client on a key. It clears upstream.Bulky, so that the line
// stays the same when the client's number gets that bit.
func ownLine(client, hash uint64) Line { return Line{client &^ upstream.Bulky, hash} }

// KeyLine returns the line, a queue, in which the writes to a replicated key wait. hash is
// the hash of the key.
func KeyLine(hash uint64) Line { return Line{0, hash} }

// Admit starts t, which its client has just sent, as soon as the client's earlier commands
// on the key are done.
func (e *Tasks) Admit(t *Task) {
	t.x.Session.Tasks++
	if t.inLine = true; e.Claim(t, t.ownLine()) {
		e.dispatch(t)
	}
}

// Follows reports whether a command of the client on key must wait for an earlier one. That
// is a task that is neither done nor in flight on the connection that the next command
// would use.
func (e *Tasks) Follows(s *client.Session, rt *routing.Route, key []byte) bool {
	return rt != nil && e.FollowsHash(s, e.Loops.HashKey(key[len(rt.Strip):]))
}

// FollowsHash is like Follows, for the key with that hash.
func (e *Tasks) FollowsHash(s *client.Session, hash uint64) bool {
	return e.Works(s.ID, hash)
}

// Works reports whether a command of a client on a key with that hash is running or
// waiting. A client that has disconnected may still have some.
func (e *Tasks) Works(client, hash uint64) bool { return e.Lines[ownLine(client, hash)] != nil }

// A read may need no task where other commands on its key do: it is a request in flight, in
// no line. A later command of its client that changes the key must still wait for it. So
// Session.Reads has the hash of its key, and the reads that a line counts include these
// reads in flight.

// line returns the line of that name. If there is none, line creates it, with the reads of
// s on the key that are in flight.
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

// TakeOver starts t, which replaces a read of its client that needed no task so far. key is the
// key of that read, as servers know it. t gets the place of the read in the client's line. If a
// reload has given the key another name at the servers, that line is not the line of t, so t is
// admitted like a new command.
func (e *Tasks) TakeOver(t *Task, key []byte) {
	s := t.x.Session
	if !bytes.Equal(key, t.Key) {
		e.EndRead(s, key)
		e.Admit(t)
		return
	}
	s.Tasks++
	t.inLine = true
	e.line(t.ownLine(), s)
	e.readsLess(s, t.Hash)
	e.dispatch(t)
}

// BeginRead records a read of s that needs no task and is about to be sent, on the key with
// that hash.
func (e *Tasks) BeginRead(s *client.Session, hash uint64) {
	s.Reads = append(s.Reads, hash)
	if len(e.Lines) > 0 {
		if l := e.Lines[ownLine(s.ID, hash)]; l != nil {
			l.reads++
		}
	}
}

// EndRead ends a read of s that needed no task. key is its key, as servers know it.
func (e *Tasks) EndRead(s *client.Session, key []byte) {
	hash := s.Reads[0]
	if len(s.Reads) > 1 {
		hash = e.Loops.HashKey(key)
	}
	e.endRead(s, hash)
}

// endRead is EndRead for a key by its hash.
func (e *Tasks) endRead(s *client.Session, hash uint64) {
	e.readsLess(s, hash)
	if len(e.Lines) == 0 {
		return
	}
	name := ownLine(s.ID, hash)
	if l := e.Lines[name]; l != nil {
		l.reads--
		e.advance(name, l)
	}
}

// readsLess removes one read of the key with that hash from s.Reads, the client's reads in flight
// that need no task.
func (e *Tasks) readsLess(s *client.Session, hash uint64) {
	i := slices.Index(s.Reads, hash)
	s.Reads = slices.Delete(s.Reads, i, i+1)
}

// EndReads ends the reads of a client that has disconnected, so that commands that wait for
// them may begin.
func (e *Tasks) EndReads(s *client.Session) {
	for len(s.Reads) > 0 {
		e.endRead(s, s.Reads[0])
	}
}

// InProgress reports whether the client s has a command on the key with that hash that has no reply
// yet: a task that runs or waits in the queue of the client's commands on the key, or a read
// without a task.
func (e *Tasks) InProgress(s *client.Session, hash uint64) bool {
	return e.Works(s.ID, hash) || slices.Contains(s.Reads, hash)
}

// ReleaseLine lets the client's next command on t's key begin although t has no reply yet.
// It does nothing during a backfill (see Backfilled). It does nothing either if another
// loop runs t: the line belongs to the client's loop, and the next command may use another
// connection. In that case conclude releases the line.
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

// Backfilled is called when t's backfill has ended. The client's next command on the key may have
// waited, because it could have found the placeholder of the backfill.
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

// Claim adds t to a line. It reports whether t may begin now. If not, t is started when its
// turn comes, or has failed because the line is full.
func (e *Tasks) Claim(t *Task, name Line) bool {
	var s *client.Session
	if name.client != 0 {
		s = t.x.Session
	}
	l := e.line(name, s)
	switch {
	case l.alone == t: // t has its turn already: t was parked, or is started again
		return true
	case e.LineFull(name):
		t.leaves(name)
		t.Fail("too many commands wait on this key", stats.QueueFull)
		return false
	}
	if len(l.queue) == 0 && l.begins(t) { // most find the line empty, and need no slot in it
		return true
	}
	l.queue = append(l.queue, t)
	if t.hasDeadline() {
		e.At(link.ParkedTimer, t.Deadline)
	}
	return false
}

// leaves records that t, which waits in the line of that name, will have no turn there.
// Only the client's loop may use inLine, so the line of a key must not.
func (t *Task) leaves(name Line) {
	if name.client != 0 {
		t.inLine = false
	}
}

// hasDeadline reports whether t has a deadline while it waits. An internal task gets its
// deadline when its turn begins.
func (t *Task) hasDeadline() bool { return t.x != nil || t.step != nil }

// next starts the first waiting task and returns it, or nil if it may not begin.
func (l *queue) next() *Task {
	if len(l.queue) == 0 || !l.begins(l.queue[0]) {
		return nil
	}
	t := l.queue[0]
	l.queue = l.queue[1:]
	return t
}

// begins starts t, if it may begin.
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

// holdsKey reports whether t is the running task in the line of its key.
func (e *Tasks) holdsKey(t *Task) bool {
	l := e.Lines[KeyLine(t.Hash)]
	return l != nil && l.alone == t
}

// LineFull reports whether no more commands can wait in a line.
func (e *Tasks) LineFull(name Line) bool {
	l := e.Lines[name]
	return l != nil && len(l.queue) >= maxLine
}

// Unclaim removes t from a line, if it runs there, and starts the tasks that may begin now.
func (e *Tasks) Unclaim(t *Task, name Line) {
	l := e.Lines[name]
	switch {
	case l == nil:
		return
	case t.reads && name.client != 0: // the line of a key has only writes
		l.reads--
	case l.alone != t:
		return
	default:
		l.alone = nil
	}
	e.advance(name, l)
}

// advance starts the tasks that may begin now.
func (e *Tasks) advance(name Line, l *queue) {
	for next := l.next(); next != nil; next = l.next() {
		e.Runnable = append(e.Runnable, next)
		e.Wake()
	}
	if l.reads == 0 && l.alone == nil {
		delete(e.Lines, name)
	}
}

// expire fails the tasks that wait in a line past their deadline. It checks all lines,
// about once per deadline: the next check is when the first of the waiting tasks is due,
// and tasks that are added later are due later.
func (e *Tasks) expire() {
	var late []*Task
	names := slices.SortedFunc(maps.Keys(e.Lines), func(a, b Line) int { // not in map order
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.key, b.key))
	})
	for _, name := range names {
		l, n := e.Lines[name], len(late)
		l.queue = slices.DeleteFunc(l.queue, func(t *Task) bool {
			if !t.hasDeadline() || e.Now < t.Deadline {
				return false
			}
			t.leaves(name)
			late = append(late, t)
			return true
		})
		if len(late) > n {
			e.advance(name, l)
		}
		for _, t := range l.queue {
			if t.hasDeadline() {
				e.At(link.ParkedTimer, t.Deadline)
			}
		}
	}
	for _, t := range late {
		t.Fail(TooLong, stats.TimedOut)
	}
}

// DispatchAgain starts t again, with the current state. None of its asks may be in flight.
func (e *Tasks) DispatchAgain(t *Task) {
	e.Runnable = append(e.Runnable, t)
	e.Wake()
}

// DispatchRunnable starts the tasks in Runnable. End calls it, not the end of the task
// before: a long line must not become a deep stack.
func (e *Tasks) DispatchRunnable() {
	for i := 0; i < len(e.Runnable); i++ { // the list may grow
		e.dispatch(e.Runnable[i])
	}
	clear(e.Runnable)
	e.Runnable = e.Runnable[:0]
}

// moveToLoop moves t to another loop, which runs it. Its reply returns to the client's loop:
// see conclude. The other loop must not use t's route: it belongs to this loop, which may
// replace it. If the other loop has no such route, t is refused there, so that the guard of
// the key's loop records the miss. For that t gets a route with the settings that no loop
// changes.
func (t *Task) moveToLoop(o *Tasks) {
	rt, deadline := t.Route, t.Deadline
	listener, prefix, match := rt.Listener, rt.Prefix, rt.Match
	pool, guard, loud := rt.Pool, rt.Guard, rt.GetErrors
	t.Loop.Buffers.Hold(-t.held)
	t.Route = nil
	o.Post(func(o *Tasks) {
		t.Loop, t.handler = o, nil
		o.Buffers.Hold(t.held)
		t.Deadline = deadline
		if l := o.Listeners[listener]; l != nil {
			for i := range l.Routes {
				if l.Routes[i].Prefix == prefix && l.Routes[i].Match == match && l.Routes[i].OneLoop() {
					t.Route = &l.Routes[i]
					o.dispatch(t)
					return
				}
			}
		}
		t.Route = routing.Unbound(pool, guard, loud)
		o.refuse(t, client.Reconfigured)
	})
}

// conclude ends the task's part of its exchange by f, on the client's loop. f returns the
// outcome, and the size in bytes of the value that was found. server is the label of the
// server that replied; if none has, why is the reason.
func (t *Task) conclude(server, why string, f func(e *Tasks, x *client.Exchange) (o stats.Outcome, found int)) {
	if t.ClientDone {
		return
	}
	t.ClientDone = true
	t.Loop.Concluding(t)
	brought := len(t.Raw)        // Raw may be freed before end runs on the client's loop
	backfilling := t.Backfilling // end must not read the field on the client's loop
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
