package replicate

// This file copies the value of one replica to others, without replacing newer values.

// copying is the state of a copy, which makes replicas like a source. A replica that has nothing
// gets a tombstone first. For a replica that has an item to be replaced, a look reads its cas.
// The value is fetched from the source after that, and stored only if nothing has changed at the
// replica since. A delete in between replaces the tombstone, and a set changes the cas, so
// neither is undone.
type copying struct {
	then      next
	overwrite bool // an existing item at a target is replaced
	keep      bool // if the source has no item, an item at a target stays although overwrite is set, because it may be the last copy
	take      bool // a tombstone of another command at a target is replaced, after a delay (Wait)
	hit       bool // a source has shown that it has the key
	missed    bool // a source has shown that it does not have the key
	other     bool // the value fetched last is not the value that the command has stored

	rounds  uint8
	fetched uint8 // number of the ask that has fetched the value to copy
	from    Mask  // replicas from which the value may be copied: the sources
	sources Mask  // sources that have not been asked in this round
	guarded Mask  // targets that can be filled or dropped now, because an ask has shown the cas of their item
	made    Mask  // targets in guarded that only have the tombstone of this copy
	taken   Mask  // targets in guarded that only have a tombstone of another command; this copy must not remove it
	waited  Mask  // targets with a tombstone of another command, for which the copy has waited once (Wait)
	claimed Mask  // targets that have refused a Claim in this round, because they have an item

	copied   Mask // targets that are now like the source
	left     Mask // targets with a tombstone of another command that this copy has not replaced
	lost     Mask // targets that another command has changed between the look and the store
	replaced Mask // targets with another value that this copy replaces, or has replaced
	empty    Mask // targets that have no item now, although the source may have the key
	bad      Mask // targets that have not got the value, or for which that is unknown
	doubt    Mask // targets in bad that may still get the value late, because a request to them has no reply

	levelling
}

// levelling is the state of a round that repairs the followers of a counter: see Rule.levels.
type levelling struct {
	targets Mask  // replicas that this round repairs
	first   uint8 // number of the first ask that was made for the present targets
	ahead   uint8 // number of the ask that has fetched the primary's number, while the looks at the targets were in flight
	level   bool  // the value stored at the targets is the one that they already had
}

func (r *Rule) copyThen(then next, targets, sources Mask, overwrite bool) {
	keep := then == closing && !r.binds() || then == starting && r.through && r.in == 0
	r.copy = copying{then: then, overwrite: overwrite, keep: keep, take: then == asking || then == closing, from: sources}
	r.copyRound(targets)
}

// maxRounds is the maximum number of attempts of a step while other commands write the same key.
const maxRounds = 3

// countRounds is the maximum number of rounds that repair a counter. Tests that explore all
// outcomes set a lower number.
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

// levels reports whether the copy repairs followers of a counter. These are compared with the
// primary by their numbers. If a follower has the primary's number, it has all increments that
// the primary had at that time. Its value is only written again, on the condition that it has not
// changed. The item then has a new cas, so requests of other instances that depend on the old cas
// fail. This needs one look and one write. A copy, which fetches after the look, needs more time.
// It would never succeed while another instance counts without a pause.
func (r *Rule) levels() bool { return r.counts() && r.copy.then == closing }

func (r *Rule) handleCopy(ask int, m Mask) {
	switch e := r.asks[ask]; r.stage {
	case claiming:
		r.handleClaim(ask, e, m)
	case fetching:
		r.handleFetch(ask, e.kind)
	case filling:
		r.handleFill(ask, m)
	default:
		r.handleCheck(e.kind)
	}
}

