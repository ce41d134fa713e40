package admin

// The metrics of guarded routes, and of those with tags.

import "ringside/proxy/stats"

// Guarded routes, by label.
var (
	guardRefused = counter("guard_refused_total",
		"Sets not stored because they came too late, by reason: ex (another value is there), nf (the key was deleted, or its lease has ended), void (nothing is known of the key since the miss).",
		"route", "reason")
	guardWaiting = perRoute.gauge("guard_waiting",
		"Gets held now.")
	guardTickets = perRoute.gauge("guard_tickets",
		"Misses now whose sets are awaited.")
	guardLease = perRoute.gauge("guard_lease_seconds",
		"What the lease has grown to by rebuilds that took longer; 0: it has not.")
	guardWaitTime = perRoute.histogram("guard_wait_seconds",
		"Time that gets were held.")
	guardRebuildTime = perRoute.histogram("guard_rebuild_seconds",
		"Time from a win to its set.")
)

// guardEvents has the counters of a guarded route.
var guardEvents = map[stats.GuardEvent]*metric{
	stats.GuardWin: perRoute.counter("guard_wins_total",
		"Gets that were told to rebuild: a miss, or a value that is due or deleted."),
	stats.GuardFill: perRoute.counter("guard_fills_total",
		"Sets of those that were stored."),
	stats.GuardWait: perRoute.counter("guard_waits_total",
		"Gets held while another client rebuilds."),
	stats.GuardSaved: perRoute.counter("guard_saved_total",
		"Held gets that got a value: rebuilds saved."),
	stats.GuardLate: perRoute.counter("guard_late_total",
		"Held gets whose wait was over."),
	stats.GuardStale: perRoute.counter("guard_stale_served_total",
		"Old values served while another client rebuilds."),
	stats.GuardEarly: perRoute.counter("guard_early_total",
		"The part of the wins that came before the value expired."),
	stats.GuardGivenBack: perRoute.counter("guard_given_back_total",
		"Wins given back because their client went away."),
	stats.GuardRearmed: perRoute.counter("guard_rearmed_total",
		"Wins given to another client because theirs did not come back within a lease."),
	stats.GuardPoll: perRoute.counter("guard_polls_total",
		"Requests to servers for those who wait."),
	stats.GuardForgotten: perRoute.counter("guard_forgotten_total",
		"Misses forgotten because of limits.tickets; their sets are ordinary ones."),
	stats.GuardBarren: perRoute.counter("guard_barren_total",
		"Gets not held because nobody fills their key."),
	stats.GuardLook: perRoute.counter("guard_looks_total",
		"Requests to servers that only the guard needs."),
	stats.GuardWrite: perRoute.counter("guard_writes_total",
		"Commands that are no reads."),
	stats.GuardOff: perRoute.counter("guard_off_total",
		"Commands to servers without meta commands or cas, which have no guard."),
}

func (out *output) guard(g *stats.Guard) {
	for e, m := range guardEvents {
		out.count(m, g.Counted(e), g.Route)
	}
	out.count(guardRefused, g.Counted(stats.GuardExists), g.Route, "ex")
	out.count(guardRefused, g.Counted(stats.GuardGone), g.Route, "nf")
	out.count(guardRefused, g.Counted(stats.GuardVoid), g.Route, "void")
	out.set(guardWaiting, float64(g.Waiting.Load()), g.Route)
	out.set(guardTickets, float64(g.Misses.Load()), g.Route)
	out.set(guardLease, g.Lease(0).Seconds(), g.Route)
	times := g.Snapshot()
	out.histogram(guardWaitTime, &times.Waited, 0, g.Route)
	out.histogram(guardRebuildTime, &times.Rebuilt, 0, g.Route)
}

// Routes with tags, by label.
var (
	tagKeys = perRoute.gauge("tags_remembered",
		"Keys of which the tags are remembered that clients have named.")
	tagInvalidations = histogram("tags_invalidation_seconds",
		"Time from an invalidation to the last server's answer.")
	tagErrors = counter("tags_invalidation_errors_total",
		"Invalidations that not all servers have answered.")
	tagForeign = counter("tags_invalidation_foreign_total",
		"Invalidations while other Ringsides had another list of a pool's servers: they may not have reached all that those know.")
)

// tagEvents has the counters of a route with tags.
var tagEvents = map[stats.TagEvent]*metric{
	stats.TagHit: perRoute.counter("tags_hits_total",
		"Values with tags that were found, and all their tags were the same still."),
	stats.TagInvalid: perRoute.counter("tags_invalid_total",
		"Values that were found, and a tag had changed since, or one was missing that the key must have."),
	stats.TagBroken: perRoute.counter("tags_broken_total",
		"Values whose head could not be read; anything but 0: somebody else writes them, or reads the wrong ones."),
	stats.TagUnordered: perRoute.counter("tags_unordered_total",
		"Sets not stored because a tag that they name may have changed since their miss."),
	stats.TagSecondRound: perRoute.counter("tags_second_round_total",
		"Values with tags that were not asked for with them."),
	stats.TagTooMany: perRoute.counter("tags_too_many_total",
		"Sets refused because they name more tags than limits.tags_per_value."),
}

func (out *output) tags(list []*stats.Tags, said *stats.InvalidationCounts) {
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
