package replicate

// Copying one member's value to others without overwriting what is newer.

// copying makes members like a source. Each gets a mark first, if it has
// nothing, and shows its cas, if it has something that is to go: what is fetched
// after that is stored only if nothing has touched the member since. A delete in
// between buries the mark and a set changes the cas, so neither is undone.
type copying struct {
	then      next
	overwrite bool // what is there already goes
	keep      bool // with overwrite: it stays if the source has nothing, for it may be the last copy, and a delete comes here by itself. What a store has replaced goes all the same
	take      bool // a mark of somebody else is taken over, after a while
	hit       bool // a source has it
	missed    bool // a source hasn't
	other     bool // what was fetched last is not what the command has stored

	rounds  uint8
	fetched uint8 // the ask that has fetched it
	from    Mask  // the sources
	sources Mask  // of these, not asked yet
	guarded Mask  // to be filled or dropped
	made    Mask  // of these, have nothing but our mark
	taken   Mask  // of these, have nothing but somebody else's: it is not ours to drop
	waited  Mask  // have been given the time
	claimed Mask  // have refused a claim in this round

	copied Mask // are like the source
	left   Mask // have somebody else's mark, which was left alone
	lost   Mask // were touched by somebody else in between
	laid   Mask // have been given it in the place of something else
	empty  Mask // have nothing, and not because the source hasn't
	bad    Mask // are as before, or nobody knows
	doubt  Mask // of these, may have something of ours, perhaps later

	levelling
}

// levelling is what is known of the rounds in which a counter is made alike: see levels.
type levelling struct {
	targets Mask  // of the round
	first   uint8 // the ask that the first round with these targets began with
	ahead   uint8 // the ask that has fetched the source's number while targets were looked at
	level   bool  // what is stored is what is there already
}

func (r *Rule) copyThen(then next, targets, sources Mask, overwrite bool) {
	keep := then == closing && r.deed() != Put || then == starting && r.through && r.in == 0
	r.copy = copying{then: then, overwrite: overwrite, keep: keep, take: then == asking || then == closing, from: sources}
	r.copyRound(targets)
}

// maxRounds is how often something is tried while others write the same key.
const maxRounds = 3

// countRounds is maxRounds for making a counter alike. (Tests that explore all that can
// happen set fewer.)
var countRounds uint8 = 250

