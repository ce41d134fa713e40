package task

// A command of a client's that takes several commands, one after the other. Each of
// these is a task of its own, which whoever leads the key serves as if a client had
// sent it: a leader that knows what the steps mean need not know where the key is.

import (
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// step is what a task is to the one that it is a step of.
type step struct {
	of   *Task
	then func(r *upstream.Result, token Token)

	asked bool // a server may have got a byte of it
}

// Token makes the cas token that a client knows of the one that a server has named.
// It is nil where they are the same.
type Token = func(uint64) uint64

// Step serves line, one request on t's key, as a step of t, whose client and deadline
// it has. It tells then of the answer, once, before or after it has returned; where
// there is none, r says why.
func (t *Task) Step(line []byte, then func(r *upstream.Result, token Token)) {
	e := t.Loop
	s := &Task{ClientLoop: e, Loop: e, Route: t.Route, Asker: t.Asker, Key: t.Key, Hash: t.Hash, Deadline: t.Deadline, step: &step{of: t, then: then}}
	s.Raw = append(s.Raw, line...)
	e.Wire.Next(s.Raw, &s.Req)
	s.Op = s.Req.Op
	s.reads = CommandOf(s).Reads()
	s.hold(TaskSize + len(s.Raw))
	t.Open++
	e.lead(s)
}

// IsStep says whether t is a step of another task.
func (t *Task) IsStep() bool { return t.step != nil }

// endStep tells the task that t is a step of what has come of it.
func (t *Task) endStep(r *upstream.Result, token Token) {
	if t.ClientDone {
		return
	}
	t.ClientDone = true
	t.release()
	of := t.step.of
	of.Open--
	t.step.then(r, token)
	of.CatchUp() // the callback may have asked a server that can't be asked
}

// counts says whether t makes a counter that it has found missing. Run late, it counts
// once what nobody was told of; a delete behind it would take away what others were
// told that they have counted.
func (t *Task) counts() bool {
	return t.step != nil && CommandOf(t).Vivify && (t.Op == wire.Incr || t.Op == wire.Decr)
}
