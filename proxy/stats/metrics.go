package stats

// This file has the registry of metrics, and the metrics of the counters of engines. Each value is
// listed once, with its metric and its name in the replies to stats commands. docs/metrics.md has
// the same texts: TestMetricsPage (in package admin) compares them.

import (
	"cmp"
	"slices"
	"strconv"

	"ringside/proxy/table"
)

// Metric is one metric of the page /metrics.
type Metric struct {
	Name, Help string
	Kind       string   // counter, gauge or histogram
	Labels     []string // names of the labels, in the order in which callers pass their values
	Sorted     []int    // indexes of the labels, sorted by the name of the label; /metrics has this order
	At         int      // index of the metric in the list of all metrics
	Ends       int      // number of buckets that a histogram omits at the beginning, and at the end
}

// registry is the list of all metrics, in the order of their creation.
var registry []*Metric

// Metrics returns all metrics of the process, even if they have no values at present.
func Metrics() []*Metric { return registry }

// NewCounter, NewGauge and NewHistogram create a metric with a name, a help text and labels.
var NewCounter, NewGauge, NewHistogram = of("counter"), of("gauge"), of("histogram")

func of(kind string) func(name, help string, labels ...string) *Metric {
	return func(name, help string, labels ...string) *Metric {
		m := &Metric{Name: "ringside_" + name, Help: help, Kind: kind, Labels: labels, At: len(registry)}
		for i := range labels {
			m.Sorted = append(m.Sorted, i)
		}
		slices.SortFunc(m.Sorted, func(i, j int) int { return cmp.Compare(labels[i], labels[j]) })
		registry = append(registry, m)
		return m
	}
}

// Labels are names of labels that several metrics have in common. A metric may have more labels.
type Labels []string

// PerServer, PerMember, PerPool and PerRoute are the labels of a server, of a server in a pool, of a
// pool, and of a route.
var PerServer, PerMember, PerPool, PerRoute = Labels{"server", "address"}, Labels{"pool", "server"}, Labels{"pool"}, Labels{"route"}

// Counter creates a counter with the labels l and more labels.
func (l Labels) Counter(name, help string, more ...string) *Metric {
	return NewCounter(name, help, append(l, more...)...)
}

// Gauge creates a gauge with the labels l and more labels.
func (l Labels) Gauge(name, help string, more ...string) *Metric {
	return NewGauge(name, help, append(l, more...)...)
}

// short omits buckets of the histogram m, because each of hundreds of servers has one.
func (m *Metric) short() *Metric {
	m.Ends = 2
	return m
}

// Histogram creates a histogram with the labels l.
func (l Labels) Histogram(name, help string) *Metric { return NewHistogram(name, help, l...) }

// Figure is one value of the state of an instance, with its names.
type Figure struct {
	Metric *Metric // metric that has the value; nil: no metric has it
	Label  string  // value of the last label of Metric; empty: Metric has no such label
	Stat   string  // name of the value in the replies to stats commands; empty: it is not in them
	Value  any     // uint64, int, int64, float64, bool or *Histogram
}

// Metrics of clients and of bytes.
var (
	requestsInFlight = NewGauge("requests_in_flight",
		"Commands read from clients that have no complete reply yet.")
	clients = NewGauge("client_connections",
		"Open client connections.")
	clientsLimit = NewGauge("client_connections_limit",
		"Maximum number of open client connections: limits.clients.")
	clientsAccepted = NewCounter("client_connections_accepted_total",
		"Client connections accepted, including those refused afterwards with the reason limit or stopping.")
	clientsRefused = NewCounter("client_connections_refused_total",
		"Client connections refused, by reason. limit: limits.clients is reached; the client gets an error. descriptors: accept "+
			"failed, usually because the process has no free file descriptors. stopping: the instance is stopping or the listener was "+
			"removed; the connection is reset. plain: plain text on a listener with TLS. tls: a TLS handshake on a listener without TLS.",
		"reason")
	handshakes = NewCounter("client_tls_handshakes_total",
		"TLS handshakes of clients, by result. full: completed. resumed: completed, with a session from before. failed: failed, or "+
			"given up by the client. timeout: not complete within listen.tls.handshake. crowded: given up because more than 512 "+
			"handshakes of a loop were incomplete.",
		"result")
	clientReceived = NewCounter("client_received_bytes_total",
		"Bytes received from clients.")
	clientSent = NewCounter("client_sent_bytes_total",
		"Bytes sent to clients.")
	buffers = NewGauge("buffer_bytes",
		"Memory that counts towards limits.memory, in bytes. It includes buffers (also free ones), requests in flight, waiting "+
			"replies, near caches and buffered increments.")
	buffersLimit = NewGauge("buffer_limit_bytes",
		"Limit of ringside_buffer_bytes, in bytes: limits.memory.")
)

