package task

// This file implements the order of the tasks on one key. One client's commands on a key take
// effect in the order in which it sent them, though each may need several requests to several
// servers. Writes to a replicated key run one after another, so that all replicas see them in
// one order.

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
// A command that waits in a line has not begun. A command that has its turn in the line of its
// client may wait for the line of the key, but never the other way round. So there is no cycle
// of waits, and each command ends by its own deadline. A command that waits for a repair, which
// has no deadline of a client, also ends by its own.
type queue struct {
	name  Line
	reads int     // number of running tasks that only read the key
	alone *Task   // the running task that changes the key; nil: none
	queue []*Task // waiting tasks, in order
}

// Line identifies a line. A client's line on a key is on the client's loop. The line of all
// writes to a replicated key has client 0 and is on the key's loop (Loops.Owner). key is a
// hash: two keys with the same hash only wait for each other.
type Line struct{ client, key uint64 }

// room is the place of a task in a line.
type room struct {
	line  *queue // the line in which the task runs or waits, or was the last time; nil: none
	space queue  // space for a line that begins with the task
}

// maxLine is the most commands that may wait in one line.
const maxLine = 1000

// TooLong is the error of a command that has waited in a line until its deadline.
const TooLong = "the commands before it on this key took too long"

// overloaded is the error of a command that has waited for its start until its deadline: see start.
const overloaded = "this instance has more commands to carry out than it can in time"

// ownLine returns the line of a client on a key. It clears upstream.Bulky, so that the line
// stays the same when the client's number gets that bit.
func ownLine(client, hash uint64) Line { return Line{client &^ upstream.Bulky, hash} }

// Admit adds t, a command that its client has just sent, to the client's line on the key. t
// starts when the client's earlier commands on the key are done.
func (e *Tasks) Admit(t *Task) {
	t.x.Session.Tasks++
	if e.enter(&t.own, t, ownLine(t.Asker, t.Hash), t.x.Session) {
		e.dispatch(t)
	}
}

// Follows reports whether a command of the client s on key must wait for an earlier one: s has
// a task on the key that is still in its line.
func (e *Tasks) Follows(s *client.Session, rt *routing.Route, key []byte) bool {
	return s.Tasks > 0 && e.follows(s, rt, key) // a call only for clients with tasks
}

func (e *Tasks) follows(s *client.Session, rt *routing.Route, key []byte) bool {
	return rt != nil && e.Lines[ownLine(s.ID, e.Loops.HashKey(key[len(rt.Strip):]))] != nil
}

// A Read is in no line. A later command of its client that changes the key must still wait for it.
// So Session.Reads has the reads in flight, and a line counts those of its key with the reads of
// its tasks.

// join sets r.line to the line with the given name. If there is none, join makes it, and counts the reads
// of s on the key that are in flight without a task. s is nil for the line of a key.
func (e *Tasks) join(r *room, name Line, s *client.Session) *queue {
	if r.line = e.Lines[name]; r.line == nil {
		if e.Lines == nil {
			e.Lines = map[Line]*queue{}
		}
		r.line = &r.space
		if r.space.name = name; s != nil {
			r.space.reads = e.openReads(s, name.key)
		}
		e.Lines[name] = r.line
	}
	return r.line
}

// fewReads is the most reads of one client that openReads compares one by one.
const fewReads = 8

// openReads returns how many reads of s on the key with this hash are in flight without a task. A
// client that pipelines many reads gets the map ReadsByKey until it has no reads in flight. So the
// cost of a command does not depend on the number of reads: each read is added to the map once, and
// removed once.
func (e *Tasks) openReads(s *client.Session, hash uint64) (n int) {
	walked := 0
	for r := s.Reads; r != nil && s.ReadsByKey == nil; r = r.Older {
		if walked == fewReads {
			s.ReadsByKey = map[uint64]int{}
			break
		}
		walked++
		if e.Loops.HashKey(r.Name) == hash {
			n++
		}
	}
	if s.ReadsByKey == nil {
		return n
	}
	if walked == fewReads {
		for r := s.Reads; r != nil; r = r.Older {
			s.ReadsByKey[e.Loops.HashKey(r.Name)]++
		}
	}
	return s.ReadsByKey[hash]
}

