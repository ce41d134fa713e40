package replicate

// Copies one replica's value to others without replacing newer ones.

// copying makes replicas like a source. A replica that has nothing gets a tombstone first. A
// replica that has an item to be replaced shows its cas. The value is fetched after that,
// and stored only if nothing has changed at the replica since. A delete in between buries
// the tombstone and a set changes the cas, so neither is undone. The comment of a mask says
// what its replicas have in common.
type copying struct {
	then      next
	overwrite bool // an existing item is replaced
	keep      bool // with overwrite: an existing item stays if the source has no item. The existing item may be the last copy, and a delete would have reached this replica, too. But if the command's store replaced the item, it is removed
	take      bool // after a delay (Wait), another command's tombstone is replaced
	hit       bool // a source has the key
	missed    bool // a source does not have the key
	other     bool // the value fetched last is not the one that the command has stored

	rounds  uint8
	fetched uint8 // the ask that fetched the value
	from    Mask  // the sources
	sources Mask  // are sources not asked yet
	guarded Mask  // are to be filled or dropped
	made    Mask  // are in guarded, and have only the tombstone of this copy
	taken   Mask  // are in guarded, and have only another command's tombstone, which this copy must not remove
	waited  Mask  // had a tombstone of another command, which has got time to finish (Wait)
	claimed Mask  // have refused a Claim in this round, because they have an item

	copied   Mask // are like the source
	left     Mask // have another command's tombstone, which was left alone
	lost     Mask // were changed by another command between the look and the store
	replaced Mask // have got the value, which has replaced another value
	empty    Mask // have nothing, although the source may have the key
	bad      Mask // have not got the value, or it is unknown whether they have
	doubt    Mask // are in bad, and may still get the value, because a request to them has no reply

	levelling
}

// levelling is the state of the rounds in which followers of a counter are repaired: see
// Rule.levels.
type levelling struct {
	targets Mask  // replicas to repair in this round
	first   uint8 // number of the first ask since targets last changed
	ahead   uint8 // the ask that fetched the source's number while the looks at the targets were in flight
	level   bool  // the value stored at the targets is the one that they already had
}

func (r *Rule) copyThen(then next, targets, sources Mask, overwrite bool) {
	keep := then == closing && r.followerStep() != Put || then == starting && r.through && r.in == 0
	r.copy = copying{then: then, overwrite: overwrite, keep: keep, take: then == asking || then == closing, from: sources}
	r.copyRound(targets)
}

// maxRounds is the maximum number of attempts of a step while other commands write the same key.
const maxRounds = 3

// countRounds is maxRounds for the repair of a counter. (Tests that explore all outcomes
// set fewer.)
var countRounds uint8 = 250

func (r *Rule) copyRound(targets Mask) {
	c := &r.copy
	if c.rounds++; targets != c.targets {
		c.targets, c.first = targets, r.n
	}
	c.sources, c.guarded, c.made, c.taken, c.claimed, c.lost, c.replaced = c.from, 0, 0, 0, 0, 0, 0
	c.hit, c.missed, c.other, c.level = false, false, false, false
	r.stage = claiming
	first := Claim
	switch {
	case r.levels():
		c.ahead = uint8(r.ask(c.from.first(), Fetch))
		first = Fetch
	case c.overwrite:
		first = Look
	}
	r.askAll(targets, first)
}

// levels reports whether followers are compared with the primary by their numbers (a counter). If a
// follower has the primary's number, it has all increments that the primary had at that time. Its
// value is only written again, on the condition that it has not changed. That gives it a new cas,
// so requests of other proxies that depend on the old cas fail. This needs one look and one write.
// A copy, which fetches after the look, takes longer, and would never succeed beside a proxy that
// counts without a pause.
func (r *Rule) levels() bool { return r.counts() && r.copy.then == closing }

func (r *Rule) handleCopy(ask int, m Mask) {
	switch e := r.asks[ask]; r.stage {
	case claiming:
		r.handleClaim(ask, e, m)
	case fetching:
		r.handleFetch(ask, e.kind)
	case filling:
		r.handleFill(e, m)
	default:
		r.handleCheck(e.kind)
	}
}