// Figures returns the numbers of clients and of bytes, together with the limits l.
func (s *Snapshot) Figures(l *table.Limits) []Figure {
	return []Figure{
		{clientsLimit, "", "max_connections", l.Clients},
		{clients, "", "curr_connections", s.Clients},
		{clientsAccepted, "", "total_connections", s.Accepted},
		{clientsRefused, "limit", "rejected_connections", s.Refused},
		{clientsRefused, "descriptors", "", s.Unaccepted},
		{clientsRefused, "stopping", "", s.TooLate},
		{clientsRefused, "plain", "", s.PlainRefused},
		{clientsRefused, "tls", "", s.TLSRefused},
		{handshakes, "full", "", s.Handshakes.Done - s.Handshakes.Resumed},
		{handshakes, "resumed", "", s.Handshakes.Resumed},
		{handshakes, "failed", "", s.Handshakes.Failed},
		{handshakes, "timeout", "", s.Handshakes.Late},
		{handshakes, "crowded", "", s.Handshakes.Crowded},
		{requestsInFlight, "", "requests_in_flight", s.InFlight},
		{clientReceived, "", "bytes_read", s.ClientIn},
		{clientSent, "", "bytes_written", s.ClientOut},
		{buffers, "", "buffer_bytes", s.Memory},
		{buffersLimit, "", "limit_buffer_bytes", l.Memory},
	}
}