// close removes r from the reads of its session.
func (e *Tasks) close(r *client.OpenRead) {
	if r.Session.ReadsByKey != nil {
		e.uncount(r)
	}
	r.Close()
}

// uncount removes r from ReadsByKey. The map is dropped when it is empty.
func (e *Tasks) uncount(r *client.OpenRead) {
	s, hash := r.Session, e.Loops.HashKey(r.Name)
	if s.ReadsByKey[hash]--; s.ReadsByKey[hash] == 0 {
		delete(s.ReadsByKey, hash)
	}
	if len(s.ReadsByKey) == 0 {
		s.ReadsByKey = nil
	}
}

// takeOver starts t, which continues the read r. t takes the turn of r in the client's line. If a
// reload has given the key another name at the servers, t belongs to another line, and is admitted
// like a new command.
func (e *Tasks) takeOver(t *Task, r *client.OpenRead) {
	if !bytes.Equal(r.Name, t.Key) {
		e.endRead(r)
		e.Admit(t)
		return
	}
	s := r.Session
	s.Tasks++
	e.join(&t.own, ownLine(t.Asker, t.Hash), s)
	e.close(r)
	e.start(t)
}

// beginRead records r, a read of s that is about to be sent.
func (e *Tasks) beginRead(s *client.Session, r *client.OpenRead) {
	r.Open(s)
	if len(e.Lines) == 0 && s.ReadsByKey == nil {
		return
	}
	hash := e.Loops.HashKey(r.Name)
	if s.ReadsByKey != nil {
		s.ReadsByKey[hash]++
	}
	if l := e.Lines[ownLine(s.ID, hash)]; l != nil {
		l.reads++
	}
}

// endRead ends r, so that later commands of its client need not wait for it.
func (e *Tasks) endRead(r *client.OpenRead) {
	s := r.Session
	e.close(r)
	if len(e.Lines) == 0 {
		return
	}
	if l := e.Lines[ownLine(s.ID, e.Loops.HashKey(r.Name))]; l != nil {
		l.reads--
		e.advance(l)
	}
}

// EndReads ends the reads of a client that has disconnected, so that commands that wait for
// them may begin.
func (e *Tasks) EndReads(s *client.Session) {
	for s.Reads != nil {
		e.endRead(s.Reads)
	}
}

// Writes returns the sorted hashes of the keys that commands of the client s may still change.
func (e *Tasks) Writes(s *client.Session) (hashes []uint64) {
	if s.Tasks == 0 {
		return nil
	}
	of := ownLine(s.ID, 0).client
	for name, l := range e.Lines {
		if name.client == of && (l.alone != nil || len(l.queue) > 0) { // only a command that changes the key makes others wait
			hashes = append(hashes, name.key)
		}
	}
	slices.Sort(hashes)
	return hashes
}

// ReleaseLine starts the client's next command on t's key although t has no reply yet. It does
// nothing during a backfill: Backfilled starts the command then. It does nothing if another
// loop runs t either: the line belongs to the client's loop, and the next command may use
// another connection. Then the command starts when t has its reply: see conclude.
func (t *Task) ReleaseLine() {
	if t.ClientLoop == t.Loop && !t.Backfilling {
		t.Loop.releaseLine(t)
	}
}