func (r *Rule) handleClaim(ask int, e asked, m Mask) {
	c := &r.copy
	i := int(e.replica)
	if e.step == Fetch {
		e.step = Look
	}
	if r.levels() && ask == int(c.ahead) {
		if r.open == 0 {
			r.level()
		}
		return
	}
	guard := func(as *Mask) {
		r.guard[i] = uint8(ask)
		c.guarded |= m
		*as |= m
	}
	switch k := e.kind; {
	case e.step == Claim && k == Stored:
		guard(&c.made)
	case e.step == Claim && k == NotStored:
		c.claimed |= m
		r.ask(i, Look)
	case e.step == Wait && k == OK:
		r.ask(i, Look)
	case e.step == Look && k == Hit && c.overwrite:
		guard(&c.replaced)
	case e.step == Look && k == Hit:
		c.copied |= m
	case e.step == Look && k == Marked && (c.overwrite || c.take && c.waited&m != 0):
		guard(&c.taken)
	case e.step == Look && k == Marked && c.take:
		c.waited |= m
		r.ask(i, Wait)
	case e.step == Look && k == Marked:
		c.left |= m
	case e.step == Look && k == Miss && c.claimed&m == 0:
		r.ask(i, Claim)
	case e.step == Look && k == Miss: // the replica had an item when it refused the Claim
		c.lost |= m
	default: // if the Claim runs late, its tombstone expires
		c.bad |= m
	}
	switch {
	case r.open > 0:
	case r.levels():
		r.level()
	default:
		r.fetch()
	}
}

// level writes back the existing value at followers that have the primary's number.
func (r *Rule) level() {
	c := &r.copy
	var same Mask
	for m := c.replaced; m != 0; m &= m - 1 {
		if i := m.first(); r.asks[c.ahead].kind == Hit && r.foreseen[i] == r.foreseen[r.lead] {
			same |= 1 << i
		}
	}
	if same == 0 || same != c.guarded {
		r.fetch()
		return
	}
	c.hit, c.fetched, c.level = true, c.ahead, true
	r.stage = filling
	for m := same; m != 0; m &= m - 1 {
		r.asks[r.askFrom(m.first(), Fill, r.guard[m.first()])].from = c.ahead
	}
}

// fetch reads the value from the next source; complete replicas come first.
func (r *Rule) fetch() {
	c := &r.copy
	if c.guarded == 0 {
		r.copyEnd()
		return
	}
	from := c.sources & r.in
	if from == 0 {
		from = c.sources
	}
	if from == 0 {
		r.drop()
		return
	}
	from &= -from
	c.sources &^= from
	r.stage = fetching
	r.ask(from.first(), Fetch)
}

func (r *Rule) handleFetch(ask int, k Kind) {
	c := &r.copy
	c.other = r.foreseen[r.asks[ask].replica] != 1
	switch {
	case k == Expiring && r.takesExpiring():
		k = Hit
	case k == Expiring:
		k = Miss
	}
	switch k {
	case Hit:
		c.hit, c.fetched = true, uint8(ask)
		r.stage = filling
		for m := c.guarded; m != 0; m &= m - 1 {
			i := m.first()
			r.asks[r.askFrom(i, Fill, r.guard[i])].from = uint8(ask)
		}
	case Miss:
		c.missed = true
		r.fetch()
	default: // a tombstone has no value
		r.fetch()
	}
}

// takesExpiring reports whether the copy stores a value that expires within a second. It does if
// the value replaces another one, which would otherwise be removed although the source has the key,
// and if the command has just stored the value. A replica that has nothing gets no copy, because the
// clocks of servers differ by up to a second: the primary and a follower that lose the value one
// after the other could restore it from each other again and again, and it would never expire.
func (r *Rule) takesExpiring() bool {
	return r.copy.replaced != 0 || r.copy.then == closing && r.binds()
}

// drop removes the items of the replicas in guarded. The reason is that the source does not have
// the key, or that no source has replied. A value that existed before this copy is removed only in
// the first case.
func (r *Rule) drop() {
	c := &r.copy
	gone := c.guarded &^ c.taken
	if !c.missed || c.keep {
		gone = c.made
	}
	switch kept := c.guarded &^ gone; {
	case !c.missed || c.keep && c.then == starting: // a source that is not filled may lack a value that another proxy has written
		c.bad |= kept
	case c.then == closing:
		r.needsCopy |= kept
	default:
		c.copied |= kept
	}
	if gone == 0 {
		r.copyEnd()
		return
	}
	r.stage = filling
	for m := gone; m != 0; m &= m - 1 {
		r.askFrom(m.first(), Drop, r.guard[m.first()])
	}
}

func (r *Rule) handleFill(e asked, m Mask) {
	c := &r.copy
	switch k := e.kind; {
	case k.failed():
		c.bad |= m
		if k == InDoubt && c.made&m == 0 {
			c.doubt |= m
		}
	case k.refused() && e.step == Fill:
		r.askFrom(int(e.replica), Drop, r.guard[e.replica]) // the replica refuses the value: having no value is better than having another value
	case k.refused():
		c.bad |= m
	case k != Stored && k != Deleted:
		// The command that changed the replica may have stored an older value than this copy would.
		c.lost |= m
		c.replaced &^= m
	case e.step == Fill && c.replaced&m != 0:
	case e.step == Fill || c.missed && !c.hit:
		c.copied |= m
	default:
		c.empty |= m
		c.replaced &^= m
	}
	if r.open > 0 {
		return
	}
	switch c.replaced &^= c.bad; {
	case c.level:
		c.copied |= c.replaced
	case c.hit && c.replaced != 0:
		// The replaced value may have been newer than the fetched one. The replica gets no
		// tombstone instead of its value: if the source then failed, the last copy would be lost.
		r.stage = checking
		r.askFrom(int(r.asks[c.fetched].replica), Check, c.fetched)
		return
	}
	r.copyEnd()
}

