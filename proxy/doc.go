// Package proxy serves clients by the current table, one byte slice at a time.
//
// It is an engine without sockets, goroutines or a clock of its own: a driver
// (package loop) tells it what came and what time it is, and carries out what
// it wants done. The same input gives the same output.
//
//	client bytes ► Session ► Limits.Next ► route ► hash once ► Attempt ► Conn's queue ► server bytes
//	client bytes ◄ Session ◄ finish      ◄ Exchange ◄ pair by order    ◄ NextReplyOf ◄ server bytes
//
// An Engine is made of rooms, each a package with a doc of its own. Each knows
// only those before it, and is told by an interface what it can't know; this
// package ties them together.
//
//	link      bytes, timers, memory of a loop    asks Engine: makeRoom, when limits.memory is reached (relief.go)
//	upstream  requests and replies of servers    tells observer: a server is down, up, connected (engine.go)
//	client    answers in each client's order     asks door: who serves a request (dispatch.go)
//	routing   where a key is, and who serves it  bound to servers by adopt (adopt.go)
//	task      commands of several requests       asks loops: which loop leads a key (proxy.go)
//	failover  keepers; keys of one copy          asks handOverrides: what people have ordered (overrides.go)
//	copies    keys of several copies
//	counters  counters that are missing, increments that wait
//	guard     values that one client rebuilds    asks eachGuard: the other loops (engine.go)
//	tags      values that are invalidated        asks taggedPools: where there are some (adopt.go)
//	near      values that are kept here          is asked first by dispatch.go: package near/serve
//	watch     what clients ask for               is given requests by dispatch.go
//
// A Proxy is what all engines of a process share: the table, overrides by people, and
// the numbers that limits count over all loops.
//
// # What the engine as a whole does
//
//   - A wakeup sees one table and one moment: Begin takes up both.
//   - A person can drain a server or take it down (Proxy.Override), in one pool of
//     those that name it. To clients it is as if it were down, but the error
//     says who wants it so; flush_all is an error then, too. Ringside asks it
//     nothing, not even whether it is there.
//   - A read of many keys over several pools errs, when a server fails it, if
//     one of those pools says get_errors: error.
//   - me with a key in base64 that holds spaces or control characters is refused:
//     memcached may answer it with bytes that nobody can tell from what follows.
//   - flush_all is done when every server has done it. When one could not, the
//     client gets an error that names it. So is cache_memlimit, which is denied
//     where flush_all is. What is for the operator of one server (slabs, lru,
//     lru_crawler, extstore, watch, refresh_certs) is refused; the doc of package
//     wire has the table.
//   - version is the lowest of what the servers call themselves. Those that have
//     not told yet are asked; if none tells, the client gets a SERVER_ERROR.
//   - stats speaks for all servers of a listener: stats.go, and package stats.
//   - At limits.memory those who hold most lose it: relief.go.
package proxy

// The package's manual.
