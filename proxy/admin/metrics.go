package admin

// This part of the package writes the counters of a running proxy in the format of Prometheus.
//
// Each scrape queries every loop once, between two of its wakeups. Nothing is kept from one
// scrape to the next, and a loop that does not answer fails the scrape.

// This part has the names and help texts of all metrics. docs/metrics.md has the same texts:
// TestMetricsPage compares them.

import (
	"cmp"
	"slices"
)

// metric is one metric of the page /metrics.
type metric struct {
	name, help, kind string
	labels           []string // names of the labels, in the order in which callers pass their values
	sorted           []int    // indexes of the labels, sorted by the name of the label; /metrics has this order
	at               int      // index of the metric in the list of all metrics
}

// all is the list of all metrics, in the order of their creation.
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

// labels are names of labels that several metrics have in common. A metric may have more labels.
type labels []string

var perServer, perMember, perPool, perRoute = labels{"server", "address"}, labels{"pool", "server"}, labels{"pool"}, labels{"route"}

func (l labels) counter(name, help string, more ...string) *metric {
	return counter(name, help, append(l, more...)...)
}
func (l labels) gauge(name, help string, more ...string) *metric {
	return gauge(name, help, append(l, more...)...)
}
func (l labels) histogram(name, help string) *metric { return histogram(name, help, l...) }

// MetricNames returns the names of all metrics, even if they have no values at present.
func MetricNames() (names []string) {
	for _, m := range all {
		names = append(names, m.name)
	}
	return names
}

// Metrics of clients, their commands, and memory.
var (
	requests = counter("requests_total",
		"Commands answered, by outcome. A failed read counts as a failure, even if get_errors turns it into a miss.",
		"command", "outcome")
	requestDuration = histogram("request_duration_seconds",
		"Time from reading a command to its complete reply, in seconds. Excludes most commands that need no key lookup, such as "+
			"version and malformed commands.",
		"command")
	requestsInFlight = gauge("requests_in_flight",
		"Commands read from clients that have no complete reply yet.")
	keys = counter("keys_total",
		"Keys requested by reads, by result. hit: found. miss: not found. failed: a server failed, so it is unknown whether the key "+
			"exists.",
		"result")
	routeRequests = counter("route_requests_total",
		"Commands answered, by route and outcome. A read with keys of several routes counts for the route of its first key. The label "+
			"route is the route's prefix, or the word match and its pattern. It is empty for all other keys. A series is absent until its "+
			"outcome occurs.",
		"listener", "route", "pool", "command", "outcome")
	routeKeys = counter("route_keys_total",
		"Keys requested by reads, by route and result: hit, miss, failed. Each key counts for its own route.",
		"listener", "route", "pool", "result")

	wakeups = counter("loop_wakeups_total",
		"Wakeups of the event loops.")
	loopReads = counter("loop_reads_total",
		"Read calls on sockets that returned data.")
	loopWrites = counter("loop_writes_total",
		"Write calls on sockets that sent data.")

	clients = gauge("client_connections",
		"Open client connections.")
	clientsLimit = gauge("client_connections_limit",
		"Maximum number of open client connections: limits.clients.")
	clientsAccepted = counter("client_connections_accepted_total",
		"Client connections accepted, including those refused afterwards with the reason limit or stopping.")
	clientsRefused = counter("client_connections_refused_total",
		"Client connections refused, by reason. limit: limits.clients is reached; the client gets an error. descriptors: accept "+
			"failed, usually because the process has no free file descriptors. stopping: the instance is stopping or the listener was "+
			"removed; the connection is reset.",
		"reason")
	clientsClosed = counter("client_connections_closed_total",
		"Client connections that the instance closed, by reason. idle: no request within limits.idle. unfinished: no data for "+
			"limits.unfinished in the middle of a command. login: no login in time, or three failed logins in a row. output: more unsent "+
			"bytes than limits.output_hard. memory: limits.memory was reached, and the client used the most. cut_off: a server failed in "+
			"the middle of a value.",
		"reason")
	adminConnectionsClosed = counter("admin_connections_closed_total",
		"New connections to the admin interface above its limit of 256. Each one replaces an idle connection, serves only health "+
			"probes, or is closed.")
	loginsFailed = counter("client_logins_failed_total",
		"Client logins with a wrong user or password. Listeners with auth_file require a login.")
	clientReceived = counter("client_received_bytes_total",
		"Bytes received from clients.")
	clientSent = counter("client_sent_bytes_total",
		"Bytes sent to clients.")

	buffers = gauge("buffer_bytes",
		"Memory that counts towards limits.memory, in bytes. It includes buffers (also free ones), requests in flight, waiting "+
			"replies, near caches and buffered increments.")
	buffersLimit = gauge("buffer_limit_bytes",
		"Limit of ringside_buffer_bytes, in bytes: limits.memory.")
	valuesRefused = counter("values_refused_total",
		"Values rejected because limits.memory was reached.")
	valuesOverLimit = counter("values_over_limit_total",
		"Values rejected because they are longer than limits.value.")

	countersMade = counter("counters_created_total",
		"Missing counters that an incr or decr created, on routes with autocreate.")

	bufferIncrements = counter("buffer_increments_total",
		"Increments that were buffered. The instance replied to each of them, and later sends several of them to the server in one request.")
	bufferFlushes = counter("buffer_flushes_total",
		"Requests with buffered increments that a server confirmed.")
	bufferFlushed = counter("buffer_flushed_total",
		"Buffered increments in the requests of ringside_buffer_flushes_total.")
	bufferLost = counter("buffer_lost_total",
		"Sum of the buffered increments that were lost, by reason. missing: the counter does not exist, or is not a number. "+
			"unreachable: its server was unreachable for buffer.keep. unsure: the server did not reply, so it may have counted them. "+
			"overwritten: a set or delete replaced them, so nothing is missing.",
		"reason")
	bufferKeys = gauge("buffer_keys",
		"Counters that have buffered increments, or can get some without a request to their server.")
	bufferPending = gauge("buffer_pending",
		"Sum of the buffered increments that no server has confirmed yet.")
)

