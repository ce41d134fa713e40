package replicate

// This file has plain gets, which ask one replica after the other until the first hit.

func (r *Rule) beginRead(how Read, near Mask, spread uint64) {
	if r.in|r.warm == 0 {
		if r.stale != 0 && r.away == 0 && !r.through {
			r.settle(Absent, -1) // the dirty replicas have missed the last write, and no other replica is in use: a miss is better than an old value
		} else {
			r.settle(Refused, -1)
		}
		return
	}
	var filling Mask
	switch how {
	case Nearest:
		r.queue(r.in&near, 0)
		r.queue(r.in&^near, 0)
	case Spread:
		r.queue(r.in, spread)
	default:
		// The primary may lack values while it is filled, but its values are right. It may get a
		// new value before all other replicas.
		filling = r.warm & (1 << r.lead)
		r.queue(filling, 0)
		r.queue(r.in, 0)
	}
	r.queue(r.warm&^filling, 0)
	r.stage = reading
	r.readNext()
	for how == Fastest && r.at < r.last {
		r.confirm = true // all replicas have been asked, so a miss waits for the replies of all
		r.readNext()
	}
}

// queue appends the replicas of m to the list of replicas to ask (order). It starts with the one
// at the index skip, modulo their number, and wraps around.
func (r *Rule) queue(m Mask, skip uint64) {
	if m == 0 {
		return
	}
	rest := m
	for range skip % uint64(m.Len()) {
		rest &= rest - 1
	}
	for _, part := range [2]Mask{rest, m &^ rest} {
		for i := range part.each {
			r.order[r.last] = uint8(i)
			r.last++
		}
	}
}

func (r *Rule) readNext() {
	if r.at < r.last {
		r.ask(int(r.order[r.at]), Forward)
		r.at++
	}
}

func (r *Rule) handleRead(ask int) {
	if r.settled {
		return
	}
	e := r.asks[ask]
	switch {
	case e.kind == Hit, e.kind == Miss && !r.confirm:
		r.settle(Answered, ask)
	case r.open > 0: // all replicas were asked (Fastest), and one has not replied yet
	case r.at < r.last:
		r.readNext()
	default:
		r.readNothing()
	}
}

// readNothing settles a read that no replica has answered with a hit. A miss at a complete
// replica has priority over an error. With ReadThrough an error has priority: the replica that
// failed or can't be asked may be the only one with the key. A miss at an incomplete replica, and
// a tombstone, count only if no replica is left to ask.
//
// With ReadThrough a dirty replica counts as failed if another replica has a tombstone, or if no
// complete replica has missed. The value that the dirty replica missed is gone by now. So the
// value that it has may be the only copy of another instance's write.
func (r *Rule) readNothing() {
	missed, failed, shown := -1, r.away != 0, -1
	complete := false
	for i, e := range r.asks[:r.n] {
		switch {
		case e.kind == Miss && r.in.Has(int(e.replica)) && !complete:
			missed, complete = i, true
		case e.kind == Miss && missed < 0:
			missed = i
		case e.kind == Marked:
			failed = failed || r.through && r.stale != 0
		case e.kind != Miss:
			failed = true
			if e.kind == ClientError || shown < 0 && e.kind == ServerError {
				shown = i
			}
		}
	}
	failed = failed || r.through && !complete && r.stale != 0
	switch {
	case missed >= 0 && (!failed || complete && !r.through):
		r.settle(Answered, missed)
	case !failed:
		r.settle(Absent, -1)
	case shown >= 0 && r.asks[shown].kind == ClientError:
		r.settle(Answered, shown)
	default:
		r.settle(Unmet, shown)
	}
}

// readRepair returns the replicas that should get a copy of the value that the read has found,
// and the source of the copy. The source is -1 if no replica needs a copy.
func (r *Rule) readRepair() (Mask, int) {
	var missed Mask
	source, marked := -1, false
	for _, e := range r.asks[:r.n] {
		switch {
		case e.kind == Miss:
			missed |= 1 << e.replica
		case e.kind == Marked:
			marked = true
		case e.kind == Hit && source < 0:
			source = int(e.replica)
		}
	}
	if source < 0 {
		if missed &= r.in; missed == 0 || r.stale == 0 || marked {
			return 0, -1
		}
		return r.stale, missed.first()
	}
	if missed |= r.stale; missed == 0 {
		return 0, -1
	}
	return missed, source
}
