package replicate

// This file has the commands that run at all replicas alike (set, flush_all, delete), and the
// add, which all replicas must grant.

// bury begins a round of a delete. The replicas in m get a tombstone instead of their item; the
// replicas in held have a tombstone of this delete already. When all have one, a fresh tombstone
// replaces each.
//
// If each tombstone was unchanged until then, there was a moment at which no replica had a value.
// Each earlier claim of a copy was lost at that moment, and no new claim could be made. A copy
// that has replaced one of the tombstones since then loses its value to the fresh tombstone. So
// any value that a copy stores later was fetched after that moment.
//
// If one tombstone was gone, the round is repeated: the command that removed the tombstone may
// have restored a value that was fetched before. The other tombstones stay in place, and an add
// needs a grant from all replicas. So a later round does not bury a lock that was granted since.
func (r *Rule) bury(m, held Mask) {
	r.rounds++
	r.held, r.intact = held, 0
	r.stage = burying
	for i := range m.each {
		r.ask(i, Look)
		if !r.conditional() {
			r.guard[i] = uint8(r.ask(i, PlaceTombstone))
		}
	}
}

// conditional reports whether the command replaces at each replica only the item that a look has
// seen at this replica.
func (r *Rule) conditional() bool {
	return r.c.Conditional && (r.class == all && r.c.Op == Set || r.c.Op == Delete)
}

// approach continues a conditional command at one replica, after the outcome of the given ask.
// The first request (Look) reads the item. The next request replaces the item, on the condition
// that its cas is unchanged. If there was no item, a Claim first stores a tombstone. A set then
// replaces the tombstone, and a delete leaves it. approach returns true if it has made another
// ask.
//
// If another instance has written in between, the replica gets another look. After maxRounds
// looks it is asked without a condition: see Late writes in the package doc. A set that has
// failed for its client makes no more asks, because a look may show a newer value by now.
func (r *Rule) approach(ask int) bool {
	if r.settled {
		return false
	}
	e := r.asks[ask]
	i, set := int(e.replica), r.c.Op == Set
	replace, anyway := RefreshTombstone, PlaceTombstone
	if set {
		replace, anyway = Store, Forward
	}
	switch k := e.kind; {
	case e.step == Look && (k == Hit || k == Marked), e.step == Claim && k == Stored && set:
		r.askFrom(i, replace, uint8(ask))
	case e.step == Look && k == Miss:
		r.ask(i, Claim)
	case k != Exists && k != NotFound && (k != NotStored || e.step != Claim):
		return false
	case r.races < maxRounds:
		r.races++
		r.ask(i, Look)
	default:
		r.ask(i, anyway)
	}
	return true
}

// Rounds returns how many rounds of tombstones a delete has begun.
func (r *Rule) Rounds() int { return int(r.rounds) }

func (r *Rule) handleTombstones(ask int, m Mask) {
	e := r.asks[ask]
	conditional := r.stage == burying && r.conditional()
	if e.step == Look && e.kind == Hit {
		r.hits |= m
	}
	if conditional && r.approach(ask) {
		return
	}
	switch k := e.kind; {
	case e.step == Look && !conditional:
	case r.stage == burying && k == Stored:
		r.held |= m
		r.guard[e.replica] = uint8(ask)
	case r.stage == verifying && k == Stored:
		r.intact |= m
	case r.stage == unearthing && (k == Deleted || r.intact&m != 0): // the replica has no item now, or only this command's tombstone, which expires
		r.stored |= m
	case r.stage == burying || k.failed() || k.refused():
		r.dirty |= m
		if r.stage == verifying && (k.refused() || k == Unsent) {
			r.guard[e.replica] = e.guard // the earlier tombstone is still there
		}
	}
	if r.open > 0 {
		return
	}
	disturbed := r.held &^ r.intact &^ r.dirty
	again := r.stage == verifying && disturbed != 0 && r.dirty == 0 && r.rounds < maxRounds && r.roomToBury() // if a replica has failed, a delete can't succeed any more
	lead := Mask(1) << r.lead
	stale := r.c.Stale && (r.held|r.dirty)&lead == 0 // the primary keeps its item, which is marked as stale, so it gets no tombstone
	switch {
	case r.stage == unearthing:
		r.buried()
	case r.stage == burying && stale && (r.held|lead).Len() >= int(r.need):
		r.stage = leading
		if r.makesStale() {
			r.main = uint8(r.ask(int(r.lead), Forward))
		} else {
			r.main = uint8(r.askFrom(int(r.lead), Store, r.guard[r.lead]))
		}
	case r.stage == burying && stale:
		r.giveBack()
	case r.stage == burying && r.held.Has(int(r.lead)) && r.held.Len() >= int(r.need):
		r.verify()
	case again && stale:
		r.stored = 0
		r.see()
	case again:
		r.bury(r.held, 0)
	case r.stage == verifying:
		r.dirty |= disturbed
		r.unearth()
	default:
		r.unearth()
	}
}

