package proxy

// One client command in flight, the asks it consists of, and its settlement.

import (
	"slices"
	"time"

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
	route     *route

	out      queue
	streams  *streams // values on their way in pieces; nil: there has been none
	trouble  string   // why a part could not be answered; "" if all could
	miss     []byte   // mg: the line that says so
	errLine  []byte   // a server's error line, which stands where END would
	order    *ordered // values go in the order of the keys
	gather   gather   // commands for every server: collects, then answers
	gathered int      // bytes of answers kept for it

	keys, hits int
}

// streams says whose value goes to the client now, while some are so large that
// they go in pieces. While one has the turn the other parts keep theirs.
type streams struct {
	turn *Attempt   // the part in the middle of a value; nil: no part is
	next []*Attempt // others in the middle of one of theirs
	late queue      // whole values that wait for the turn to end
}

// gather makes one answer of the answers of several servers.
type gather interface {
	// add takes one server's whole answer; failed says why there is none.
	add(srv *Server, answer []byte, failed string)
	// answer appends what the client gets.
	answer(e *Engine, dst []byte) ([]byte, Outcome)
}

// Attempt is one ask at one server. It stays in its connection's list until
// its answer has come; one that has timed out is an orphan there, which
// swallows the late answer.
type Attempt struct {
	x    *Exchange // nil: an orphan, or Ringside's own probe
	next *Attempt  // in the connection's order; in the free list

	op        wire.Op
	dialect   wire.Dialect
	flags     wire.Flags
	probe     bool          // Ringside's own, the first on each new connection
	streaming bool          // in the middle of a value
	expired   bool          // over before the socket got a byte of it
	undo      bool          // Ringside's own, which undoes a late run: see undo.go
	needs     wire.Features // of its server, to understand it; only those that were not known to be there
	deadline  int64
	sentAt    int64
	wait      time.Duration // for an answer, once the bytes are with a connection

	start uint64 // where its bytes begin in all the bytes given to this connection
	size  int

	rare *rareAttempt
	key  []byte // of a mutation whose late run must be undone, or of its undo: see undo.go
}

// rareAttempt holds what few attempts need.
type rareAttempt struct {
	held    queue    // the beginning of a value, while another part is in the middle of its own
	answer  []byte   // the answer so far, for a gather
	cut     bool     // more of it came than there was room for
	instead []byte   // what the client gets when the server has answered, whatever it said
	strip   string   // what the route took from the front of the key
	classic *classic // what it is in text, to a server that speaks only that: see release.go
	to      asker    // who wants the whole answer
	id      int      // under which number
}