// releaseLine starts the client's next command on t's key, if it waits for t. e is the loop of
// the client.
func (e *Tasks) releaseLine(t *Task) {
	l := t.own.line
	switch t.own.line = nil; {
	case l == nil:
		return
	case l.alone == t:
		l.alone = nil
	case t.reads:
		l.reads--
	}
	e.advance(l)
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

// Claim adds t to the line of its key, in which the writes to a replicated key wait. It reports whether
// t may begin now. If not, t starts later when its turn comes, or has failed because the line is full.
// A task that was parked, or is started a second time, has its turn already.
func (e *Tasks) Claim(t *Task) bool { return t.holdsKey() || e.enter(&t.key, t, Line{0, t.Hash}, nil) }

// enter is Claim for any line. r is the room of t for the line.
func (e *Tasks) enter(r *room, t *Task, name Line, s *client.Session) bool {
	l := e.join(r, name, s)
	if len(l.queue) >= maxLine {
		t.leaves(name)
		t.Fail("too many commands wait on this key", stats.QueueFull)
		return false
	}
	if len(l.queue) == 0 && l.begins(t) { // a line without waiting tasks: t is not stored in it
		return true
	}
	l.queue = append(l.queue, t)
	if t.hasDeadline() {
		e.At(link.ParkedTimer, t.Deadline)
	}
	return false
}

// leaves records that t, which waits in the line with the given name, will have no turn there.
// In the line of a key it does nothing, because only the client's loop may use the field own.
func (t *Task) leaves(name Line) {
	if name.client != 0 {
		t.own.line = nil
	}
}

// hasDeadline reports whether t has a deadline while it waits. An internal task gets its
// deadline when its turn begins.
func (t *Task) hasDeadline() bool { return t.x != nil || t.step != nil }

// next removes the first waiting task from the line and returns it, if it may begin; else nil.
func (l *queue) next() *Task {
	if len(l.queue) == 0 || !l.begins(l.queue[0]) {
		return nil
	}
	t := l.queue[0]
	l.queue = l.queue[1:]
	return t
}

// begins records that t has its turn in the line, if it may begin now. It reports whether it
// may.
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
func (t *Task) holdsKey() bool { return t.key.line != nil && t.key.line.alone == t }

// KeyBusy reports whether a command has claimed the key with this hash.
func (e *Tasks) KeyBusy(hash uint64) bool { return e.Lines[Line{0, hash}] != nil }

// KeyFull reports whether no more commands can wait in the line of the key with this hash.
func (e *Tasks) KeyFull(hash uint64) bool {
	l := e.Lines[Line{0, hash}]
	return l != nil && len(l.queue) >= maxLine
}

// Unclaim removes t from the line of its key, if it runs there, and starts the tasks that may begin now.
func (e *Tasks) Unclaim(t *Task) {
	if t.holdsKey() {
		t.key.line.alone = nil
		e.advance(t.key.line)
	}
}

// advance schedules the tasks of a line that may begin now, and deletes the line if no task is
// in it.
func (e *Tasks) advance(l *queue) {
	for next := l.next(); next != nil; next = l.next() {
		e.Ready(next)
	}
	if l.reads == 0 && l.alone == nil {
		delete(e.Lines, l.name)
	}
}

// expire fails the tasks that wait in a line past their deadline. It checks all lines at once,
// about once per deadline: it sets the timer to the earliest deadline of the tasks that still
// wait.
func (e *Tasks) expire() {
	var late []*Task
	names := slices.SortedFunc(maps.Keys(e.Lines), func(a, b Line) int { // in a fixed order, so that the same input has the same effects
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
			e.advance(l)
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

// start starts t now or, if enough tasks have started in this wakeup, in a later one.
func (e *Tasks) start(t *Task) {
	if len(*e.Runnable.of(t)) == 0 && e.mayStart() {
		e.dispatch(t)
		return
	}
	t.WaitReason = cmp.Or(t.WaitReason, overloaded)
	e.Ready(t)
}

// mayStart counts a task that is about to start, and reports whether it may: see client.RoundTasks.
func (e *Tasks) mayStart() bool {
	if e.startedNow() >= client.RoundTasks {
		return false
	}
	e.started++
	return true
}

// startedNow returns how many tasks start and DispatchRunnable have started in this wakeup.
func (e *Tasks) startedNow() int {
	if now := e.Count.Wakeups; now != e.startedIn {
		e.startedIn, e.started = now, 0
	}
	return e.started
}

// Runnable has the tasks that may start now: see DispatchRunnable. Those of clients with few tasks start before those
// of clients with many, so that a client does not wait for all commands of another one that pipelines. But a
// quarter of the tasks of each wakeup are those of clients with many.
type Runnable struct {
	few  []*Task // tasks of clients with at most client.FirstTasks tasks and as many keys in the command, and of Ringside itself
	many []*Task // tasks of other clients
}

// of returns the list to which t belongs. While t waits, the client's tasks on the same key wait in a line for it, so
// their order does not depend on the list.
func (r *Runnable) of(t *Task) *[]*Task {
	if t.x != nil && t.ClientLoop == t.Loop && (t.x.Keys > client.FirstTasks || t.x.Session != nil && t.x.Session.Tasks > client.FirstTasks) {
		return &r.many
	}
	return &r.few
}

// Ready makes t start in this wakeup or a later one, with the state of that time: see DispatchRunnable. None of its asks
// may be in flight.
func (e *Tasks) Ready(t *Task) {
	list := e.Runnable.of(t)
	*list = append(*list, t)
	e.Clients.ReadyTasks++
	e.Wake()
}

// DispatchRunnable starts the tasks in Runnable, as many as may start in this wakeup. The engine calls it at
// the end of a wakeup. Were a task started by the end of the one before, a long line would become a
// deep stack.
func (e *Tasks) DispatchRunnable() {
	if e.Clients.ReadyTasks == 0 {
		return
	}
	r := &e.Runnable
	e.dispatchSome(&r.few, client.RoundTasks/4*3)
	e.dispatchSome(&r.many, client.RoundTasks)
	e.dispatchSome(&r.few, client.RoundTasks)
	e.Clients.ReadyTasks = len(r.few) + len(r.many)
}

// dispatchSome starts the tasks in list, in order, until `most` tasks have started in this wakeup.
func (e *Tasks) dispatchSome(list *[]*Task, most int) {
	i := 0
	for ; i < len(*list) && e.startedNow() < most; i++ { // the list may grow while its tasks are started
		t := (*list)[i]
		(*list)[i] = nil
		e.started++
		e.dispatch(t)
	}
	if i == len(*list) {
		*list = (*list)[:0]
	} else {
		*list = (*list)[i:]
	}
}

// moveToLoop moves t to the loop o, which runs it. The reply returns to the client's loop: see
// conclude. o must not use t's route, which belongs to the loop of t, and finds its own by
// prefix and pool. If o has no such route, it refuses t, so that the guard of the key records
// the miss; for this, t gets a route without servers.
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
					o.start(t)
					return
				}
			}
		}
		t.Route = routing.Unbound(pool, guard, loud)
		o.refuse(t, client.Reconfigured)
	})
}