func (r *Rule) handleClaim(ask int, e asked, m Mask) {
	c := &r.copy
	i := int(e.replica)
	if e.step == Fetch {
		e.step, e.kind = Look, e.kind.compared()
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
	case e.step == Look && k == Miss: // the replica had an item when it refused the Claim, and has none now
		c.lost |= m
	default: // the outcome is an error, or there is no reply. If a Claim runs late, its tombstone expires
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

// level writes the value of each follower again, if the follower has the primary's number.
// Otherwise the followers get a copy.
func (r *Rule) level() {
	c := &r.copy
	var same Mask
	for i := range c.replaced.each {
		if (r.asks[c.ahead].kind == Hit || r.asks[c.ahead].kind == Expiring) && r.foreseen[i] == r.foreseen[r.lead] {
			same |= 1 << i
		}
	}
	if same == 0 || same != c.guarded {
		r.fetch()
		return
	}
	c.level = true
	r.fillAll(c.ahead)
}

// fetch reads the value from the next source. Sources that are In are asked first.
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
	case k == Expiring, k == Stale:
		k = Miss
	}
	switch k {
	case Hit:
		r.fillAll(uint8(ask))
	case Miss:
		c.missed = true
		r.fetch()
	default: // the source has a tombstone, which has no value, or has not replied
		r.fetch()
	}
}

// fillAll stores what the given ask has fetched at all replicas that wait for the copy.
func (r *Rule) fillAll(fetched uint8) {
	r.copy.hit, r.copy.fetched = true, fetched
	r.stage = filling
	for i := range r.copy.guarded.each {
		r.fill(i, int(fetched))
	}
}

// fill stores what the given ask has fetched at replica i.
func (r *Rule) fill(i, fetched int) {
	r.asks[r.askFrom(i, Fill, r.guard[i])].from = uint8(fetched)
}

// takesExpiring reports whether the copy stores a value that expires within a second. It does if
// the value replaces another one, which would otherwise be removed although the source has the key,
// and if the command has just stored the value. A replica that has nothing gets no copy, because the
// clocks of servers differ by up to a second: the primary and a follower that lose the value one
// after the other could restore it from each other again and again, and it would never expire.
func (r *Rule) takesExpiring() bool {
	return r.copy.replaced != 0 || r.copy.then == closing && r.binds()
}

// compared returns the kind k of a fetch that only reads the item's number, or whether it exists.
// Then it does not matter that the item expires soon, or is stale.
func (k Kind) compared() Kind {
	if k == Expiring || k == Stale {
		return Hit
	}
	return k
}

// noteExpiry records whether a Fetch with the outcome o, at the given replica, has shown that the
// primary's item expires soon, is stale, or has been removed by the command's exptime.
func (r *Rule) noteExpiry(replica uint8, o Outcome) {
	r.expires = r.expires || int8(replica) == r.lead && (o.Kind == Expiring || o.Kind == Stale || o.Kind == Miss && o.Value == 1)
}

