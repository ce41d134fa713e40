// Package stats counts what one loop does, adds up what all have counted, and prints it.
//
//	engine's goroutine                   any goroutine           answered to
//	Counters, RouteCounters, ─ AddTo ─► Snapshot, one of all ─► stats proxy, routes, servers (Report)
//	ServerCounters                       loops                   /metrics (package admin/metrics)
//	clients as they are now  ─────────► ClientList ────────────► stats conns, the admin interface
//	answers of servers to stats ─────► Merge… ─────────────────► stats, stats items, stats slabs …
//
// Guard, Tags and Near, which all loops write, are what routes of these kinds have counted
// and learned: atomic numbers, or under a lock that no hit takes.
//
// Counters are plain numbers which only their loop writes. Nobody else reads
// them: each room adds its own to a Snapshot on the goroutine of its loop,
// between two wakeups, and the sum is what others see. So counting costs an
// addition and no fence.
//
// An Outcome is how a command ended, told truthfully: an error that get_errors
// shows to the client as a miss is counted as the error.
//
// # Statistics of several servers
//
// To existing tools a listener is one memcached: of the answers of all servers of
// the listener's pools one is made, in the order in which memcached has the lines.
//
//	stats                   merged, see below
//	stats settings          the common value, or mixed where the servers differ or some say nothing
//	stats items             by class: summed; age… the most; evicted_time the least that is not 0
//	stats slabs             by class: summed; chunk_size and chunks_per_page common or mixed;
//	                        active_slabs the number of classes in the answer
//	stats sizes             summed by size; sizes_status common or mixed
//	stats detail dump       summed by prefix
//	stats cachedump C N     the servers' items one after the other, N in all, keys as the servers know them
//
// The lines of stats:
//
//	pid, threads            Ringside's: the process, its loops
//	uptime, time            the least
//	version                 the lowest
//	pointer_size            the least
//	accepting_conns         the least: 0 as soon as one server does not accept
//	rusage_user, _system    summed, in seconds
//	hash_power_level        computed anew: the power of two in all buckets together
//	hash_is_expanding, slab_reassign_running, lru_crawler_running
//	                        the most: 1 as soon as one server is at it
//	time_since_server_cert_refresh, extstore_memory_pressure
//	                        the most: the server that needs attention
//	libevent                the common value or mixed
//	every other integer     summed: commands, hits, bytes, items, evictions; and what is a capacity
//	                        or a fill: max_connections, curr_connections, limit_maxbytes, hash_bytes,
//	                        reserved_fds, read_buf_…, response_obj_…, time_in_listen_disabled_us, …
//	any other value         the common value; left out where servers differ
//	ringside_servers        how many servers were asked
//	ringside_servers_missing  how many of them are not in the sums
//
// The last two rules also serve what newer versions of memcached add. A line
// that only some servers have is made of theirs. curr_connections counts the
// servers' connections, most of which are Ringside's; Ringside's own clients
// are curr_connections of stats proxy. Sums stop at the largest 64-bit number.
//
// # What it does not do
//
// It asks nobody: package proxy asks servers and loops (proxy/stats.go,
// proxy/stats_own.go). It keeps no history. What a metric is called is in package
// admin/metrics.
package stats