// roomToBury reports whether enough asks are left for another round of a delete.
func (r *Rule) roomToBury() bool {
	races := 0
	if r.conditional() {
		races = 2 * maxRounds
	}
	return int(r.n)+2+races+4*r.held.Len() <= maxAsks
}

// verify replaces each tombstone of the command by a fresh one, after all replicas have got one.
func (r *Rule) verify() {
	r.stage = verifying
	for i := range r.held.each {
		r.guard[i] = uint8(r.askFrom(i, RefreshTombstone, r.guard[i]))
	}
}

// unearth removes the tombstones of a delete, also if the delete will not be acknowledged. If
// another command has replaced a tombstone, the item of that command stays.
func (r *Rule) unearth() {
	r.stage = unearthing
	for i := range r.held.each {
		if r.asks[r.guard[i]].kind == Stored {
			r.askFrom(i, Drop, r.guard[i])
		}
	}
	if r.open == 0 {
		r.buried()
	}
}

func (r *Rule) buried() {
	r.stage = done
	r.stored &^= r.dirty
	r.clean |= r.stored & r.stale
	switch {
	case !r.stored.Has(int(r.lead)) || r.stored.Len() < int(r.need):
		if r.held == 0 {
			r.dirty = 0 // no replica has run the delete, so none has missed it
		}
		r.settle(Unmet, -1)
	case r.makesStale():
		r.settle(Answered, int(r.reply))
	case r.hits&(r.in|r.warm) != 0: // a value at a replica that is not read does not count for the reply
		r.settle(Done, -1)
	case r.through && r.in == 0 && r.hits&r.stale != 0: // a dirty replica had a value, and another instance may have written it after this replica missed a write
		r.settle(Unmet, -1)
	default:
		r.settle(Absent, -1)
	}
}

// handleSpread records the outcome of a command that is sent to all replicas, at one of them (m).
func (r *Rule) handleSpread(ask int, m Mask) {
	if r.conditional() && r.approach(ask) {
		return
	}
	k, d := r.asks[ask].kind, r.asks[ask].step
	switch {
	case r.accepts(k) && d != Claim:
		r.stored |= m
		if r.c.Op != Flush {
			r.clean |= r.stale & m
		}
	case k == InDoubt && d == Store && r.stale&m == 0: // a Store that runs late can only replace the item that the look before it has found
		if int(m.first()) == int(r.lead) {
			r.from = r.lead
			r.overwrite |= r.takes &^ m
		} else {
			r.dirty |= m
			r.overwrite |= m
		}
	case k == InDoubt:
		r.dirty |= m
		if r.c.Op == Set && d == Forward {
			r.undo |= m
		}
	default:
		r.dirty |= m
	}
	r.spreadSettle()
	if r.open == 0 {
		r.spreadEnd()
	}
}

// accepts reports whether k is the outcome of a set or flush that the replica has carried out.
func (r *Rule) accepts(k Kind) bool {
	if r.c.Op == Set {
		return k == Stored
	}
	return k == OK
}