func (e *Engine) newExchange(s *Session, r *route) *Exchange {
	x := e.freeExchanges
	if x == nil {
		x = new(Exchange)
	} else {
		e.freeExchanges, x.next = x.next, nil
	}
	x.s, x.route, x.start, x.waiting = s, r, e.now, 1
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

func (e *Engine) freeExchange(x *Exchange) {
	x.drop(e)
	if x.order != nil {
		x.order.drop(e)
	}
	e.gathered -= x.gathered
	miss, errLine := x.miss[:0], x.errLine[:0]
	*x = Exchange{} // in place: a literal that mentions x is made aside and copied
	x.next, x.miss, x.errLine = e.freeExchanges, miss, errLine
	e.freeExchanges = x
}

// drop lets go of the bytes that x keeps for the client.
func (x *Exchange) drop(e *Engine) {
	x.out.drop(&e.pool)
	if x.streams != nil {
		x.streams.late.drop(&e.pool)
	}
}

func (e *Engine) newAttempt(x *Exchange) *Attempt {
	a := e.freeAttempts
	if a == nil {
		a = new(Attempt)
	} else {
		e.freeAttempts, a.next = a.next, nil
	}
	a.x = x
	if x != nil {
		a.op, a.dialect, a.flags = x.op, x.dialect, x.flags
		x.waiting++
	}
	return a
}

func (e *Engine) freeAttempt(a *Attempt) {
	if a.rare != nil {
		a.rare.held.drop(&e.pool)
	}
	key := a.key[:0]
	*a = Attempt{}
	a.next, a.key = e.freeAttempts, key
	e.freeAttempts = a
}

func (a *Attempt) rarely() *rareAttempt {
	if a.rare == nil {
		a.rare = new(rareAttempt)
	}
	return a.rare
}

// emit sends b towards the client, as part of what a brings.
func (x *Exchange) emit(e *Engine, a *Attempt, b []byte) {
	if q := x.dest(e, a); q != nil {
		q.append(&e.pool, b)
	}
}

// dest is where bytes of a go now; nil if nobody waits for them.
func (x *Exchange) dest(e *Engine, a *Attempt) *queue {
	switch {
	case x.s == nil:
		return nil
	case x.streams != nil && x.streams.turn != nil && x.streams.turn != a:
		if a != nil && a.streaming {
			return &a.rarely().held
		}
		return &x.streams.late
	case x.s.head == x:
		e.mark(&x.s.Link)
		return &x.s.out
	default:
		return &x.out
	}
}

// begin says that a is in the middle of a value from now on.
func (x *Exchange) begin(a *Attempt) {
	a.streaming = true
	if x.streams == nil {
		x.streams = new(streams)
	}
	if st := x.streams; st.turn == nil {
		st.turn = a
	} else {
		st.next = append(st.next, a)
	}
}

// end says that a's value is whole. If it had the turn, what the others kept
// meanwhile follows, and the next one in the middle of a value has the turn.
func (x *Exchange) end(e *Engine, a *Attempt) {
	a.streaming = false
	if x.s == nil { // nobody waits for it; what was kept goes with a and x
		return
	}
	st := x.streams
	if st.turn != a {
		a.rare.held.moveTo(&e.pool, &st.late)
		st.next = slices.DeleteFunc(st.next, func(b *Attempt) bool { return a == b })
		return
	}
	st.turn = nil
	q := x.dest(e, nil)
	st.late.moveTo(&e.pool, q)
	if len(st.next) > 0 {
		st.turn, st.next = st.next[0], st.next[1:]
		st.turn.rare.held.moveTo(&e.pool, q)
	}
}

// answer ends x with one whole answer that Ringside makes itself.
func (x *Exchange) answer(e *Engine, b []byte, o Outcome) {
	x.outcome = o
	x.emit(e, nil, b)
	x.done(e)
}

// fail notes that a part of x got no answer, and why.
func (x *Exchange) fail(why string, o Outcome) {
	x.trouble, x.outcome = why, o
}

// done counts one of x's attempts as finished, and settles x with the last.
func (x *Exchange) done(e *Engine) {
	if x.waiting--; x.waiting > 0 {
		return
	}
	if x.s == nil {
		e.freeExchange(x)
		return
	}
	x.finish(e)
	x.settled = true
	if x.s.head == x {
		x.s.advance()
	}
}

// finish writes what ends the answer, once every part is in.
func (x *Exchange) finish(e *Engine) {
	read := x.op >= wire.Get && x.op <= wire.Gats
	hit := x.hits > 0 && x.trouble == ""
	if x.order != nil {
		x.order.send(e, x.dest(e, nil))
	}
	switch {
	case x.gather != nil:
		e.line, x.outcome = x.gather.answer(e, e.line[:0])
		x.emit(e, nil, e.line)
	case len(x.errLine) > 0:
		x.emit(e, nil, x.errLine)
	case x.trouble != "":
		x.finishTroubled(e, read || x.op == wire.Debug)
	case x.dialect == wire.Text && read:
		if !x.ended {
			x.emit(e, nil, endLine)
		}
		x.outcome = Miss
		if hit {
			x.outcome = Hit
		}
	}
	e.observe(x)
}

// finishTroubled answers a command that at least one server could not answer.
func (x *Exchange) finishTroubled(e *Engine, read bool) {
	switch {
	case read && x.route != nil && !x.route.getErrors:
		switch {
		case x.op == wire.Debug:
			x.emit(e, nil, missLine)
		case x.dialect == wire.Text:
			x.emit(e, nil, endLine)
		case x.flags&wire.Quiet == 0:
			x.emit(e, nil, x.miss)
		}
	case x.dialect == wire.Text && x.flags&wire.Quiet != 0: // noreply hides errors too
	default:
		e.line = wire.AppendServerError(e.line[:0], x.trouble)
		x.emit(e, nil, e.line)
	}
}

// kept is how many bytes of x's answer wait for something.
func (x *Exchange) kept() int {
	n := x.out.size
	if st := x.streams; st != nil {
		n += st.late.size
		for _, a := range st.next {
			n += a.rare.held.size
		}
	}
	if x.order != nil {
		for i := range x.order.values {
			n += x.order.values[i].block.size
		}
	}
	return n
}

// orphan lets go of a client that is gone. x stays until its attempts are
// finished.
func (x *Exchange) orphan(e *Engine) {
	x.drop(e)
	x.s = nil
	if x.waiting == 0 {
		e.freeExchange(x)
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