// handleCheck records whether the source still has the value that was copied.
func (r *Rule) handleCheck(k Kind) {
	c := &r.copy
	switch {
	case k == Hit:
		c.copied |= c.replaced
	case k.failed(), k.refused():
		c.bad |= c.replaced
	default:
		c.lost |= c.replaced
	}
	r.copyEnd()
}

// copyEnd ends a round. Replicas that other commands have changed in between get another copy.
//
// Counters are written by many proxies at once. If those count without a pause, one of them is
// always first: three rounds were not enough for one client in a hundred, nor were twenty for one
// in ten thousand. Each lost round is an increment by another proxy that succeeded, so many rounds
// are allowed. The asks of a round without a result are discarded, because only so many asks fit.
func (r *Rule) copyEnd() {
	c := &r.copy
	switch {
	case c.lost == 0 || c.then == refusing || c.then == asking:
	case r.levels() && c.lost == c.targets && c.rounds < countRounds:
		clear(r.asks[c.first:r.n])
		r.n, r.given = c.first, c.first
		r.copyRound(c.lost)
		return
	case c.rounds < maxRounds && r.roomForARound():
		r.copyRound(c.lost)
		return
	}
	r.copyDone()
}

// roomForARound reports whether enough asks are left for a look, a claim, a wait, a fill
// and a drop for each replica, the fetches, and all that the command may still need after
// that.
func (r *Rule) roomForARound() bool {
	n := r.copy.lost.Len()
	after := n
	if r.copy.then == starting {
		after = 1 + 8*r.takes.Len()
	}
	if r.copy.then == closing {
		after++
	}
	return int(r.n)+5*n+1+r.copy.from.Len()+after <= maxAsks
}

// copyDone continues the command after a copy: see the type next.
func (r *Rule) copyDone() {
	c := &r.copy
	r.stage = done
	r.overwrite |= c.doubt
	r.dirty |= c.doubt
	switch c.then {
	case starting:
		switch {
		case c.copied != 0:
			r.clean |= c.copied
			r.start()
		case readsAtOne(r.c) && r.in != 0:
			r.failedLeads |= 1 << r.lead
			r.lead = int8(r.in.first())
			r.start()
		default:
			r.abandon()
		}
	case asking:
		switch {
		case c.lost != 0:
			r.forward() // another command has stored a value there, or has removed the value again
		case c.copied == 0:
			r.abandon()
		case c.missed && !c.hit:
			r.nowhere()
		default:
			r.forward()
		}
	case closing:
		r.unsure = r.unsure || c.other && r.binds() // the primary has a newer value, or an older value that was restored from a follower without this command's value
		r.stored |= c.copied
		r.clean |= c.copied & r.stale
		r.without |= c.empty
		r.dirty |= c.bad | c.lost
		r.overwrite |= c.bad | c.lost
		r.differ, r.stage = 0, following
		r.followed()
	case refusing:
		r.without |= c.empty | c.lost | c.bad
		r.settle(Answered, int(r.reply))
	case mending:
		r.clean |= c.copied | c.empty
		if c.copied != 0 {
			r.settle(Answered, -1)
		} else {
			r.settle(Unmet, -1)
		}
	case moving:
		r.clean |= c.copied
		switch {
		case c.missed && !c.hit: // another proxy has moved the key
			r.settle(Answered, -1)
		case c.copied != r.takes&^(1<<r.lead) || r.away != 0:
			r.abandon()
		default:
			if c.hit {
				r.guard[r.lead] = c.fetched
			}
			r.leave()
		}
	}
}

// handleMove records whether the former holder has the key, or has lost it. A tombstone there
// belongs to a command that has ended or failed: no proxy stores a value in its place.
func (r *Rule) handleMove(k Kind) {
	switch to := r.takes &^ (1 << r.lead); {
	case r.stage == seeking && k == Hit && to == 0:
		r.leave()
	case r.stage == seeking && k == Hit:
		r.copyRound(to)
	case r.stage == seeking && (k == Miss || k == Marked), k == Deleted, k == NotFound:
		r.stage = done
		r.settle(Answered, -1)
	default:
		r.abandon()
	}
}

func (r *Rule) leave() {
	r.stage = leaving
	r.askFrom(int(r.lead), Drop, r.guard[r.lead])
}
