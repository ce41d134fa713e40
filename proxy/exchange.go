package proxy

// One client command in flight, the asks it consists of, and its settlement.

import (
	"slices"

	"ringside/proxy/wire"
)

// Exchange is one client command between its request and its answer, in its
// place in the client's order.
//
//	parse ► Exchange ► Attempt, Attempt … ► finish ► answer in the client's order
//
// Only the first exchange of a session writes to the client; the others keep
// their bytes in out. Parts of a multi-get write as they come, but never into
// the middle of a value: see streams.
type Exchange struct {
	e    *Clients
	s    *Session  // nil when the client is gone: answers are swallowed
	next *Exchange // in the client's order; in the free list

	op        wire.Op
	dialect   wire.Dialect
	flags     wire.Flags
	endsGroup bool // the last request of one read from the client
	settled   bool // the answer is complete
	ended     bool // its END went with its last VALUE
	outcome   Outcome
	waiting   int // attempts not finished, and one while they are being made
	start     int64

	missErrors bool // a read that no server could answer gets a miss

	out     queue
	streams *streams // values on their way in pieces; nil: there has been none
	trouble string   // why a part could not be answered; "" if all could
	miss    []byte   // mg: the line that says so
	errLine []byte   // a server's error line, which stands where END would
	order   *ordered // values go in the order of the keys
	gather  gather   // commands for every server: collects, then answers
	held    int      // bytes of answers that it gathers

	keys, hits int
}

// streams says whose value goes to the client now, while some are so large that
// they go in pieces. While one has the turn the other parts keep theirs.
type streams struct {
	turn *Attempt  // the part in the middle of a value; nil: no part is
	next []*behind // others in the middle of one of theirs
	late queue     // whole values that wait for the turn to end
}

// behind is a part in the middle of a value that waits for its turn.
type behind struct {
	a    *Attempt
	held queue // what has come of it
}

// gather makes one answer of the answers of several servers.
type gather interface {
	// add takes one server's whole answer; failed says why there is none.
	add(srv *Server, answer []byte, failed string)
	// answer appends what the client gets.
	answer(dst []byte) ([]byte, Outcome)
}

// newExchange begins the exchange of the request in e.req.
func (e *Clients) newExchange(s *Session) *Exchange {
	x := e.freeExchanges
	if x == nil {
		x = new(Exchange)
		e.pool.held += exchangeSize
	} else {
		e.freeExchanges, x.next = x.next, nil
	}
	x.e, x.s, x.start, x.waiting = e, s, e.now, 1
	x.op, x.dialect, x.flags = e.req.Op, e.req.Dialect, e.req.Flags
	if s.tail == nil {
		s.head = x
		e.waiting++
	} else {
		s.tail.next = x
	}
	s.tail = x
	s.inFlight++
	return x
}

func (e *Clients) freeExchange(x *Exchange) {
	x.drop()
	if x.order != nil {
		x.order.drop(&x.e.pool)
	}
	e.pool.held -= int64(x.held)
	miss, errLine := x.miss[:0], x.errLine[:0]
	*x = Exchange{} // in place: a literal that mentions x is made aside and copied
	x.next, x.miss, x.errLine = e.freeExchanges, miss, errLine
	e.freeExchanges = x
}

// drop lets go of the bytes that x keeps for the client.
func (x *Exchange) drop() {
	x.out.drop(&x.e.pool)
	if x.streams != nil {
		x.streams.late.drop(&x.e.pool)
		for _, b := range x.streams.next {
			b.held.drop(&x.e.pool)
		}
	}
}

// emit sends b towards the client, as part of what a brings.
func (x *Exchange) emit(a *Attempt, b []byte) {
	if q := x.dest(a); q != nil {
		q.append(&x.e.pool, b)
	}
}

// dest is where bytes of a go now; nil if nobody waits for them.
func (x *Exchange) dest(a *Attempt) *queue {
	switch {
	case x.s == nil:
		return nil
	case x.streams != nil && x.streams.turn != nil && x.streams.turn != a:
		if a != nil && a.streams {
			return &x.streams.of(a).held
		}
		return &x.streams.late
	case x.s.head == x:
		x.e.mark(&x.s.Link)
		return &x.s.out
	default:
		return &x.out
	}
}

// attempt is one more ask that x waits for, on behalf of its client's command.
func (x *Exchange) attempt() *Attempt {
	a := x.e.servers.newAttempt(x)
	a.op, a.dialect, a.flags = x.op, x.dialect, x.flags
	x.waiting++
	return a
}

// of is the part a among those that wait for their turn.
func (st *streams) of(a *Attempt) *behind {
	return st.next[slices.IndexFunc(st.next, func(b *behind) bool { return b.a == a })]
}

// begin says that a is in the middle of a value from now on.
func (x *Exchange) begin(a *Attempt) {
	a.streams = true
	if x.streams == nil {
		x.streams = new(streams)
	}
	if st := x.streams; st.turn == nil {
		st.turn = a
	} else {
		st.next = append(st.next, &behind{a: a})
	}
}

