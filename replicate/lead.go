package replicate

// This file has the commands that run at the primary first and are then repeated by the
// followers.

// prepare starts a command at the primary. A dirty primary is repaired first.
func (r *Rule) prepare() {
	if !r.stale.Has(int(r.lead)) || r.c.Op == Debug {
		r.start()
		return
	}
	if sources := r.in | r.warm; sources != 0 {
		r.copyThen(starting, 1<<r.lead, sources, true)
		return
	}
	if r.class == grants {
		// Another instance may have granted a lock at the primary since it missed a write. The
		// lock looks the same as an outdated value. It is better if no client gets the lock until
		// it expires than if two clients have it.
		r.start()
		return
	}
	if r.through { // another instance may have written the value at the dirty primary, so it may be the only copy
		r.abandon()
		return
	}
	r.stage = emptying
	r.ask(int(r.lead), Remove)
}

func (r *Rule) handleEmpty(m Mask, k Kind) {
	if k != Deleted && k != NotFound {
		r.abandon()
		return
	}
	r.clean |= m
	r.start()
}

// abandon ends a command that can't be carried out and has changed nothing.
func (r *Rule) abandon() { r.end(Unmet, -1) }

// end settles a command that needs no further replies.
func (r *Rule) end(v Verdict, answer int) {
	r.stage = done
	r.settle(v, answer)
}

func (r *Rule) start() {
	switch {
	case r.class == grants && r.through && r.in == 0 && r.stale&^(1<<r.lead) != 0: // an add: the lock of another instance may be at a dirty replica, and no replica has all its values
		r.abandon()
	case r.class == grants:
		r.grant(-1)
	case r.c.Vivify && (r.warm.Has(int(r.lead)) || r.through && !r.c.Win) && r.others() != 0:
		r.peeked = true
		r.stage = peeking
		r.ask(int(r.lead), Fetch)
	default:
		r.forward()
	}
}

// forward sends the command to the primary. If the reply would not show that the command met a
// tombstone, a look follows the command in the same write. A replace, and a command that leaves
// the item stale, must not change a tombstone. For these commands the look is sent first.
func (r *Rule) forward() {
	r.stage, r.looked, r.again = leading, 0, 0
	switch {
	case !r.c.If && (r.c.Op == Replace || r.c.Op == Delete), r.makesStale() && r.rest() != 0:
		r.see()
		return
	case r.c.Op == Delete && !r.c.Stale && r.takes.Len() > 1:
		r.main = uint8(r.askFrom(int(r.lead), RefreshTombstone, r.n)) // the client's token is its guard
		return
	case r.c.Op == Debug:
		r.looked = uint8(r.ask(int(r.lead), Look)) + 1
	}
	r.main = uint8(r.ask(int(r.lead), Forward))
	switch r.c.Op {
	case Append, Prepend:
		r.looked = uint8(r.askFrom(int(r.lead), Check, r.main)) + 1
	case Touch:
		r.looked = uint8(r.ask(int(r.lead), Look)) + 1
	}
	if r.joins() || r.counts() {
		for i := range (r.rest() &^ r.stale).each {
			r.preview(i)
		}
	}
}

// preview asks follower i for the size or number that the command would produce at this follower.
func (r *Rule) preview(i int) { r.guard[i] = uint8(r.ask(i, Preview)) }

// rest returns the followers, which repeat what the primary has done.
func (r *Rule) rest() Mask { return r.takes &^ (1 << r.lead) &^ r.dirty &^ r.failedLeads }

// others returns the replicas that may have a key that the primary does not have.
func (r *Rule) others() Mask { return (r.in | r.warm) &^ (1 << r.lead) &^ r.failedLeads }

// see sends a look to the primary: at the item that a replace, or a command that leaves the item
// stale, would change.
func (r *Rule) see() {
	r.stage = leading
	r.main = uint8(r.ask(int(r.lead), Look))
}

