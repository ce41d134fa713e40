package metrics

// The metrics of guarded routes, and of those with tags.

import "ringside/proxy/stats"

// Guarded routes, by label.
var (
	guardWin = counter("guard_wins_total",
		"Gets that were told to rebuild: a miss, or a value that is due or deleted.",
		"route")
	guardFill = counter("guard_fills_total",
		"Sets of those that were stored.",
		"route")
	guardWait = counter("guard_waits_total",
		"Gets held while another client rebuilds.",
		"route")
	guardSaved = counter("guard_saved_total",
		"Held gets that got a value: rebuilds saved.",
		"route")
	guardLate = counter("guard_late_total",
		"Held gets whose wait was over.",
		"route")
	guardStale = counter("guard_stale_served_total",
		"Old values served while another client rebuilds.",
		"route")
	guardEarly = counter("guard_early_total",
		"The part of the wins that came before the value expired.",
		"route")
	guardGivenBack = counter("guard_given_back_total",
		"Wins given back because their client went away.",
		"route")
	guardRearmed = counter("guard_rearmed_total",
		"Wins given to another client because theirs did not come back within a lease.",
		"route")
	guardPoll = counter("guard_polls_total",
		"Requests to servers for those who wait.",
		"route")
	guardAmbiguous = counter("guard_ambiguous_total",
		"Sets of which it was not sure whose they are; many: set clients in the guard of the route.",
		"route")
	guardForgotten = counter("guard_forgotten_total",
		"Misses forgotten because of limits.tickets; their sets are ordinary ones.",
		"route")
	guardBarren = counter("guard_barren_total",
		"Gets not held because nobody fills their key.",
		"route")
	guardLook = counter("guard_looks_total",
		"Requests to servers that only the guard needs.",
		"route")
	guardWrite = counter("guard_writes_total",
		"Commands that are no reads.",
		"route")
	guardOff = counter("guard_off_total",
		"Commands to servers without meta commands or cas, which have no guard.",
		"route")
	guardRefused = counter("guard_refused_total",
		"Sets not stored because they came too late, by reason: ex (another value is there), nf (the key was deleted, or its lease has ended), void (nothing is known of the key since the miss).",
		"route", "reason")
	guardWaiting = gauge("guard_waiting",
		"Gets held now.",
		"route")
	guardTickets = gauge("guard_tickets",
		"Misses now whose sets are awaited.",
		"route")
	guardLease = gauge("guard_lease_seconds",
		"What the lease has grown to by rebuilds that took longer; 0: it has not.",
		"route")
	guardWaitTime = histogram("guard_wait_seconds",
		"Time that gets were held.",
		"route")
	guardRebuildTime = histogram("guard_rebuild_seconds",
		"Time from a win to its set.",
		"route")
)

// guardEvents are the counters of a guarded route.
var guardEvents = map[stats.GuardEvent]*metric{
	stats.GuardWin:       guardWin,
	stats.GuardFill:      guardFill,
	stats.GuardWait:      guardWait,
	stats.GuardSaved:     guardSaved,
	stats.GuardLate:      guardLate,
	stats.GuardStale:     guardStale,
	stats.GuardEarly:     guardEarly,
	stats.GuardGivenBack: guardGivenBack,
	stats.GuardRearmed:   guardRearmed,
	stats.GuardPoll:      guardPoll,
	stats.GuardAmbiguous: guardAmbiguous,
	stats.GuardForgotten: guardForgotten,
	stats.GuardBarren:    guardBarren,
	stats.GuardLook:      guardLook,
	stats.GuardWrite:     guardWrite,
	stats.GuardOff:       guardOff,
}

func (out *output) guard(g *stats.Guard) {
	for e, m := range guardEvents {
		out.count(m, g.Counted(e), g.Route)
	}
	out.count(guardRefused, g.Counted(stats.GuardExists), g.Route, "ex")
	out.count(guardRefused, g.Counted(stats.GuardGone), g.Route, "nf")
	out.count(guardRefused, g.Counted(stats.GuardVoid), g.Route, "void")
	out.set(guardWaiting, float64(g.Waiting.Load()), g.Route)
	out.set(guardTickets, float64(g.Tickets.Load()), g.Route)
	out.set(guardLease, g.Lease(0).Seconds(), g.Route)
	times := g.Snapshot()
	out.histogram(guardWaitTime, &times.Waited, 0, g.Route)
	out.histogram(guardRebuildTime, &times.Rebuilt, 0, g.Route)
}

// Routes with tags, by label.
var (
	tagHits = counter("tags_hits_total",
		"Values with tags that were found, and all their tags were the same still.",
		"route")
	tagInvalid = counter("tags_invalid_total",
		"Values that were found, and a tag had changed since, or one was missing that the key must have.",
		"route")
	tagBroken = counter("tags_broken_total",
		"Values whose head could not be read; anything but 0: somebody else writes them, or reads the wrong ones.",
		"route")
	tagUnordered = counter("tags_unordered_total",
		"Sets not stored because a tag that they name may have changed since their miss.",
		"route")
	tagSecondRound = counter("tags_second_round_total",
		"Values with tags that were not asked for with them.",
		"route")
	tagTooMany = counter("tags_too_many_total",
		"Sets refused because they name more tags than limits.tags_per_value.",
		"route")
	tagKeys = gauge("tags_remembered",
		"Keys of which the tags are remembered that clients have named.",
		"route")
	tagInvalidations = histogram("tags_invalidation_seconds",
		"Time from an invalidation to the last server's answer.")
	tagErrors = counter("tags_invalidation_errors_total",
		"Invalidations that not all servers have answered.")
	tagForeign = counter("tags_invalidation_foreign_total",
		"Invalidations while other Ringsides had another list of a pool's servers: they may not have reached all that those know.")
)

// tagEvents are the counters of a route with tags.
var tagEvents = map[stats.TagEvent]*metric{
	stats.TagHit:         tagHits,
	stats.TagInvalid:     tagInvalid,
	stats.TagBroken:      tagBroken,
	stats.TagUnordered:   tagUnordered,
	stats.TagSecondRound: tagSecondRound,
	stats.TagTooMany:     tagTooMany,
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