func (r *Rule) spreadSettle() {
	if r.settled {
		return
	}
	waiting, shown, lead := 0, -1, -1
	for i, e := range r.asks[:r.n] {
		if int8(e.replica) == r.lead {
			lead = i
		}
		switch {
		case e.kind == pending:
			waiting++
		case e.kind.refused() && shown < 0:
			shown = i
		}
	}
	switch k := r.asks[lead].kind; {
	case k.failed():
		r.settle(Unmet, shown)
	case k != pending && !r.accepts(k):
		r.settle(Answered, lead) // the primary has refused the command, and the client gets its reply
	case r.stored.Len()+waiting < int(r.need):
		r.settle(Unmet, shown)
	case k == pending || r.stored.Len() < int(r.need):
	case r.tardy != 0 && waiting == 0 && r.stored&^r.tardy != 0: // some replicas replied late, so the replicas that replied early may have lost the value: see Rule.review
		r.reply = int8(lead)
	default:
		r.settle(Answered, lead)
	}
}

// spreadEnd runs after a set, when all replicas have replied. If the primary has refused the set,
// spreadEnd removes the new value from the other replicas. If other replicas have refused the
// set, it removes their old value. In each case it also removes the tombstones of the set that
// its value has not replaced. A conditional set removes only what it has seen or stored itself.
func (r *Rule) spreadEnd() {
	if !r.settled {
		r.review()
		return
	}
	r.stage = done
	if r.c.Op != Set {
		return
	}
	var gone, refused, shown Mask
	r.held = 0
	for i, e := range r.asks[:r.n] {
		m := Mask(1) << e.replica
		if e.kind.refused() {
			refused |= m
		}
		switch {
		case e.step == Claim && e.kind == Stored:
			r.held |= m
			shown |= m
			r.guard[e.replica] = uint8(i)
		case e.step == Store && (e.kind.refused() || e.kind == Unsent): // the item is still the one that was seen before
			shown |= m
			r.guard[e.replica] = e.guard
		case e.step == Store:
			r.held &^= m
			shown |= m
			r.guard[e.replica] = uint8(i)
		case e.step == Forward: // its reply shows no cas
			shown &^= m
		}
	}
	switch {
	case refused.Has(int(r.lead)):
		r.dirty &^= refused | r.held
		gone = r.stored
		if r.overwrite != 0 {
			r.from = r.lead
		}
	case r.stored == 0:
		switch {
		case r.undo.Has(int(r.lead)):
			r.undo |= r.overwrite // the write is in doubt at the primary, and the primary may have lost the key, so repairs do not copy from it
		case r.overwrite != 0:
			r.from = r.lead
		}
		r.dirty = r.undo // replicas that certainly have not run the write are not dirty, because no other replica has it either
	default:
		gone = refused
	}
	// The replicas in gone may keep neither the new value nor their old one.
	r.stored &^= gone
	r.clean &^= gone
	r.dirty |= gone
	r.stage = sweeping
	r.askAll(gone&^shown, Remove)
	r.drops(gone&shown | r.held)
}

// review checks that replicas that replied early to a set still have the value. Since their
// reply, the value may have been evicted, or replaced by a repair with the old value of another
// replica.
func (r *Rule) review() {
	r.stage = reviewing
	for i, e := range r.asks[:r.n] {
		if m := Mask(1) << e.replica; (e.step == Forward || e.step == Store) && e.kind == Stored && (r.stored&^r.tardy)&m != 0 {
			r.askFrom(int(e.replica), Check, uint8(i))
		}
	}
}

// handleReview records the outcome of a check after a set. A replica without an item has no
// tombstone of a repair either: its value was deleted, evicted, or has expired. The next repair
// copies the value that the other replicas have at that time. If there is a tombstone of another
// command, the rule waits once for the end of that command.
func (r *Rule) handleReview(ask int, m Mask) {
	switch e := r.asks[ask]; {
	case e.kind == Hit:
	case e.kind == Miss:
		r.stored &^= m
		r.without |= m
	case e.kind == Marked && r.waited&m == 0:
		r.waited |= m
		r.askFrom(int(e.replica), Wait, e.guard)
	case e.step == Wait:
		r.askFrom(int(e.replica), Check, e.guard)
	default:
		r.unsure = true
	}
	switch {
	case r.open > 0:
		return
	case r.unsure:
		r.settle(Unmet, -1)
	default:
		r.settle(Answered, int(r.reply))
	}
	r.spreadEnd()
}