// Metrics of what engines have closed, rejected, created and found wrong.
var (
	clientsClosed = NewCounter("client_connections_closed_total",
		"Client connections that the instance closed, by reason. idle: no request within limits.idle. unfinished: no data for "+
			"limits.unfinished in the middle of a command. login: no login in time, or three failed logins in a row. output: more unsent "+
			"bytes than limits.output_hard. memory: limits.memory was reached, and the client held much of it, first of all clients that did not send or read. unread: the client did not read its replies for 3 s, and others waited with large values for limits.memory. ended: limits.clients was reached, and the client sent no more but waited for replies. cut_off: a server failed in "+
			"the middle of a value.",
		"reason")
	loginsFailed = NewCounter("client_logins_failed_total",
		"Client logins with a wrong user or password. Listeners with auth_file require a login.")
	valuesRefused = NewCounter("values_refused_total",
		"Values rejected because limits.memory was reached, or because their clients sent them slowly while others waited with large values.")
	valuesOverLimit = NewCounter("values_over_limit_total",
		"Values rejected because they are longer than limits.value.")
	largeWaits = NewCounter("large_request_waits_total",
		"How often clients with a request of 16 KiB or more had to wait, by reason. memory: half of limits.memory was in use, or earlier clients waited. server: "+
			"their server had 1 MiB of unsent bytes, or 2 MiB of such requests in progress on routes with replicas, guard or tags.",
		"reason")
	countersMade = NewCounter("counters_created_total",
		"Missing counters that an incr or decr created, on routes with autocreate.")
	desyncs = NewCounter("desyncs_total",
		"Server connections aborted because a reply could not be matched to a request. Any value other than 0 is a bug in Ringside or "+
			"in a server.")
	replyFaults = NewCounter("reply_faults_total",
		"Commands that would have ended without a reply, or that got more than one. A command without a reply gets SERVER_ERROR. Any "+
			"value other than 0 is a bug in Ringside.")
	wakeups = NewCounter("loop_wakeups_total",
		"Wakeups of the event loops.")
	loopReads = NewCounter("loop_reads_total",
		"Read calls on sockets that returned data.")
	loopWrites = NewCounter("loop_writes_total",
		"Write calls on sockets that sent data.")
	bufferIncrements = NewCounter("buffer_increments_total",
		"Increments that were buffered. The instance replied to each of them, and later sends several of them to the server in one request.")
	bufferFlushes = NewCounter("buffer_flushes_total",
		"Requests with buffered increments that a server confirmed.")
	bufferFlushed = NewCounter("buffer_flushed_total",
		"Buffered increments in the requests of ringside_buffer_flushes_total.")
	bufferLost = NewCounter("buffer_lost_total",
		"Sum of the buffered increments that were lost, by reason. missing: the counter does not exist, or is not a number. "+
			"unreachable: its server was unreachable for buffer.keep. unsure: the server did not reply, so it may have counted them. "+
			"overwritten: a set or delete replaced them, so nothing is missing.",
		"reason")
	bufferKeys = NewGauge("buffer_keys",
		"Counters that have buffered increments, or can get some without a request to their server.")
	bufferPending = NewGauge("buffer_pending",
		"Sum of the buffered increments that no server has confirmed yet.")
	replicasRepaired = NewCounter("replicas_repaired_total",
		"Repairs of single keys on replicas, by result. done: started. dropped: rejected by the repair rate or because too many wait, "+
			"or given up after repeated failures.",
		"result")
	tombstones = NewCounter("tombstones_total",
		"Tombstones on replicas, by event and by the command that caused it: delete, add, repair, other. A tombstone marks a key on "+
			"which a command is working. made: stored. left: sent after a set that timed out. met: found in place of a value. taken: "+
			"found and replaced by a value. replaced: overlooked by an append or touch, and replaced by a new tombstone. disturbed: gone "+
			"before its command removed it.",
		"event", "by")
	deleteRounds = NewCounter("delete_rounds_total",
		"Deletes of replicated keys that placed tombstones, by the number of rounds. A delete needs another round if a tombstone was "+
			"disturbed. 3 is the maximum, and includes deletes that were given up.",
		"rounds")
)

// Totals returns how often engines have closed clients, rejected values, and so on.
func (s *Snapshot) Totals() []Figure {
	list := []Figure{
		{clientsClosed, "idle", "closed_idle", s.IdleClosed},
		{clientsClosed, "unfinished", "closed_unfinished", s.UnfinishedClosed},
		{nil, "", "closed_login", s.LoginsLate},
		{clientsClosed, "login", "", s.LoginsLate + s.LoginsClosed},
		{loginsFailed, "", "logins_failed", s.LoginsFailed},
		{clientsClosed, "output", "closed_output", s.OutputClosed},
		{clientsClosed, "memory", "closed_memory", s.MemoryClosed},
		{clientsClosed, "unread", "closed_unread", s.UnreadClosed},
		{clientsClosed, "ended", "closed_ended", s.EndedClosed},
		{clientsClosed, "cut_off", "closed_in_value", s.CutOff},
		{valuesRefused, "", "refused_memory", s.NoMemory},
		{valuesOverLimit, "", "refused_value", s.TooLarge},
		{largeWaits, "memory", "large_waits_memory", s.WaitedForMemory},
		{largeWaits, "server", "large_waits_server", s.WaitedForServer},
		{countersMade, "", "counters_made", s.CountersMade},
		{desyncs, "", "aborted_in_doubt", s.Desyncs},
		{replyFaults, "", "", s.ReplyFaults},
		{wakeups, "", "", s.Wakeups},
		{loopReads, "", "", s.Reads},
		{loopWrites, "", "", s.Writes},
		{bufferIncrements, "", "", s.Buffer.Increments},
		{bufferFlushes, "", "", s.Buffer.Flushes},
		{bufferFlushed, "", "", s.Buffer.Flushed},
		{bufferKeys, "", "", s.BufferKeys},
		{bufferPending, "", "", float64(s.BufferPending)},
		{replicasRepaired, "done", "", s.Repairs},
		{replicasRepaired, "dropped", "", s.RepairsDropped},
	}
	for why, n := range s.Buffer.Lost {
		list = append(list, Figure{bufferLost, LostCount(why).String(), "", n})
	}
	for i, n := range s.DeleteRounds {
		list = append(list, Figure{deleteRounds, strconv.Itoa(i + 1), "", n})
	}
	return list
}