func (r *Rule) handleLead(ask int, o Outcome) {
	if r.stage == remarking {
		r.elsewhere()
		return
	}
	switch e := r.asks[ask]; {
	case e.step == Preview:
		r.foreseen[e.replica] = o.Value
		r.late = r.late || o.Late && r.joins()
	case ask == int(r.main) && !r.joins() || ask == int(r.looked)-1 && r.joins():
		r.number = o.Value
	}
	if failed := r.asks[r.main].kind.failed(); r.open > 0 && !(failed && (r.joins() || r.counts())) {
		return // wait for the other replies, unless the primary has failed: then the previews of an append or incr are not needed
	}
	m := Mask(1) << r.lead
	main, look := r.asks[r.main], Hit
	if r.looked > 0 {
		look = r.asks[r.looked-1].kind
	}
	k := main.kind
	switch {
	case main.step == Look:
		r.leadSeen(k, m)
		return
	case look == Marked || k == Marked && !r.extends():
		r.met()
		return
	case r.looked == 0 && (k == Marked || k == ClientError && r.counts()):
		r.looked = uint8(r.ask(int(r.lead), Look)) + 1
		return
	case look == Hit && r.rounds < maxRounds && r.roomToLook() && (k == Marked || k == ClientError && r.counts()):
		r.rounds++ // the item may have been a tombstone when the command ran at the primary, so the command has changed nothing and runs again
		r.forward()
		return
	case k == Marked || look == Miss && k == ClientError && r.counts(): // the item was a tombstone when the command ran at the primary, and the look after the command has found nothing
		r.marked = true
		r.elsewhere()
		return
	}
	r.reply = int8(r.main)
	switch {
	case k == ClientError && r.counts() && look != Hit: // an incr or decr was rejected, and the item may have been a tombstone
		r.abandon()
	case r.succeeded(k) && r.joins() && look != Hit: // it is unknown whether the append changed a value or a tombstone
		r.leadFailed(m, InDoubt)
	case main.step == RefreshTombstone && k == Stored:
		r.hits, r.guard[r.lead] = m, r.main
		r.bury(r.takes&^m, m)
	case r.c.Op == Delete && k == Deleted && main.step == Forward && r.takes&^m != 0: // an md with a cas token and the flag I: the token matched, so the followers must lose the key
		r.hits = m
		r.see()
	case r.succeeded(k) && r.held != 0: // the item at the primary is stale now, and the followers have tombstones
		r.hits, r.stored = r.hits|m, m
		r.verify()
	case r.succeeded(k):
		r.stored |= m
		if r.extends() {
			r.needsCopy |= r.failedLeads
		}
		r.follow()
	case main.step == Store && k != ClientError && k != ServerError && !k.failed(): // another write has changed the primary's item between the look and the store
		r.reply = -1 // the client must not get the reply to the request with a cas, which its command does not have
		if r.rounds++; r.rounds >= maxRounds || !r.roomToBury() {
			r.giveBack()
			return
		}
		if r.c.Op == Delete {
			r.see()
		} else {
			r.forward()
		}
	case k.failed():
		r.leadFailed(m, k)
	case r.held != 0 && r.absent(k): // the primary had the item at the look and has lost it since, and the followers have tombstones instead of their values
		r.giveBack()
	case r.held != 0:
		r.settle(Answered, int(r.reply))
		r.giveBack()
	case r.confirm && r.looks == 0 && r.c.Op != Debug && !r.c.Vivify && r.absent(k):
		r.lookElsewhere()
	case r.known && r.absent(k):
		r.elsewhere()
	default:
		r.end(Answered, int(r.reply))
	}
}

// giveBack ends a command that the primary has not carried out. The client gets an error, unless the command is
// settled. If the followers have tombstones
// of the command, these are removed, and the followers get a copy of what the primary has.
func (r *Rule) giveBack() {
	if r.end(Unmet, -1); r.held != 0 {
		r.without |= r.held
		r.from = r.lead
		r.unearth()
	}
}

