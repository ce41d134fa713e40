package upstream

// One request to one server, and who gets the answer.

import (
	"unsafe"

	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream/names"
	"ringside/proxy/wire"
)

// Attempt is one request to one server. It stays in its connection's queue until
// its answer has come. One that has timed out is an orphan there, which swallows
// the late answer.
type Attempt struct {
	To   Receiver // who gets the answer; nil: an orphan, the greeting, or a late delete
	Next *Attempt // in the queue; in the free list

	Op      wire.Op
	Dialect wire.Dialect
	Flags   wire.Flags

	asked bool          // it is Ringside's own, for an Asker
	Ping  bool          // it asks whether an idle connection still works: see keepalive.go
	needs wire.Features // of its server, to understand it; only those that were not known to be there

	Values     bool // the Observer is told of a VALUE, too: there are many keys, or it is touched
	Probe      bool // it is the greeting, the first on each new connection
	Begun      bool // its answer has begun, and is not whole
	Streams    bool // its receiver is in the middle of a value
	TakenOver  bool // a task has taken over from its receiver, with its answer or without
	Internal   bool // it is Ringside's own: the queue's bound for clients does not count it
	expired    bool // it is over before the socket got a byte of it
	LateDelete bool // it is the delete behind a mutation that may run late: see latedelete.go
	timing

	Start uint64 // position of its first byte: see Conn
	Size  int    // bytes of the request

	names.Names      // what its answer must name
	OwnOpaque   bool // the opaque is Ringside's own: the answer is shown without it

	TTL   uint32 // of what it stores or touches, for Observer.Fate
	Share int32  // of its exchange: see client.Exchange.Share
	late

	AsText *textForm // what it is in text, to a server that speaks only that: see release.go
}

// late is what an attempt leaves behind if it runs when nobody waits for it any
// more: see latedelete.go.
type late struct {
	behind      Behind // what goes behind it
	LeavesValue bool   // it is a mutation that can leave a value then: see package task
}

// timing is how long an attempt may take, see Conn.postpone, and has taken.
type timing struct {
	Deadline int64           // on the loop's clock: it is not due before
	sentAt   int64           // when it was put into the queue
	takenAt  int64           // when the socket took it, if that was much later than the wakeup began; 0: it was not
	begunAt  int64           // when its answer began, if that was not whole at once
	limits   *table.Timeouts // of its command; nil: Ringside's own, for which nobody waits
}

// Receiver gets the answer to an attempt. It is told of each attempt either
// Done or Failed, once.
type Receiver interface {
	// Reply takes one reply of the answer: r, whose bytes are b. They are valid
	// during the call. When an END is known to follow a VALUE it is in b, behind
	// r.Size bytes, and r is the last. Reply returns how many bytes it has taken
	// out of the input with IO.Take.
	Reply(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int)

	// Done is told that the answer is complete, when a is off its connection.
	Done(c *Conn, a *Attempt)

	// Failed is told that there will be no answer, or no more of it.
	Failed(c *Conn, a *Attempt, f Failure)

	// Client is the number of the client that waits for the answer; 0: none does.
	Client() uint64
}

// Streamer is a Receiver that may take a value before all of it is here.
type Streamer interface {
	Receiver

	// Streams says whether the value of the head r, of which not all is here, is
	// to come piece by piece. b is what is here of it.
	Streams(r *wire.Reply, b []byte) bool

	// Begin takes b, the head of the value and what is here of it. It returns how
	// many bytes of b it has taken out of the input.
	Begin(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int)

	// More takes b, more bytes of the value; last says that there are no more.
	More(c *Conn, a *Attempt, b []byte, last bool) (taken int)

	// Behind says that the client does not take what has come for it.
	Behind() bool
}

// Taker is a Streamer that takes back what it has asked, a read of whose answer
// nothing has come, and asks again: that is neither done nor failed.
type Taker interface {
	Streamer
	TakeBack(a *Attempt)
}

// Failure is why there is no answer.
type Failure struct {
	Why     string // for people: the server and the reason
	Outcome stats.Outcome
	Unsent  bool // the server has not got a byte of the request, which can't run later
	Busy    bool // the server has sent something since the request was put into the queue
	Foreign bool // the server was not asked, because its release doesn't know the command
}

// NewAttempt makes an attempt whose answer to gets.
func (e *Servers) NewAttempt(to Receiver) *Attempt {
	a := e.FreeAttempts
	if a == nil {
		a = new(Attempt)
		e.Buffers.Held += AttemptSize
	} else {
		e.FreeAttempts, a.Next = a.Next, nil
	}
	a.To = to
	return a
}

// AttemptSize is what an attempt counts against limits.memory: itself, and what
// its connection and its receiver keep with it.
const AttemptSize = int64(unsafe.Sizeof(Attempt{})) + 256

// TrimAttempts gives up the attempts that are kept for reuse.
func (e *Servers) TrimAttempts() {
	for a := e.FreeAttempts; a != nil; a = a.Next {
		e.Buffers.Held -= AttemptSize
	}
	e.FreeAttempts = nil
}

func (e *Servers) freeAttempt(a *Attempt) {
	keys := a.Room()[:0]
	if cap(keys) > manyKeys {
		e.Buffers.Held -= int64(cap(keys))
		keys = nil
	}
	*a = Attempt{}
	a.Next = e.FreeAttempts
	a.Reuse(keys)
	e.FreeAttempts = a
}

// manyKeys is how many bytes of keys an attempt may have without counting them:
// more count against limits.memory, and a free attempt does not keep them.
const manyKeys = 1 << 10