// Figures returns the numbers of the tombstones with one kind of event.
func (m *Marks) Figures(event TombstoneEvent) (list []Figure) {
	for user, n := range m[event] {
		list = append(list, Figure{tombstones, TombstoneUser(user).String(), "", n})
	}
	return list
}

// Metrics of each server, by name and address.
var (
	serverUp = PerServer.Gauge("server_up",
		"1 if no loop considers the server down, otherwise 0. Absent until the server has replied or failed.")
	serverVersion = PerServer.Gauge("server_version_info",
		"Always 1. The label version is the version that the server reported last. Absent until the server has reported one.",
		"version")
	serverConnections = PerServer.Gauge("server_connections",
		"Open connections to the server, except those in ringside_server_zombie_connections.")
	serverZombies = PerServer.Gauge("server_zombie_connections",
		"Replaced connections to the server that stay open only for late replies.")
	serverQueue = PerServer.Gauge("server_queue_depth",
		"Requests in the queues of the server's connections. They are not sent yet, or have no complete reply.")
	serverRequests = PerServer.Counter("server_requests_total",
		"Requests queued on a connection to the server. Includes the instance's own requests, such as repairs, but not late deletes.")
	serverFailed = PerServer.Counter("server_requests_failed_total",
		"Client requests queued on a connection to the server that got no reply. Commands that need several requests, such as those "+
			"on replicas, are not counted.")
	serverTimedOut = PerServer.Counter("server_requests_timed_out_total",
		"The part of ringside_server_requests_failed_total that got no reply in time.")
	serverUndone = PerServer.Counter("server_late_deletes_total",
		"Late deletes sent to the server, one for each failed write that it may still run. A replicated key can get a tombstone "+
			"instead.")
	serverUndoLost = PerServer.Counter("server_late_deletes_lost_total",
		"Late deletes that got no reply. A stale value can remain on the server.")
	serverRefused = PerServer.Counter("server_requests_refused_total",
		"Requests to the server that were rejected before they were sent, by reason. down: the server is down. queue_full: its queue "+
			"is full. memory: limits.memory is reached. ordered: an operator has drained the server or taken it down.",
		"reason")
	serverDuration = PerServer.Histogram("server_request_duration_seconds",
		"Time from queueing a request on a connection to the server to the complete reply, in seconds.").short()
	serverDials = PerServer.Counter("server_dials_total",
		"Attempts to connect to the server.")
	serverClosed = PerServer.Counter("server_connections_closed_total",
		"Connections that the server closed or that broke, by reason. lost: with requests in flight. idle: without requests in flight.",
		"reason")
	serverDead = PerServer.Counter("server_connections_dead_total",
		"Idle connections to the server that no longer worked and were replaced, by how this was detected. ping: no reply to a "+
			"keepalive ping. request: no reply to the first request after a quiet period. Absent until a dead connection was found.",
		"found_by")
	serverResent = PerServer.Counter("server_reads_resent_total",
		"Plain reads sent again on a new connection because their connection was dead. Absent until a dead connection was found.")
	serverOutages = PerServer.Counter("server_outages_total",
		"Times that a loop began to consider the server down. Each loop counts for itself.")
	serverReceived = PerServer.Counter("server_received_bytes_total",
		"Bytes received from the server.")
	serverSent = PerServer.Counter("server_sent_bytes_total",
		"Bytes sent to the server.")
)

