// Package stats defines the counters of an engine, adds them up over all engines, and
// formats them as memcached statistics.
//
//	engine's goroutine                   any goroutine           used by
//	Counters, RouteCounters, ─ AddTo ─► Snapshot, one of all ─► stats proxy, routes, servers (Report)
//	ServerCounters                       loops                   /metrics (package admin)
//	clients as they are now  ─────────► ClientList ────────────► stats conns, the admin interface
//	stats replies of servers ────────► Merge ──────────────────► stats, stats items, stats slabs …
//
// GuardStats, TagStats and Near hold the counters and learned values of routes with these
// features. All loops write them, so they use atomics, or a lock that no cache hit
// needs.
//
// A Figure is one value with its metric and its name in the replies to stats commands. The methods
// Figures list each counter once; /metrics, stats and the views read these lists or the same fields.
//
// Counters are plain integers that only their loop's goroutine writes and reads. To
// take a snapshot, each loop adds its counters to a Snapshot on its own goroutine,
// between two wakeups. So counting costs one addition, without a memory fence.
//
// An Outcome is how a command ended. It records what really happened: an error counts
// as the error even if the client got a miss because get_errors is off.
//
// # Statistics of several servers
//
// To existing tools a listener looks like one memcached. The stats replies of all
// servers of the listener's pools are merged into one, in the order of memcached's
// lines. A Merge works in steps, because a `stats detail dump` may have 65,536 lines per server.
//
//	stats                   merged, see below
//	stats settings          the common value, or mixed if servers differ or some lack the setting
//	stats items             by class: summed; age… the maximum; evicted_time the minimum other than 0
//	stats slabs             by class: summed; chunk_size and chunks_per_page common or mixed;
//	                        active_slabs the number of classes in the reply
//	stats sizes             summed by size; sizes_status common or mixed
//	stats detail dump       summed by prefix
//	stats cachedump C N     the items of all servers in turn, N in all, keys as stored on the servers
//
// The lines of stats:
//
//	pid, threads            Ringside's: the process, its loops
//	uptime, time            the minimum
//	version                 the lowest
//	pointer_size            the minimum
//	accepting_conns         the minimum: 0 as soon as one server does not accept
//	rusage_user, _system    summed, in seconds
//	hash_power_level        the power of two of the number of buckets of all servers together
//	hash_is_expanding, slab_reassign_running, lru_crawler_running
//	                        the maximum: 1 as soon as one server is doing it
//	time_since_server_cert_refresh, extstore_memory_pressure
//	                        the maximum: the server that needs attention
//	libevent                the common value or mixed
//	every other integer     summed: commands, hits, bytes, items, evictions; also capacities and
//	                        fill levels: max_connections, curr_connections, limit_maxbytes, hash_bytes,
//	                        reserved_fds, read_buf_…, response_obj_…, time_in_listen_disabled_us, …
//	any other value         the common value; left out if servers differ
//	ringside_servers        how many servers were asked
//	ringside_servers_missing  how many of them are not in the sums
//
// The rules for other integers and other values also cover lines that newer versions of
// memcached add. A line that only some servers send is merged from those servers.
// curr_connections counts connections of the servers, most of which are Ringside's.
// Ringside's own clients are curr_connections of stats proxy. Sums are capped at the
// largest 64-bit number.
//
// # Limits
//
// The package sends no requests: package proxy asks servers and loops (proxy/stats.go,
// proxy/stats_own.go). It keeps no history.
package stats