// leadSeen handles the outcome k of the primary's look, for a replace or a command that leaves
// the item stale. If a delete with the flag I finds nothing, the values of the followers are
// removed as by any delete.
//
// If such a command finds an item, the item becomes stale when all followers have their
// tombstones. The primary needs no second look, unlike the followers. If another instance copies
// a value to the primary after that, it has read the primary's cas before it fetched from the
// other replicas, and they had tombstones. If the primary loses the item, the other replicas have
// no value that could be restored.
//
// An ms with the flags C and I runs as an ordinary cas if its token matches the item. It also
// runs as a cas, which the server refuses, if its token is newer than the item.
func (r *Rule) leadSeen(k Kind, m Mask) {
	switch rest := r.takes &^ m &^ r.dirty; {
	case r.held == 0 && k == Hit && r.makesStale() && (r.number != 0 || rest == 0):
		r.main = uint8(r.ask(int(r.lead), Forward))
	case k == Hit && (r.c.Op == Delete || r.makesStale() && r.number != 2) && rest != 0:
		r.guard[r.lead] = r.main
		r.bury(rest, 0)
	case r.makesStale() && r.held != 0: // the item is gone since the look, or the server was restarted and assigns other cas values
		r.giveBack()
	case k == Hit:
		r.main = uint8(r.askFrom(int(r.lead), Store, r.main))
	case r.c.Op == Delete && (k == Miss || k == Marked):
		r.bury(r.takes&^r.dirty, 0)
	case k == Marked:
		r.met()
	case k == Miss && r.confirm && (r.looks == 0 || r.known):
		r.elsewhere()
	case k == Miss:
		r.end(Absent, -1)
	default:
		if r.c.Op == Delete && r.c.If { // the client's token matched at the primary, but the followers still have the value
			r.dirty |= rest &^ r.held
		}
		r.giveBack()
	}
}

// joins, counts and extends report whether the command adds bytes to the item, changes its
// number, or sets its TTL.
func (r *Rule) joins() bool  { return r.c.Op == Append || r.c.Op == Prepend }
func (r *Rule) counts() bool { return r.c.Op == Incr || r.c.Op == Decr }
func (r *Rule) extends() bool {
	return r.c.Op == Touch || r.c.Op == Gat || r.c.Op == Gats
}

// met handles a tombstone at the primary. A tombstone does not show whether the key exists. If
// the command has changed the tombstone, a fresh one replaces it, and the owner of the old
// tombstone starts again. The tombstone is never just removed.
func (r *Rule) met() {
	r.marked = true
	if r.looked > 0 && r.c.Op != Debug && !r.counts() {
		r.stage = remarking
		r.askFrom(int(r.lead), RefreshTombstone, r.looked-1)
		return
	}
	r.elsewhere()
}

// elsewhere looks for the key at the other replicas, because the primary has no value. If the
// command is a me, grants a rebuild or creates the key, the client gets a miss instead. Another
// replica may have the key, although a write of another instance prevented the copy to the
// primary. The other replicas are then asked again, and no miss is reported.
func (r *Rule) elsewhere() {
	asks := r.c.Op != Debug && !r.c.Vivify && !r.c.Win
	switch {
	case asks && (r.looks == 0 || r.known && r.looks < maxLooks && r.roomToLook()):
		r.lookElsewhere()
	case asks && r.known && r.tooLarge():
		r.end(Answered, int(r.reply))
	case asks && r.known:
		r.abandon()
	default:
		r.end(Absent, -1)
	}
}

// tooLarge reports whether the primary had the value when it replied NOT_STORED to an append.
// memcached refuses an append with this reply if the item would become too large.
func (r *Rule) tooLarge() bool {
	return r.joins() && r.asks[r.main].kind == NotStored && r.copy.copied.Has(int(r.lead)) && !r.copy.hit
}

// maxLooks is how often the other replicas are asked for a key that the primary does not have.
const maxLooks = 2

// roomToLook reports whether enough asks are left for one more look at the other replicas, a copy
// of the item that it finds, and the whole command after that.
func (r *Rule) roomToLook() bool { return int(r.n)+12+11*r.takes.Len() <= maxAsks }

