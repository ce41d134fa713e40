package proxy

// One request to one server, and who gets the answer.

import (
	"time"
	"unsafe"

	"ringside/proxy/wire"
)

// Attempt is one ask at one server. It stays in its connection's list until
// its answer has come; one that has timed out is an orphan there, which
// swallows the late answer.
type Attempt struct {
	to   Receiver // nil: an orphan, or Ringside's own probe or late delete
	next *Attempt // in the connection's order; in the free list

	op      wire.Op
	dialect wire.Dialect
	flags   wire.Flags

	asked bool          // Ringside's own, for an Asker
	needs wire.Features // of its server, to understand it; only those that were not known to be there

	probe    bool // Ringside's own, the first on each new connection
	streams  bool // its receiver is in the middle of a value
	internal bool // Ringside's own: the queue's bound for clients is not its
	expired  bool // over before the socket got a byte of it
	undo     bool // Ringside's own, which undoes a late run: see undo.go
	deadline int64
	sentAt   int64
	wait     time.Duration // for an answer, once the bytes are with a connection

	start uint64 // where its bytes begin in all the bytes given to this connection
	size  int

	keys   []byte // that the answer must name, as the server knows them; see pairing.go
	at     int    // where in keys the first is that had no VALUE yet
	nth    int    // how many keys are before it
	many   bool   // keys has the length of each, and then the line of the request
	opaque uint8  // how long the opaque is, at the end of keys
	sealed bool   // the opaque is Ringside's own
	leaves bool   // a mutation that can leave a value if it runs late: see undo.go

	classic *classic      // what it is in text, to a server that speaks only that: see release.go
	strip   string        // what the route took from the front of the key
	echo    *wire.KeyEcho // what the server was not asked for and the client was; nil: nothing
}

// Receiver gets the answer to an attempt. It is told of each attempt either
// Done or Failed, once.
type Receiver interface {
	// Reply takes one reply of the answer: r, whose bytes are b. They are valid
	// during the call. When an END is known to follow a VALUE it is in b, behind
	// r.Size bytes, and r is the last. Reply returns how many bytes it has taken
	// out of the input with IO.take.
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
	// to come piece by piece.
	Streams(r *wire.Reply) bool

	// Begin takes b, the head of the value and what is here of it, and returns how
	// many bytes of it it has taken out of the input.
	Begin(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int)

	// More takes b, more bytes of the value; last says that there are no more.
	More(c *Conn, a *Attempt, b []byte, last bool) (taken int)
}

// Failure is why there is no answer.
type Failure struct {
	Why     string // for people: the server and the reason
	Outcome Outcome
	Unsent  bool // the server has not got a byte of the request: it can't run later
	Busy    bool // the server has said something since it was asked for
	Foreign bool // the server was not asked: its release doesn't know the command
}

func (e *Servers) newAttempt(to Receiver) *Attempt {
	a := e.freeAttempts
	if a == nil {
		a = new(Attempt)
		e.pool.held += attemptSize
	} else {
		e.freeAttempts, a.next = a.next, nil
	}
	a.to = to
	return a
}

// attemptSize is what an attempt takes, and its client's exchange with it.
const attemptSize = int64(unsafe.Sizeof(Attempt{})) + 256

// trimAttempts gives up the attempts that are kept for reuse.
func (e *Servers) trimAttempts() {
	for a := e.freeAttempts; a != nil; a = a.next {
		e.pool.held -= attemptSize
	}
	e.freeAttempts = nil
}

func (e *Servers) freeAttempt(a *Attempt) {
	keys := a.keys[:0]
	if cap(keys) > manyKeys {
		e.pool.held -= int64(cap(keys))
		keys = nil
	}
	*a = Attempt{}
	a.next, a.keys = e.freeAttempts, keys
	e.freeAttempts = a
}

// manyKeys is how many bytes of keys an attempt may have for nothing: more count
// against limits.memory, and it does not keep the room for them.
const manyKeys = 1 << 10

// Asker gets the whole answers to its asks, each once.
type Asker interface {
	// Answered is told how ask id ended. The result is valid during the call.
	Answered(id int, r *Result)

	// Client is the number of the client that waits for the answer; 0: none does.
	Client() uint64
}

// Pinger is an Asker that is content to hear that a server is there, if the
// server does not understand what was asked.
type Pinger interface {
	Asker
	Pings()
}

// Result is how an ask ended.
type Result struct {
	srv   *Server
	bytes []byte // the whole answer; nil: there is none. If it is Foreign, an error line
	Failure
}

// demand sends line, one whole request of a client's or of Ringside's own,
// behind what c has to send, and lets to have the answer under the number id.
func (e *Servers) demand(c *Conn, to Asker, id int, t *Timeouts, line []byte, internal bool) {
	r := &e.plain
	e.wire.Next(line, r)
	line = e.wire.CutKey(line, r)
	a := e.newAttempt(&collector{to: to, id: id})
	a.op, a.dialect, a.flags = r.Op, r.Dialect, r.Flags
	if internal {
		c.own(a)
	}
	key := r.Key.Of(line)
	if r.Flags&wire.Base64 != 0 {
		key, _ = wire.DecodeKey(nil, key)
	}
	a.remember(r, line, key)
	needs := r.Needs()
	e.put(c, a, t, needs, e.sealed(a, line))
}

// own says that a, which c is about to get, is Ringside's own.
func (c *Conn) own(a *Attempt) {
	a.internal = true
	c.internal++
}

// put is demand for an attempt a that knows what line is and who gets the answer,
// of which needs says what the server must understand.
func (e *Servers) put(c *Conn, a *Attempt, t *Timeouts, needs wire.Features, line []byte) {
	a.asked = true
	c.begin(a, t)
	c.want(a, needs)
	c.out.append(&e.pool, line)
	c.give(a, len(line))
}

// collector collects an answer for an Asker.
type collector struct {
	to    Asker
	id    int
	bytes []byte
}

func (w *collector) Reply(_ *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int) {
	if a.sealed {
		w.bytes = unsealed(w.bytes, b, r)
	} else {
		w.bytes = append(w.bytes, b...)
	}
	return 0
}

func (w *collector) Done(c *Conn, _ *Attempt) {
	w.to.Answered(w.id, &Result{srv: c.srv, bytes: w.bytes})
}

func (w *collector) Failed(c *Conn, _ *Attempt, f Failure) {
	r := &Result{srv: c.srv, Failure: f}
	if f.Foreign {
		r.bytes = wire.AppendClientError(nil, f.Why)
	}
	w.to.Answered(w.id, r)
}

// pings says that the Asker is a Pinger.
func (w *collector) pings() bool {
	_, ok := w.to.(Pinger)
	return ok
}

func (w *collector) Client() uint64 { return w.to.Client() }

// parsed reads the first reply of an answer.
func (r *Result) parsed(op wire.Op, d wire.Dialect, to *wire.Reply) bool {
	if r.bytes == nil {
		return false
	}
	_, err := wire.NextReply(op, d, r.bytes, to)
	return err == nil
}
