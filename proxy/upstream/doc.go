// Package upstream pairs requests with replies on connections to memcached.
//
// Servers are all memcached servers of one loop. A Server is one of them, by
// address: pools that name the same address share it and its connections. A Conn
// is one connection, with the queue of its requests; an Attempt is one request in
// that queue, and its Receiver gets the answer.
//
//	Server.Pick ► Conn.Begin, bytes, Conn.Give ► Flush ► driver ► memcached
//	Receiver.Done ◄ Receiver.Reply ◄ Conn.Parse ◄──────── driver ◄────┘
//	Servers.Ask ► the same, for an Asker: whole answers, one call for each
//
// # What it promises
//
//   - A Receiver is told of each attempt either Done or Failed, once: by the
//     attempt's deadline, unless its answer has begun by then.
//   - No answer that comes is cut, but by timeouts.deadline_total, which is off.
//     timeouts.request bounds a server's silence: from the moment when the socket took
//     the request, or from the last byte that the server sent. While the server answers
//     others a request waits until timeouts.deadline, which counts to the first byte:
//     see Conn.postpone. An answer that the loop has not read yet is not silence.
//   - Answers pair with requests by order and by nothing else. What an answer names must
//     be what was asked for: the key of a VALUE, of ME and of flag k, and flag O. If not,
//     or if an answer comes that nobody waits for, the connection is aborted and what is
//     in flight on it fails. Ringside's own meta commands carry an opaque each (Ors1, …).
//   - Gets that go out together share a line: names.Line. The keys of that, and
//     of a read of many, must come in the order of asking, as memcached gives them: a
//     Ringside that stands behind another needs multiget_order: request.
//   - What is to go to one server for one client goes over one connection, in the
//     order of asking. So a client's get never overtakes its set.
//   - Nothing that may have run is sent again, but a plain get or gets: behind an
//     answer that its client does not take, see aside.go, and from a connection that
//     is dead, see keepalive.go. A client whose answers are
//     large, and are not taken, gets them by a connection that only such clients use.
//
// # A connection
//
//	state              requests                                it ends when
//	ConnIdle           wait in the queue                       End dials: a request waits, or the pool preconnects
//	ConnDialing        wait in the queue                       it is there; or not within timeouts.connect: the server is down
//	ConnUp, new        go out behind Ringside's version        the answer comes; or none in timeouts.request: the server is down
//	ConnUp, greeted    go out, in batches where many are due   the server closes; a reply is in doubt; the server goes down
//	Lingering          none new; a new Conn has its place      the deletes behind late mutations are answered, or 60 s pass;
//	                                                           nobody wants what is due
//
// A server that closes a connection on which it owes nothing is no event: it is
// asked again when there is something to ask, or after five seconds.
//
// A connection that was idle for keepalive gets a ping. One whose ping, or whose first
// request behind a quiet period, is not answered in timeouts.request is dead: it lingers
// for what may still be answered there, and a new one has its place at once.
//
// # When a server is down
//
// A server is down for this loop when a connection to it cannot be made, when it does
// not answer the greeting (version) on a new one, or when as many requests in a row were
// not answered in time as its pools say (three by default; those on a dead connection do
// not count). Its requests then fail at
// once, and Ringside alone asks it again, at growing intervals, until it answers. That is
// all that is known here: who serves its keys meanwhile, and whether other loops and
// other Ringsides see the same, is for those that Observer tells.
//
// # A mutation without an answer
//
// A mutation that was answered with an error or a timeout may still run in the
// server. If that could leave a value older than the last write or delete that was
// acknowledged (set, add, replace; meta commands that create an item on a miss; a
// cas that stores with an old token), its key is deleted right behind it, on every
// route and in every failover mode: a miss at worst, also for a newer value, and
// for a lock that an add did not get. Nothing goes behind a mutation that is bound to what
// a look has shown, as on copies in strict mode. A cas, incr, decr, append, prepend or touch
// without an answer may still count; a delete may still delete. See latedelete.go.
//
// # What a server understands
//
// A server is sent only what the release understands that answered on that
// connection: release.go. Any since 1.4 will do; one whose version can't be read
// counts as 1.4. In front of one without meta commands (before 1.6.10) those go as
// text where that means the same: the doc of package wire has the table. All else,
// and text that came later (touch 1.4.8, cache_memlimit 1.4.27, gat and gats 1.5.3)
// or meta flags that did (P, L 1.6.14, mg without flags 1.6.18, E, x 1.6.27), gets
// a CLIENT_ERROR that names the server and its version. What a release knows and
// answers in another way is passed on, as the bare EN of an mg with O or k before
// 1.6.18, or an ms with s before 1.6.20, which says no size.
//
// # Files
//
//	servers.go     all servers of a loop       reply.go       replies to attempts, by order
//	server.go      one: settings, outages      pairing.go     whether a reply names what was asked for
//	conn.go        one connection's queue      release.go     what a release understands
//	attempt.go     one request; Ask            expire.go      what has waited too long
//	aside.go       answers that are not taken  latedelete.go  deletes behind late mutations
//	waiting.go     what clients wait for, for people
//	keepalive.go   pings on idle connections, and what happens to dead ones
//
// # What it does not do
//
// It knows no client, no route and no copy of a key. It sends nothing with an effect
// twice, and it diverts nothing to another server.
package upstream
