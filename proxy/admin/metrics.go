package admin

// This part of the package writes the counters of a running proxy in the format of Prometheus.
//
// Each scrape queries every loop once, between two of its wakeups. Nothing is kept from one
// scrape to the next, and a loop that does not answer fails the scrape.

// The name and meaning of each metric. docs/metrics.md has the same text; a test compares them.

import (
	"cmp"
	"slices"
)

// metric is one name on /metrics.
type metric struct {
	name, help, kind string
	labels           []string // in the order of their values in calls
	sorted           []int    // the order in which they are written: by name
	at               int      // its index in all
}

// all has every metric that the constructors below have created.
var all []*metric

var counter, gauge, histogram = of("counter"), of("gauge"), of("histogram")

func of(kind string) func(name, help string, labels ...string) *metric {
	return func(name, help string, labels ...string) *metric {
		m := &metric{name: "ringside_" + name, help: help, kind: kind, labels: labels, at: len(all)}
		for i := range labels {
			m.sorted = append(m.sorted, i)
		}
		slices.SortFunc(m.sorted, func(i, j int) int { return cmp.Compare(labels[i], labels[j]) })
		all = append(all, m)
		return m
	}
}

// labels are common to several metrics; each metric may have more.
type labels []string

var perServer, perMember, perPool, perRoute = labels{"server", "address"}, labels{"pool", "server"}, labels{"pool"}, labels{"route"}

func (l labels) counter(name, help string, more ...string) *metric {
	return counter(name, help, append(l, more...)...)
}
func (l labels) gauge(name, help string, more ...string) *metric {
	return gauge(name, help, append(l, more...)...)
}
func (l labels) histogram(name, help string) *metric { return histogram(name, help, l...) }

// MetricNames returns the names of all metrics, including those without samples.
func MetricNames() (names []string) {
	for _, m := range all {
		names = append(names, m.name)
	}
	return names
}

// What clients see.
var (
	requests = counter("requests_total",
		"Commands answered, by how they ended; a read that get_errors shows as a miss is counted as the failure that it was.",
		"command", "outcome")
	requestDuration = histogram("request_duration_seconds",
		"Time from reading a command to having its whole answer, of commands that had to wait for one.",
		"command")
	requestsInFlight = gauge("requests_in_flight",
		"Commands read and not answered yet.")
	keys = counter("keys_total",
		"Keys that clients asked for, by result: hit, miss, or failed when no server could say.",
		"result")
	routeRequests = counter("route_requests_total",
		"The part of the commands answered that was on keys of the route; one on keys of several is of the first's. The route is its prefix, or the word match and its pattern; empty for all other keys.",
		"listener", "route", "pool", "command", "outcome")
	routeKeys = counter("route_keys_total",
		"The part of the keys asked for that the route took, by result.",
		"listener", "route", "pool", "result")

	wakeups = counter("loop_wakeups_total",
		"Times that a loop woke up for events.")
	loopReads = counter("loop_reads_total",
		"Reads from sockets that brought bytes.")
	loopWrites = counter("loop_writes_total",
		"Writes to sockets that took bytes.")

	clients = gauge("client_connections",
		"Client connections open now.")
	clientsLimit = gauge("client_connections_limit",
		"Client connections that may be open at once: limits.clients.")
	clientsAccepted = counter("client_connections_accepted_total",
		"Client connections accepted, those refused at once included.")
	clientsRefused = counter("client_connections_refused_total",
		"Client connections refused, by reason: limit (limits.clients is reached; with an error), descriptors (the process may "+
			"open no more files), stopping (Ringside or the listener; by a reset).",
		"reason")
	clientsClosed = counter("client_connections_closed_total",
		"Client connections that Ringside closed, by reason: idle (limits.idle), unfinished (limits.unfinished: in the middle of a command), "+
			"login (it did not say in time who it is, or gave three wrong passwords), output (limits.output_hard), memory (limits.memory), cut_off (a server went away in the middle of a value).",
		"reason")
	adminConnectionsClosed = counter("admin_connections_closed_total",
		"Connections to the admin interface that were closed, or served health probes only, because 256 were open.")
	loginsFailed = counter("client_logins_failed_total",
		"Wrong users or passwords that clients gave: auth_file.")
	clientReceived = counter("client_received_bytes_total",
		"Bytes read from clients.")
	clientSent = counter("client_sent_bytes_total",
		"Bytes written to clients.")

	buffers = gauge("buffer_bytes",
		"Memory held for clients and servers now: buffers, those kept for reuse included, requests, answers that wait.")
	buffersLimit = gauge("buffer_limit_bytes",
		"Memory that may be held for them: limits.memory.")
	valuesRefused = counter("values_refused_total",
		"Values refused because limits.memory was reached.")
	valuesOverLimit = counter("values_over_limit_total",
		"Values refused because they were longer than limits.value.")

	countersMade = counter("counters_created_total",
		"Counters that were missing and that an incr or decr has made, by autocreate.")

	bufferIncrements = counter("buffer_increments_total",
		"Increments that waited here, so that one request carried many.")
	bufferFlushes = counter("buffer_flushes_total",
		"Requests that carried increments which had waited.")
	bufferFlushed = counter("buffer_flushed_total",
		"Increments that these requests have carried.")
	bufferLost = counter("buffer_lost_total",
		"Sum of increments that had waited and that no server was told of: the counter is gone or no number (missing), or could not be reached for buffer.keep (unreachable); or may not have been: it did not answer (unsure). overwritten: a set or delete came first, nothing is missing.",
		"reason")
	bufferKeys = gauge("buffer_keys",
		"Counters of which increments wait, or may.")
	bufferPending = gauge("buffer_pending",
		"Sum of the increments that wait now.")
)