// up returns 1 if no loop considers the server down, and 0 otherwise.
func (t *ServerSnapshot) up() int { return 1 - min(t.Down, 1) }

// Figures returns the numbers of a server.
func (t *ServerSnapshot) Figures() []Figure {
	dead, resent := serverDead, serverResent
	if t.DeadByPing+t.DeadByRequest == 0 { // most servers have no dead connections, and the metrics of 200 servers must stay below 1 MB
		dead, resent = nil, nil
	}
	up, version := serverUp, serverVersion
	if !t.Known && t.Down == 0 {
		up = nil
	}
	if t.Version == "" {
		version = nil
	}
	return []Figure{
		{up, "", "", t.up()},
		{version, t.Version, "", 1},
		{serverConnections, "", "connections", t.Conns},
		{serverQueue, "", "waiting", t.Waiting},
		{serverRequests, "", "requests", t.Requests},
		{serverFailed, "", "failed", t.Failed},
		{serverTimedOut, "", "timed_out", t.TimedOut},
		{nil, "", "timeouts_in_a_row", t.Timeouts},
		{nil, "", "server_errors", t.Errors},
		{serverRefused, "down", "refused", t.Refused},
		{serverRefused, "queue_full", "queue_full", t.QueueFull},
		{serverRefused, "memory", "shed", t.Shed},
		{serverUndone, "", "undone", t.LateDeletes},
		{serverUndoLost, "", "undo_lost", t.LateDeletesLost},
		{serverZombies, "", "zombies", t.Lingering},
		{serverRefused, "ordered", "ordered", t.Overridden},
		{serverDials, "", "dials", t.Dials},
		{serverClosed, "lost", "lost", t.Lost},
		{serverClosed, "idle", "closed_idle", t.ClosedIdle},
		{dead, "ping", "dead_by_ping", t.DeadByPing},
		{dead, "request", "dead_by_request", t.DeadByRequest},
		{resent, "", "reads_resent", t.ReadsResent},
		{serverOutages, "", "went_down", t.WentDown},
		{serverReceived, "", "bytes_read", t.BytesIn},
		{serverSent, "", "bytes_written", t.BytesOut},
		{serverDuration, "", "latency_", &t.Latency},
	}
}

// Metrics of each server of a pool that moves keys or has replicas.
var (
	failoverPhase = PerMember.Gauge("failover_phase",
		"Phase of the server in the pool: 0 IN, 1 LEAVING, 2 OUT, 3 RETURN, 4 WARM, 5 SETTLE. Absent for pools that neither move keys "+
			"nor keep replicas.")
	failoverSuspect = PerMember.Gauge("failover_suspect",
		"1 while this instance gets no replies from the server, otherwise 0. Without replicas, reads of its keys miss and writes fail "+
			"until it replies or is ejected.")
	failoverOutages = PerMember.Counter("failover_outages_total",
		"Ejections of the server from the pool, by any instance, since the view record was created.")
	failoverLease = PerMember.Gauge("failover_lease_seconds",
		"Time until the lease from the last successful ping of the server expires, in seconds. Negative if it has expired.")
	failoverChanges = NewCounter("failover_changes_total",
		"State changes of the server that this instance has seen, by new state: up, suspect, or a phase. If the label server is "+
			"empty, the pool changed its state: closed, fail-open, gone, back, kept, other-servers, other-settings, suspect-only, resizing, resized, outdated, apart or alike.",
		"pool", "server", "to")
)

// Figures returns the numbers of a server in its pool.
func (m *PhaseSnapshot) Figures() []Figure {
	return []Figure{
		{failoverPhase, "", "", int(m.Phase)},
		{failoverOutages, "", "outages:" + m.Pool, uint64(m.Outages())},
		{failoverSuspect, "", "", m.Suspect},
		{failoverLease, "", "", m.Lease.Seconds()},
	}
}

// Figures returns how often the keeper has made the decision e. The other labels of its metric are
// the pool and the server.
func (e *PhaseEvents) Figures() []Figure { return []Figure{{failoverChanges, e.To, "", e.Count}} }
