// Package task runs commands that take several requests, in the order of their keys.
//
// Nearly all commands are one request to one server, and never come here. A
// command becomes a Task when its server is out or comes back, when its route
// keeps copies, when everything has to be sure (consistency strict), or when it
// stands behind another task of its client on the same key.
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
// Tasks are made where requests are rare or are several anyway, so they may
// allocate. Their bytes count against limits.memory.
//
// # What it does not do
//
// It decides nothing about a command: a Leader gives it a rule, and the rule asks
// and answers. A rule may also be made of steps (Task.Step): whole commands, each
// with a leader of its own, whose answers it is told. The leaders are packages failover (keys of one copy) and copies.
// What all of them need to know of a command's meaning is in meaning.go.
package task
