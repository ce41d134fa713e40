package upstream

// One connection to a server: the queue of its requests, from the dial to the end.

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Conn is one connection to a server: requests go out in order, answers come
// back in the same order, and that is all that pairs them. What an answer names
// only shows whether the order is right: see pairing.go.
//
// A Conn outlives its sockets: when one is closed, another is dialed for the next
// request. Positions count bytes given to the present socket, or, before it is
// there, bytes that wait for it. Times are in nanoseconds on the loop's clock.
type Conn struct {
	link.Link
	Server *Server
	State  connState

	Head, Tail *Attempt // the queue: sent, being sent and waiting, in order
	Length     int      // attempts in the queue
	Internal   int      // of these, Ringside's own
	holding    int      // of these, the last ones: End has not decided yet to send them
	held       *Attempt // from this one on nothing goes out yet: see release.go; nil: all may

	Given, Taken uint64 // positions: the end of the last request; what the socket has taken
	answered     bool   // an answer came since the last flush
	greeted      bool   // the server has answered on this socket

	meanBytes, meanAnswers int // that came of late: their quotient is the size of an answer

	passing    int  // of the first in the queue: keys of a line that its answer has left out
	StreamLeft int  // bytes of the head's value that are still to come, of one handed on piece by piece
	streamLast bool // the head's answer ends with that value

	Deadline int64 // no attempt here is due before; link.Never: none is
	DialBy   int64 // when to give up dialing
	moments

	Speech wire.Features // what the server understands; 0: it has not told its release on this socket
	lateWork
	life
}

// life tells a connection from those there were in its place before.
type life struct {
	upAt int64  // when it was there
	n    uint64 // how often it has been
}

// moments are when things happened last on a connection.
type moments struct {
	lastIn  int64 // when the last bytes came
	headAt  int64 // when the last answer was whole: since then the head of the queue is the head
	lastOut int64 // when the socket took the last
}

// lateWork is what is left to do on a connection for mutations that were not
// answered in time: see latedelete.go.
type lateWork struct {
	LateDeletes int               // in the queue: deletes behind mutations that may run late
	Lingering   bool              // the connection gets no new requests and stays open for what is in the queue
	dead        bool              // a lingering one was found dead: it ends when no client waits any more
	Until       int64             // when a lingering connection on which nobody waits is closed
	lastOf      map[uint64]uint64 // of a lingering one: the position of the last request of each client that waits
}

type connState uint8

// The states of a connection.
const (
	ConnIdle    connState = iota // no socket
	ConnDialing                  // the driver was asked for one
	ConnUp                       // there is one
)

// InternalFull says that c has no room for one more of Ringside's own requests.
func (c *Conn) InternalFull() bool { return c.Internal >= maxInternal }

// Begin puts a at the end of the queue, with the deadline that t gives it. The
// caller then appends the request's bytes to c.Out and calls Give.
func (c *Conn) Begin(a *Attempt, t *table.Timeouts) {
	e := c.Server.e
	c.push(a)
	a.limits = t
	wait := t.Deadline
	if c.State == ConnUp {
		wait = t.Request
	}
	a.Deadline = e.Now + int64(wait)
	c.armDeadline(a.Deadline)
	c.Server.Count.Requests++
	e.Requests++
}

// Enqueue puts a with its request line, which needs the server to understand so much,
// at the end of the queue.
func (c *Conn) Enqueue(a *Attempt, t *table.Timeouts, needs wire.Features, line []byte) {
	c.Begin(a, t)
	c.Require(a, needs)
	c.Out.Append(&c.Server.e.Buffers, line)
	c.Give(a, len(line))
}

// EnqueueDelete is Enqueue for a delete of key, decoded, that any server
// understands, unless the key must be written in base64.
func (c *Conn) EnqueueDelete(a *Attempt, t *table.Timeouts, key []byte, encoded bool) {
	c.Begin(a, t)
	c.giveBehind(a, key, encoded, Delete)
}

// giveBehind makes a, which is last in the queue, a delete of key, or a mark in its
// place.
func (c *Conn) giveBehind(a *Attempt, key []byte, encoded bool, b Behind) {
	e := c.Server.e
	command, end := "delete ", ""
	a.Op, a.Dialect = wire.Delete, wire.Text
	if encoded {
		command, end = "md ", " b"
	}
	if b > 0 {
		a.Op, command = wire.Set, "ms "
		end = " 0 F" + wire.MarkFlags + " T" + strconv.Itoa(int(b)) + end + "\r\n"
		e.Count.Marks[stats.MarkLeft][stats.MarkOther]++
	}
	if encoded || b > 0 {
		a.Dialect = wire.Meta
		c.Require(a, wire.Metas)
	}
	e.Line = append(e.Line[:0], command...)
	if encoded {
		e.Line = base64.StdEncoding.AppendEncode(e.Line, key)
	} else {
		e.Line = append(e.Line, key...)
	}
	e.Line = append(append(e.Line, end...), wire.CRLF...)
	c.Out.Append(&e.Buffers, e.Line)
	c.Give(a, len(e.Line))
}