// Each server, by name and address.
var (
	serverUp = perServer.gauge("server_up",
		"1 while no loop holds the server for down, else 0; absent until it has answered or failed to.")
	serverConnections = perServer.gauge("server_connections",
		"Connections to the server open now.")
	serverZombies = perServer.gauge("server_zombie_connections",
		"Further connections to the server that get no requests and stay open for late answers.")
	serverQueue = perServer.gauge("server_queue_depth",
		"Requests to the server without an answer, those not sent yet included.")
	serverRequests = perServer.counter("server_requests_total",
		"Requests handed to a connection of the server.")
	serverFailed = perServer.counter("server_requests_failed_total",
		"Requests handed to a connection of the server that got no answer.")
	serverTimedOut = perServer.counter("server_requests_timed_out_total",
		"The part of the failed requests that was not answered in time.")
	serverUndone = perServer.counter("server_mutations_undone_total",
		"The part of the failed requests that the server may still do, and behind which their keys are deleted.")
	serverUndoLost = perServer.counter("server_mutations_undo_lost_total",
		"The part of those whose delete was not answered: an old value may be left.")
	serverRefused = perServer.counter("server_requests_refused_total",
		"Requests not handed to a connection of the server, by reason: down, queue_full, memory (limits.memory; also those "+
			"that it was not sent in time), ordered (a person has drained it or taken it down).",
		"reason")
	serverDuration = perServer.histogram("server_request_duration_seconds",
		"Time from handing a request to a connection of the server to its whole answer.")
	serverDials = perServer.counter("server_dials_total",
		"Attempts to connect to the server.")
	serverClosed = perServer.counter("server_connections_closed_total",
		"Connections that the server ended, by reason: lost (with requests in flight), idle (without).",
		"reason")
	serverDead = perServer.counter("server_connections_dead_total",
		"Connections to the server that were idle and no longer worked, by what found it: ping (keepalive), request (the first behind a quiet period). Each was replaced at once. Absent until there was one.",
		"found_by")
	serverResent = perServer.counter("server_reads_resent_total",
		"Plain reads that were sent again on a new connection, in place of one that no longer worked. Absent until a connection was found dead.")
	serverOutages = perServer.counter("server_outages_total",
		"Times that a loop began to hold the server for down.")
	serverReceived = perServer.counter("server_received_bytes_total",
		"Bytes read from the server.")
	serverSent = perServer.counter("server_sent_bytes_total",
		"Bytes written to the server.")
	serverVersion = perServer.gauge("server_version_info",
		"1, with the version that the server told last; absent until it has told one.",
		"version")
	serverOrdered = gauge("server_ordered_away",
		"1 while a person keeps the server of this pool from getting requests, by order (drain, down), else absent.",
		"pool", "server", "address", "order")
)