// drop removes items from the replicas in guarded, because no source has shown a value to copy. A
// value that existed before this copy is removed only if a source has shown that it does not have
// the key.
//
// If the primary's item expires soon or has just expired, a follower without an item has the
// write. A tombstone of another command there is replaced by a fresh one, which is then removed.
// So a value that the other command has fetched before can't be stored later. If the primary has
// no item any more, and the follower's item expires soon, the follower's item is removed, too.
func (r *Rule) drop() {
	c := &r.copy
	gone := c.guarded &^ c.taken
	switch {
	case c.then == closing && c.missed && r.expires:
		gone = c.guarded
	case c.then == closing && c.missed && c.keep:
		gone = c.made | r.fading()
	case !c.missed || c.keep:
		gone = c.made
	}
	switch kept := c.guarded &^ gone; {
	case !c.missed || c.keep && c.then == starting: // the source may lack a value that another instance has written, so the targets count as not repaired
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
	for i := range gone.each {
		d := Drop
		if c.taken.Has(i) {
			d = RefreshTombstone
		}
		r.askFrom(i, d, r.guard[i])
	}
}

// fading returns the replicas in replaced whose item expires soon, or is stale. This is known only
// for counters, because only their followers are asked with a Fetch.
func (r *Rule) fading() (fading Mask) {
	for i := range r.copy.replaced.each {
		if k := r.asks[r.guard[i]].kind; k == Expiring || k == Stale {
			fading |= 1 << i
		}
	}
	return fading
}

func (r *Rule) handleFill(ask int, m Mask) {
	c := &r.copy
	e := r.asks[ask]
	switch k := e.kind; {
	case k == Stored && e.step == RefreshTombstone:
		r.askFrom(int(e.replica), Drop, uint8(ask))
	case e.step == Drop && r.asks[e.guard].step == RefreshTombstone: // whether the fresh tombstone is still there or not, nothing that was fetched before it can be stored any more
		c.copied |= m
	case k.failed():
		c.bad |= m
		if k == InDoubt && c.made&m == 0 {
			c.doubt |= m
		}
	case k.refused() && e.step == Fill:
		r.askFrom(int(e.replica), Drop, r.guard[e.replica]) // the replica refuses the value, and loses its old one: no value is better than a wrong value
	case k.refused():
		c.bad |= m
	case k != Stored && k != Deleted:
		// Another command has changed the replica, and may have stored an older value than this
		// copy would.
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
		// The replaced value may have been newer than the fetched one, so the source is asked
		// whether it still has the fetched one. A tombstone in place of the value is no solution:
		// if the source then failed, the last copy would be lost.
		r.stage = checking
		r.askFrom(int(r.asks[c.fetched].replica), Check, c.fetched)
		return
	}
	r.copyEnd()
}

// handleCheck records, by the outcome k, whether the source still has the value that was copied.
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

// copyEnd ends a round of a copy. Replicas that other commands have changed since their look get
// another round.
//
// Counters are written by many instances at once. If these count without a pause, one of them is
// always first: three rounds were not enough for one client in a hundred, nor were twenty for one
// in ten thousand. Each lost round is an increment by another instance that succeeded, so many
// rounds are allowed. The asks of a round without a result are discarded, because a rule has room
// for only maxAsks asks.
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

// roomForARound reports whether enough asks are left for another round of the copy. A round needs
// a look, a claim, a wait, a fill and a drop for each replica, and the fetches. The command may
// need more asks after the copy.
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
			r.forward() // another command has changed the primary since the look: it has stored a value, or has removed one
		case c.copied == 0 && c.hit && c.empty != 0 && (readsAtOne(r.c) || r.extends()) && r.in.Has(int(r.asks[c.fetched].replica)):
			// The primary has refused the value, and has no item. So the replica with the value takes its
			// place, and a touch counts as done at the refusing replica.
			r.failedLeads |= 1 << r.lead
			r.stored |= 1 << r.lead
			r.lead = int8(r.asks[c.fetched].replica)
			r.forward()
		case c.copied == 0:
			r.abandon()
		case c.missed && !c.hit:
			r.nowhere()
		default:
			r.forward()
		}
	case closing:
		r.unsure = r.unsure || c.other && r.binds() // the primary no longer has this command's value: it has a newer one, or an old one that was restored from a follower
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
		case c.missed && !c.hit: // the former server no longer has the key, so another instance has moved it
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

// handleMove records whether the former holder of the key has the key, or has lost it. A
// tombstone there belongs to a command that has ended or failed: no instance stores a value in
// its place.
func (r *Rule) handleMove(k Kind) {
	switch to := r.takes &^ (1 << r.lead); {
	case r.stage == seeking && k == Hit && to == 0:
		r.leave()
	case r.stage == seeking && k == Hit:
		r.copyRound(to)
	case r.stage == seeking && (k == Miss || k == Marked), k == Deleted, k == NotFound:
		r.end(Answered, -1)
	default:
		r.abandon()
	}
}

func (r *Rule) leave() {
	r.stage = leaving
	r.askFrom(int(r.lead), Drop, r.guard[r.lead])
}
