package upstream

// This file defines attempts (requests in the queue of a connection), and the receivers of replies.

import (
	"unsafe"

	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Attempt is one request to one server. It stays in its connection's queue until its reply is
// complete. After a timeout it stays there without a receiver (as an orphan), and the late reply is
// discarded.
type Attempt struct {
	To   Receiver // gets the reply; nil: nothing waits for the reply any more, or the request is the greeting, a ping or a late delete
	Next *Attempt // the next attempt in the queue, or in the free list

	Op      wire.Op
	Dialect wire.Dialect
	Flags   wire.Flags

	asked bool          // the request was sent by Servers.Ask or Conn.AskFirst, so it does not count as a failed client request
	Ping  bool          // the request checks whether an idle connection still works: see keepalive.go
	needs wire.Features // what the server must understand to run the request, if that was not known when the request was queued; else 0

	Values     bool // a VALUE in the reply is also reported to Observer.Observe: the request has many keys, or touches the item
	Probe      bool // the request is the greeting, the first request on each new connection, or the login before it
	Begun      bool // part of the reply has arrived, but not all
	Streams    bool // the receiver (To) has received the beginning of a value, but not the end
	Internal   bool // the request is Ringside's own: the limit of client requests in the queue does not count it
	expired    bool // the request timed out, or its connection ended, before the socket accepted any byte of it
	LateDelete bool // the request is the delete after a mutation that may run late: see latedelete.go
	timing

	Start uint64 // position of the request's first byte among the bytes for the connection's current socket: see Conn
	Size  int    // length of the request in bytes

	Names                  // the keys and the opaque that the reply must name
	Shows     wire.Letters // flags that the reply to a hit must have; 0: it is not checked
	OwnOpaque bool         // the opaque in the request was added by Ringside, so it is removed from the reply

	TTL   uint32 // TTL of the value that the request stores or touches, for Observer.Observe
	Share int32  // index of the route in the shares of its exchange: see client.Exchange.Share
	late

	AsText *textForm // set if the request was sent as text, because the server has no meta commands: see release.go
}

// late says what is sent after a mutation that may still run when its client no longer waits: see
// latedelete.go.
type late struct {
	behind      LateAction // what is sent after the mutation, if it may run late: a delete, a tombstone or nothing
	LeavesValue bool       // the mutation, if it runs late, can replace a newer value: see task.LeavesValue
}

// timing has the deadline of an attempt (see Conn.postpone), and the times of its steps, on the loop's
// clock.
type timing struct {
	Deadline int64           // a lower bound: the attempt does not time out earlier
	sentAt   int64           // when the request was added to the queue
	takenAt  int64           // when the socket accepted the request, if that was much later than the start of the wakeup; else 0
	begunAt  int64           // when the reply began, unless the whole reply arrived at once
	limits   *table.Timeouts // timeouts of the client's command; nil: a request of Ringside's own that no client waits for
}

// Receiver gets the reply to an attempt. For each attempt exactly one of Done and Failed is
// called.
type Receiver interface {
	// Reply handles one reply line or VALUE, parsed into r. Its bytes b are valid only during the
	// call. If an END already follows a VALUE, b includes the END after r.Size bytes, and r is the
	// last reply to the request. Reply returns how many bytes it has moved out of the input with
	// IO.Take.
	Reply(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int)

	// Done is called when the reply to a is complete, and a has left the queue of its connection c.
	Done(c *Conn, a *Attempt)

	// Failed is called when no reply to a will arrive, or not the rest of the reply.
	Failed(c *Conn, a *Attempt, f Failure)

	// Client is the number of the client that waits for the reply; 0: none waits.
	Client() uint64
}

// Streamer is a Receiver that can handle a value before all of it has arrived.
type Streamer interface {
	Receiver

	// Streams reports whether the value with head r, which has only partly arrived, should be
	// passed on in pieces. b is the part that has arrived.
	Streams(r *wire.Reply, b []byte) bool

	// Begin handles b, the head of the value and the part of it that has arrived. It returns
	// how many bytes of b it has moved out of the input.
	Begin(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int)

	// More handles b, the next bytes of the value. last reports that they complete it.
	More(c *Conn, a *Attempt, b []byte, last bool) (taken int)

	// IsSlow reports whether the client of the reply does not read what Ringside sends to it.
	IsSlow() bool
}

// Taker is a Streamer that can send a read again on another connection, before the reply to the read
// has begun. TakeBack is then called for the attempt that is given up, and neither Done nor Failed.
type Taker interface {
	Streamer
	TakeBack(a *Attempt)

	// TakesBack reports whether TakeBack may be called. A receiver that only forwards replies asks
	// the receiver to which it forwards them.
	TakesBack() bool
}

// Failure says why there is no reply to a request.
type Failure struct {
	Why     string // the server and the reason, as text
	Outcome stats.Outcome
	Unsent  bool // no byte of the request has reached the server, so it can't run later
	Busy    bool // the server has sent something since the request was added to the queue
	Foreign bool // the request was not sent, because the server's release does not know the command
}

// NewAttempt returns a new or reused attempt, with the receiver `to` for its reply.
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

// AttemptSize is the number of bytes that one attempt counts against limits.memory: the attempt
// itself, and an estimate of what its connection and its receiver store for it.
const AttemptSize = int64(unsafe.Sizeof(Attempt{})) + 256

// TrimAttempts frees the attempts that are kept for reuse.
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

// manyKeys is a size in bytes of an attempt's buffer for keys. Smaller buffers do not count against
// limits.memory, and are reused. Larger buffers count, and are not reused.
const manyKeys = 1 << 10

// Asker gets the results of the requests that it sends with Servers.Ask. It gets each result exactly
// once, with the complete reply.
type Asker interface {
	// Answered reports the result of the request with the number id. r is valid only during the
	// call, but r.Bytes stay valid. They must not be changed.
	Answered(id int, r *Result)
}

// clientAsker is an Asker that sends requests of a client.
type clientAsker interface {
	Asker

	// Client is the number of the client that waits for the reply; 0: none waits.
	Client() uint64
}

// valueAsker is an Asker that may not need the value in a reply, because no client will get it. Such a value is
// discarded as it arrives, so that it uses no memory.
type valueAsker interface {
	Asker

	// NeedsValue reports whether the value in the reply to the request with the number id is needed.
	NeedsValue(id int) bool
}

// Ignore is an Asker that ignores the results.
var Ignore Asker = ignored{}

type ignored struct{}

func (ignored) Answered(int, *Result) {}

// pinger is an Asker that needs only any reply, because it checks whether a server is alive. If the
// server is too old for the request, the command version is sent instead.
type pinger interface {
	Asker

	// Pings does nothing. It only marks the Asker as a pinger.
	Pings()
}

// Result is the outcome of a request sent with Servers.Ask.
type Result struct {
	Server *Server
	Bytes  []byte     // the whole reply, or an error line if Foreign is set; nil: there is no reply
	Reply  wire.Reply // the first reply line or VALUE in Bytes, parsed; its Kind is NoReply if there is none
	ConnEpoch
	Failure

	NoValue bool // the value in the reply was discarded, so Bytes has only the line before it: see valueAsker

	// LateAction says what is sent after the request, if it is a mutation that may run late. The
	// Asker may change the LateAction in Answered.
	LateAction LateAction
}

// ConnEpoch identifies the connection on which a reply arrived. A server that was restarted uses the
// same cas numbers again, so a cas in a reply is valid only while this connection exists.
type ConnEpoch struct {
	conn  *Conn // the connection, only for comparison: it may belong to another loop
	life  uint64
	Asked int64 // when the request was added to the queue of the connection
}

// EpochOf returns the ConnEpoch of the reply to a, which has arrived on the current connection of c.
func (c *Conn) EpochOf(a *Attempt) ConnEpoch {
	return ConnEpoch{conn: c, life: c.life.n, Asked: a.sentAt}
}

// Same reports whether two replies arrived on one connection, and so from one server process.
func (v ConnEpoch) Same(o ConnEpoch) bool { return v.conn == o.conn && v.life == o.life }

// HasEnded reports whether the connection on which the reply arrived has ended, or there is no reply.
// If it has ended, another process may listen at the address now. Only the loop that owns the
// connection may call HasEnded.
func (v ConnEpoch) HasEnded() bool {
	return v.conn == nil || v.conn.State != ConnUp || v.conn.life.n != v.life
}

// IsSameProcess reports whether a request that is sent on c now can only run in the server process
// that has sent the reply v. There are two cases: v arrived on c, which has not ended since; or c
// was already connected when the request of v was queued. In the second case, c cannot be a
// connection to an earlier process, because only one process at a time uses the address.
func (c *Conn) IsSameProcess(v ConnEpoch) bool {
	return c.State == ConnUp && (c == v.conn && c.life.n == v.life || c.life.upAt < v.Asked)
}

// Ask adds line to the queue of c. line is one whole request, of a client or of Ringside itself
// (internal). `to` gets the reply, or the failure after the timeouts in t, with the number id. A line that
// is not one request is not sent: the request fails.
func (e *Servers) Ask(c *Conn, to Asker, id int, t *table.Timeouts, line []byte, internal bool) {
	e.Wire.One(line, &e.Plain)
	e.AskParsed(c, to, id, t, line, internal)
}

// AskParsed does what Ask does, for a request line that is already parsed into e.Plain.
func (e *Servers) AskParsed(c *Conn, to Asker, id int, t *table.Timeouts, line []byte, internal bool) {
	r := &e.Plain
	if r.Flags&wire.Rewrite != 0 {
		line = wire.AppendPlain(nil, line, r, nil)
		e.Wire.One(line, r)
	}
	line = e.Wire.CutKey(line, r)
	a := e.NewAttempt(&Collector{To: to, ID: id})
	a.Op, a.Dialect, a.Flags = r.Op, r.Dialect, r.Flags
	if internal {
		c.MarkInternal(a)
		c.Server.Count.Own++
	}
	key := r.Key.Of(line)
	if r.Flags&wire.Base64 != 0 {
		key, _ = wire.DecodeKey(nil, key)
	}
	a.Remember(r, line, key)
	needs := r.Needs()
	e.AskAttempt(c, a, t, needs, e.withOpaque(a, line))
}

// MarkInternal marks the attempt a, which is about to be added to c, as Ringside's own request.
func (c *Conn) MarkInternal(a *Attempt) {
	a.Internal = true
	c.Internal++
}

// AskAttempt does what Ask does, for an attempt that already has its receiver and its names. needs is
// what the server must understand to run the request line.
func (e *Servers) AskAttempt(c *Conn, a *Attempt, t *table.Timeouts, needs wire.Features, line []byte) {
	a.asked = true
	c.Enqueue(a, t, needs, line)
}

// Collector collects the whole reply to an attempt and passes it to an Asker. It discards a value that arrives in
// pieces if the Asker does not need it.
type Collector struct {
	To     Asker
	ID     int
	result Result
	room   [16]byte // of a short reply: its bytes
}

func (w *Collector) Reply(_ *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int) {
	switch is := &w.result; {
	case a.OwnOpaque && r.Opaque.End > 0:
		is.SetAnswer(a.Op, a.Dialect, withoutOpaque(b, r))
	case is.Bytes == nil:
		is.Reply = *r
		is.Bytes = append(w.room[:0], b...)
	default:
		is.Bytes = append(is.Bytes, b...)
	}
	return 0
}

// Streams reports whether the value is to be discarded.
func (w *Collector) Streams(*wire.Reply, []byte) bool {
	to, ok := w.To.(valueAsker)
	return ok && !to.NeedsValue(w.ID)
}

// Begin keeps the line before a value that is discarded.
func (w *Collector) Begin(_ *Conn, _ *Attempt, r *wire.Reply, b []byte) (taken int) {
	line := b[:r.Body.Start]
	w.result.Bytes, w.result.Reply, w.result.NoValue = append(w.room[:0], line...), *r, true
	w.result.Reply.Body, w.result.Reply.Size = wire.Span{}, len(line)
	return 0
}

// More discards a part of a value.
func (w *Collector) More(*Conn, *Attempt, []byte, bool) (taken int) { return 0 }

// IsSlow reports false: a discarded value does not wait for a client.
func (w *Collector) IsSlow() bool { return false }

func (w *Collector) Done(c *Conn, a *Attempt) {
	w.result.Server, w.result.ConnEpoch = c.Server, c.EpochOf(a)
	w.To.Answered(w.ID, &w.result)
}

func (w *Collector) Failed(c *Conn, a *Attempt, f Failure) {
	r := &w.result
	*r = Result{Server: c.Server, Failure: f}
	if f.Foreign {
		r.SetAnswer(a.Op, a.Dialect, wire.AppendClientError(nil, f.Why))
	}
	w.To.Answered(w.ID, r)
	a.behind = r.LateAction
}

// maxOwnReply is the maximum size, in bytes, of a reply about the state of a server: the view
// record, or statistics. No client limits these replies.
const maxOwnReply = 1 << 20

// exceedsOwn reports whether the reply to a is larger than maxOwnReply with n more bytes. It
// returns false if a is a client's request, or if its reply may contain a value of a client.
func (a *Attempt) exceedsOwn(n int) bool {
	if !a.Internal {
		return false
	}
	w, ok := a.To.(*Collector)
	return ok && (a.Op == wire.Stats || w.pings()) && len(w.result.Bytes)+n > maxOwnReply
}

// pings reports whether the Asker w.To is a pinger.
func (w *Collector) pings() bool {
	_, ok := w.To.(pinger)
	return ok
}

func (w *Collector) Client() uint64 {
	if to, ok := w.To.(clientAsker); ok {
		return to.Client()
	}
	return 0
}

// SetAnswer sets b, which Ringside has made or changed, as the reply in r. The request has the
// command op and the dialect d. If b is no reply to it, r gets a failure: Ringside has made b of a
// reply of the server that lacks a part.
func (r *Result) SetAnswer(op wire.Op, d wire.Dialect, b []byte) {
	r.Bytes = b
	if _, err := wire.NextReply(op, d, b, &r.Reply); err != nil {
		from := "a server"
		if r.Server != nil {
			from = "server " + r.Server.Label()
		}
		r.Bytes, r.Reply = nil, wire.Reply{}
		r.Failure = Failure{Why: from + " has sent an incomplete reply", Outcome: stats.ServerFault}
	}
}