// Metrics of each pool that moves keys or has replicas, and of each server of such a pool.
var (
	failoverPhase = perMember.gauge("failover_phase",
		"What the pool does with the server's keys: 0 IN, 1 LEAVING, 2 OUT, 3 RETURN, 4 WARM, 5 SETTLE; of pools whose keys move, or that keep copies.")
	failoverSuspect = perMember.gauge("failover_suspect",
		"1 while this Ringside gets no answers from the server, so that its keys miss and their writes fail, else 0.")
	failoverOutages = perMember.counter("failover_outages_total",
		"Times that the server was taken out of the pool, by whatever Ringside, since the view record began.")
	failoverChanges = counter("failover_changes_total",
		"What this Ringside has seen become of the server, by what it became: up, suspect, a phase; with an empty server, of the pool.",
		"pool", "server", "to")
	failoverLease = perMember.gauge("failover_lease_seconds",
		"How long the last good ping of the server still counts; negative: it has run out.")
	rollAll = perPool.gauge("roll_ringsides",
		"Ringsides that serve the pool, by the roll call, this one included; of pools whose keys move, or that keep copies. Absent where there is no roll call.")
	rollDiffer = perPool.gauge("roll_differing",
		"The part of them that has other pools or routes than most; of more than 200, of a sample. Which they are is on the page and in ringside top.")
	rollApart = perPool.gauge("roll_copies_apart",
		"The part of them that keeps the copies of keys at other servers than this one: another list, weights, number of copies or copies_on. Alert on more than 0.")
	rollBad = perPool.counter("roll_unreadable_total",
		"What stood in the roll and could not be read: items, and entries of them.")
)

// Hot keys, why keys miss, and copies.
var (
	copiesRepaired = counter("copies_repaired_total",
		"Copies of single keys made again, by result: done (begun), dropped (over the repair rate, too many at once, or failed again and again).",
		"result")
	hotKey = gauge("hot_key_ratio",
		"Part of all requests that the key at this rank has lately, of those that are asked for most. "+
			"Which keys they are is on the page and in ringside top; of the routes, which have all requests, see ringside_route_requests_total.",
		"rank")
	hotKeyOff = gauge("hot_key_ratio_error",
		"By how much hot_key_ratio may be off.",
		"rank")
	hotLooks = gauge("hot_key_one_in",
		"Of so many requests one is looked at to find the hot keys.")
	missReasons = counter("misses_judged_total",
		"Misses of remembered keys on the route, by why: unsure (no cause is known, or remembered for too short), never (set here, as far back as is known), expired, deleted, evicted (and the server's counter of evictions moved), flushed, out (its server was, or is), moved (by a reload), invalidated (a tag was).",
		"route", "reason")
	missFills = perRoute.counter("origin_fills_total",
		"Sets on the route that followed a miss of their key within a minute, of remembered keys.")
	missSeconds = perRoute.counter("origin_seconds_total",
		"Sum of the times from those misses to their sets: what the application needs to make the values.")
	missQuantile = gauge("origin_seconds",
		"Time from a miss to its set, of the last 128 on the route.",
		"route", "percentile")
	missChosen = gauge("misses_remembered_ratio",
		"Part of the keys that are remembered to say why they miss: all, or fewer where there are many.")
	copiesMarks = counter("marks_total",
		"Marks of copies, which say that somebody is at work on a key, by event: made, left (sent behind a set that has timed out; nobody hears whether it has replaced something), met (in the place of a value: another Ringside is at work there, or has died at it), taken (met, and a value was put in its place), replaced (met by an append or touch that could not see it: a fresh one is in its place), disturbed (gone when it was to be ended: begun again, or given up); and by what does it: delete, add, repair, other.",
		"event", "by")
	deleteRounds = counter("delete_rounds_total",
		"Deletes of keys with several copies that have made marks, by how many rounds of marks they took: more than 1 where others have disturbed these; 3 is the most, and counts those that were given up, too.",
		"rounds")
)

// Metrics of wrong or missing replies, and metrics of the servers in the current table.
var (
	replyFaults = counter("reply_faults_total",
		"Commands that would have ended without a reply, and got SERVER_ERROR instead, or that got more than one reply; anything but 0 is a bug in Ringside.")
	doubts = counter("pairing_doubts_total",
		"Server connections aborted because a reply could not be paired with a request; anything but 0 is a bug, here or in a server.")
	poolServer = gauge("pool_server",
		"1 for each server of each pool of the table in force, with the name and weight that it has there.",
		"pool", "server", "address", "weight")
	poolShared = perPool.gauge("pool_servers_shared",
		"Servers of the pool that another Ringside ejects, and flushes, by a pool that this Ringside does not have or that ejects nothing here; and those that this Ringside ejects and another one does not. Alert on more than 0.")
)

// Ringside itself.
var (
	configSuccess = gauge("config_reload_success",
		"1 if the configuration that was read last is in force, 0 if it was refused and an older one is.")
	configTime = gauge("config_last_reload_timestamp_seconds",
		"When a configuration was read last, whether it was taken or refused, in Unix time.")
	configReloads = counter("config_reloads_total",
		"Reloads since the start, by result: success, failure.",
		"result")
	configGeneration = gauge("config_generation",
		"Number of the table in force; 1 is that of the start.")
	buildInfo = gauge("build_info",
		"1, with the version of Ringside and of the Go that built it.",
		"version", "goversion")
)
