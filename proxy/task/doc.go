// Package task runs commands that take several requests, in the order of their keys.
//
// Nearly all commands are one request to one server, and never come here. A command
// becomes a Task for one of these reasons:
//
//   - Its server is suspect, out or comes back, or keeps its keys under other names.
//   - Its route keeps copies and it is no text get that a value answers, or lets increments wait, or makes counters that are missing.
//   - Its route has a guard or tags, and it is no text read that a value answers.
//   - It is a read that waits for what another one brings (near).
//   - Everything has to be sure (consistency strict).
//   - It stands behind another task of its client on the same key.
//
// This is its way:
//
//	Admit ─► the client's line on the key ─► lead ─► a Leader ─► Run: Rule.Begin, then Rule.Told for each answer
//	              ▲ waits for those before        │ ▲   Lead        Ask ──► a server
//	              │                               ▼ │                │
//	              │                              Park                ▼
//	              └────────── ReleaseLine ◄────────────────── Answer, AnswerKind or Fail: the client has its part
//
// # A task
//
//	it waits         for                                             and goes on when
//	in a line        its client's commands on the key before it;     they are done: LeadRunnable, in End, leads it
//	                 writes of copies: all others' on the key
//	parked           another phase of a server, or who is out        the phases change, or its deadline is there
//	for asks (Open)  the answers to what its rule has asked          each is told; the rule asks more or answers
//	-                the client has its answer                       the last ask has ended: its bytes are given up
//
// # What it promises
//
//   - One client's commands on one key take effect in the order in which it sent
//     them, however they are spelled and whichever way they take. The client's next
//     command on the key waits until the one before is answered; reads don't wait
//     for reads, and other keys and other clients wait for nothing.
//   - Writes to a key of several copies come one after another, whoever sends them:
//     one loop of the process (Loops.Owner) leads all commands on such a key.
//   - Nobody waits in a circle (line.go says why), and each task ends by its own
//     deadline.
//   - A task has one answer, though its client may be on another loop, or gone.
//
// A get of a key of several copies that is no task, or not yet, stands in no line.
// Session.Reads has its key instead, for those who wait for it, and TakeOver leads the task
// that takes over from it.
//
// Tasks are made where requests are rare or are several anyway, so they may
// allocate. Their bytes count against limits.memory.
//
// # What it does not do
//
// It decides nothing about a command: a Leader gives it a rule, and the rule asks
// and answers. A rule may also be made of steps (Task.Step): whole commands, each
// with a leader of its own, whose answers it is told. What all leaders need to know of a
// command's meaning is in meaning.go. The leaders, in the order in which they are asked,
// are packages near/serve, tags, guard, counters, copies, and failover, which takes what
// no other has taken.
package task
