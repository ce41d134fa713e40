// Package proxy serves clients by the current table, one byte slice at a time.
//
// It is an engine without sockets, goroutines or a clock of its own: a driver
// (package loop) tells it what came and what time it is, and carries out what
// it wants done. The same input gives the same output.
//
//	client bytes ► Session ► wire.Next ► route ► hash once ► Attempt ► Conn's queue ► server bytes
//	client bytes ◄ Session ◄ finish    ◄ Exchange ◄ pair by order    ◄ wire.NextReply ◄ server bytes
//
// # Choices
//
//   - A server is down when a connection to it cannot be made, when it does not
//     answer the greeting (version) on a new one, or when three requests in a
//     row were not answered in time. Its requests then fail at once, and
//     Ringside alone asks it again, at growing intervals, until it answers.
//   - A mutation that was answered with an error or a timeout may still run in
//     the server. If that could leave a value older than the last write or
//     delete that was acknowledged (set, add, replace; meta commands that create
//     an item on a miss; a cas that stores with an old token), its key is deleted
//     right behind it, on every route and in every failover mode: a miss at
//     worst, also for a newer value, and for a lock that an add did not get. A
//     cas, incr, decr, append, prepend or touch without an answer may still
//     count; a delete may still delete. See latedelete.go.
//   - In a pool whose keys move (failover.mode rehash or gutter), or that keeps
//     copies, a keeper (package health) pings every server and decides in which
//     phase it is; failover.go has what that means for keys of one copy. With
//     mode fail_fast and copies, keys of one copy fail while their server is out.
//     Where a client's rule rebuilds its ring without a dead server, only the
//     dead server's keys are asked of the rebuilt ring, so that one outage moves
//     one share; and while any other server is between two phases, they wait.
//   - While a server is filling up (phase WARM), a value that only the interim
//     server has is brought back, guarded by a stub, before incr, append, prepend,
//     replace, cas or touch, and with on_rejoin: warm behind a read: backfill.go.
//   - One client's commands on one key take effect in the order in which it sent
//     them, however they are spelled and whichever way they take. Where a command
//     takes several asks the client's next on that key waits until it is answered;
//     reads don't wait for reads, and other keys and other clients for nothing:
//     keyline.go.
//   - In consistency strict every request is a task, which costs CPU.
//   - A person can drain a server or take it down (Proxy.Order), in one pool of
//     those that name it. To clients it is as if it were down, but the error
//     says who wants it so; flush_all is an error then, too. Ringside asks it
//     nothing, not even whether it is there.
//   - Answers pair with requests by order, and what an answer names must be what
//     was asked for: the key of a VALUE, of ME and of flag k, and flag O. If not,
//     the connection is aborted and what is in flight on it fails. The keys of a
//     read of many must come in the order of asking, as memcached gives them: a
//     Ringside that stands behind another needs multiget_order: request. Ringside's
//     own meta commands carry an opaque each (Ors1, Ors2, …). See pairing.go.
//   - me with a key in base64 that holds spaces or control characters is refused:
//     memcached may answer it with bytes that nobody can tell from what follows.
//   - What a read gets that no server could answer is the pool's get_errors: a
//     miss or a SERVER_ERROR that names the server. A SERVER_ERROR that the
//     server itself answers to a read counts as not answered. Writes always get
//     the error. Metrics count the truth.
//   - A read of many keys over several pools errs, when a server fails it, if
//     one of those pools says get_errors: error.
//   - The keys of a read of many keys come back in the order in which servers
//     answer. If a pool behind the listener asks for it, they come in the order
//     of the request, when the last server has answered: a client exists that
//     needs that.
//   - A key that no route takes is an error, for reads too, and also beside other
//     keys, whatever get_errors their routes have: the configuration is wrong, and
//     a miss would hide it.
//   - flush_all is done when every server has done it. When one could not, the
//     client gets an error that names it. So is cache_memlimit, which is denied
//     where flush_all is. What is for the operator of one server (slabs, lru,
//     lru_crawler, extstore, watch, refresh_certs) is refused; the doc of package
//     wire has the table.
//   - A server is sent only what the release understands that answered on that
//     connection: release.go. Any since 1.4 will do; one whose version can't be
//     read counts as 1.4. In front of one without meta commands (before 1.6.10)
//     those go as text where that means the same: the doc of package wire has the
//     table. All else, and text that came later (touch 1.4.8, cache_memlimit
//     1.4.27, gat and gats 1.5.3) or meta flags that did (P, L 1.6.14, mg without
//     flags 1.6.18, E, x 1.6.27), gets a CLIENT_ERROR that names the server and
//     its version. What a release knows and answers in another way is passed on,
//     as the bare EN of an mg with O or k before 1.6.18, or an ms with s before
//     1.6.20, which says no size.
//   - version is the lowest of what the servers call themselves. Those that have
//     not told yet are asked; if none tells, the client gets a SERVER_ERROR.
//   - Pools that name the same address share its connections.
//   - A client of the binary protocol is closed at its first byte.
package proxy

// The package's manual.
