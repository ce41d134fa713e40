package replicate

// Copying one member's value to others without overwriting what is newer.

// copying makes members like a source. Each gets a Stub first, whose cas is the
// guard: what is fetched after that is stored only if nothing has touched the
// member since. A delete in between removes the stub and a set changes its cas,
// so neither is undone.
type copying struct {
	then      next
	overwrite bool // what is there already goes
	emptied   bool // so it does even if no source answers
	hit       bool // a source has it
	missed    bool // a source hasn't

	rounds  uint8
	from    Mask // the sources
	sources Mask // of these, not asked yet
	guarded Mask // to be filled or dropped
	made    Mask // of these, have nothing but our stub
	guard   [Max]uint8

	copied Mask // are like the source
	lost   Mask // were touched by somebody else in between
	empty  Mask // have nothing, and not because the source hasn't
	bad    Mask // are as before, or nobody knows
	doubt  Mask // of these, may have something of ours, perhaps later
}

func (r *Rule) copyThen(then next, targets, sources Mask, overwrite, emptied bool) {
	r.copy = copying{then: then, overwrite: overwrite, emptied: emptied, from: sources}
	r.copyRound(targets)
}

// maxRounds is how often a copy is tried while others write the same key.
const maxRounds = 3

func (r *Rule) copyRound(targets Mask) {
	c := &r.copy
	c.rounds++
	c.sources, c.guarded, c.made, c.lost = c.from, 0, 0, 0
	c.hit, c.missed = false, false
	r.stage = stubbing
	r.askAll(targets, Stub)
}

func (r *Rule) copyTold(ask int, m Mask) {
	switch e := r.asks[ask]; r.stage {
	case stubbing:
		r.stubTold(ask, m, e.kind)
	case fetching:
		r.fetchTold(ask, e.kind)
	default:
		r.fillTold(e, m)
	}
}

func (r *Rule) stubTold(ask int, m Mask, k Kind) {
	c := &r.copy
	c.guard[m.first()] = uint8(ask)
	switch k {
	case Hit:
		if c.overwrite {
			c.guarded |= m
		} else {
			c.copied |= m
		}
	case Miss:
		c.guarded |= m
		c.made |= m
	case InDoubt:
		c.doubt |= m
		c.bad |= m
	default:
		c.bad |= m
	}
	if r.open == 0 {
		r.fetch()
	}
}

// fetch asks the next source, a complete one first.
func (r *Rule) fetch() {
	c := &r.copy
	if c.guarded == 0 {
		r.copyDone()
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
	switch k {
	case Hit:
		c.hit = true
		r.stage = filling
		for m := c.guarded; m != 0; m &= m - 1 {
			i := m.first()
			fill := &r.asks[r.ask(i, Fill)]
			fill.from, fill.guard = uint8(ask), c.guard[i]
		}
	case Miss:
		c.missed = true
		r.fetch()
	default:
		r.fetch()
	}
}

// drop removes what is guarded: the source has nothing, or none has answered.
func (r *Rule) drop() {
	c := &r.copy
	gone := c.guarded
	if !c.missed && !c.emptied {
		gone = c.made
	}
	c.bad |= c.guarded &^ gone
	if gone == 0 {
		r.copyDone()
		return
	}
	r.stage = filling
	for m := gone; m != 0; m &= m - 1 {
		r.dropOne(m.first())
	}
}

func (r *Rule) dropOne(i int) {
	r.asks[r.ask(i, Drop)].guard = r.copy.guard[i]
}

func (r *Rule) fillTold(e asked, m Mask) {
	c := &r.copy
	switch k := e.kind; {
	case k.failed():
		c.bad |= m
		if k == InDoubt || c.made&m != 0 {
			c.doubt |= m
		}
	case k.refused() && e.deed == Fill:
		r.dropOne(int(e.member)) // it would not hold the value: better none than another
	case k.refused():
		c.bad |= m
	case k != Stored && k != Deleted:
		// Whoever has touched it may have had an older value than we.
		c.lost |= m
	case e.deed == Fill || c.missed && !c.hit:
		c.copied |= m
	default:
		c.empty |= m
	}
	if r.open > 0 {
		return
	}
	if c.lost != 0 && c.then != asking && c.rounds < maxRounds && r.roomForARound() {
		r.copyRound(c.lost)
		return
	}
	r.copyDone()
}

// roomForARound reports whether there are asks for a stub, a fill and a drop for
// each, the fetches, and all that the command may still need after that.
func (r *Rule) roomForARound() bool {
	n := r.copy.lost.Len()
	after := n
	if r.copy.then == starting {
		after = 1 + 6*r.takes.Len()
	}
	return int(r.n)+3*n+r.copy.from.Len()+after <= maxAsks
}

// copyDone goes on with what the copying was for.
func (r *Rule) copyDone() {
	c := &r.copy
	r.stage = done
	r.undo |= c.doubt
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
		r.took |= c.copied
		r.clean |= c.copied & r.stale
		r.lacks |= c.empty
		r.dirty |= c.bad
		r.sweep(c.lost)
	case refusing:
		r.lacks |= c.empty
		r.dirty |= c.bad
		r.undo |= c.bad
		r.settle(Answered, int(r.reply))
	case mending:
		r.clean |= c.copied | c.empty
		if c.copied != 0 {
			r.settle(Answered, -1)
		} else {
			r.settle(Unmet, -1)
		}
	}
}