// push puts a at the end of the queue.
func (c *Conn) push(a *Attempt) {
	a.sentAt = c.Server.e.Now
	a.Start = c.Given
	if c.Tail == nil {
		c.Head = a
	} else {
		c.Tail.Next = a
	}
	c.Tail = a
	c.Length++
	c.Server.e.Outstanding++
	c.holding++
}

// Give says that n more bytes of a are in c.Out.
func (c *Conn) Give(a *Attempt, n int) {
	a.Size += n
	c.Given += uint64(n)
	c.Server.e.Mark(&c.Link)
}

// AddKey puts one more key into the read of many that is last in the queue: word
// is the key as the server gets it, with a space before it, and n its length when
// decoded.
func (c *Conn) AddKey(word []byte, n int) {
	c.Out.Append(&c.Server.e.Buffers, word)
	c.Tail.AddLength(n)
	c.Give(c.Tail, len(word))
}

// armDeadline makes sure that c is looked at when t is there.
func (c *Conn) armDeadline(t int64) {
	if t < c.Deadline {
		c.Deadline = t
		c.Server.e.At(link.RequestTimer, t)
	}
}

// Flush decides in End whether c's bytes go now.
func (c *Conn) Flush() {
	e := c.Server.e
	switch c.State {
	case ConnIdle:
		if (c.Length > 0 || c.Server.wantsConn()) && !c.Lingering {
			c.dial()
		}
		return
	case ConnDialing:
		return
	}
	if c.Server.Draining() && !c.hasWaiters() && !c.Lingering {
		if c.LateDeletes > 0 {
			c.linger("server " + c.Server.Label() + ": too many connections wait for late answers")
		} else {
			c.close()
		}
		return
	}
	if c.Lingering && c.unwanted() {
		c.close()
		return
	}
	if c.Out.Size == 0 || c.Full || c.held != nil && c.held.Start == c.Taken {
		return
	}
	if t := e.Tune; t.HoldDue > 0 && !c.answered && c.holding < t.HoldMax && !c.Lingering { // there no company comes
		if d := c.Due(); d >= promptFactor*t.HoldDue || d >= t.HoldDue && !e.Prompt {
			return
		}
	}
	c.answered = false
	c.holding = 0
	e.Effect(link.Write, &c.Link)
}

// close closes a connection on which nobody waits for anything.
func (c *Conn) close() {
	k := link.Close
	if c.Length > 0 { // late answers are due, which may never come
		k = link.Abort
	}
	c.disconnect(k)
	c.failAll("server "+c.Server.Label()+": no client waits for the answer", stats.Lost)
}

// promptFactor is how many times longer a queue must be to be held if
// Servers.Prompt is set: pipelines and reads of many keys feed one that long.
const promptFactor = 4

// find is the first in the queue that is so; nil if none is.
func (c *Conn) find(so func(a *Attempt) bool) *Attempt {
	a := c.Head
	for ; a != nil && !so(a); a = a.Next {
	}
	return a
}

// hasWaiters says whether somebody waits for an answer on c, or c is new.
func (c *Conn) hasWaiters() bool {
	return c.find(func(a *Attempt) bool { return a.To != nil || a.Probe }) != nil
}

// Due is the number of requests that were sent and not answered.
func (c *Conn) Due() int { return c.Length - c.holding }

// dial asks the driver for a socket.
func (c *Conn) dial() {
	e := c.Server.e
	c.State, c.Closed, c.Full, c.greeted = ConnDialing, false, false, false
	c.DialBy = e.Now + int64(c.Server.Connect)
	c.armDeadline(c.DialBy)
	c.Server.Count.Dials++
	if c.Server.Retired && !slices.Contains(e.Closing, c) { // for a task that began before a reload
		e.Closing = append(e.Closing, c)
	}
	e.Effect(link.Dial, &c.Link)
}

// Target is the address of c's server.
func (c *Conn) Target() (network, address string) {
	return c.Server.Target.Network, c.Server.Target.Address
}

// Owed is how many answers are still due on c, and the mean size of its last
// ones in bytes; 0 while there were none.
func (c *Conn) Owed() (answers, size int) { return c.Due(), c.meanBytes / max(c.meanAnswers, 1) }

// Came notes that n bytes have come from the server.
func (c *Conn) Came(n int) {
	c.Server.Count.BytesIn += uint64(n)
	c.lastIn = c.Server.e.Now
	c.meanBytes += n
}

