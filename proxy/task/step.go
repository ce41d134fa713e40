package task

// This file implements a client's command that consists of several commands, one after the
// other. Each of these is a separate task, and a handler serves it like a client's command. So
// a handler that needs such commands need not know which servers have the key.

import "ringside/proxy/upstream"

// step links a task to the task that it is a step of.
type step struct {
	of   *Task
	then func(r *upstream.Result, token Token)

	seen upstream.ConnEpoch // epoch of the reply that has shown the cas in the request; zero: not known

	prepares bool // the requests of the step so far have no effect on its value: see SetPreparing
	asked    bool // a server may have received some bytes of a request of the step that has ended, and that may have had an effect
}

// Token converts a server's cas to the client's cas token. It is nil if they are the same.
type Token = func(uint64) uint64

// Step runs line, one request on t's key, as a step of t: a task of its own with t's client and
// deadline. It calls the function `then` once with the reply, before or after Step returns.
// Without a reply, r has the reason.
func (t *Task) Step(line []byte, then func(r *upstream.Result, token Token)) {
	t.StepOn(upstream.ConnEpoch{}, line, then)
}

// StepOn does what Step does. If line has the cas of an item, seen is the epoch of the reply that has shown
// it: another process of the server may have assigned the same cas to another item. See SeenOn.
func (t *Task) StepOn(seen upstream.ConnEpoch, line []byte, then func(r *upstream.Result, token Token)) {
	e := t.Loop
	s := &Task{ClientLoop: e, Loop: e, Route: t.Route, Asker: t.Asker, Key: t.Key, Hash: t.Hash, Deadline: t.Deadline, step: &step{of: t, then: then, seen: seen}}
	s.Raw = append(s.Raw, line...)
	e.Wire.One(s.Raw, &s.Req)
	s.Op = s.Req.Op
	s.reads = CommandOf(s).Reads()
	s.hold(TaskSize + len(s.Raw))
	t.Open++
	e.dispatch(s)
}

// IsStep reports whether t is a step of another task.
func (t *Task) IsStep() bool { return t.step != nil }

// SetPreparing sets whether the next requests of t, if it is a step, only prepare for its command, for example because its key
// moves. If t fails then, its command was not sent (Failure.Unsent), unless an earlier request may have had an effect.
func (t *Task) SetPreparing(is bool) {
	if s := t.step; s != nil {
		s.asked = s.asked || is && !s.prepares && t.Open > 0
		s.prepares = is
	}
}

// SeenOn returns the epoch of the reply that has shown the cas in the step t; nil: not known, or t is no step.
func (t *Task) SeenOn() *upstream.ConnEpoch {
	if t.step == nil || t.step.seen == (upstream.ConnEpoch{}) {
		return nil
	}
	return &t.step.seen
}

// endStep reports the result of t to the task that it is a step of.
func (t *Task) endStep(r *upstream.Result, token Token) {
	if t.ClientDone {
		return
	}
	t.ClientDone = true
	if t.instead != nil && r.Bytes != nil { // the set was refused, and the key is deleted
		r = t.Result(nil, t.instead)
	}
	t.release()
	of := t.step.of
	of.Open--
	t.step.then(r, token)
	of.CatchUp() // the function `then` may have sent a request that found no connection
}
