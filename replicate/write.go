package replicate

// Commands that all members take alike (set, delete) or must all allow (add).

// spreadTold: one of all members has answered.
func (r *Rule) spreadTold(ask int, m Mask) {
	k := r.asks[ask].kind
	switch {
	case r.accepts(k):
		r.took |= m
		if r.stale&m != 0 && !r.c.Stale && r.c.Op != Flush {
			r.clean |= m
		}
	case k == InDoubt:
		r.dirty |= m
		if r.c.Op == Set {
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

// accepts reports whether k means that a command for all members has been done.
func (r *Rule) accepts(k Kind) bool {
	switch r.c.Op {
	case Set:
		return k == Stored
	case Delete:
		return k == Deleted || k == NotFound
	default:
		return k == OK
	}
}

func (r *Rule) spreadSettle() {
	if r.settled {
		return
	}
	waiting, shown, deleted, lead := 0, -1, -1, -1
	for i, e := range r.asks[:r.n] {
		if int8(e.member) == r.lead {
			lead = i
		}
		switch {
		case e.kind == pending:
			waiting++
		case e.kind == Deleted && deleted < 0 && (r.in | r.warm).Has(int(e.member)):
			deleted = i // of what others may read: what nobody reads was not there
		case e.kind.refused() && shown < 0:
			shown = i
		}
	}
	switch k := r.asks[lead].kind; {
	case k.failed():
		r.settle(Unmet, shown)
	case k != pending && !r.accepts(k):
		r.settle(Answered, lead) // the authority says why not
	case r.took.Len()+waiting < int(r.need):
		r.settle(Unmet, shown)
	case k == pending || r.took.Len() < int(r.need):
	case r.c.Op != Delete:
		r.settle(Answered, lead)
	case deleted >= 0:
		r.settle(Answered, deleted)
	case waiting > 0: // NOT_FOUND is said when all have
	case r.asks[lead].kind == Deleted:
		r.settle(Absent, -1)
	default:
		r.settle(Answered, lead)
	}
}

// spreadEnd removes the key where a set has left what the authority hasn't: its
// own value if the authority refused it, the old one where only that member did.
func (r *Rule) spreadEnd() {
	r.stage = done
	if r.c.Op != Set {
		if r.took == 0 && r.c.Op == Delete {
			r.dirty = 0
		}
		return
	}
	var gone, refused Mask
	for _, e := range r.asks[:r.n] {
		if e.kind.refused() {
			refused |= 1 << e.member
		}
	}
	switch {
	case refused.Has(int(r.lead)):
		r.dirty &^= refused
		gone = r.took
	case r.took == 0:
		r.dirty = r.undo // nobody has it: who surely hasn't run it is right
		return
	default:
		gone = refused
	}
	r.took &^= gone
	r.clean &^= gone
	r.sweep(gone)
}

// sweep removes the key where neither the authority's value nor the old one
// may stay.
func (r *Rule) sweep(gone Mask) {
	if gone == 0 {
		r.swept()
		return
	}
	r.dirty |= gone
	r.stage = sweeping
	r.askAll(gone, Remove)
}

func (r *Rule) sweepTold(m Mask, k Kind) {
	if k == Deleted || k == NotFound {
		r.dirty &^= m
		r.lacks |= m
	}
	if r.open == 0 {
		r.swept()
	}
}

func (r *Rule) swept() {
	r.stage = done
	if r.class != all {
		r.finish()
	}
}

// grant asks the next member, in the key's order, for leave to add. Members
// that are not read don't vote. One that votes can't be left out, however many
// the policy asks for: it may be the only one that another proxy asks too.
func (r *Rule) grant(after int) {
	voters := (r.in | r.warm | 1<<r.lead) &^ (1<<(after+1) - 1)
	if voters != 0 {
		r.stage = granting
		r.ask(voters.first(), Forward)
		return
	}
	r.follow()
}

func (r *Rule) grantTold(ask int, m Mask) {
	e := r.asks[ask]
	lead := int8(e.member) == r.lead
	switch {
	case e.kind == Stored:
		r.took |= m
		if lead {
			r.reply = int8(ask)
		}
		r.grant(int(e.member))
	case e.kind == NotStored:
		// It has one: whoever granted before gets the same.
		r.reply = int8(ask)
		if r.took == 0 {
			r.stage = done
			r.settle(Answered, ask)
			return
		}
		granted := r.took
		r.took = 0
		r.copyThen(refusing, granted, m, true, true)
	default:
		if e.kind == InDoubt {
			r.undo |= m
		}
		switch {
		case lead && !e.kind.failed():
			r.settle(Answered, ask)
		case e.kind.refused():
			r.settle(Unmet, ask)
		default:
			r.settle(Unmet, -1)
		}
		r.revoke()
	}
}

// revoke takes back what was granted for an add that is not acknowledged.
func (r *Rule) revoke() {
	r.undo |= r.took
	r.dirty = r.undo
	r.took = 0
	r.stage = done
}