// Pending appends to iov the bytes that may go out now.
func (c *Conn) Pending(iov [][]byte) [][]byte {
	if c.held != nil {
		return c.unheld(iov)
	}
	return c.Out.Spans(iov, link.SpansAtOnce)
}

// Sent notes that the socket took n bytes.
func (c *Conn) Sent(n int) {
	c.Server.Count.BytesOut += uint64(n)
	e := c.Server.e
	c.lastOut = e.Moment()
	if c.lastOut-e.Now >= lateWrite {
		c.sentLate(n)
	}
	c.Taken += uint64(n)
	if c.Out.Size == 0 {
		c.holding = 0
	}
}

// lateWrite is how long after the beginning of a wakeup a request may be sent and count
// as sent when the wakeup began, in nanoseconds.
const lateWrite = int64(time.Millisecond)

// sentLate starts the timeout of the requests anew that the last n bytes belong to: until
// now they have waited in Ringside, which is not the server's silence.
func (c *Conn) sentLate(n int) {
	for a := c.Head; a != nil && a.Start < c.Taken+uint64(n); a = a.Next {
		if a.Start < c.Taken {
			continue
		}
		a.takenAt = c.lastOut
		if a.limits != nil {
			a.Deadline = max(a.Deadline, min(a.takenAt+int64(a.limits.Request), a.sentAt+int64(a.limits.Deadline)))
		} else if a.Probe || a.Ping {
			a.Deadline = max(a.Deadline, a.takenAt+int64(c.Server.Greeting))
		}
	}
}

// Up is told that the socket is there. What has waited goes out behind the
// question for the server's version: its answer says that somebody is alive there.
func (c *Conn) Up() {
	e := c.Server.e
	c.State, c.life = ConnUp, life{e.Now, c.life.n + 1}
	if e.Debug {
		e.Log.Debug("connected to a server", "server", c.Server.Target.Name, "address", c.Server.Target.Address)
	}
	e.Observer.Connected(c)
	a := e.NewAttempt(nil)
	a.Op, a.Probe = wire.Version, true
	c.putFirst(a, int64(c.Server.Greeting), AskVersion)
	for a := c.Head; a != nil; a = a.Next {
		if !a.Probe {
			a.Deadline = min(a.Deadline, e.Now+int64(a.limits.Request))
		}
		c.armDeadline(a.Deadline)
	}
	e.Mark(&c.Link)
}

// AskFirst is Servers.Ask before all that waits for c, which has just come up.
func (c *Conn) AskFirst(to Asker, t *table.Timeouts, line []byte) {
	e := c.Server.e
	e.Wire.Next(line, &e.Plain)
	a := e.NewAttempt(&Collector{To: to})
	a.Op, a.Dialect, a.asked, a.limits = e.Plain.Op, e.Plain.Dialect, true, t
	c.Server.Count.Requests++
	e.Requests++
	c.putFirst(a, int64(t.Request), line)
}

// putFirst puts a, the request line, which may take so long, before all that waits.
func (c *Conn) putFirst(a *Attempt, wait int64, line []byte) {
	e := c.Server.e
	a.Size = len(line)
	c.MarkInternal(a)
	a.sentAt, a.Deadline = e.Now, e.Now+wait
	var q link.Queue
	q.Append(&e.Buffers, line)
	c.Out.MoveTo(&e.Buffers, &q)
	c.Out = q
	a.Next = c.Head
	c.Head = a
	if c.Tail == nil {
		c.Tail = a
	}
	c.Length++
	e.Outstanding++
	c.holding++
	c.Given, c.Taken = 0, 0
	for b := c.Head; b != nil; b = b.Next {
		b.Start = c.Given
		c.Given += uint64(b.Size)
	}
}

// AskVersion is the request that each new connection begins with.
var AskVersion = []byte("version\r\n")

// idleRedial is when a server that has closed a connection which owed nothing is
// dialled, unless a request comes before: late enough for a restart between two
// requests to stay one of which nobody hears, and early enough that a server which
// is gone is known within seconds.
const idleRedial = 5 * time.Second