func (r *Rule) handleSweep(m Mask, k Kind) {
	if k == Deleted || k == NotFound {
		r.dirty &^= m
		if r.stored != 0 || r.held&m == 0 { // otherwise the replica only had a tombstone of this set, and no other replica has more
			r.without |= m
		}
	}
}

// grant asks the next replica after the index `after` to grant an add: it stores a tombstone
// (claim) if the replica has no item. Each replica that is read must grant the add, even if the
// policy requires fewer: it may be the only replica that another instance asks.
//
// The primary is asked first, then the others in the key's order. The primary also gets the value
// first, and only if its claim is still there. Then no replica had the tombstone of a delete at
// the moment after the last claim. A delete that buries the added value has started after that.
//
// A value at a replica that is not read does not refuse the add. A tombstone at such a replica
// refuses it.
func (r *Rule) grant(after int8) {
	next := Mask(1) << r.lead
	if after >= 0 {
		next = r.takes &^ next
	}
	if after >= 0 && after != r.lead {
		next &^= 1<<(after+1) - 1
	}
	if next == 0 {
		r.storeFirst()
		return
	}
	r.stage = granting
	i := next.first()
	r.guard[i] = uint8(r.ask(i, Claim))
	if !r.votes(i) {
		r.looked = uint8(r.ask(i, Look))
	}
}

// votes reports whether a value at replica i refuses an add, because the replica is read.
func (r *Rule) votes(i int) bool { return (r.in | r.warm | 1<<r.lead).Has(i) }

func (r *Rule) handleGrant(m Mask) {
	if r.open > 0 {
		return
	}
	i := m.first()
	ask := int(r.guard[i])
	switch k := r.asks[ask].kind; {
	case k == Stored:
		r.held |= m
		r.grant(int8(i))
	case r.resumed && k == NotStored && (r.votes(i) || r.asks[r.looked].kind != Hit):
		r.without |= m // the add's own value, a copy of it, or an item of a command in progress
		r.grant(int8(i))
	case !r.votes(i) && k == NotStored && r.asks[r.looked].kind == Marked:
		r.settle(Answered, ask)
		r.revoke()
	case !r.votes(i):
		if k == NotStored && r.asks[r.looked].kind == Hit {
			r.hits |= m
			r.guard[i] = r.looked
		}
		r.grant(int8(i))
	case k == NotStored && r.held == 0:
		r.end(Answered, ask)
	case k == NotStored:
		// The replica has an item, so it refuses the add. The replicas that have granted the add
		// get a copy of that item, or no copy if the item is a tombstone.
		r.reply = int8(ask)
		r.copy = copying{then: refusing, from: m, sources: m, guarded: r.held, made: r.held}
		r.fetch()
	default:
		shown := -1
		if k.refused() {
			shown = ask
		}
		if int8(i) == r.lead && shown >= 0 {
			r.settle(Answered, ask)
		} else {
			r.settle(Unmet, shown)
		}
		r.revoke()
	}
}

// storeFirst stores the value of an add at the primary, after all replicas have granted the add.
// If the primary's claim is gone, the primary refuses the value, and no client has read it. A
// replica that is not read and could not be asked misses the value.
func (r *Rule) storeFirst() {
	lead := Mask(1) << r.lead
	if !r.resumed {
		lead = 0
	}
	if (r.held | r.hits | r.without | lead).Len() < int(r.need) {
		r.revoke()
		return
	}
	r.dirty |= r.takes &^ r.held &^ r.hits &^ r.without &^ lead
	r.stage = storing
	if r.resumed {
		r.main = uint8(r.askFrom(int(r.lead), Check, r.guard[r.lead]))
		return
	}
	r.main = uint8(r.store(int(r.lead)))
}

func (r *Rule) storeRest() {
	for i := range ((r.held | r.hits) &^ (1 << r.lead)).each {
		r.store(i)
	}
}

// store sends the client's value to replica i, where the value replaces the item that an earlier
// ask has found or stored.
func (r *Rule) store(i int) int {
	ask := r.askFrom(i, Store, r.guard[i])
	r.guard[i] = uint8(ask)
	return ask
}