// conclude ends the part of t in its exchange: f sends the reply, on the client's loop. f
// returns the outcome, and the size in bytes of the value that was found. server is the label
// of the server that replied; if none has, why is the reason.
func (t *Task) conclude(server, why string, f func(e *Tasks, x *client.Exchange) (o stats.Outcome, found int)) {
	if !t.ClientDone {
		t.ClientDone = true
		t.Loop.Concluding(t)
		brought := len(t.Raw)        // Raw may be freed before end runs on the client's loop
		backfilling := t.Backfilling // end runs on the client's loop, which must not read t.Backfilling
		if t.ClientLoop == t.Loop {
			t.end(t.Loop, backfilling, brought, server, why, f)
		} else {
			t.ClientLoop.Post(func(e *Tasks) { t.end(e, backfilling, brought, server, why, f) })
		}
	}
	t.release()
}

// end is the part of conclude that runs on the client's loop e.
func (t *Task) end(e *Tasks, backfilling bool, brought int, server, why string, f func(e *Tasks, x *client.Exchange) (o stats.Outcome, found int)) {
	if !backfilling {
		e.releaseLine(t)
	}
	if s := t.x.Session; s != nil {
		s.Tasks--
	}
	if t.load != nil {
		t.load.TaskBytes -= t.loadSize
		e.Wake() // clients with large requests may wait for that
	}
	o, size := f(e, t.x)
	key := t.clientKey()
	if t.Op > wire.Gats {
		size = brought
	}
	e.Ended(t, key, o, size)
	if t.x.Slow() {
		t.x.LogSlow(client.Slow{Key: key, Keys: 1, Server: server, Phase: stats.Several, Why: why})
	}
	t.x.FinishOne()
}
