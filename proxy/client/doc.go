// Package client parses the requests of clients, and sends each client its replies in request
// order.
//
// Clients has all clients of one loop. A Session is one client: its input, its output, and the
// list of its exchanges. An Exchange is one command in flight.
//
//	Session.Parse ► Limits.Next ► Handler.Serve ► Exchange ► Attempts (package upstream), or a task
//	Session.Out   ◄ finish      ◄ Exchange      ◄ Reply, Done, Failed
//
// # Guarantees
//
//   - A client gets one reply for each command, in request order. Only the first exchange of a
//     session writes to the client. The others store their replies until they are first.
//   - A request is handled when all of it is in memory, so a stalled client does not occupy a
//     connection to a server.
//   - Quiet commands hide what memcached hides. Errors are always sent.
//   - If no server can answer a read, get_errors of its route decides: a miss, or a
//     SERVER_ERROR that names the server. A SERVER_ERROR from the server counts as no answer
//     to a read. Writes always get the error. Metrics count the real outcome.
//   - The keys of a multi-key read are returned in the order in which servers reply. If a pool
//     of the listener has multiget_order: request, they are returned in request order, when
//     the last server has replied.
//   - A key without a route is an error, for reads too, and also beside other keys, whatever
//     get_errors says: the configuration is wrong, and a miss would hide this.
//   - A value of up to 64 KiB is forwarded when all of it has arrived. If a server stops in
//     the middle, that key and the keys after it are misses. A larger value is forwarded as it
//     arrives. If its server stops, the client connection is closed after the part that was
//     sent. The head of the value has its length, so the client can detect that it is
//     incomplete.
//
// # A session
//
//	state      reason                                        until
//	reading    it may send requests                          -
//	waiting    its turn is used up: see turn.go              its next turn, in the next wakeup
//	stalled    limits.in_flight or limits.output is reached  half of that is gone
//	           a flush_all waits for earlier commands        all of these are answered
//	           a large request waits: see large.go           its server reads, or memory is free
//	paced      it, or another client, does not read          it has requested much and read it: see pace.go
//	held       its output waits for the rest of a group      the group is complete, or Tune.GroupWait is over
//	quitting   quit, end of input, idle, drained, rejected   all is answered and sent; then Close
//	           limits.output_hard, limits.memory             at once; then Abort
//
// # An exchange
//
//	created ► waits for its parts (Waiting) ► finish writes the end of the reply ► settled ► freed at the head
//	                    └ its client is gone: orphaned, discards the replies, freed with the last part
//
// # A client of the binary protocol
//
// Its frames are converted to text or meta requests, and the replies back to frames: package
// wire/binary. Consecutive quiet gets are one exchange, and each server gets one multi-key read.
// Their values are sent in request order: see the type batch.
//
// # Limits
//
// The package does not choose servers: the Handler of each listener does. It does not retry
// requests, and does not know which replica of a key has replied.
package client
