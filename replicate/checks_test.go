package replicate

// Checks that every history of a rule must pass.

// checkDrops checks that a follower's value is removed only if the follower refused the
// value that was to replace it, or if the primary has no value for it and the item expires soon,
// or is stale. Any other empty source is no reason, because the follower may have the last copy.
// Nor is a value of the primary that expires soon. A value that a store has replaced, or left
// stale, is removed all the same.
func (x *explorer) checkDrops(r *Rule) {
	if r.class != leads || r.copy.then != closing || r.binds() {
		return
	}
	var refused Mask
	shown := pending              // what the last Fetch from the primary has shown
	lead := Authority(x.replicas) // it may have been repaired before
	for _, e := range r.asks[:r.n] {
		had := r.asks[e.guard]
		switch m := Mask(1) << e.replica; {
		case e.step == Fetch && int(e.replica) == lead:
			shown = e.kind
		case e.step == Fill && e.kind.refused():
			refused |= m
		case e.step == Drop && int(e.replica) != lead && (had.step == Look || had.step == Fetch) && had.kind.compared() == Hit && refused&m == 0 &&
			!(shown == Stale || shown == Miss && (r.expires || had.kind != Hit)):
			x.fail(r, "replica %d loses what it had for nothing", e.replica)
		}
	}
}

// checkAbsence checks that with ReadThrough a key is reported as missing only if all
// replicas report that.
func (x *explorer) checkAbsence(r *Rule, s Settlement) {
	told := s.Verdict == Absent || s.Verdict == Answered && s.Answer >= 0 && r.absent(r.asks[s.Answer].kind)
	switch {
	case !r.through || !told, x.c.Op == Delete && !x.c.If, r.class == grants, x.c.Op == Debug, x.c.Vivify, x.c.Win:
		return
	}
	said, fetched := r.nothing()
	if unsaid := (r.in | r.warm | r.away) &^ said; unsaid != 0 && !fetched {
		x.fail(r, "no such key, and replicas %03b have not said so", unsaid)
	}
}

// nothing returns the replicas that reported no key, and whether any ask fetched a value. If
// one did, the key was there, and has been deleted since.
func (r *Rule) nothing() (said Mask, fetched bool) {
	for _, e := range r.asks[:r.n] {
		switch e.kind {
		case Miss, Expiring, Stale, Marked, NotFound, NotStored:
			said |= 1 << e.replica
		case Hit:
			fetched = fetched || e.step == Fetch
		}
	}
	return said, fetched
}

// checkOwnTombstones checks that a command that has ended leaves no tombstone of its own at a
// replica which has replied to all its requests: the tombstone would refuse the next add.
func (x *explorer) checkOwnTombstones(r *Rule) {
	if !r.IsDone() {
		return
	}
	asks := r.asks[:r.n]
	for i, e := range asks {
		if e.step != Claim || e.kind != Stored {
			continue
		}
		last := e // what the replica has said to the last request that depends on the tombstone
		for j, later := range asks {
			if own := int(later.guard) == j; j <= i || own { // an ask that is its own guard depends on the client's token
				continue
			}
			if later.replica == e.replica && later.step != Look && later.step != Fetch && later.step != Check && (int(later.guard) == i || asks[later.guard].step == RefreshTombstone) {
				last = later
			}
		}
		if last.step == Claim || last.step != Drop && (last.kind.refused() || last.kind == Unsent && last.step != Fill) { // a repair whose Fill was not sent is repeated
			x.fail(r, "the tombstone of ask %d is left at replica %d", i, e.replica)
		}
	}
}
