package admin

// This file has the metrics of routes with a guard, and of routes with tags.

import "ringside/proxy/stats"

// Metrics of routes with a guard. Each has the name of the route as a label.
var (
	guardRefused = counter("guard_refused_total",
		"Sets rejected because they came too late, by reason. ex: another value was stored since the miss. nf: the key was deleted, "+
			"or the lease expired. void: the set could not be matched to a miss.",
		"route", "reason")
	guardWaiting = perRoute.gauge("guard_waiting",
		"Gets that are waiting for another client's rebuild.")
	guardMisses = perRoute.gauge("guard_misses",
		"Misses that are waiting for their set.")
	guardLease = perRoute.gauge("guard_lease_seconds",
		"Lease learned from slow rebuilds, in seconds. It applies if it is longer than the configured lease. 0: no lease was learned.")
	guardWaitTime = perRoute.histogram("guard_wait_seconds",
		"Time that gets waited for another client's rebuild, in seconds.")
	guardRebuildTime = perRoute.histogram("guard_rebuild_seconds",
		"Time from the get that was granted a lease to the set of its client, in seconds.")
)

// guardEvents has the metric for each kind of event on a route with a guard.
var guardEvents = map[stats.GuardEvent]*metric{
	stats.GuardLeaseGranted: perRoute.counter("guard_leases_total",
		"Gets that were granted a lease: they are answered with a miss, so their clients rebuild the value."),
	stats.GuardFill: perRoute.counter("guard_fills_total",
		"Sets of lease holders that were stored."),
	stats.GuardWait: perRoute.counter("guard_waits_total",
		"Gets that waited while another client rebuilt the value."),
	stats.GuardSaved: perRoute.counter("guard_saved_total",
		"Waiting gets that received a value, so their clients did not rebuild it. Gets of replicated keys are not counted."),
	stats.GuardLate: perRoute.counter("guard_late_total",
		"Waiting gets that timed out."),
	stats.GuardStale: perRoute.counter("guard_stale_served_total",
		"Stale values returned while another client rebuilds the value."),
	stats.GuardEarly: perRoute.counter("guard_early_total",
		"The part of ringside_guard_leases_total that was granted a lease before the value expired."),
	stats.GuardLeaseCanceled: perRoute.counter("guard_leases_canceled_total",
		"Leases canceled because their holder disconnected, or because a tag may have been invalidated since the miss."),
	stats.GuardLeaseExpired: perRoute.counter("guard_leases_expired_total",
		"Leases canceled because their holder did not store a value within the lease. The next get is granted a new one."),
	stats.GuardPoll: perRoute.counter("guard_polls_total",
		"Requests to servers on behalf of waiting gets."),
	stats.GuardForgotten: perRoute.counter("guard_forgotten_total",
		"Misses dropped because limits.guard_misses was reached. Their sets are handled as ordinary sets."),
	stats.GuardNeverFilled: perRoute.counter("guard_never_filled_total",
		"Gets that did not wait because clients never fill their key."),
	stats.GuardExtraRequest: perRoute.counter("guard_extra_requests_total",
		"Additional requests to servers that only the guard needs."),
	stats.GuardWrite: perRoute.counter("guard_writes_total",
		"Commands other than reads that the guard handled."),
	stats.GuardOff: perRoute.counter("guard_off_total",
		"Commands without protection by the guard because their server has no meta commands or no cas."),
}

func (out *output) guard(g *stats.GuardStats) {
	for e, m := range guardEvents {
		out.count(m, g.Counted(e), g.Route)
	}
	out.count(guardRefused, g.Counted(stats.GuardExists), g.Route, "ex")
	out.count(guardRefused, g.Counted(stats.GuardGone), g.Route, "nf")
	out.count(guardRefused, g.Counted(stats.GuardVoid), g.Route, "void")
	out.set(guardWaiting, float64(g.Waiting.Load()), g.Route)
	out.set(guardMisses, float64(g.Misses.Load()), g.Route)
	out.set(guardLease, g.Lease(0).Seconds(), g.Route)
	times := g.Snapshot()
	out.histogram(guardWaitTime, &times.Waited, 0, g.Route)
	out.histogram(guardRebuildTime, &times.Rebuilt, 0, g.Route)
}

// Metrics of tags. Those for one route have its name as a label.
var (
	tagKeys = perRoute.gauge("tags_learned_keys",
		"Keys for which the instance remembers tags that clients named.")
	tagInvalidations = histogram("tags_invalidation_seconds",
		"Time from the start of an invalidation to the reply of the last server, in seconds.")
	tagErrors = counter("tags_invalidation_errors_total",
		"Invalidations that at least one server did not confirm.")
	tagForeign = counter("tags_invalidation_foreign_total",
		"Invalidations while other instances had a different server list for a pool. They may not have reached all servers of these "+
			"instances.")
)

// tagEvents has the metric for each kind of event on a route with tags.
var tagEvents = map[stats.TagEvent]*metric{
	stats.TagHit: perRoute.counter("tags_hits_total",
		"Values with tags that were found and valid, because none of their tags was invalidated."),
	stats.TagInvalid: perRoute.counter("tags_invalid_total",
		"Values that were found but not valid. A tag was invalidated, or a tag that the key must have was missing."),
	stats.TagBroken: perRoute.counter("tags_broken_total",
		"Values whose header could not be parsed. Any value other than 0 usually means that a client stores such values without Ringside."),
	stats.TagLateSet: perRoute.counter("tags_late_sets_total",
		"Sets not stored because one of their tags may have been invalidated since the miss."),
	stats.TagSecondRound: perRoute.counter("tags_second_round_total",
		"Values found with tags that were not requested together with them, so that a second round trip was needed."),
	stats.TagTooMany: perRoute.counter("tags_too_many_total",
		"Storage commands rejected because they have more tags than limits.tags_per_value."),
}

func (out *output) tags(list []*stats.TagStats, said *stats.InvalidationCounts) {
	for _, t := range list {
		for e, m := range tagEvents {
			out.count(m, t.Counted(e), t.Route)
		}
		out.set(tagKeys, float64(t.Remembered()), t.Route)
	}
	if len(list) > 0 {
		out.histogram(tagInvalidations, &said.Taken, 0)
		out.count(tagErrors, said.Bad)
		out.count(tagForeign, said.Foreign)
	}
}
