package admin

// This part of the package writes the counters of a running proxy in the format of Prometheus.
//
// Each scrape queries every loop once, between two of its wakeups. Nothing is kept from one
// scrape to the next, and a loop that does not answer fails the scrape.

// This file has the metrics that are not in package stats, which has those of the engines' counters.

import "ringside/proxy/stats"

// Metrics of commands, their keys, and the admin interface.
var (
	requests = stats.NewCounter("requests_total",
		"Commands answered, by outcome. A failed read counts as a failure, even if get_errors turns it into a miss.",
		"command", "outcome")
	requestDuration = stats.NewHistogram("request_duration_seconds",
		"Time from reading a command to its complete reply, in seconds. Excludes most commands that need no key lookup, such as "+
			"version and malformed commands.",
		"command")
	keys = stats.NewCounter("keys_total",
		"Keys requested by reads, by result. hit: found. miss: not found. failed: a server failed, so it is unknown whether the key "+
			"exists.",
		"result")
	routeRequests = stats.NewCounter("route_requests_total",
		"Commands answered, by route and outcome. A read with keys of several routes counts for the route of its first key. The label "+
			"route is the route's prefix, or the word match and its pattern. It is empty for all other keys. A series is absent until its "+
			"outcome occurs.",
		"listener", "route", "pool", "command", "outcome")
	routeKeys = stats.NewCounter("route_keys_total",
		"Keys requested by reads, by route and result: hit, miss, failed. Each key counts for its own route.",
		"listener", "route", "pool", "result")

	commandsRejected = stats.NewCounter("user_commands_rejected_total",
		"Commands of clients that users of the configuration does not allow. The user is an entry of users, or (not listed).",
		"user")
	adminConnectionsClosed = stats.NewCounter("admin_connections_closed_total",
		"New connections to the admin interface above its limit of 256, or without a file descriptor. Each one replaces a connection that waits for its "+
			"client, serves only health probes, or is closed.")
)

// Metrics of each server, by name and address.
var (
	serverOverride = stats.NewGauge("server_override",
		"1 while an operator's override keeps requests away from the server of this pool. The label order is drain or down. Absent "+
			"without an override.",
		"pool", "server", "address", "order")
)

// Metrics of each pool that moves keys or has replicas, and of each server of such a pool.
var (
	peersAll = stats.PerPool.Gauge("peers",
		"Instances that serve the pool, including this one. Absent for pools that neither move keys nor keep replicas, and while the "+
			"roll call is not running.")
	peersDiffering = stats.PerPool.Gauge("peers_differing",
		"Instances with other pools or routes than most instances. If there are more than 200, only a sample is compared. The "+
			"dashboard and ringside top show which ones differ.")
	peersPlacingDifferently = stats.PerPool.Gauge("peers_placing_differently",
		"Instances that place replicas on other servers than this one. Their servers, weights, replicas or replicas_on differ. Alert on "+
			"more than 0.")
	peersUnreadable = stats.PerPool.Counter("peers_unreadable_total",
		"Items and entries of the roll call that could not be parsed.")
)

// Metrics of hot keys, reasons of misses, and replicas.
var (
	hotKey = stats.NewGauge("hot_key_ratio",
		"Fraction of recent requests for the key at this rank, 0 to 1. Rank 1 is the most requested key. The dashboard and ringside "+
			"top show the keys. Absent until requests were sampled.",
		"rank")
	hotKeyOff = stats.NewGauge("hot_key_ratio_error",
		"Possible error of ringside_hot_key_ratio, upwards and downwards.",
		"rank")
	hotLooks = stats.NewGauge("hot_key_one_in",
		"One in this many requests is sampled to find hot keys.")
	missReasons = stats.NewCounter("miss_reasons_total",
		"Misses of sampled keys, by route and reason. unsure: the reason is not known. never: the key was not set while it was "+
			"observed. expired: its lifetime ended. deleted: a client deleted it. evicted: its server evicts values, and there is no "+
			"other reason. flushed: its server was flushed. out: its server is or was ejected. moved: a reload moved it. invalidated: one "+
			"of its tags was invalidated. A series is absent until its reason occurs.",
		"route", "reason")
	missFills = stats.PerRoute.Counter("rebuilds_total",
		"Sets of sampled keys that followed a miss of the key within a minute, by route.")
	missSeconds = stats.PerRoute.Counter("rebuilds_seconds_total",
		"Sum of the times from a miss to its set, in seconds, for the sets in ringside_rebuilds_total. This is the time that the "+
			"application needs to rebuild values.")
	missQuantile = stats.NewGauge("rebuild_seconds",
		"Time from a miss to its set, in seconds: percentiles of the last 128 sets on the route. Absent before the first one.",
		"route", "percentile")
	missSampled = stats.NewGauge("miss_reasons_sampled_ratio",
		"Fraction of the keys that are sampled to find the reasons of misses, 0 to 1. Absent with admin.misses: off.")
)

// Metrics of wrong or missing replies, and metrics of the servers in the current table.
var (
	poolServer = stats.NewGauge("pool_server",
		"Always 1, for each server of each pool of the current configuration. The labels have its name and weight in that pool.",
		"pool", "server", "address", "weight")
	poolShared = stats.PerPool.Gauge("pool_servers_shared",
		"Servers of the pool that only one of two instances ejects, or that both eject through different pools. A server that rejoins "+
			"is flushed, including data of the other pool. Alert on more than 0.")
)

// Metrics of each source of servers.
var (
	discoverySuccess = stats.NewGauge("discovery_success",
		"1 if the last answer of the source is in force. 0 if its lookup failed, or if its answer is held because of max_change or max_move.",
		"pool", "source")
	discoveryServers = stats.NewGauge("discovery_servers",
		"Servers of the source that are in force. 0 if they are not known yet.",
		"pool", "source")
	discoveryLookups = stats.NewCounter("discovery_lookups_total",
		"Lookups of the source since the start, by result. success: the answer is in force. failure: the lookup failed, or its answer "+
			"was unusable. held: the answer changes more than max_change or max_move.",
		"pool", "source", "result")
	discoveryTime = stats.NewGauge("discovery_last_answer_timestamp_seconds",
		"Time of the last usable answer of the source, in seconds since the Unix epoch. Absent if there was none.",
		"pool", "source")
)

// Metrics of the instance and its configuration.
var (
	configSuccess = stats.NewGauge("config_reload_success",
		"1 if the configuration that was read last is in use. 0 if it was rejected, and an earlier one is in use.")
	configTime = stats.NewGauge("config_last_reload_timestamp_seconds",
		"Time when a configuration was read last, accepted or rejected, in seconds since the Unix epoch.")
	configReloads = stats.NewCounter("config_reloads_total",
		"Reloads since the start, by result: success, failure.",
		"result")
	configGeneration = stats.NewGauge("config_generation",
		"Number of the configuration in use. The configuration at the start has the number 1.")
	certificateExpiry = stats.NewGauge("listener_certificate_expiry_seconds",
		"When the first certificate of a listener with TLS expires, in Unix seconds. The listener admin is the admin interface.",
		"listener")
	poolCertificateExpiry = stats.PerPool.Gauge("pool_certificate_expiry_seconds",
		"When the first certificate that Ringside shows to the servers of the pool expires, in Unix seconds. Pools without a certificate have no series.")
	buildInfo = stats.NewGauge("build_info",
		"Always 1. The labels have the versions of Ringside and of Go.",
		"version", "goversion")
)
