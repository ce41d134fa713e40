// Package task runs commands that need several requests, in the order of their keys.
//
// Nearly all commands are one request to one server, and need no task. A command becomes a
// Task for one of these reasons:
//
//   - Its server is suspect, out or rejoining, or stores its keys under other names.
//   - Its route keeps replicas, buffers increments or creates missing counters. A text get that is
//     a hit needs no task on a route with replicas.
//   - Its route has a guard or tags, and it is not a text read that is a hit.
//   - It is a read that waits for the reply to another read, to be stored in the near cache.
//   - The route requires certainty (consistency strict).
//   - It follows another task of its client on the same key.
//
// A task runs like this:
//
//	Admit ─► the client's line on the key ─► dispatch ─► a Handler ─► Run: Rule.Begin, then Rule.HandleReply for each reply
//	              ▲ waits for those before        │ ▲   Handle      Ask ──► a server
//	              │                               ▼ │                │
//	              │                              Park                ▼
//	              └────────── ReleaseLine ◄────────────────── Answer, AnswerKind or Fail: the client has its reply
//
// # A task
//
//	it waits         for                                             and continues when
//	in a line        its client's earlier commands on the key;       they are done: DispatchRunnable, in End, starts it
//	                 a replicated write: all others on the key
//	parked           another phase of a server, or until the         the phases change, or its deadline passes
//	                 ejected servers are known
//	for asks (Open)  the replies to the requests of its rule         each arrives; the rule asks more or replies
//	-                nothing: the client has its reply               the last ask has ended: its bytes are freed
//
// # What it promises
//
//   - One client's commands on one key take effect in the order in which it sent them, however
//     they are spelled and whichever code serves them. The client's next command on the key
//     waits until the one before has its reply. Reads don't wait for reads, and commands on
//     other keys or of other clients don't wait.
//   - Writes to a replicated key run one after another, whichever client sends them: one loop
//     of the process (Loops.Owner) runs all commands on such a key.
//   - There is no cycle of waits (line.go explains why), and each task ends by its own deadline.
//   - A task has one reply, though its client may be on another loop, or disconnected.
//
// A get of a replicated, guarded or tagged key begins as a Read: one request to one server, and no
// task unless the reply is no plain hit. A Read is in no line. Session.Reads has it instead, for
// commands that wait for it. The task that continues a Read has the same place.
//
// Tasks are made where requests are rare or are several anyway, so they may allocate. Their
// bytes count against limits.memory.
//
// # What it does not do
//
// It decides nothing about a command: a Handler gives it a rule, and the rule sends requests
// and replies to the client. A rule may also consist of steps (Task.Step): whole commands, each
// served by a handler, which reports its reply to the rule. meaning.go has the functions on a
// command's meaning that all handlers share. The handlers, in the order in which a task is
// offered to them, are the near cache (nearReads in package proxy), packages tags, guard,
// counters and replication, and failover, which accepts every task that no other has accepted.
package task
