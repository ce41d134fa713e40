// Package client gives each client its replies, in its order and dialect.
//
// Clients are all clients of one loop. A Session is one of them: its input, its
// output, and the list of its exchanges. An Exchange is one command in flight.
//
//	Session.Parse ► Limits.Next ► Handler.Serve ► Exchange ► Attempts (package upstream), or a task
//	Session.Out   ◄ finish      ◄ Exchange      ◄ Reply, Done, Failed
//
// # What it promises
//
//   - A client gets one answer for each command, in the order of its commands.
//     Only the first exchange of a session writes to the client; the others keep
//     their bytes until they are first.
//   - A whole request is in memory before it is served: a stalled client holds no
//     connection to a server.
//   - Quiet commands hide what memcached hides, and errors always show.
//   - What a read gets that no server could answer is its route's get_errors: a
//     miss, or a SERVER_ERROR that names the server. A SERVER_ERROR that the server
//     itself answers to a read counts as not answered. Writes always get the error.
//     Metrics count the truth.
//   - The keys of a read of many come back in the order in which servers answer.
//     If a pool behind the listener asks for it (multiget_order: request), they come
//     in the order of the request, when the last server has answered.
//   - A key that no route takes is an error, for reads too, and also beside other
//     keys, whatever get_errors their routes have: the configuration is wrong, and a
//     miss would hide it.
//   - A value of up to 64 KiB is forwarded when all of it is here: a server that
//     stops in the middle leaves that key, and those behind it, missing. A larger
//     value is forwarded as it comes. If its server stops, the client is closed
//     behind what came: the head of the value says how long it would have been, so
//     that it can't pass for a whole one.
//
// # A session
//
//	it is      because                                       until
//	reading    nothing hinders                               -
//	waiting    it had its turn: see turn.go                  its next turn, in the next wakeup
//	stalled    limits.in_flight or limits.output is reached  half of that is gone
//	           a flush_all waits for what was asked before   all of it is answered
//	paced      it, or another, does not take its answers     it has asked for much and taken it: see pace.go
//	held       its answers wait for the rest of a group      the group is whole, or Tune.GroupWait is over
//	quitting   quit, end of input, idle, drained, refused    all is answered and sent; then Close
//	           limits.output_hard, limits.memory             at once; then Abort
//
// # An exchange
//
//	made ► waits for its parts (Waiting) ► finish writes what ends the answer ► settled ► freed at the head
//	                    └ its client is gone: orphaned, swallows the answers, freed with the last part
//
// # A client of the binary protocol
//
// Its frames become text or meta requests, and the answers frames again: package
// frame. Quiet gets that come one behind the other are one exchange, and each server
// gets one read of its keys; their values go out in the order of asking: see batch.
//
// # What it does not do
//
// It chooses no server: a Handler does, for each listener. It retries nothing. It
// never sees which copy of a key answered.
package client
