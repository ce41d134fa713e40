package task_test

// Steps: commands that a task runs one after the other.

import (
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
)

// lookAfter is a handler and a rule. Its step fails, and then it asks a server.
type lookAfter struct{ server *upstream.Server }

func (l lookAfter) Handle(t *task.Task) {
	if t.IsStep() {
		t.Loop.After(t.Loop.Now, func() { t.AnswerKind(task.MissKind(t)) })
		return
	}
	t.Rule = l
	t.Step(t.Raw, func(*upstream.Result, task.Token) { t.Ask(0, l.server, []byte("mg a1\r\n")) })
}

func (lookAfter) Begin(*task.Task) {}

func (lookAfter) HandleReply(t *task.Task, _ int, r *upstream.Result) { t.Fail(r.Why, r.Outcome) }

// TestStepThenUnsentAsk checks an ask that a task makes when its step ends, and that can't
// be sent. The task must get its outcome: else its client gets no reply, and the line of
// the key stays.
func TestStepThenUnsentAsk(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1")
	s.Line("route - main buffer=1s:10s")
	s.Begin()
	server := s.Engine.ByAddress["tcp s1"]
	server.Down, server.Why = true, "server s1 is down"
	s.Engine.Handlers[routing.Counted] = lookAfter{server}
	s.Line("c1 > decr a1 1")
	s.Line("wait 1ms")
	s.Line("c1 < SERVER_ERROR server s1 is down")
	if n := len(s.Engine.Lines); n != 0 {
		t.Errorf("%d lines are left", n)
	}
}