// Metrics of each server, by name and address.
var (
	serverUp = perServer.gauge("server_up",
		"1 if no loop considers the server down, otherwise 0. Absent until the server has replied or failed.")
	serverConnections = perServer.gauge("server_connections",
		"Open connections to the server, except those in ringside_server_zombie_connections.")
	serverZombies = perServer.gauge("server_zombie_connections",
		"Replaced connections to the server that stay open only for late replies.")
	serverQueue = perServer.gauge("server_queue_depth",
		"Requests in the queues of the server's connections. They are not sent yet, or have no complete reply.")
	serverRequests = perServer.counter("server_requests_total",
		"Requests queued on a connection to the server. Includes the instance's own requests, such as repairs, but not late deletes.")
	serverFailed = perServer.counter("server_requests_failed_total",
		"Client requests queued on a connection to the server that got no reply. Commands that need several requests, such as those "+
			"on replicas, are not counted.")
	serverTimedOut = perServer.counter("server_requests_timed_out_total",
		"The part of ringside_server_requests_failed_total that got no reply in time.")
	serverUndone = perServer.counter("server_late_deletes_total",
		"Late deletes sent to the server, one for each failed write that it may still run. A replicated key can get a tombstone "+
			"instead.")
	serverUndoLost = perServer.counter("server_late_deletes_lost_total",
		"Late deletes that got no reply. A stale value can remain on the server.")
	serverRefused = perServer.counter("server_requests_refused_total",
		"Requests to the server that were rejected before they were sent, by reason. down: the server is down. queue_full: its queue "+
			"is full. memory: limits.memory is reached. ordered: an operator has drained the server or taken it down.",
		"reason")
	serverDuration = perServer.histogram("server_request_duration_seconds",
		"Time from queueing a request on a connection to the server to the complete reply, in seconds.")
	serverDials = perServer.counter("server_dials_total",
		"Attempts to connect to the server.")
	serverClosed = perServer.counter("server_connections_closed_total",
		"Connections that the server closed or that broke, by reason. lost: with requests in flight. idle: without requests in flight.",
		"reason")
	serverDead = perServer.counter("server_connections_dead_total",
		"Idle connections to the server that no longer worked and were replaced, by how this was detected. ping: no reply to a "+
			"keepalive ping. request: no reply to the first request after a quiet period. Absent until a dead connection was found.",
		"found_by")
	serverResent = perServer.counter("server_reads_resent_total",
		"Plain reads sent again on a new connection because their connection was dead. Absent until a dead connection was found.")
	serverOutages = perServer.counter("server_outages_total",
		"Times that a loop began to consider the server down. Each loop counts for itself.")
	serverReceived = perServer.counter("server_received_bytes_total",
		"Bytes received from the server.")
	serverSent = perServer.counter("server_sent_bytes_total",
		"Bytes sent to the server.")
	serverVersion = perServer.gauge("server_version_info",
		"Always 1. The label version is the version that the server reported last. Absent until the server has reported one.",
		"version")
	serverOverride = gauge("server_override",
		"1 while an operator's override keeps requests away from the server of this pool. The label order is drain or down. Absent "+
			"without an override.",
		"pool", "server", "address", "order")
)