// Asker gets the whole answers to what it has asked by Servers.Ask, each once.
type Asker interface {
	// Answered is told how the ask with the number id ended. The result is valid
	// during the call.
	Answered(id int, r *Result)

	// Client is the number of the client that waits for the answer; 0: none does.
	Client() uint64
}

// Pinger is an Asker that wants to know whether a server is there. One that is too
// old for what was asked is asked for its version instead.
type Pinger interface {
	Asker

	// Pings does nothing: it tells a Pinger from an Asker.
	Pings()
}

// Result is how an ask ended.
type Result struct {
	Server *Server
	Bytes  []byte     // the whole answer; nil: there is none. If it is Foreign, an error line
	Reply  wire.Reply // the first reply of Bytes; its Kind is NoReply if there is no answer
	Via
	Failure

	// Behind is what goes behind the mutation if it may run late. The Asker may
	// change it while it is told.
	Behind Behind
}

// Via is the way of an answer. A server that is started anew gives the same cas
// numbers again, so one is worth something only beside the connection that brought
// it.
type Via struct {
	conn  *Conn // to be compared only: it may be another loop's
	life  uint64
	Asked int64 // when the request was given to the connection
}

// Via is the way of a's answer, which c has brought.
func (c *Conn) Via(a *Attempt) Via { return Via{conn: c, life: c.life.n, Asked: a.sentAt} }

// Same says that two answers came on one connection, so from one process.
func (v Via) Same(o Via) bool { return v.conn == o.conn && v.life == o.life }

// Void says that the connection has ended that brought the answer, or that there is
// none: whoever answers there now may be another process. Only the loop may ask that
// whose connection it was.
func (v Via) Void() bool {
	return v.conn == nil || v.conn.State != ConnUp || v.conn.life.n != v.life
}

// Reaches says that what is sent on c now runs, if it runs, in the process that
// the answer v came from: v came on c, which has not ended since, or was asked for
// when c was there already. Processes at an address follow each other, so c can't
// be a connection to an older one that still answers.
func (c *Conn) Reaches(v Via) bool {
	return c.State == ConnUp && (c == v.conn && c.life.n == v.life || c.life.upAt < v.Asked)
}

// Ask sends line, one whole request of a client's or of Ringside's own (internal),
// behind what c has to send. It delivers the answer to the receiver to, tagged id,
// or, after the time that t gives it, the failure.
func (e *Servers) Ask(c *Conn, to Asker, id int, t *table.Timeouts, line []byte, internal bool) {
	e.Wire.Next(line, &e.Plain)
	e.AskParsed(c, to, id, t, line, internal)
}

// AskParsed is Ask for a line that has been parsed into e.Plain.
func (e *Servers) AskParsed(c *Conn, to Asker, id int, t *table.Timeouts, line []byte, internal bool) {
	r := &e.Plain
	line = e.Wire.CutKey(line, r)
	a := e.NewAttempt(&Collector{To: to, ID: id})
	a.Op, a.Dialect, a.Flags = r.Op, r.Dialect, r.Flags
	if internal {
		c.MarkInternal(a)
	}
	key := r.Key.Of(line)
	if r.Flags&wire.Base64 != 0 {
		key, _ = wire.DecodeKey(nil, key)
	}
	a.Remember(r, line, key)
	needs := r.Needs()
	e.AskAttempt(c, a, t, needs, e.withOpaque(a, line))
}

// MarkInternal says that a, which c is about to get, is Ringside's own.
func (c *Conn) MarkInternal(a *Attempt) {
	a.Internal = true
	c.Internal++
}

// AskAttempt is Ask for an attempt that knows already who gets the answer and what
// line is; needs is what the server must understand.
func (e *Servers) AskAttempt(c *Conn, a *Attempt, t *table.Timeouts, needs wire.Features, line []byte) {
	a.asked = true
	c.Enqueue(a, t, needs, line)
}

// Collector collects an answer for an Asker.
type Collector struct {
	To     Asker
	ID     int
	result Result
}

func (w *Collector) Reply(_ *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int) {
	switch is := &w.result; {
	case a.OwnOpaque && r.Opaque.End > 0:
		is.SetAnswer(a.Op, a.Dialect, withoutOpaque(b, r))
	case is.Bytes == nil:
		is.Reply = *r
		fallthrough
	default:
		is.Bytes = append(is.Bytes, b...)
	}
	return 0
}

func (w *Collector) Done(c *Conn, a *Attempt) {
	w.result.Server, w.result.Via = c.Server, c.Via(a)
	w.To.Answered(w.ID, &w.result)
}

func (w *Collector) Failed(c *Conn, a *Attempt, f Failure) {
	r := &w.result
	*r = Result{Server: c.Server, Failure: f}
	if f.Foreign {
		r.SetAnswer(a.Op, a.Dialect, wire.AppendClientError(nil, f.Why))
	}
	w.To.Answered(w.ID, r)
	a.behind = r.Behind
}

// pings says whether the Asker is a Pinger.
func (w *Collector) pings() bool {
	_, ok := w.To.(Pinger)
	return ok
}

func (w *Collector) Client() uint64 { return w.To.Client() }

// LastOf is when the last bytes came of an answer to one of to's asks that has begun
// and is not whole; 0: there is none.
func (e *Servers) LastOf(to Asker) (at int64) {
	for _, srv := range e.List {
		for _, c := range srv.Conns {
			if a := c.Head; a != nil && a.Begun {
				if w, ok := a.To.(*Collector); ok && w.To == to {
					at = max(at, c.lastIn)
				}
			}
		}
	}
	return at
}

// SetAnswer makes b, which Ringside has made, the answer to op.
func (r *Result) SetAnswer(op wire.Op, d wire.Dialect, b []byte) {
	r.Bytes = b
	wire.NextReply(op, d, b, &r.Reply)
}