// handleStore records the outcome of a store of an add, or of the check of the primary in an add that
// goes on (Continue). If the add is not acknowledged, the claims and the values that it has stored
// since are removed. Each is removed by its own cas, so the items of other commands stay.
func (r *Rule) handleStore(ask int) {
	if k := r.asks[ask].kind; ask == int(r.main) && (k == Stored || r.resumed && k == Hit) {
		r.stored |= 1 << r.lead
		r.storeRest()
	}
	if r.open > 0 {
		return
	}
	answer, shown := int(r.guard[r.lead]), -1 // the primary has replied to the ask `answer`
	var doubt Mask
	for i := int(r.since); i < int(r.n); i++ {
		e := r.asks[i]
		m := Mask(1) << e.replica
		switch k := e.kind; {
		case e.step != Store:
		case k == Stored:
			r.stored |= m
			r.clean |= m & r.stale
		case k == Exists || k == NotFound:
			r.without |= m // another command has replaced the tombstone, so the replica gets a copy
			r.held &^= m
		case k == Unsent || k.refused():
			r.dirty |= m
			r.guard[e.replica] = e.guard
			if k.refused() && shown < 0 {
				shown = i
			}
		default:
			r.dirty |= m
			r.held &^= m
			doubt |= m
		}
	}
	switch k := r.asks[r.main].kind; {
	case r.stored.Has(int(r.lead)) && (r.stored|r.without).Len() >= int(r.need):
		r.end(Answered, answer)
		return
	case r.resumed: // revoke settles it
	case k == Exists || k == NotFound:
		r.settle(Absent, -1)
	case k.refused():
		r.settle(Answered, answer)
	default:
		r.settle(Unmet, shown)
	}
	if doubt.Has(int(r.lead)) { // the primary's reply is missing: repairs copy what the primary has
		r.from = r.lead
		r.needsCopy = r.takes &^ (1 << r.lead)
	}
	r.overwrite = (doubt | r.stored&^r.held) &^ (1 << r.lead) // these replicas may have the value of the add, which the primary does not have, so a repair replaces it
	r.dirty, r.stored, r.without, r.clean = 0, 0, 0, 0
	r.revoke()
}

// revoke removes the tombstones and values that an add has stored at the replicas in held. The add
// is not acknowledged: it has failed, unless it is settled. The value of an add that has gone on (Continue) stays at the primary, and
// repairs copy it.
func (r *Rule) revoke() {
	r.abandon()
	if r.resumed {
		r.from, r.needsCopy = r.lead, r.takes&^(1<<r.lead)
	}
	r.drops(r.held)
}

// Continue goes on with an add that was stored, if the replicas have changed their states since
// the add began, so that its success does not count yet. The present states are in replicas. The
// value stays where it is, because a client may have read it. The other replicas must grant the
// add, as before. If the primary still has the value after that, no delete of the key has begun
// before. So the value is stored in place of the new tombstones, and the add has succeeded.
// Otherwise the add fails: another command has removed or replaced the value, and it must not be
// stored once more.
//
// Continue returns Answered if the rule has new asks, and Held if it can't go on in these states:
// the caller tries again when they change. It returns Unmet if it can never go on: the command is
// no stored add, or the primary is not a replica that has stored it. With Held and Unmet the rule
// is unchanged.
func (r *Rule) Continue(p Policy, replicas []Replica) Verdict {
	lead := Authority(replicas)
	if r.class != grants || !r.IsDone() || r.verdict != Answered || !r.stored.Has(lead) || int(r.n)+3*len(replicas)+1 > maxAsks {
		return Unmet
	}
	next := *r
	next.groups, next.effect = groups{}, effect{from: -1}
	next.held, next.hits, next.said = 0, 0, said{answer: -1}
	next.lead, next.resumed, next.since = int8(lead), true, r.n
	_, _, _, _, count := next.sortOut(replicas)
	next.need = int8(need(p.Ack, r.c, count))
	if next.away.Has(lead) || next.stale.Has(lead) || next.takes.Len() < int(next.need) {
		return Held
	}
	next.grant(int8(lead))
	*r = next
	return Answered
}
