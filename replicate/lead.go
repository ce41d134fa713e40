package replicate

// Commands that the authority decides and the rest follow.

// prepare repairs a dirty authority before it decides anything.
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
		// What another proxy has granted since looks the same as what was
		// missed. Better a lock that nobody has until it expires than two.
		r.start()
		return
	}
	if r.through { // another proxy may have written it since, and that would be the only copy
		r.abandon()
		return
	}
	r.stage = emptying
	r.ask(int(r.lead), Remove)
}

func (r *Rule) emptyTold(m Mask, k Kind) {
	if k != Deleted && k != NotFound {
		r.abandon()
		return
	}
	r.clean |= m
	r.start()
}

// abandon ends a command that has changed nothing.
func (r *Rule) abandon() {
	r.stage = done
	r.settle(Unmet, -1)
}

func (r *Rule) start() {
	switch {
	case r.class == grants && r.through && r.in == 0 && r.stale&^(1<<r.lead) != 0: // another proxy's lock may be there, and nobody else is filled
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

// forward asks the authority. Where the answer would not show that the command has met a
// mark, a look goes with it, in the same write. What must not change a mark, a replace or
// what leaves the item stale, looks first.
func (r *Rule) forward() {
	r.stage, r.looked, r.again = leading, 0, 0
	switch {
	case !r.c.If && (r.c.Op == Replace || r.c.Op == Delete), r.spoils() && r.rest() != 0:
		r.see()
		return
	case r.c.Op == Delete && !r.c.Stale && r.takes.Len() > 1:
		r.main = uint8(r.ask(int(r.lead), Swap))
		return
	case r.c.Op == Debug:
		r.looked = uint8(r.ask(int(r.lead), Look)) + 1
	}
	r.main = uint8(r.ask(int(r.lead), Forward))
	switch r.c.Op {
	case Append, Prepend:
		r.looked = uint8(r.askFrom(int(r.lead), Review, r.main)) + 1
	case Touch:
		r.looked = uint8(r.ask(int(r.lead), Look)) + 1
	}
	if r.joins() || r.counts() {
		for m := r.rest() &^ r.stale; m != 0; m &= m - 1 {
			r.preview(m.first())
		}
	}
}

// preview looks what the command would make of what a follower has.
func (r *Rule) preview(i int) { r.guard[i] = uint8(r.ask(i, Preview)) }

// rest are those who do what the authority has done.
func (r *Rule) rest() Mask { return r.takes &^ (1 << r.lead) &^ r.dirty &^ r.deaf }

// others are who may know what the authority doesn't.
func (r *Rule) others() Mask { return (r.in | r.warm) &^ (1 << r.lead) &^ r.deaf }

// see looks what a replace, or what leaves the item stale, is to be done to.
func (r *Rule) see() {
	r.stage = leading
	d := Look
	if r.spoils() {
		d = Weigh
	}
	r.main = uint8(r.ask(int(r.lead), d))
}

func (r *Rule) leadTold(ask int, o Outcome) {
	if r.stage == remarking {
		r.elsewhere()
		return
	}
	switch e := r.asks[ask]; {
	case e.deed == Preview:
		r.foreseen[e.member] = o.Value
		r.late = r.late || o.Late && r.joins()
	case ask == int(r.main) && !r.joins() || ask == int(r.looked)-1 && r.joins():
		r.number = o.Value
	}
	if failed := r.asks[r.main].kind.failed(); r.open > 0 && !(failed && (r.joins() || r.counts())) {
		return // if the authority has failed, what followers would make of it is not waited for
	}
	m := Mask(1) << r.lead
	main, look := r.asks[r.main], Hit
	if r.looked > 0 {
		look = r.asks[r.looked-1].kind
	}
	k := main.kind
	switch {
	case main.deed == Look || main.deed == Weigh:
		r.leadSeen(k, m)
		return
	case look == Marked || k == Marked && !r.extends():
		r.met()
		return
	case r.looked == 0 && (k == Marked || k == ClientError && r.counts()):
		r.looked = uint8(r.ask(int(r.lead), Look)) + 1
		return
	case look == Hit && r.rounds < maxRounds && r.roomToLook() && (k == Marked || k == ClientError && r.counts()):
		r.rounds++ // it may have been a mark then, and nothing was changed
		r.forward()
		return
	case k == Marked || look == Miss && k == ClientError && r.counts(): // it was a mark then, and is none any more
		r.marked = true
		r.elsewhere()
		return
	}
	r.reply = int8(r.main)
	switch {
	case k == ClientError && r.counts() && look != Hit: // nobody knows whether it met a mark
		r.abandon()
	case r.succeeded(k) && r.joins() && look != Hit: // who knows what it was appended to
		r.leadFailed(m, InDoubt)
	case main.deed == Swap && k == Stored:
		r.hits, r.guard[r.lead] = m, r.main
		r.bury(r.takes&^m, m)
	case r.c.Op == Delete && k == Deleted && main.deed == Forward && r.takes&^m != 0: // the token has fitted
		r.hits = m
		r.see()
	case r.succeeded(k) && r.held != 0: // it is stale, and the rest have marks
		r.hits, r.took = r.hits|m, m
		r.verify()
	case r.succeeded(k):
		r.took |= m
		if r.deed() == Extend {
			r.fix |= r.deaf
		}
		r.follow()
	case main.deed == Store && k != ClientError && k != ServerError && !k.failed(): // somebody came before
		if r.rounds++; r.rounds >= maxRounds || !r.roomToBury() {
			r.settle(Unmet, -1)
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
	case r.held != 0 && r.absent(k): // and was there, as it is not with the rest any more
		r.settle(Unmet, -1)
		r.giveBack()
	case r.held != 0:
		r.settle(Answered, int(r.reply))
		r.giveBack()
	case r.confirm && r.looks == 0 && r.c.Op != Debug && !r.c.Vivify && r.absent(k):
		r.look()
	case r.known && r.absent(k):
		r.elsewhere()
	default:
		r.stage = done
		r.settle(Answered, int(r.reply))
	}
}

// giveBack ends a command that the authority has not carried out. If it is one that
// leaves the item stale the rest have marks, and get what the authority has.
func (r *Rule) giveBack() {
	if r.stage = done; r.held != 0 {
		r.without |= r.held
		r.from = r.lead
		r.unearth()
	}
}

// leadSeen: a replace, or what leaves the item stale, has looked at what is there. Where a
// delete of that kind finds nothing, what others may have goes as by any delete.
//
// Where it finds something, that becomes stale when all others have their marks. It is
// not looked at again, as they are: it need not be. Who gives it another value behind that
// has looked at it before he has fetched what others had, and that are the marks; and if it
// is lost the others have nothing to bring back. What is stored under a token is not
// stale if that fits, so it goes as a cas then, and as one that is refused if it is none of
// an older item.
func (r *Rule) leadSeen(k Kind, m Mask) {
	switch rest := r.takes &^ m &^ r.dirty; {
	case r.held == 0 && (k == Exists || k == Hit && r.spoils() && (r.number == 1 || rest == 0)):
		r.main = uint8(r.ask(int(r.lead), Forward))
	case k == Hit && (r.c.Op == Delete || r.spoils()) && rest != 0:
		r.guard[r.lead] = r.main
		r.bury(rest, 0)
	case r.spoils() && r.held != 0: // it was stored, and is not there any more, or is as after a restart
		r.settle(Unmet, -1)
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
		r.stage = done
		r.settle(Absent, -1)
	case r.c.Op == Delete && r.c.If: // the token has fitted, and the rest don't know
		r.dirty |= rest &^ r.held
		r.settle(Unmet, -1)
		r.giveBack()
	default:
		r.settle(Unmet, -1)
		r.giveBack()
	}
}

// joins, counts and extends say whether the command adds bytes to what is there,
// whether it counts, and whether it lengthens the life of what it meets.
func (r *Rule) joins() bool  { return r.c.Op == Append || r.c.Op == Prepend }
func (r *Rule) counts() bool { return r.c.Op == Incr || r.c.Op == Decr }
func (r *Rule) extends() bool {
	return r.c.Op == Touch || r.c.Op == Gat || r.c.Op == Gats
}

// met: the authority has a mark, which says nothing. If the command has changed the mark,
// a fresh one takes its place, and it is never only removed: whoever has made it then
// begins again.
func (r *Rule) met() {
	r.marked = true
	if r.looked > 0 && r.c.Op != Debug && !r.counts() {
		r.stage = remarking
		r.askFrom(int(r.lead), Remark, r.looked-1)
		return
	}
	r.elsewhere()
}

// elsewhere: the authority knows nothing, so the others are asked. Nobody gets the
// right to fill what somebody is at work on. What another had, and somebody has kept
// from being copied to the authority, is not absent: it is looked for again.
func (r *Rule) elsewhere() {
	asks := r.c.Op != Debug && !r.c.Vivify && !r.c.Win
	switch {
	case asks && (r.looks == 0 || r.known && r.looks < maxLooks && r.roomToLook()):
		r.look()
	case asks && r.known && r.tooLarge():
		r.stage = done
		r.settle(Answered, int(r.reply))
	case asks && r.known:
		r.abandon()
	default:
		r.stage = done
		r.settle(Absent, -1)
	}
}

// tooLarge reports whether the authority had a value of its own before it answered an
// append as if it had none: so memcached refuses what gets too large.
func (r *Rule) tooLarge() bool {
	return r.joins() && r.asks[r.main].kind == NotStored && r.copy.copied.Has(int(r.lead)) && !r.copy.hit
}

// maxLooks is how often the others are asked for what the authority hasn't.
const maxLooks = 2

// roomToLook reports whether there are asks for looking once more, copying what is
// found, and all of the command behind that.
func (r *Rule) roomToLook() bool { return int(r.n)+12+11*r.takes.Len() <= maxAsks }

// succeeded reports whether k means that the command was carried out, so that
// the rest must follow.
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

// absent reports whether k means that the member has no such key.
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

// leadFailed: the authority gave no answer. A read goes to another member; its
// cas is that member's then. A write ends here.
func (r *Rule) leadFailed(m Mask, k Kind) {
	if readsAtOne(r.c) && (k == Unsent || !r.c.Win && !r.c.Vivify) {
		r.deaf |= m
		if to := r.in &^ r.deaf; to != 0 {
			r.lead = int8(to.first())
			r.forward()
			return
		}
	}
	if k == InDoubt {
		switch {
		case readsAtOne(r.c), r.c.Op == Touch:
		default:
			// It may count or it may not: the others become like the authority.
			r.overwrite |= r.takes &^ m
			r.from = r.lead
		}
	}
	r.settle(Unmet, -1)
	r.giveBack()
}

func (r *Rule) peekTold(k Kind) {
	switch k {
	case Hit:
		r.forward()
	case Miss:
		r.look()
	case Marked:
		r.met()
	default:
		r.abandon()
	}
}

// look asks the others for what the authority hasn't. Who can't be asked, or was
// and has failed, says nothing.
func (r *Rule) look() {
	r.looks++
	r.known = false
	r.silent = r.away | r.deaf
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

func (r *Rule) lookTold(ask int) {
	switch e := r.asks[ask]; e.kind {
	case Hit:
		r.known = true
		r.copyThen(asking, 1<<r.lead, 1<<e.member, false)
		return
	case Miss, Marked:
	default:
		r.silent |= 1 << e.member
	}
	r.lookNext()
}

// nowhere: nobody who answers has the key. An authority that is incomplete, or has
// a mark, can't decide alone that there is none; where misses are asked of all, none
// can. What a stale member has then counts as it does for a read: see readNothing.
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
		r.stage = done
		r.settle(Absent, -1)
	default:
		r.stage = done
		r.settle(Answered, int(r.reply))
	}
}

// deed is what the rest do when the authority has done the command.
func (r *Rule) deed() Deed {
	switch r.c.Op {
	case Append, Prepend:
		return Join
	case Incr, Decr:
		return Count
	case Touch, Gat, Gats:
		return Extend
	}
	return Put
}

// binds reports whether the rest get what the authority has stored by a guarded copy.
func (r *Rule) binds() bool { return r.c.Bound && r.deed() == Put || r.spoils() }

// spoils reports whether the command stores a value, and leaves it stale if its token is
// that of an older one. No copy is made of a stale item, which would look fresh, nor is it
// looked at: the first client that does is to rebuild it. The rest only lose what they have.
func (r *Rule) spoils() bool { return r.c.Stale && r.c.Op == Cas }

func (r *Rule) follow() {
	d := r.deed()
	rest := r.rest()
	if r.class == alone {
		rest = 0
	}
	r.stage = following
	if r.binds() { // a delete may be done before the rest would get it
		r.differ, rest = rest, 0
	}
	if d == Join || d == Count || d == Extend {
		r.differ = rest & r.stale
		rest &^= r.differ
	}
	for m := rest; m != 0; m &= m - 1 {
		switch i := m.first(); {
		case d != Join && d != Count:
			r.ask(i, d)
		default:
			r.step(i)
		}
	}
	if r.open == 0 {
		r.followed()
	}
}

// step lets a follower do what the authority has done, if that makes the same of
// it, and if nothing comes between: so it never has what the authority never had,
// even if it does it late. It may differ only because another proxy's step has yet to
// come, so it is looked at twice.
//
// That a counter comes to the same number does not say that only this count is
// missing: one up and one down by another proxy are none. So behind the look the authority
// is asked first whether it has come to another number since.
func (r *Rule) step(i int) {
	m := Mask(1) << i
	switch seen := r.asks[r.guard[i]]; {
	case seen.kind.failed() || seen.kind.refused():
		r.dirty |= m
		r.overwrite |= m
	case seen.kind == Hit && r.foreseen[i] == r.number && r.counts():
		if r.ready == 0 || r.later < r.given { // one for all steps that go together
			r.later = uint8(r.ask(int(r.lead), Fetch))
		}
		r.ready |= m
	case seen.kind == Hit && r.foreseen[i] == r.number:
		r.askFrom(i, r.deed(), r.guard[i])
	case r.again&m == 0:
		r.again |= m
		r.preview(i)
	default:
		r.differ |= m
	}
}

func (r *Rule) followTold(ask int, m Mask, o Outcome) {
	k, d := o.Kind, r.asks[ask].deed
	r.late = r.late || o.Late && r.joins()
	switch {
	case d == Fetch && ask != int(r.later): // another look came behind that
	case d == Fetch && k == Hit && o.Value == r.number:
		for ; r.ready != 0; r.ready &= r.ready - 1 {
			i := r.ready.first()
			r.askFrom(i, Count, r.guard[i])
		}
	case d == Fetch:
		r.differ |= r.ready
		r.ready = 0
	case int8(m.first()) == r.lead:
		r.late, r.unsure = false, r.unsure || k != Hit
	case d == Remark:
	case d == Preview:
		r.foreseen[m.first()] = o.Value
		r.step(m.first())
	case d == Extend && (k.failed() || k.refused()):
		r.fix |= m
	case d == Extend && k == Marked:
		r.differ |= m
		r.askFrom(m.first(), Remark, uint8(ask))
	case k.failed():
		r.dirty |= m
		switch {
		case k == InDoubt && d == Put:
			r.undo |= m
		case d == Join || d == Count: // nothing that was there goes for it
			r.overwrite |= m
		}
	case k == Stored && (d == Put || d == Join),
		k == Number && d == Count && o.Value == r.number,
		(k == Touched || k == Hit) && d == Extend:
		r.took |= m
		r.clean |= m & r.stale
	case d == Put:
		r.refuse |= m
	default:
		r.differ |= m
	}
	if r.open == 0 {
		r.followed()
	}
}

// followed: all have answered; now those that differ are made alike.
func (r *Rule) followed() {
	switch {
	case r.late: // an eviction, and a repair of the authority by another, may have taken it: neither shows in the size
		r.askFrom(int(r.lead), Check, r.main)
	case r.differ != 0:
		r.copyThen(closing, r.differ, 1<<r.lead, r.deed() != Extend || r.differ&r.stale != 0)
	default:
		r.sweep(r.refuse)
	}
}

// finish settles a command that the authority has done. What it has refused before that
// is not what the client is told.
func (r *Rule) finish() {
	r.stage = done
	if r.took.Len() >= int(r.need) && !r.unsure {
		r.settle(Answered, int(r.reply))
		return
	}
	shown := -1
	for i, e := range r.asks[:r.n] {
		if e.kind.refused() && e.deed == Put {
			shown = i
			break
		}
	}
	r.settle(Unmet, shown)
}