// succeeded reports whether k means that the command was carried out, so that the followers
// must repeat it.
func (r *Rule) succeeded(k Kind) bool {
	switch r.c.Op {
	case Get, Gets, Gat, Gats:
		return k == Hit
	case Incr, Decr:
		return k == Number
	case Touch:
		return k == Touched || k == Hit
	case Delete:
		return k == Deleted
	default:
		return k == Stored
	}
}

// absent reports whether k means that the replica has no such key.
func (r *Rule) absent(k Kind) bool {
	switch r.c.Op {
	case Add:
		return false
	case Replace, Append, Prepend:
		return k == NotStored || k == NotFound
	default:
		return k == Miss || k == NotFound
	}
}

// leadFailed handles a primary that did not reply, with the outcome k. A read is sent to another
// replica, which then counts as the primary of this read. A write ends here.
func (r *Rule) leadFailed(m Mask, k Kind) {
	if readsAtOne(r.c) && (k == Unsent || !r.c.Win && !r.c.Vivify) {
		r.failedLeads |= m
		if to := r.in &^ r.failedLeads; to != 0 {
			r.lead = int8(to.first())
			r.forward()
			return
		}
	}
	if k == InDoubt {
		switch {
		case readsAtOne(r.c), r.c.Op == Touch:
		default:
			// It is unknown whether the command has run at the primary, so the other replicas are
			// repaired from the primary.
			r.overwrite |= r.takes &^ m
			r.from = r.lead
		}
	}
	r.giveBack()
}

func (r *Rule) handlePeek(k Kind) {
	switch k {
	case Hit:
		r.forward()
	case Miss:
		r.lookElsewhere()
	case Marked:
		r.met()
	default:
		r.abandon()
	}
}

// lookElsewhere asks the other replicas for a key that the primary does not have. For a replica
// that can't be asked, or has failed before, it stays unknown whether it has the key.
func (r *Rule) lookElsewhere() {
	r.looks++
	r.known = false
	r.silent = r.away | r.failedLeads
	r.at, r.last = 0, 0
	r.queue(r.others()&r.in, 0)
	r.queue(r.others()&r.warm, 0)
	r.stage = looking
	r.lookNext()
}

func (r *Rule) lookNext() {
	if r.at == r.last {
		r.nowhere()
		return
	}
	r.ask(int(r.order[r.at]), Fetch)
	r.at++
}

func (r *Rule) handleLook(ask int) {
	switch e := r.asks[ask]; e.kind {
	case Hit:
		r.known = true
		r.copyThen(asking, 1<<r.lead, 1<<e.replica, false)
		return
	case Miss, Marked, Expiring, Stale:
	default:
		r.silent |= 1 << e.replica
	}
	r.lookNext()
}

// nowhere handles the case that no replica that replies has the key. A primary that is
// incomplete, or has a tombstone, does not alone prove that the key does not exist. With
// ReadThrough the miss of the primary never proves that. See Rule.readNothing for a value at a
// dirty replica.
func (r *Rule) nowhere() {
	unasked := r.silent
	if r.through && r.in == 0 {
		unasked |= r.stale &^ (1 << r.lead)
	}
	switch {
	case unasked != 0 && (r.through || r.marked || r.warm.Has(int(r.lead))):
		r.abandon()
	case r.peeked:
		r.forward()
	case r.marked || r.reply < 0:
		r.end(Absent, -1)
	default:
		r.end(Answered, int(r.reply))
	}
}

// binds reports whether the followers get the primary's item by a guarded copy. With the client's
// request they could restore a key that another instance has deleted.
func (r *Rule) binds() bool { return !r.joins() && !r.counts() && !r.extends() }

// makesStale reports whether the command is an ms with the flags C and I: it stores a value as
// stale if its token is older than the item. A stale item is not copied, because the copy would
// look fresh. It is not looked at either, because memcached asks the first client that reads the
// item to rebuild it. So the followers only lose their items.
func (r *Rule) makesStale() bool { return r.c.Stale && r.c.Op == Cas }