func (r *Rule) copyRound(targets Mask) {
	c := &r.copy
	if c.rounds++; targets != c.targets {
		c.targets, c.first = targets, r.n
	}
	c.sources, c.guarded, c.made, c.taken, c.claimed, c.lost, c.laid = c.from, 0, 0, 0, 0, 0, 0
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

// levels reports whether followers are made like the authority by their numbers. A
// follower that has the authority's number has all that the authority had counted then. It
// is only written once more, if nothing has come between: what another proxy has looked at
// there is void then. That takes one look and one write, as a step does; to copy what is
// fetched behind the look takes longer, and would lose against the steps of a proxy that
// counts without a pause.
func (r *Rule) levels() bool { return r.counts() && r.copy.then == closing }

func (r *Rule) copyTold(ask int, m Mask) {
	switch e := r.asks[ask]; r.stage {
	case claiming:
		r.claimTold(ask, e, m)
	case fetching:
		r.fetchTold(ask, e.kind)
	case filling:
		r.fillTold(e, m)
	default:
		r.checkTold(e.kind)
	}
}

func (r *Rule) claimTold(ask int, e asked, m Mask) {
	c := &r.copy
	i := int(e.member)
	if e.deed == Fetch {
		e.deed = Look
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
	case e.deed == Claim && k == Stored:
		guard(&c.made)
	case e.deed == Claim && k == NotStored:
		c.claimed |= m
		r.ask(i, Look)
	case e.deed == Wait && k == OK:
		r.ask(i, Look)
	case e.deed == Look && k == Hit && c.overwrite:
		guard(&c.laid)
	case e.deed == Look && k == Hit:
		c.copied |= m
	case e.deed == Look && k == Marked && (c.overwrite || c.take && c.waited&m != 0):
		guard(&c.taken)
	case e.deed == Look && k == Marked && c.take:
		c.waited |= m
		r.ask(i, Wait)
	case e.deed == Look && k == Marked:
		c.left |= m
	case e.deed == Look && k == Miss && c.claimed&m == 0:
		r.ask(i, Claim)
	case e.deed == Look && k == Miss: // there was something when we claimed
		c.lost |= m
	default: // a claim that comes late dies by itself
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

// level writes what is there already, where followers have the authority's number.
func (r *Rule) level() {
	c := &r.copy
	var same Mask
	for m := c.laid; m != 0; m &= m - 1 {
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

// fetch asks the next source, a complete one first.
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

func (r *Rule) fetchTold(ask int, k Kind) {
	c := &r.copy
	c.other = r.foreseen[r.asks[ask].member] != 1
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
	default: // a mark says nothing
		r.fetch()
	}
}

// drop removes what is guarded: the source has nothing, or none has answered.
// What was there before goes only in the first case.
func (r *Rule) drop() {
	c := &r.copy
	gone := c.guarded &^ c.taken
	if !c.missed || c.keep {
		gone = c.made
	}
	switch kept := c.guarded &^ gone; {
	case !c.missed || c.keep && c.then == starting: // a source that is not filled may lack what another proxy has written
		c.bad |= kept
	case c.then == closing:
		r.fix |= kept
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

func (r *Rule) fillTold(e asked, m Mask) {
	c := &r.copy
	switch k := e.kind; {
	case k.failed():
		c.bad |= m
		if k == InDoubt && c.made&m == 0 {
			c.doubt |= m
		}
	case k.refused() && e.deed == Fill:
		r.askFrom(int(e.member), Drop, r.guard[e.member]) // it would not hold the value: better none than another
	case k.refused():
		c.bad |= m
	case k != Stored && k != Deleted:
		// Whoever has touched it may have had an older value than we.
		c.lost |= m
		c.laid &^= m
	case e.deed == Fill && c.laid&m != 0:
	case e.deed == Fill || c.missed && !c.hit:
		c.copied |= m
	default:
		c.empty |= m
		c.laid &^= m
	}
	if r.open > 0 {
		return
	}
	switch c.laid &^= c.bad; {
	case c.level:
		c.copied |= c.laid
	case c.hit && c.laid != 0:
		// What was there before may have been newer than what was fetched. The
		// member has no mark, so that the last copy is not lost with the source.
		r.stage = checking
		r.askFrom(int(r.asks[c.fetched].member), Check, c.fetched)
		return
	}
	r.copyEnd()
}

// checkTold: the source has still what was copied, or not.
func (r *Rule) checkTold(k Kind) {
	c := &r.copy
	switch {
	case k == Hit:
		c.copied |= c.laid
	case k.failed(), k.refused():
		c.bad |= c.laid
	default:
		c.lost |= c.laid
	}
	r.copyEnd()
}

// copyEnd ends a round: who was touched in between is copied to again.
//
// Counters are what many write at once, and of proxies that count one without a pause
// somebody always comes first: three rounds were not enough for one client in a
// hundred, nor were twenty for one in ten thousand. Each round lost is a count of
// somebody else that is done, so there are many. The asks of a round that
// nothing has come of are forgotten then, as there is room for only so many.
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

// roomForARound reports whether there are asks for a look, a claim, a wait, a
// fill and a drop for each, the fetches, and all that the command may still need
// after that.
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

// copyDone goes on with what the copying was for.
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
			r.deaf |= 1 << r.lead
			r.lead = int8(r.in.first())
			r.start()
		default:
			r.abandon()
		}
	case asking:
		switch {
		case c.lost != 0:
			r.forward() // it has been given one by somebody else, or lost it again
		case c.copied == 0:
			r.abandon()
		case c.missed && !c.hit:
			r.nowhere()
		default:
			r.forward()
		}
	case closing:
		r.unsure = r.unsure || c.other && r.binds() // newer, or older and brought back from the rest, who never had it
		r.took |= c.copied
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
		case c.missed && !c.hit: // another has moved it
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

// moveTold: the former holder has said whether it has the key, or has lost it. A mark there
// is of a command that has ended, or has failed: nobody puts a value in its place.
func (r *Rule) moveTold(k Kind) {
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
