// Package upstream sends requests to memcached servers and pairs the replies with the requests.
//
// Servers holds all memcached servers of one loop. A Server is one of them, identified by its
// address: pools that name the same address share it and its connections. A Conn is one
// connection with the queue of its requests. An Attempt is one request in that queue, and its
// Receiver gets the reply.
//
//	Server.Pick ► Conn.Begin, bytes, Conn.Give ► Flush ► driver ► memcached
//	Receiver.Done ◄ Receiver.Reply ◄ Conn.Parse ◄──────── driver ◄────┘
//	Servers.Ask ► the same, for an Asker: whole replies, one call for each
//
// # Guarantees
//
//   - For each attempt a Receiver gets exactly one call of either Done or Failed. The call
//     is before the attempt's deadline, unless the reply has begun by then.
//   - A reply that keeps arriving is cut only by timeouts.deadline_total, which is off by
//     default. timeouts.request limits how long a server may be silent. It counts from the
//     moment when the socket accepted the request, or from the last byte that the server sent.
//     While the server replies to other requests, a request waits for the first byte of its
//     reply until timeouts.deadline: see Conn.postpone. A reply that the loop has not read yet
//     does not count as silence.
//   - Replies are paired with requests by order only. What a reply names must match the
//     request: the key of a VALUE, of ME and of flag k, and the opaque of flag O. If a name does
//     not match, or if a reply arrives without a request, the connection is aborted and its
//     requests in flight fail. Each of Ringside's own meta commands carries an opaque (Ors1, …).
//   - Gets that are sent together share a line: Line. The keys of that line, and of a
//     multi-key read, must be returned in request order, as memcached does. A Ringside that is
//     a server of another Ringside therefore needs multiget_order: request.
//   - All requests of one client to one server use one connection, in request order. So a
//     client's get never overtakes its set.
//   - A request that may have run is not sent again. The exception is a plain get or gets: when
//     its connection is blocked by a client that does not read (aside.go), or when the
//     connection is dead (keepalive.go).
//   - A connection that is blocked by a client that does not read is replaced when the server has
//     replied on a new one, not before.
//   - A client that has large replies and does not read them gets a connection that only such
//     clients use.
//
// # A connection
//
//	state              requests                                the state ends when
//	ConnIdle           wait in the queue                       Conn.Flush dials: a request waits, or the pool preconnects
//	ConnDialing        wait in the queue                       connected; or not within timeouts.connect: the server is down
//	ConnUp, new        are sent after Ringside's version       the reply to version arrives; or none within timeouts.request:
//	                                                           the server is down
//	ConnUp, greeted    are sent, in batches if many are due    the server closes the connection; a reply is in doubt; the
//	                                                           server is marked as down
//	Lingering          no new requests: a new Conn gets them   the late deletes are answered, or 60 s pass; no client needs the
//	                                                           replies that are due
//
// A server may close a connection on which no reply is due. This does not count as a failure:
// Ringside connects again for the next request, or after five seconds.
//
// Ringside sends a ping on a connection that was idle for the time keepalive. The connection is
// dead if the ping, or the first request after a period without any bytes from the server, is not
// answered within timeouts.request. A new connection then replaces the dead connection at once,
// which lingers for replies that may still arrive.
//
// # When a server is down
//
// A server is down for this loop in three cases: a connection to the server cannot be made, it does
// not reply to the greeting (version) on a new connection, or several requests in a row time out.
// The pools set how many, three by default. Requests on a dead connection do not count. A new connection
// does not count if it is for a task of Ringside itself, or if the server has replied within two seconds on
// another connection for clients' requests. Then only the requests for the new connection fail. While the
// server is down its requests fail at once, and only Ringside dials it again, at growing intervals,
// until it replies. This package does not decide which server handles the keys in that time, nor
// whether other loops and instances see the same failure: that is up to the implementations of
// Observer.
//
// # A mutation without a reply
//
// A mutation that failed with an error or a timeout may still run in the server. It could leave
// a value older than the last acknowledged write or delete. This concerns set, add, replace,
// meta commands that create an item on a miss, and a cas that stores with an old token. A
// delete of the key is therefore sent right after such a mutation, on every route and in every
// failover mode. At worst the key misses, even if it had a newer value, and an add used as a lock
// loses the lock. No delete follows a mutation that is conditional on an earlier read, as on
// replicas with strict consistency. A cas, incr, decr, append, prepend or touch without a reply may
// still take effect, and so may a delete. See latedelete.go.
//
// # What a server understands
//
// Ringside sends to a server only what its release of memcached understands. It asks for the release
// on each connection (release.go). Any release since 1.4 works; a version that can't be parsed counts
// as 1.4. For a server without meta commands (before 1.6.13), meta commands are sent as text where
// text means the same: the doc of package wire has the table. All other meta commands are rejected
// with a CLIENT_ERROR that names the server and its version. So are text commands that are newer
// than the server (touch 1.4.8, cache_memlimit 1.4.27, gat and gats 1.5.3) and newer meta flags (P,
// L 1.6.14, mg without flags 1.6.18, E, x 1.6.27). A command that a release knows but answers
// differently is passed on. Examples are the bare EN of an mg with O or k before 1.6.18, and an ms
// with s before 1.6.20, which returns no size.
//
// # Files
//
//	servers.go     all servers of a loop       reply.go       replies to attempts, by order
//	server.go      one: settings, outages      pairing.go     whether a reply names what was requested
//	conn.go        one connection's queue      release.go     what a release understands
//	attempt.go     one request; Ask            expire.go      timeouts
//	aside.go       clients that do not read    latedelete.go  deletes after late mutations
//	waiting.go     what clients wait for, for display
//	keepalive.go   pings on idle connections, and the replacement of dead ones
//
// # Limits
//
// The package does not know clients, routes or replicas. It never sends a request with an
// effect twice, and it never redirects a request to another server.
package upstream