// Metrics of each pool that moves keys or has replicas, and of each server of such a pool.
var (
	failoverPhase = perMember.gauge("failover_phase",
		"Phase of the server in the pool: 0 IN, 1 LEAVING, 2 OUT, 3 RETURN, 4 WARM, 5 SETTLE. Absent for pools that neither move keys "+
			"nor keep replicas.")
	failoverSuspect = perMember.gauge("failover_suspect",
		"1 while this instance gets no replies from the server, otherwise 0. Without replicas, reads of its keys miss and writes fail "+
			"until it replies or is ejected.")
	failoverOutages = perMember.counter("failover_outages_total",
		"Ejections of the server from the pool, by any instance, since the view record was created.")
	failoverChanges = counter("failover_changes_total",
		"State changes of the server that this instance has seen, by new state: up, suspect, or a phase. If the label server is "+
			"empty, the pool changed its state: closed, fail-open, gone, back, kept, other-servers, other-settings, suspect-only, apart or alike.",
		"pool", "server", "to")
	failoverLease = perMember.gauge("failover_lease_seconds",
		"Time until the lease from the last successful ping of the server expires, in seconds. Negative if it has expired.")
	peersAll = perPool.gauge("peers",
		"Instances that serve the pool, including this one. Absent for pools that neither move keys nor keep replicas, and while the "+
			"roll call is not running.")
	peersDiffering = perPool.gauge("peers_differing",
		"Instances with other pools or routes than most instances. If there are more than 200, only a sample is compared. The "+
			"dashboard and ringside top show which ones differ.")
	peersPlacingDifferently = perPool.gauge("peers_placing_differently",
		"Instances that place replicas on other servers than this one. Their servers, weights, replicas or replicas_on differ. Alert on "+
			"more than 0.")
	peersUnreadable = perPool.counter("peers_unreadable_total",
		"Items and entries of the roll call that could not be parsed.")
)