// Lost is the end of a connection, or of the attempt to get one. A server
// that closes while it owes nothing is no event: it is asked again when there
// is something to ask.
func (c *Conn) Lost(err error) {
	srv := c.Server
	was, owed, greeted := c.State, c.Length, c.greeted
	if was == ConnIdle {
		return
	}
	why := "connection closed by the server"
	if err != nil {
		why = reason(err)
	}
	lingered := c.Lingering
	c.reset()
	if lingered {
		c.failAll("server "+srv.Label()+": "+why, stats.Lost)
		return
	}
	if was == ConnUp && greeted {
		if owed == 1 && c.Head.Ping {
			srv.noteDead(c, byPing)
			c.failAll("", stats.Lost)
			srv.e.Mark(&c.Link) // to be opened again
			return
		}
		if owed == 0 {
			srv.Count.ClosedIdle++
			if srv.e.Debug {
				srv.e.Log.Debug("a server closed a connection that owed nothing", "server", srv.Target.Name, "address", srv.Target.Address)
			}
			srv.RedialAt = srv.e.Now + int64(idleRedial)
			srv.e.At(link.RequestTimer, srv.RedialAt)
			return
		}
		srv.Count.Lost++
		srv.e.LogLimited(slog.LevelWarn, srv.Label(), "server connection lost with requests in flight", "server", srv.Target.Name, "address", srv.Target.Address, "requests", owed, "why", why)
		c.failAll("server "+srv.Label()+": "+why, stats.Lost)
		return
	}
	srv.goDown(why, errors.Is(err, link.ErrRefused))
	c.failAll(srv.Why, stats.Unavailable)
}

// abort throws the connection away and fails all that is on it. What the kernel
// still holds of its requests must not reach the server later, or no answer on it
// can be trusted any more.
func (c *Conn) abort(why string, o stats.Outcome) {
	if c.State == ConnIdle {
		return
	}
	c.Server.e.Effect(link.Abort, &c.Link)
	c.reset()
	c.failAll(why, o)
}

// rejectGreeting gives up a connection on which the server has not answered the
// greeting, or not as it should, and takes the server for down: asked again at
// once it might do the same for ever.
func (c *Conn) rejectGreeting(why string, o stats.Outcome) {
	c.giveUp(c.Server.whyDown(why), o)
	c.Server.goDown(why, false)
}

// disconnect closes the socket by the effect k. Requests stay in the queue.
func (c *Conn) disconnect(k link.EffectKind) {
	c.Server.e.Effect(k, &c.Link)
	c.reset()
}

// reset forgets the socket and the bytes. Requests stay in the queue.
func (c *Conn) reset() {
	e := c.Server.e
	c.State, c.Closed, c.Full, c.answered = ConnIdle, true, false, false
	c.StreamLeft, c.passing, c.Need, c.Speech = 0, 0, 0, 0
	c.Out.Drop(&e.Buffers)
	if c.In != nil {
		e.Buffers.Put(c.In)
		c.In = nil
	}
	for a := c.Head; a != nil; a = a.Next {
		a.expired = a.Start >= c.Taken // it can't run later: see Failure.Unsent
	}
	c.Given, c.Taken = 0, 0
	c.Deadline = link.Never
	if slices.Contains(c.Server.Conns, c) {
		c.Server.Unidentified = c.Server.StartedAt != 0 // whoever answers next may have been started anew
	}
	c.forgetLingering()
}

// failAll fails every request in the queue, and empties it.
func (c *Conn) failAll(why string, o stats.Outcome) {
	c.Server.Count.LateDeletesLost += uint64(c.LateDeletes)
	c.Server.e.LateDeletes -= c.LateDeletes
	c.LateDeletes = 0
	a := c.Head
	c.Server.e.Outstanding -= c.Length
	c.Head, c.Tail, c.held, c.Length, c.Internal, c.holding = nil, nil, nil, 0, 0, 0 // who is told may ask again
	for a != nil {
		next := a.Next
		c.failOne(a, why, o)
		c.Server.e.freeAttempt(a)
		a = next
	}
}

// failOne tells a's receiver that there will be no answer. What stays in the
// queue is an orphan.
func (c *Conn) failOne(a *Attempt, why string, o stats.Outcome) {
	to := a.To
	if to == nil {
		return
	}
	f := Failure{Why: why, Outcome: o, Unsent: a.expired || c.State == ConnUp && a.Start >= c.Taken, Busy: c.lastIn > max(a.sentAt, a.takenAt)}
	a.To = nil
	if !a.asked {
		c.Server.Count.Failed++
		if o == stats.TimedOut {
			c.Server.Count.TimedOut++
		}
	}
	to.Failed(c, a, f)
}

// pop takes the head off the queue. The caller frees it.
func (c *Conn) pop() *Attempt {
	a := c.Head
	c.Head = a.Next
	if c.Head == nil {
		c.Tail = nil
	}
	a.Next = nil
	c.uncount(a)
	return a
}

// uncount says that a is in the queue no more.
func (c *Conn) uncount(a *Attempt) {
	c.Length--
	c.Server.e.Outstanding--
	if a.Internal {
		c.Internal--
		if a.LateDelete {
			c.LateDeletes--
			c.Server.e.LateDeletes--
		}
	}
}
