package client

// This file defines Exchange: one client command in flight, its parts, and the end of its
// reply.

import (
	"bytes"
	"log/slog"
	"slices"

	"ringside/proxy/link"
	"ringside/proxy/near"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Exchange is one client command between its request and the end of its reply. It has a fixed
// position in the order of the client's commands.
//
//	parse ► Exchange ► Attempt, Attempt … ► finish ► reply in the client's order
//
// Only the first exchange of a session writes to the client. Parts of a multi-get write as
// their replies arrive, but never into the middle of a value: see the type streams.
type Exchange struct {
	e       *Clients
	Session *Session  // the client; nil: it is gone, and replies are discarded
	Next    *Exchange // the client's next exchange; of an exchange kept for reuse: the next one in the free list

	Op        wire.Op
	dialect   wire.Dialect
	Flags     wire.Flags
	frames    framed        // receives the replies for a client of the binary protocol
	endsGroup bool          // the request is the last one in the bytes that one read of the client's socket returned
	Settled   bool          // the reply is complete
	ended     bool          // the END of a read was sent with its last VALUE
	Outcome   stats.Outcome // preliminary until the reply is complete
	Waiting   int           // unfinished requests to servers and unfinished tasks, plus one while more of them are created
	more      int           // keys of this command in flight, beyond the first: see AddWork
	Start     int64         // when the request was parsed, on the loop's clock

	MissErrors bool // if no server could answer a read, the client gets a miss and not an error
	cut        bool // the reply ends in the middle of a value, and the client is closed after it

	Out       link.Queue   // the reply, while the exchange is not the first one
	Rest      []byte       // keys of a read that were not requested yet: the command, then each key after a space; empty: none
	restHead  int          // length of the command in Rest
	restAt    int          // where in Rest the first key is that was not requested yet
	Streaming *streams     // large values that are passed on in pieces; nil: none so far
	trouble   string       // why a request or task of this command has failed; empty: none has
	replies   uint32       // number of replies sent to the client, including each VALUE of a text read: see checkReplies
	Miss      []byte       // for an mg command: the line for a miss; for a binary client: the key in its reply
	ErrLine   []byte       // a server's error line, sent instead of END; empty: none
	InOrder   *inOrder     // stores the values until they can be sent in the order of the keys; nil: they are sent as they arrive
	Lookup    *near.Lookup // the exchange's use of the near cache; nil: none

	tally
	gathering
}

// gathering has the state of a command that is sent to every server.
type gathering struct {
	Gather        Gather     // combines the replies of the servers; nil: the command is not sent to every server
	detail        link.Queue // for a binary client: the lines of stats detail dump so far, because their length must be sent before them
	parts         []*Part    // the parts of the servers
	GatheredBytes int        // memory of the replies that Gather and the parts store, and of the work of Gather on them
}

// streams decides which attempt of a command may send its value to the client now, while some
// values are so large that they are sent in pieces. The values of the other attempts are
// stored, because a value must not be sent in the middle of another.
type streams struct {
	Turn *upstream.Attempt // the attempt that is sending a value to the client; nil: none is
	Next []*heldPart       // other attempts that have received the beginning of a value
	Late link.Queue        // complete values that wait until Turn has finished

	bodyLeft int // bytes still to come of the value that is being sent to a binary client
}

// heldPart is an attempt that has received the beginning of a value, and waits until it may
// send it to the client.
type heldPart struct {
	a    *upstream.Attempt
	Held link.Queue // the beginning of the value, as far as it has arrived
}

// Gather combines the replies of several servers into one.
type Gather interface {
	// Add adds the complete reply of one server. failed says why there is none.
	Add(srv *upstream.Server, answer []byte, failed string)
	// Answer appends the combined reply to dst.
	Answer(dst []byte) ([]byte, stats.Outcome)
}

// Combiner is a Gather with so much work that it is divided into steps.
type Combiner interface {
	Gather
	// Combine does the next step, after all servers have replied. It returns true after the last step.
	// Otherwise it has added 1 to Exchange.Waiting, and FinishOne must be called in a later wakeup. Combine
	// is then called again.
	Combine(x *Exchange) (done bool)
}

// NewExchange creates the exchange for the request in e.Req, and adds it to the end of s's
// list.
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
	follows := s.Owes
	if s.Tail == nil {
		s.Head = x
		e.Awaiting++
	} else {
		s.Tail.Next, follows = x, true
	}
	if follows && s.Companion != nil {
		s.Companion.Followed(s, x)
	}
	s.Tail = x
	s.InFlight++
	s.requests++
	return x
}

