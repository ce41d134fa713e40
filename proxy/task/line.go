package task

// Who waits for whom on one key. A client's commands on a key take effect in
// the order in which it sent them, though each may take several asks at several
// servers; and writes to a key of several copies come one after another, so that
// all copies see them in one order.

import (
	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
)

// queue is the commands of one line: those at work, and those behind them.
// Reads are at work together, and everything else alone. Who waits for a line
// has begun nothing, and who has its turn in the line of its client may wait for
// the line of the key, but never the other way round: so nobody waits in a
// circle, and each ends by its own deadline.
type queue struct {
	reads int   // at work
	alone *Task // at work
	queue []*Task
}

// Line names a line: of a client on a key, kept where the client is, or, with
// client 0, of all who write a key of several copies, kept where such are led.
// Keys are told apart by their hash: two that share one wait for nothing worse
// than each other.
type Line struct{ client, key uint64 }

const maxLine = 1000 // commands that wait in one line

const TooLong = "the commands before it on this key took too long"

func (t *Task) ownLine() Line { return Line{t.Asker, t.Hash} }

// KeyLine is the line of a key, whoever asks for it.
func KeyLine(hash uint64) Line { return Line{0, hash} }

// Admit leads t, which its client has just sent, when the client's commands on
// the key before it are done.
func (e *Tasks) Admit(t *Task) {
	t.x.Session.Tasks++
	if t.inLine = true; e.Claim(t, t.ownLine()) {
		e.lead(t)
	}
}

// Follows says that something on key that a client has asked before is not
// done, and not even on its way on the connection where the next would go.
func (e *Tasks) Follows(s *client.Session, rt *routing.Route, key []byte) bool {
	return rt != nil && e.Lines[Line{s.ID, e.Loops.HashKey(key[len(rt.Strip):])}] != nil
}

// LetGo lets the client's next command on t's key begin.
func (e *Tasks) ReleaseLine(t *Task) {
	if t.inLine && !t.Backfilling {
		t.inLine = false
		e.Unclaim(t, t.ownLine())
	}
}

// Claim says that t may begin now, as far as this line goes. If not, it is led
// when its turn comes.
func (e *Tasks) Claim(t *Task, name Line) bool {
	l := e.Lines[name]
	switch {
	case l == nil:
		if e.Lines == nil {
			e.Lines = map[Line]*queue{}
		}
		l = &queue{}
		e.Lines[name] = l
	case l.alone == t: // it was parked, or its turn has come
		return true
	case e.LineFull(name):
		t.inLine = t.inLine && name.client == 0
		t.Fail("too many commands wait on this key", stats.Crowded)
		return false
	}
	l.queue = append(l.queue, t)
	return l.next() == t
}

// next lets the first of those who wait begin, if it may.
func (l *queue) next() *Task {
	if l.alone != nil || len(l.queue) == 0 || l.reads > 0 && !l.queue[0].reads {
		return nil
	}
	t := l.queue[0]
	l.queue = l.queue[1:]
	if t.reads {
		l.reads++
	} else {
		l.alone = t
	}
	return t
}

// LineFull says that no more can wait in a line.
func (e *Tasks) LineFull(name Line) bool {
	l := e.Lines[name]
	return l != nil && len(l.queue) >= maxLine
}

// Unclaim takes t out of a line, if it is at work there, and lets those begin who
// may now.
func (e *Tasks) Unclaim(t *Task, name Line) {
	l := e.Lines[name]
	switch {
	case l == nil:
		return
	case t.reads && name.client != 0: // nobody merely reads in the line of the key
		l.reads--
	case l.alone != t:
		return
	default:
		l.alone = nil
	}
	for next := l.next(); next != nil; next = l.next() {
		e.Runnable = append(e.Runnable, next)
		e.Soon(link.KeeperTimer) // End leads it
	}
	if l.reads == 0 && l.alone == nil {
		delete(e.Lines, name)
	}
}

// TakeTurns leads the commands whose turn has come. They are led from End, not
// from where the one before ended: a long line must not become a deep stack.
func (e *Tasks) LeadRunnable() {
	for i := 0; i < len(e.Runnable); i++ { // may grow
		e.lead(e.Runnable[i])
	}
	clear(e.Runnable)
	e.Runnable = e.Runnable[:0]
}

// handOver lets another engine lead t; its answer comes back to where its
// client is.
func (t *Task) handOver(o *Tasks) {
	home, listener, prefix := t.Loop, t.Route.Listener, t.Route.Prefix
	home.Buffers.Hold(-t.held)
	deadline := t.Deadline
	o.Post(func(o *Tasks) {
		t.Loop = o
		o.Buffers.Hold(t.held)
		t.Deadline = deadline
		if l := o.Listeners[listener]; l != nil {
			for i := range l.Routes {
				if l.Routes[i].Prefix == prefix && l.Routes[i].Copies.Copies != 0 {
					t.Route = &l.Routes[i]
					o.lead(t)
					return
				}
			}
		}
		t.Fail("the configuration has just changed", stats.Unavailable)
	})
}

// conclude ends the task's part of its exchange, on the engine that has it.
func (t *Task) conclude(f func(e *Tasks, x *client.Exchange)) {
	if t.ClientDone {
		return
	}
	t.ClientDone = true
	end := func(e *Tasks) {
		e.ReleaseLine(t)
		if s := t.x.Session; s != nil {
			s.Tasks--
		}
		f(e, t.x)
		t.x.FinishOne()
	}
	if t.ClientLoop == t.Loop {
		end(t.Loop)
		return
	}
	t.ClientLoop.Post(end)
}
