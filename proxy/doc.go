// Package proxy is the engine that serves memcached clients: it parses, routes, sends
// and answers requests.
//
// An Engine has no sockets, goroutines or clock. A driver (package loop) passes it the
// received bytes and the time, and carries out the effects that it returns. The same
// input produces the same output.
//
//	client bytes ► Session ► Limits.Next ► route ► hash once ► Attempt ► Conn's queue ► server bytes
//	client bytes ◄ Session ◄ finish      ◄ Exchange ◄ pair by order    ◄ NextReplyOf ◄ server bytes
//
// An Engine has one part of each of the packages below. None of them imports this
// package. If they need something from it, it provides an interface or a function.
//
//	link         bytes, timers and memory of a loop   calls makeRoom when limits.memory is reached (relief.go)
//	upstream     requests to servers, and replies     reports to observer: server down, up, connected (engine.go)
//	client       answers in each client's order       calls handler to serve a request (dispatch.go)
//	routing      which server a key belongs to        adopt binds pools to servers (adopt.go)
//	task         commands that need several requests  asks loops which loop runs the tasks of a key (proxy.go)
//	failover     keepers; keys without replicas       calls handOverrides for overrides by operators (overrides.go)
//	replication  keys with replicas
//	counters     creation of missing counters, delayed increments
//	guard        stampede protection                  reaches the other loops by eachGuard (engine.go)
//	tags         invalidation of values by tag        taggedPools lists the pools with tags (adopt.go)
//	near         near cache: values kept in Ringside  nearReads answers reads from it (near.go)
//	watch        samples of keys and requests         dispatch.go passes it the sampled requests
//
// A Proxy is what all engines of a process share: the table, the overrides by
// operators, and the totals that limits apply to.
//
// # Tables by key
//
//	table                         key                scope        question
//	task.Tasks.Lines              client, hash       loop         which commands on the key are in progress, or wait for each other?
//	                                                              and which keys may a client still change that has left?
//	client.Session.ReadsByKey     hash               client       the same for its reads without a task; only while it pipelines many
//	guard.Guard.rebuilds          pool, key          loop         is a rebuild of the value expected, and which gets wait for it?
//	guard.missTable.misses        pool, key, client  loop         which item has the client missed, so which one can its set replace?
//	counters.Counters.sums        pool, key          loop         which increments are not sent, or have no reply yet?
//	replication.entryTable.Keys   hash               replica      which write has the replica missed, or may it still run?
//	replication.Replicator.moves  hash               loop, stage  has the key left its former servers?
//	replication.walk.gone         hash               pass         has the walk moved the key in this pass, or in the one before?
//	near.Store.values             hash               loop, route  which value is kept?
//	near.Marks                    hash, shortened    process      has a write of the key begun or ended since its value was requested?
//	stats.TagStats.known          hash               route        which tags has the value?
//
// Lines, misses, sums, entryTable.Keys and Marks each say that a write of the key is in progress or in
// doubt. They are not one table, because they end at different times: with the reply to the client, with
// the next set of a client, with a flush of the increments, with a repair of one server, and never. Marks
// has no keys, because all loops read it without a lock. Late deletes need no table: they are in the
// queues of connections (Server.HasLateDelete).
//
// # Behavior of the engine
//
//   - A wakeup uses one table and one time: Begin reads both.
//   - An operator can drain a server or mark it down (Proxy.Override), separately in
//     each pool that names it. Clients see a server that is down, but the error names
//     the operator's override. flush_all then also fails. Ringside does not even ping
//     the server.
//   - If a server fails a multi-key read over several pools, the client gets an error
//     if one of those pools has get_errors: error.
//   - The me command is rejected if its key is in base64 and contains spaces or control
//     characters. memcached may send the raw key, and the end of such a reply can't be
//     found.
//   - flush_all succeeds if every server succeeds. Otherwise the client gets an error
//     that names the failed server. cache_memlimit works the same way, and is denied
//     where flush_all is denied.
//   - Commands for the operator of one server (slabs, lru, lru_crawler, extstore,
//     watch, refresh_certs) are rejected. The doc of package wire has the table.
//   - version returns the lowest version of the servers. Servers with an unknown
//     version are asked. If none answers, the client gets a SERVER_ERROR.
//   - stats combines the stats of all servers behind a listener: stats.go, and package
//     stats.
//   - At limits.memory the clients and connections that use the most memory lose it:
//     relief.go.
package proxy