func (e *Clients) freeExchange(x *Exchange) {
	if x.Out.Head != nil || x.Streaming != nil || x.detail.Head != nil { // checked here because this runs for every command, and most have nothing to drop
		x.drop()
	}
	x.Lookup.Close()
	if x.InOrder != nil {
		e.freeOrder(x.InOrder)
	}
	if x.several != nil {
		e.freeShares.Keep(x.several)
	}
	e.Buffers.Held -= int64(x.GatheredBytes)
	e.More -= x.more
	miss, errLine := x.Miss[:0], x.ErrLine[:0]
	*x = Exchange{} // an empty literal, because Go would build one with fields elsewhere and copy it
	x.Next, x.Miss, x.ErrLine = e.FreeExchanges, miss, errLine
	e.FreeExchanges = x
}

// Quiet reports whether the client continues without waiting for a reply.
func (x *Exchange) Quiet() bool {
	return x.Flags&wire.Quiet != 0 || x.Flags&wire.Binary != 0 && x.frames.head.Quiet()
}

// drop frees the bytes that x stores for the client.
func (x *Exchange) drop() {
	x.Out.Drop(&x.e.Buffers)
	x.detail.Drop(&x.e.Buffers)
	if x.Streaming != nil {
		x.Streaming.Late.Drop(&x.e.Buffers)
		for _, b := range x.Streaming.Next {
			b.Held.Drop(&x.e.Buffers)
		}
	}
}

// Emit sends b towards the client, as part of Ringside's own reply.
func (x *Exchange) Emit(b []byte) {
	if x.Flags&wire.Binary != 0 {
		x.emitFrames(b)
		return
	}
	if q := x.dest(nil); q != nil && len(b) > 0 {
		x.replies++
		q.Append(&x.e.Buffers, b)
	}
}

// EmitPart sends b towards the client, as a part of the reply to a stats command that is not the last
// one. It consists of whole lines. EmitPart returns false if the client can still get an error instead of
// the reply.
func (x *Exchange) EmitPart(b []byte) (sent bool) {
	switch {
	case len(b) == 0 || x.Session == nil:
		return false
	case x.Flags&wire.Binary != 0 && bytes.HasPrefix(b, []byte("PREFIX ")):
		x.detail.Append(&x.e.Buffers, b)
		return false
	}
	x.Emit(b)
	x.replies = 0
	return true
}

// HoldGathered counts n more bytes of memory that Gather uses for the replies; n may be negative.
func (x *Exchange) HoldGathered(n int) {
	x.GatheredBytes += n
	x.e.Buffers.Hold(n)
}

// dropGathered frees the replies of the servers, and the work of Gather on them. Later replies are discarded.
func (x *Exchange) dropGathered() {
	for _, p := range x.parts {
		p.answer = nil
	}
	x.HoldGathered(-x.GatheredBytes)
	x.gathering = gathering{}
}

// dest returns the queue for bytes of the reply to the attempt a, or of Ringside's own reply if a is nil. It returns nil if the
// client is gone.
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

// Attempt creates an attempt for the client's command, as another part of x.
func (x *Exchange) Attempt() *upstream.Attempt {
	a := x.e.Servers.NewAttempt(x)
	a.Op, a.Dialect, a.Flags = x.Op, x.dialect, x.Flags
	if a.Flags&wire.Binary != 0 {
		a.To = &x.frames
	}
	x.Waiting++
	return a
}

// of returns the part of a's value that is stored until it is the turn of that value in the reply
// to the client.
func (st *streams) of(a *upstream.Attempt) *heldPart {
	return st.Next[slices.IndexFunc(st.Next, func(b *heldPart) bool { return b.a == a })]
}

// remove removes a from the attempts that wait for their turn to send a value, and returns its
// stored bytes.
func (st *streams) remove(a *upstream.Attempt) *heldPart {
	b := st.of(a)
	st.Next = slices.DeleteFunc(st.Next, func(o *heldPart) bool { return o == b })
	return b
}