func (r *Rule) follow() {
	rest := r.rest()
	if r.class == alone {
		rest = 0
	}
	r.stage = following
	r.differ = rest & r.stale
	if r.binds() {
		r.differ = rest
	}
	for i := range (rest &^ r.differ).each {
		if r.extends() {
			r.ask(i, Extend)
		} else {
			r.step(i)
		}
	}
	if r.open == 0 {
		r.followed()
	}
}

// step makes follower i repeat what the primary has done, if the result is the same and nothing
// has changed since the look at the follower. So a follower never has a value that the primary
// never had, even if the server runs the request late. If a follower differs, it gets a second
// look: the request of another instance may not have reached it yet.
//
// For a counter, the expected number does not prove that only this command is missing at the
// follower, because an incr and a decr of another instance cancel out. So after the look, the
// primary's item is fetched. If it still has the command's number, the follower gets this item.
func (r *Rule) step(i int) {
	m := Mask(1) << i
	switch seen := r.asks[r.guard[i]]; {
	case seen.kind.failed() || seen.kind.refused():
		r.dirty |= m
		r.overwrite |= m
	case seen.kind == Hit && r.foreseen[i] == r.number && r.counts():
		if r.ready == 0 || r.later < r.given { // one fetch of the primary's number is enough for all followers that are handled together
			r.later = uint8(r.ask(int(r.lead), Fetch))
		}
		r.ready |= m
	case seen.kind == Hit && r.foreseen[i] == r.number:
		r.askFrom(i, Join, r.guard[i])
	case r.again&m == 0:
		r.again |= m
		r.preview(i)
	default:
		r.differ |= m
	}
}

func (r *Rule) handleFollow(ask int, m Mask, o Outcome) {
	k, d := o.Kind, r.asks[ask].step
	r.late = r.late || o.Late && r.joins()
	if d == Fetch {
		r.noteExpiry(uint8(m.first()), o)
	}
	switch {
	case d == Fetch && ask != int(r.later): // a follower got its second look after this fetch of the primary's number, so a later fetch decides
	case d == Fetch && (k == Hit || k == Expiring) && o.Value == r.number:
		for i := range r.ready.each {
			r.fill(i, ask)
		}
		r.ready = 0
	case d == Fetch:
		r.differ |= r.ready
		r.ready = 0
	case int8(m.first()) == r.lead:
		r.late, r.unsure = false, r.unsure || k != Hit
	case d == RefreshTombstone:
	case d == Preview:
		r.foreseen[m.first()] = o.Value
		r.step(m.first())
	case d == Extend && (k.failed() || k.refused()):
		r.needsCopy |= m
	case d == Extend && k == Marked:
		r.differ |= m
		r.askFrom(m.first(), RefreshTombstone, uint8(ask))
	case k.failed(): // a Join or Fill without a reply may run late, so a repair must replace the follower's value
		r.dirty |= m
		r.overwrite |= m
	case k == Stored, k == Touched, k == Hit && d == Extend:
		r.stored |= m
	default:
		r.differ |= m
	}
	if r.open == 0 {
		r.followed()
	}
}

// followed continues when all followers have replied: the followers with another value get a
// copy.
func (r *Rule) followed() {
	switch {
	case r.late: // a follower's reply was late, so the primary may have lost the command's value meanwhile: a Check shows that
		r.askFrom(int(r.lead), Check, r.main)
	case r.differ != 0:
		r.copyThen(closing, r.differ, 1<<r.lead, !r.extends() || r.differ&r.stale != 0)
	default:
		r.finish()
	}
}

// finish settles a command that the primary has carried out. The client gets the primary's reply
// if enough replicas have stored the write.
func (r *Rule) finish() {
	if r.stored.Len() >= int(r.need) && !r.unsure {
		r.end(Answered, int(r.reply))
		return
	}
	r.abandon()
}