// end says that a's value is whole. If it had the turn, what the others kept
// meanwhile follows, and the next one in the middle of a value has the turn.
func (x *Exchange) end(a *Attempt) {
	if x.s == nil { // nobody waits for it; what was kept goes with x
		return
	}
	st := x.streams
	if st.turn != a {
		b := st.of(a)
		b.held.moveTo(&x.e.pool, &st.late)
		st.next = slices.DeleteFunc(st.next, func(o *behind) bool { return o == b })
		return
	}
	st.turn = nil
	q := x.dest(nil)
	st.late.moveTo(&x.e.pool, q)
	if len(st.next) > 0 {
		b := st.next[0]
		st.turn, st.next = b.a, st.next[1:]
		b.held.moveTo(&x.e.pool, q)
	}
}

// answer ends x with one whole answer that Ringside makes itself.
func (x *Exchange) answer(b []byte, o Outcome) {
	x.outcome = o
	x.emit(nil, b)
	x.done()
}

// noRoute is why a key gets no answer that no route takes.
const noRoute = "no route for this key: add one without a prefix"

// fail notes that a part of x got no answer, and why. That a key has no route
// is said before all else: nothing but the configuration can end it.
func (x *Exchange) fail(why string, o Outcome) {
	if x.trouble != noRoute {
		x.trouble, x.outcome = why, o
	}
}

// done counts one of x's attempts as finished, and settles x with the last.
func (x *Exchange) done() {
	if x.waiting--; x.waiting > 0 {
		return
	}
	if x.s == nil {
		x.e.freeExchange(x)
		return
	}
	x.finish()
	x.settled = true
	if x.s.head == x {
		x.s.advance()
	}
}

// finish writes what ends the answer, once every part is in.
func (x *Exchange) finish() {
	read := x.op >= wire.Get && x.op <= wire.Gats
	hit := x.hits > 0 && x.trouble == ""
	if x.order != nil {
		x.order.send(&x.e.pool, x.dest(nil))
	}
	switch {
	case x.gather != nil:
		x.e.line, x.outcome = x.gather.answer(x.e.line[:0])
		x.emit(nil, x.e.line)
	case len(x.errLine) > 0:
		x.emit(nil, x.errLine)
	case x.trouble != "":
		x.finishTroubled(read || x.op == wire.Debug)
	case x.dialect == wire.Text && read:
		if !x.ended {
			x.emit(nil, wire.EndLine)
		}
		x.outcome = Miss
		if hit {
			x.outcome = Hit
		}
	}
	x.observe()
}

// finishTroubled answers a command that at least one server could not answer.
func (x *Exchange) finishTroubled(read bool) {
	switch {
	case read && x.missErrors && x.trouble != noRoute:
		switch {
		case x.op == wire.Debug:
			x.emit(nil, []byte(wire.AnswerMiss))
		case x.dialect == wire.Text:
			x.emit(nil, wire.EndLine)
		case x.flags&wire.Quiet == 0:
			x.emit(nil, x.miss)
		}
	case x.dialect == wire.Text && x.flags&wire.Quiet != 0: // noreply hides errors too
	default:
		x.e.line = wire.AppendServerError(x.e.line[:0], x.trouble)
		x.emit(nil, x.e.line)
	}
}

// kept is what x's answer takes while it waits for something.
func (x *Exchange) kept() int {
	n := x.out.room() + x.held
	if st := x.streams; st != nil {
		n += st.late.room()
		for _, b := range st.next {
			n += b.held.room()
		}
	}
	if x.order != nil {
		n += x.order.held
		for i := range x.order.values {
			n += x.order.values[i].block.room()
		}
	}
	return n
}

// orphan lets go of a client that is gone. x stays until its attempts are
// finished.
func (x *Exchange) orphan() {
	x.drop()
	x.s = nil
	if x.waiting == 0 {
		x.e.freeExchange(x)
	}
}

// advance lets go of the answered exchanges at the head of the order, and
// hands the output to the next.
func (s *Session) advance() {
	e := s.e
	for s.head != nil && s.head.settled {
		x := s.head
		s.ready = s.ready || x.endsGroup
		s.whole = s.whole || s.out.size > 0
		s.inFlight--
		s.head = x.next
		e.freeExchange(x)
		if s.head != nil {
			s.head.out.moveTo(&e.pool, &s.out)
		}
	}
	if s.head == nil {
		s.tail = nil
		s.ready = true
		e.waiting--
	}
	e.mark(&s.Link)
	s.unstall()
}

// observe counts a command that has its answer.
func (x *Exchange) observe() {
	c, now := &x.e.count, x.e.now
	c.Requests[x.op][x.outcome]++
	c.Latency[x.op].Observe(now - x.start)
	if x.op >= wire.Get && x.op <= wire.Gats {
		hits := x.hits
		if x.dialect == wire.Meta && x.outcome == Hit {
			hits = 1
		}
		c.KeysHit += uint64(hits)
		if missed := x.keys - hits; missed > 0 {
			if x.trouble != "" {
				c.KeysFailed += uint64(missed) // some may be true misses: nobody can know
			} else {
				c.KeysMissed += uint64(missed)
			}
		}
	}
}