// begin records that the attempt a has received part of a value, which has size bytes.
func (x *Exchange) begin(a *upstream.Attempt, size int) {
	if x.Session != nil && x.e.Limits.Output/max(1, size) < ShareTasks {
		x.Session.noteLarge(size)
	}
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

// end records that the value of the attempt a is complete. If a had the turn, the stored values
// of other attempts follow, and the next attempt with an incomplete value gets the turn to
// send.
func (x *Exchange) end(a *upstream.Attempt) {
	if x.Session == nil { // the client is gone, and the stored bytes were freed
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

// breakOff records that the value of a will never be complete. If it was not the turn of a to
// send to the client, its bytes were only stored, so its key is a miss. Otherwise the client
// has the beginning of the value, or will get it, and its connection ends with that: breakOff
// returns true.
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

// Answer ends x with one complete reply that Ringside makes itself.
func (x *Exchange) Answer(b []byte, o stats.Outcome) {
	x.Outcome = o
	x.Emit(b)
	x.FinishOne()
}

// NoRoute is the error for a key without a route.
const NoRoute = "no route for this key: add one without a prefix"

// Reconfigured is the error for a command whose route a reload has removed while it was in flight.
const Reconfigured = "the configuration has just changed"

// Fail records that a part of x, with keys of the given share, has failed, and why. NoRoute is
// never replaced by another reason, because only a change of the configuration can fix it.
func (x *Exchange) Fail(share int32, why string, o stats.Outcome) {
	if why == "" { // without a reason, the part of x would count as answered
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

// FailByServer records that a part of the read x has failed, because a server replied with the
// error in line. The error is logged, because a client that gets a miss instead does not see
// it.
func (x *Exchange) FailByServer(share int32, server, line string) {
	x.e.LogLimited(slog.LevelWarn, server, "server replied to a read with an error", "server", server, "error", line)
	x.Fail(share, "server "+server+": "+line, stats.ServerFault)
}

// FinishOne counts one part of x as finished. After the last one, x is settled.
func (x *Exchange) FinishOne() {
	if x.Waiting--; x.Waiting == 0 {
		x.settle()
	}
}

// settle ends x after all its parts have finished: it sends the end of the reply, or requests
// the next keys in Rest.
func (x *Exchange) settle() {
	if x.Session == nil {
		x.e.freeExchange(x)
		return
	}
	if len(x.Rest) > 0 {
		x.endWork()
		x.Session.widen(max(1, x.Session.window))
		x.Session.unstall()
		return
	}
	if c, ok := x.Gather.(Combiner); ok && !c.Combine(x) { // x may be freed already
		return
	}
	x.Lookup = x.Lookup.Close()
	x.finish()
	x.Settled = true
	if x.Session.Head == x {
		x.Session.advance()
	}
}

// finish writes the end of the reply, after all parts have finished.
func (x *Exchange) finish() {
	read := x.Op >= wire.Get && x.Op <= wire.Gats
	if x.InOrder != nil {
		if x.InOrder.batch != nil { // a batch of quiet gets: each get has its reply already
			x.checkBatch()
			x.observeBatch()
			return
		}
		x.InOrder.send(&x.e.Buffers, x.dest(nil))
	}
	switch {
	case x.Flags&wire.Binary != 0 && x.Hits > 0 && x.replies > 0 && !x.cut: // the value is the whole reply, even if the server has failed after it
		x.Outcome = stats.Hit
	case x.Gather != nil:
		x.e.Line, x.Outcome = x.Gather.Answer(x.e.Line[:0])
		x.Emit(x.e.Line)
	case len(x.ErrLine) > 0:
		x.Emit(x.ErrLine)
	case x.trouble != "":
		x.finishTroubled(read || x.Op == wire.Debug)
	case x.dialect == wire.Text && read:
		if !x.ended {
			x.Emit(wire.EndLine)
		}
		x.Outcome = stats.Miss
		if x.Hits > 0 {
			x.Outcome = stats.Hit
		}
		if x.Flags&wire.Binary == 0 { // the usual case, in which checkReplies has nothing to check
			x.observe()
			return
		}
	}
	if x.replies != 1 || x.ended || x.Flags&wire.Quiet != 0 {
		x.checkReplies()
	}
	x.observe()
}

// finishTroubled writes the reply to a command that at least one server could not answer.
func (x *Exchange) finishTroubled(read bool) {
	switch {
	case read && x.MissErrors && x.trouble != NoRoute:
		switch {
		case x.dialect == wire.Text:
			x.Emit(wire.EndLine)
		case x.Op == wire.Debug || x.Flags&wire.Binary != 0:
			x.Emit([]byte(wire.AnswerMiss))
		case x.Flags&wire.Quiet == 0:
			x.Emit(x.Miss)
		}
	case x.dialect == wire.Text && x.Flags&wire.Quiet != 0: // noreply hides errors too
	default:
		x.e.Line = wire.AppendServerError(x.e.Line[:0], x.trouble)
		x.Emit(x.e.Line)
	}
}

// kept returns how many bytes x stores of a reply that waits for something.
func (x *Exchange) kept() int {
	n := x.Out.Room() + x.detail.Room() + x.GatheredBytes
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

// orphan detaches x from a client that is gone. x is freed when all its requests and tasks have
// finished.
func (x *Exchange) orphan() {
	x.drop()
	if x.Gather != nil {
		x.dropGathered()
	}
	if x.InOrder != nil && x.InOrder.batch != nil {
		x.InOrder.batch.Drop(&x.e.Buffers)
	}
	x.dropRest()
	x.Session = nil
	if x.Waiting == 0 {
		x.e.freeExchange(x)
	}
}

// advance frees the answered exchanges at the head of the list. The first unanswered one then
// writes to the client.
func (s *Session) advance() {
	e := s.e
	for s.Head != nil && s.Head.Settled {
		x := s.Head
		s.ready = s.ready || x.endsGroup
		if s.Out.Size > 0 {
			s.Whole, s.Owes = true, s.Owes || !x.Quiet()
		}
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
