package replicate

// Commands that the authority decides and the rest follow.

// prepare repairs a dirty authority before it decides anything.
func (r *Rule) prepare() {
	if !r.stale.Has(int(r.lead)) || r.c.Op == Debug {
		r.start()
		return
	}
	if sources := r.in | r.warm; sources != 0 {
		r.copyThen(starting, 1<<r.lead, sources, true, false)
		return
	}
	if r.class == grants {
		// What another proxy has granted since looks the same as what was
		// missed. Better a lock that nobody has until it expires than two.
		r.start()
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
	case r.class == grants:
		r.grant(-1)
	case r.c.Vivify && r.warm.Has(int(r.lead)) && r.others() != 0:
		r.peeked = true
		r.stage = peeking
		r.ask(int(r.lead), Fetch)
	default:
		r.forward()
	}
}

func (r *Rule) forward() {
	r.stage = leading
	r.ask(int(r.lead), Forward)
}

// others are who may know what the authority doesn't.
func (r *Rule) others() Mask { return (r.in | r.warm) &^ (1 << r.lead) &^ r.deaf }

func (r *Rule) leadTold(ask int, m Mask, o Outcome) {
	r.reply = int8(ask)
	switch {
	case r.succeeded(o.Kind):
		r.took |= m
		r.number = o.Value
		if r.deed() == Extend {
			r.fix |= r.deaf
		}
		r.follow()
	case o.Kind.failed():
		r.leadFailed(m, o.Kind)
	case r.confirm && !r.tried && r.c.Op != Debug && !r.c.Vivify && r.absent(o.Kind) && r.others() != 0:
		r.look()
	default:
		r.stage = done
		r.settle(Answered, ask)
	}
}

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
		case r.c.Op == Replace && !r.c.If:
			r.undo |= m
			r.dirty |= m
		default:
			// It may count or it may not: the others become like the authority.
			r.fix |= r.takes &^ m
			r.from = r.lead
		}
	}
	r.abandon()
}

func (r *Rule) peekTold(k Kind) {
	switch k {
	case Hit:
		r.forward()
	case Miss:
		r.look()
	default:
		r.abandon()
	}
}

// look asks the others for what the authority hasn't.
func (r *Rule) look() {
	r.tried = true
	r.at, r.last = 0, 0
	r.queue(r.others()&r.in, 0)
	r.queue(r.others()&r.warm, 0)
	r.stage = looking
	r.lookNext()
}

func (r *Rule) lookNext() {
	r.ask(int(r.order[r.at]), Fetch)
	r.at++
}

func (r *Rule) lookTold(ask int) {
	e := r.asks[ask]
	switch {
	case e.kind == Hit:
		r.copyThen(asking, 1<<r.lead, 1<<e.member, false, false)
		return
	case e.kind != Miss && r.warm.Has(int(r.lead)):
		r.abandon() // an incomplete authority can't decide that there is none
		return
	}
	if r.at < r.last {
		r.lookNext()
		return
	}
	r.nowhere()
}

// nowhere: nobody has the key.
func (r *Rule) nowhere() {
	if r.peeked {
		r.forward()
		return
	}
	r.stage = done
	r.settle(Answered, int(r.reply))
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
	case Delete:
		return Remove
	}
	if r.c.Stale {
		return Remove // a copy would look fresh
	}
	return Put
}

func (r *Rule) follow() {
	d := r.deed()
	rest := r.takes &^ r.took &^ r.dirty &^ r.deaf
	if r.class == alone {
		rest = 0
	}
	r.stage = following
	if d == Join || d == Count || d == Extend {
		r.differ = rest & r.stale
		rest &^= r.differ
	}
	r.askAll(rest, d)
	if rest == 0 {
		r.followed()
	}
}

func (r *Rule) followTold(m Mask, d Deed, o Outcome) {
	k := o.Kind
	switch {
	case d == Extend && (k.failed() || k.refused()):
		r.fix |= m
	case k.failed():
		r.dirty |= m
		if k == InDoubt {
			r.undo |= m
		}
	case k == Stored && (d == Put || d == Join),
		k == Number && d == Count && o.Value == r.number,
		(k == Touched || k == Hit) && d == Extend,
		(k == Deleted || k == NotFound) && d == Remove:
		r.took |= m
		r.clean |= m & r.stale
	case d == Put:
		r.refuse |= m
	case d == Remove:
		r.dirty |= m
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
	case r.differ != 0:
		r.copyThen(closing, r.differ, 1<<r.lead, r.deed() != Extend || r.differ&r.stale != 0, true)
	default:
		r.sweep(r.refuse)
	}
}

// finish settles a command that the authority has done.
func (r *Rule) finish() {
	r.stage = done
	if r.took.Len() >= int(r.need) {
		r.settle(Answered, int(r.reply))
		return
	}
	shown := -1
	for i, e := range r.asks[:r.n] {
		if e.kind.refused() && (e.deed == Put || e.deed == Forward) {
			shown = i
			break
		}
	}
	r.settle(Unmet, shown)
	if r.class == grants {
		r.revoke()
	}
}
