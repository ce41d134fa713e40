package client

// One client command in flight: its parts, and what ends its answer.

import (
	"log/slog"
	"slices"

	"ringside/proxy/link"
	"ringside/proxy/near"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Exchange is one client command between its request and its answer, in its
// place in the client's order.
//
//	parse ► Exchange ► Attempt, Attempt … ► finish ► answer in the client's order
//
// Only the first of a session writes to the client. Parts of a multi-get write
// as they come, but never into the middle of a value: see streams.
type Exchange struct {
	e       *Clients
	Session *Session  // nil when the client is gone: answers are swallowed
	Next    *Exchange // in the client's order; in the list of free ones

	Op        wire.Op
	dialect   wire.Dialect
	Flags     wire.Flags
	frames    framed        // of a binary client
	endsGroup bool          // it is the last request of one read from the client
	Settled   bool          // the answer is complete
	ended     bool          // the END of a read went with its last VALUE
	Outcome   stats.Outcome // so far, then for good
	Waiting   int           // parts without their end, and one while parts are being made
	more      int           // keys in flight beyond the first; see AddWork
	Start     int64         // when the request was parsed, on the loop's clock

	MissErrors bool // of a read that no server could answer a miss is shown, not the error
	cut        bool // it ends in the middle of a value, and with it all that its client gets

	Out       link.Queue  // the answer, while the exchange is not first
	Rest      []byte      // a read of keys that have not been asked for yet: the command, then each key after a space; empty: all have
	restHead  int         // bytes of the command in Rest
	restAt    int         // where in Rest the first key is that has not been asked for
	Streaming *streams    // large values on their way in pieces; nil: there has been none
	trouble   string      // why a part could not be answered; empty: all could
	replies   uint32      // replies given to the client, and values of a text read: see checkReplies
	Miss      []byte      // of an mg: the line that says so; of a binary client the key that its answer carries
	ErrLine   []byte      // a server's error line, which stands where END would; empty: there is none
	InOrder   *inOrder    // keeps the values until they can go in the order of the keys; nil: they go as they come
	Stake     *near.Stake // what it has to do with values that are kept here; nil: nothing

	tally
	gathering
}

// gathering is for a command to every server.
type gathering struct {
	Gather        Gather // makes one answer of theirs; nil: it is no such command
	GatheredBytes int    // of answers that Gather keeps
}

// streams says which part's value goes to the client now, while some values are so
// large that they go in pieces. The other parts keep theirs meanwhile: a value must
// not go into the middle of another.
type streams struct {
	Turn *upstream.Attempt // the part in the middle of the value that goes to the client; nil: none does
	Next []*heldPart       // other parts that are in the middle of a value
	Late link.Queue        // whole values that wait until Turn is through

	bodyLeft int // bytes still to come of the value of a binary client's
}

// heldPart is a part in the middle of a value that waits for its turn.
type heldPart struct {
	a    *upstream.Attempt
	Held link.Queue // what has come of its value
}

// Gather makes one answer of the answers of several servers.
type Gather interface {
	// Add takes one server's whole answer; failed says why there is none.
	Add(srv *upstream.Server, answer []byte, failed string)
	// Answer appends what the client gets.
	Answer(dst []byte) ([]byte, stats.Outcome)
}

// NewExchange begins the exchange of the request in e.Req, which is the last of s now.
func (e *Clients) NewExchange(s *Session) *Exchange {
	x := e.FreeExchanges
	if x == nil {
		x = new(Exchange)
		e.Buffers.Held += ExchangeSize
	} else {
		e.FreeExchanges, x.Next = x.Next, nil
	}
	x.e, x.Session, x.Start, x.Waiting = e, s, e.Now, 1
	x.Op, x.dialect, x.Flags = e.Req.Op, e.Req.Dialect, e.Req.Flags
	if x.Flags&wire.Binary != 0 {
		x.beginFrame()
	}
	if s.Tail == nil {
		s.Head = x
		e.Awaiting++
	} else {
		s.Tail.Next = x
		if s.Companion != nil {
			s.Companion.Followed(s, x)
		}
	}
	s.Tail = x
	s.InFlight++
	s.requests++
	return x
}

func (e *Clients) freeExchange(x *Exchange) {
	if x.Out.Head != nil || x.Streaming != nil { // most have nothing: it is asked here, for every command comes by
		x.drop()
	}
	x.Stake.Over()
	if x.InOrder != nil {
		e.freeOrder(x.InOrder)
	}
	if x.several != nil {
		e.freeShares = append(e.freeShares, x.several)
	}
	e.Buffers.Held -= int64(x.GatheredBytes)
	e.More -= x.more
	miss, errLine := x.Miss[:0], x.ErrLine[:0]
	*x = Exchange{} // a literal that mentioned x would be made aside and copied
	x.Next, x.Miss, x.ErrLine = e.FreeExchanges, miss, errLine
	e.FreeExchanges = x
}

// Quiet says that the client does not wait for an answer before it goes on.
func (x *Exchange) Quiet() bool {
	return x.Flags&wire.Quiet != 0 || x.Flags&wire.Binary != 0 && x.frames.head.Quiet()
}

// drop lets go of the bytes that x keeps for the client.
func (x *Exchange) drop() {
	x.Out.Drop(&x.e.Buffers)
	if x.Streaming != nil {
		x.Streaming.Late.Drop(&x.e.Buffers)
		for _, b := range x.Streaming.Next {
			b.Held.Drop(&x.e.Buffers)
		}
	}
}

// Emit sends b towards the client, as part of the answer to a; nil: of Ringside's own answer.
func (x *Exchange) Emit(a *upstream.Attempt, b []byte) {
	if x.Flags&wire.Binary != 0 {
		x.emitFrames(a, b)
		return
	}
	if q := x.dest(a); q != nil && len(b) > 0 {
		x.replies++
		q.Append(&x.e.Buffers, b)
	}
}

// dest is where bytes of a go now; nil if nobody waits for them.
func (x *Exchange) dest(a *upstream.Attempt) *link.Queue {
	switch {
	case x.Session == nil:
		return nil
	case x.Streaming != nil && x.Streaming.Turn != nil && x.Streaming.Turn != a:
		if a != nil && a.Streams {
			return &x.Streaming.of(a).Held
		}
		return &x.Streaming.Late
	case x.Session.Head == x:
		x.e.Mark(&x.Session.Link)
		return &x.Session.Out
	default:
		return &x.Out
	}
}

// Attempt makes an attempt of the client's command, as one more part of x.
func (x *Exchange) Attempt() *upstream.Attempt {
	a := x.e.Servers.NewAttempt(x)
	a.Op, a.Dialect, a.Flags = x.Op, x.dialect, x.Flags
	if a.Flags&wire.Binary != 0 {
		a.To = &x.frames
	}
	x.Waiting++
	return a
}

// of is what is kept of a's value, which waits for its turn.
func (st *streams) of(a *upstream.Attempt) *heldPart {
	return st.Next[slices.IndexFunc(st.Next, func(b *heldPart) bool { return b.a == a })]
}

// remove takes a off those that wait for their turn.
func (st *streams) remove(a *upstream.Attempt) *heldPart {
	b := st.of(a)
	st.Next = slices.DeleteFunc(st.Next, func(o *heldPart) bool { return o == b })
	return b
}

// begin notes that a is in the middle of a value.
func (x *Exchange) begin(a *upstream.Attempt) {
	a.Streams = true
	if x.Streaming == nil {
		x.Streaming = new(streams)
	}
	if st := x.Streaming; st.Turn == nil {
		st.Turn = a
	} else {
		st.Next = append(st.Next, &heldPart{a: a})
	}
}

// end notes that a's value is whole. If it had the turn, what the others kept
// meanwhile follows, and the next part in the middle of a value has the turn.
func (x *Exchange) end(a *upstream.Attempt) {
	if x.Session == nil { // the client is gone, and with it what was kept
		return
	}
	st := x.Streaming
	if st.Turn != a {
		st.remove(a).Held.MoveTo(&x.e.Buffers, &st.Late)
		return
	}
	st.Turn = nil
	q := x.dest(nil)
	st.Late.MoveTo(&x.e.Buffers, q)
	if len(st.Next) > 0 {
		b := st.Next[0]
		st.Turn, st.Next = b.a, st.Next[1:]
		b.Held.MoveTo(&x.e.Buffers, q)
	}
}

// breakOff says that the value that a is in the middle of will never be whole. A
// part whose turn it is not has only kept what came of it, so that its key is a
// miss. Else the client has the beginning of the value, or will have: with that its answers end.
func (x *Exchange) breakOff(a *upstream.Attempt) (cut bool) {
	st := x.Streaming
	if st.Turn != a {
		st.remove(a).Held.Drop(&x.e.Buffers)
		x.hit(a.Share, -1)
		return false
	}
	x.cut = true
	return true
}

// Answer ends x with one whole answer that Ringside makes itself.
func (x *Exchange) Answer(b []byte, o stats.Outcome) {
	x.Outcome = o
	x.Emit(nil, b)
	x.FinishOne()
}

// NoRoute is why a key that no route takes gets no answer.
const NoRoute = "no route for this key: add one without a prefix"

// Fail notes that a part of x, on keys of that share, got no answer, and why. NoRoute
// counts before all else: nothing but the configuration can end it.
func (x *Exchange) Fail(share int32, why string, o stats.Outcome) {
	if why == "" { // else it would pass for a part that was answered
		x.e.replyFault(x.Session, x.Op, unexplained)
		why = unexplained
	}
	if x.several != nil && share != NoShare {
		x.several.list[share].failed = true
	}
	if x.trouble != NoRoute {
		x.trouble, x.Outcome = why, o
	}
}

// FailByServer is Fail for a read that server answered with the error line. It is logged,
// because a client that gets a miss in its place learns nothing of it.
func (x *Exchange) FailByServer(share int32, server, line string) {
	x.e.LogLimited(slog.LevelWarn, server, "a server answered a read with an error", "server", server, "error", line)
	x.Fail(share, "server "+server+": "+line, stats.ServerFault)
}

// FinishOne counts one of x's parts as finished. With the last, x is settled.
func (x *Exchange) FinishOne() {
	if x.Waiting--; x.Waiting == 0 {
		x.settle()
	}
}

// settle ends x, of which all parts are in: its client gets the end of the answer.
func (x *Exchange) settle() {
	if x.Session == nil {
		x.e.freeExchange(x)
		return
	}
	if len(x.Rest) > 0 {
		x.endWork()
		x.Session.widen()
		x.Session.unstall()
		return
	}
	x.Stake = x.Stake.Over()
	x.finish()
	x.Settled = true
	if x.Session.Head == x {
		x.Session.advance()
	}
}

// finish writes what ends the answer, once every part is in.
func (x *Exchange) finish() {
	read := x.Op >= wire.Get && x.Op <= wire.Gats
	if x.InOrder != nil {
		if x.InOrder.batch != nil { // each of its gets has its answer
			x.checkBatch()
			x.observeBatch()
			return
		}
		x.InOrder.send(&x.e.Buffers, x.dest(nil))
	}
	switch {
	case x.Gather != nil:
		x.e.Line, x.Outcome = x.Gather.Answer(x.e.Line[:0])
		x.Emit(nil, x.e.Line)
	case len(x.ErrLine) > 0:
		x.Emit(nil, x.ErrLine)
	case x.trouble != "":
		x.finishTroubled(read || x.Op == wire.Debug)
	case x.dialect == wire.Text && read:
		if !x.ended {
			x.Emit(nil, wire.EndLine)
		}
		x.Outcome = stats.Miss
		if x.Hits > 0 {
			x.Outcome = stats.Hit
		}
	}
	if x.replies != 1 || x.ended || x.Flags&wire.Quiet != 0 {
		x.checkReplies()
	}
	x.observe()
}

// finishTroubled answers a command that at least one server could not answer.
func (x *Exchange) finishTroubled(read bool) {
	switch {
	case read && x.MissErrors && x.trouble != NoRoute:
		switch {
		case x.dialect == wire.Text:
			x.Emit(nil, wire.EndLine)
		case x.Op == wire.Debug || x.Flags&wire.Binary != 0:
			x.Emit(nil, []byte(wire.AnswerMiss))
		case x.Flags&wire.Quiet == 0:
			x.Emit(nil, x.Miss)
		}
	case x.dialect == wire.Text && x.Flags&wire.Quiet != 0: // noreply hides errors too
	default:
		x.e.Line = wire.AppendServerError(x.e.Line[:0], x.trouble)
		x.Emit(nil, x.e.Line)
	}
}

// kept is how many bytes x keeps of an answer that waits for something.
func (x *Exchange) kept() int {
	n := x.Out.Room() + x.GatheredBytes
	if st := x.Streaming; st != nil {
		n += st.Late.Room()
		for _, b := range st.Next {
			n += b.Held.Room()
		}
	}
	if x.InOrder != nil {
		n += x.InOrder.kept()
	}
	return n
}

// orphan lets go of a client that is gone. x stays until its parts are finished.
func (x *Exchange) orphan() {
	x.drop()
	if x.InOrder != nil && x.InOrder.batch != nil {
		x.InOrder.batch.Drop(&x.e.Buffers)
	}
	x.dropRest()
	x.Session = nil
	if x.Waiting == 0 {
		x.e.freeExchange(x)
	}
}

// advance lets go of the answered exchanges at the head of the order, and hands the output to the next.
func (s *Session) advance() {
	e := s.e
	for s.Head != nil && s.Head.Settled {
		x := s.Head
		s.ready = s.ready || x.endsGroup
		s.Whole = s.Whole || s.Out.Size > 0
		s.InFlight--
		s.more -= x.more
		s.Head = x.Next
		e.freeExchange(x)
		if s.Head != nil {
			s.Head.Out.MoveTo(&e.Buffers, &s.Out)
			if s.Head.cut {
				s.cut(s.Head)
				return
			}
		}
	}
	if s.Head == nil {
		s.Tail = nil
		s.ready = true
		e.Awaiting--
	}
	e.Mark(&s.Link)
	s.unstall()
}
