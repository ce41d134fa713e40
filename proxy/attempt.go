package proxy

// One request to one server, and who gets the answer.

import (
	"time"

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

	asked    bool // Ringside's own, for an Asker
	probe    bool // Ringside's own, the first on each new connection
	streams  bool // its receiver is in the middle of a value
	expired  bool // over before the socket got a byte of it
	undo     bool // Ringside's own, which undoes a late run: see undo.go
	deadline int64
	sentAt   int64
	wait     time.Duration // for an answer, once the bytes are with a connection

	start uint64 // where its bytes begin in all the bytes given to this connection
	size  int

	strip string // what the route took from the front of the key
	key   []byte // of a mutation whose late run must be undone, or of its undo: see undo.go
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

	// Begin is asked when the head of a value is here, b, and the rest of it is
	// still to come. If it takes the value as it comes it returns true, and how
	// many bytes of b it has taken out of the input.
	Begin(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int, ok bool)

	// More takes b, more bytes of the value; last says that there are no more.
	More(c *Conn, a *Attempt, b []byte, last bool) (taken int)
}

// Failure is why there is no answer.
type Failure struct {
	Why     string // for people: the server and the reason
	Outcome Outcome
	Unsent  bool // the server has not got a byte of the request: it can't run later
}

func (e *Servers) newAttempt(to Receiver) *Attempt {
	a := e.freeAttempts
	if a == nil {
		a = new(Attempt)
	} else {
		e.freeAttempts, a.next = a.next, nil
	}
	a.to = to
	return a
}

func (e *Servers) freeAttempt(a *Attempt) {
	key := a.key[:0]
	*a = Attempt{}
	a.next, a.key = e.freeAttempts, key
	e.freeAttempts = a
}

// Asker gets the whole answers to its asks, each once.
type Asker interface {
	// Answered is told how ask id ended. The result is valid during the call.
	Answered(id int, r *Result)

	// Client is the number of the client that waits for the answer; 0: none does.
	Client() uint64
}

// Result is how an ask ended.
type Result struct {
	srv   *Server
	bytes []byte // the whole answer; nil: there is none
	Failure
}

// ask sends line, one whole request, behind what c has to send, and lets to
// have the answer under the number id.
func (e *Servers) demand(c *Conn, to Asker, id int, t *Timeouts, line []byte) {
	e.wire.Next(line, &e.plain)
	a := e.newAttempt(&collector{to: to, id: id})
	a.op, a.dialect, a.flags = e.plain.Op, e.plain.Dialect, e.plain.Flags
	e.put(c, a, t, line)
}

// put is demand for an attempt a that knows what line is and who gets the answer.
func (e *Servers) put(c *Conn, a *Attempt, t *Timeouts, line []byte) {
	a.asked = true
	c.begin(a, t)
	c.out.append(&e.pool, line)
	c.give(a, len(line))
}

// collector collects an answer for an Asker.
type collector struct {
	to    Asker
	id    int
	bytes []byte
}

func (w *collector) Reply(_ *Conn, _ *Attempt, _ *wire.Reply, b []byte) (taken int) {
	w.bytes = append(w.bytes, b...)
	return 0
}

func (w *collector) Done(c *Conn, _ *Attempt) {
	w.to.Answered(w.id, &Result{srv: c.srv, bytes: w.bytes})
}

func (w *collector) Failed(c *Conn, _ *Attempt, f Failure) {
	w.to.Answered(w.id, &Result{srv: c.srv, Failure: f})
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