// Metrics of hot keys, reasons of misses, and replicas.
var (
	replicasRepaired = counter("replicas_repaired_total",
		"Repairs of single keys on replicas, by result. done: started. dropped: rejected by the repair rate or because too many wait, "+
			"or given up after repeated failures.",
		"result")
	hotKey = gauge("hot_key_ratio",
		"Fraction of recent requests for the key at this rank, 0 to 1. Rank 1 is the most requested key. The dashboard and ringside "+
			"top show the keys. Absent until requests were sampled, and with admin.hot: off.",
		"rank")
	hotKeyOff = gauge("hot_key_ratio_error",
		"Possible error of ringside_hot_key_ratio, upwards and downwards.",
		"rank")
	hotLooks = gauge("hot_key_one_in",
		"One in this many requests is sampled to find hot keys.")
	missReasons = counter("miss_reasons_total",
		"Misses of sampled keys, by route and reason. unsure: the reason is not known. never: the key was not set while it was "+
			"observed. expired: its lifetime ended. deleted: a client deleted it. evicted: its server evicts values, and there is no "+
			"other reason. flushed: its server was flushed. out: its server is or was ejected. moved: a reload moved it. invalidated: one "+
			"of its tags was invalidated. A series is absent until its reason occurs.",
		"route", "reason")
	missFills = perRoute.counter("rebuilds_total",
		"Sets of sampled keys that followed a miss of the key within a minute, by route.")
	missSeconds = perRoute.counter("rebuilds_seconds_total",
		"Sum of the times from a miss to its set, in seconds, for the sets in ringside_rebuilds_total. This is the time that the "+
			"application needs to rebuild values.")
	missQuantile = gauge("rebuild_seconds",
		"Time from a miss to its set, in seconds: percentiles of the last 128 sets on the route. Absent before the first one.",
		"route", "percentile")
	missSampled = gauge("miss_reasons_sampled_ratio",
		"Fraction of the keys that are sampled to find the reasons of misses, 0 to 1. Absent with admin.misses: off.")
	tombstones = counter("tombstones_total",
		"Tombstones on replicas, by event and by the command that caused it: delete, add, repair, other. A tombstone marks a key on "+
			"which a command is working. made: stored. left: sent after a set that timed out. met: found in place of a value. taken: "+
			"found and replaced by a value. replaced: overlooked by an append or touch, and replaced by a new tombstone. disturbed: gone "+
			"before its command removed it.",
		"event", "by")
	deleteRounds = counter("delete_rounds_total",
		"Deletes of replicated keys that placed tombstones, by the number of rounds. A delete needs another round if a tombstone was "+
			"disturbed. 3 is the maximum, and includes deletes that were given up.",
		"rounds")
)

// Metrics of wrong or missing replies, and metrics of the servers in the current table.
var (
	replyFaults = counter("reply_faults_total",
		"Commands that would have ended without a reply, or that got more than one. A command without a reply gets SERVER_ERROR. Any "+
			"value other than 0 is a bug in Ringside.")
	desyncs = counter("desyncs_total",
		"Server connections aborted because a reply could not be matched to a request. Any value other than 0 is a bug in Ringside or "+
			"in a server.")
	poolServer = gauge("pool_server",
		"Always 1, for each server of each pool of the current configuration. The labels have its name and weight in that pool.",
		"pool", "server", "address", "weight")
	poolShared = perPool.gauge("pool_servers_shared",
		"Servers of the pool that only one of two instances ejects, or that both eject through different pools. A server that rejoins "+
			"is flushed, including data of the other pool. Alert on more than 0.")
)

// Metrics of the instance and its configuration.
var (
	configSuccess = gauge("config_reload_success",
		"1 if the configuration that was read last is in use. 0 if it was rejected, and an earlier one is in use.")
	configTime = gauge("config_last_reload_timestamp_seconds",
		"Time when a configuration was read last, accepted or rejected, in seconds since the Unix epoch.")
	configReloads = counter("config_reloads_total",
		"Reloads since the start, by result: success, failure.",
		"result")
	configGeneration = gauge("config_generation",
		"Number of the configuration in use. The configuration at the start has the number 1.")
	buildInfo = gauge("build_info",
		"Always 1. The labels have the versions of Ringside and of Go.",
		"version", "goversion")
)
