package upstream

// One connection to a server: the queue of its requests, from the dial to the close.

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Conn is one connection to a server. Requests are sent in order, and replies return in the
// same order: only the order pairs them. What a reply names only shows whether the order is
// right: see pairing.go.
//
// A Conn outlives its sockets: when one is closed, another is dialed for the next request.
// Positions count bytes added for the current socket or, before it is connected, bytes that
// wait for it. Times are in nanoseconds on the loop's clock.
type Conn struct {
	link.Link
	Server *Server
	State  connState

	Head, Tail *Attempt // the queue: sent, being sent and waiting, in order
	Length     int      // attempts in the queue
	Internal   int      // number of Ringside's own requests in the queue
	holding    int      // number of requests at the end of the queue that End has not yet decided to send
	held       *Attempt // this attempt and all after it wait until the server's version is known: see release.go; nil: all may be sent

	Given, Taken uint64 // positions: end of the last request; end of what the socket has accepted
	answered     bool   // a reply arrived since requests were last sent
	greeted      bool   // the server has answered on this socket

	meanBytes, meanAnswers int // recent bytes and replies: their quotient is the mean size of a reply

	passing    int  // number of requests at the head of a shared line that the reply skipped: their keys are misses
	StreamLeft int  // bytes that are missing of the value for the first request in the queue, if the value is passed on in pieces
	streamLast bool // the reply to the first request ends with that value

	Deadline int64 // no attempt in the queue times out earlier; link.Never: no attempt waits
	DialBy   int64 // when the dial times out
	moments

	Features wire.Features // what the server understands; 0: its release is not known yet on this socket
	lateWork
	life
}

// life distinguishes the current connection from earlier ones of the same Conn.
type life struct {
	upAt int64  // when the socket was connected
	n    uint64 // number of times that the Conn has connected
}

// moments has the times of the last events on a connection.
type moments struct {
	lastIn  int64 // when the last bytes arrived
	headAt  int64 // when the last reply was complete; the current head has been the head since then
	lastOut int64 // when the socket accepted the last bytes
}

// lateWork is what a connection still has to do for mutations that were not answered in time:
// see latedelete.go.
type lateWork struct {
	LateDeletes int               // deletes in the queue that follow mutations that may run late
	Lingering   bool              // the connection accepts no new requests, and stays open for those in its queue
	dead        bool              // the connection lingers because it was found dead: it is closed when no client waits any more
	Until       int64             // when a lingering connection without waiting clients is closed
	lastOf      map[uint64]uint64 // for a lingering connection: by client, the position of the last request for which the client waits
}

type connState uint8

// The states of a connection.
const (
	ConnIdle    connState = iota // no socket
	ConnDialing                  // a socket was requested from the driver
	ConnUp                       // there is a socket
)

// InternalFull reports whether c has no room for another of Ringside's own requests.
func (c *Conn) InternalFull() bool { return c.Internal >= maxInternal }

// Begin adds the attempt a to the queue, with the deadline from t. The caller then appends the
// request's bytes to c.Out and calls Give.
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

// Enqueue adds the attempt a, with its request line, to the queue. needs is what the server
// must understand.
func (c *Conn) Enqueue(a *Attempt, t *table.Timeouts, needs wire.Features, line []byte) {
	c.Begin(a, t)
	c.Require(a, needs)
	c.Out.Append(&c.Server.e.Buffers, line)
	c.Give(a, len(line))
}

// EnqueueDelete is like Enqueue, but sends a delete of key, which is decoded. It uses the text
// command, which every server understands. If encoded is set, the key must be sent in base64,
// so it uses md instead.
func (c *Conn) EnqueueDelete(a *Attempt, t *table.Timeouts, key []byte, encoded bool) {
	c.Begin(a, t)
	c.giveLate(a, key, encoded, Delete)
}

// giveLate appends the request of a, the last attempt in the queue, which follows a mutation that
// may run late. It is a delete of key or, if b is positive, a placeholder that replaces the value.
func (c *Conn) giveLate(a *Attempt, key []byte, encoded bool, b LateAction) {
	e := c.Server.e
	command, end := "delete ", ""
	a.Op, a.Dialect = wire.Delete, wire.Text
	if encoded {
		command, end = "md ", " b"
	}
	if b > 0 {
		a.Op, command = wire.Set, "ms "
		end = " 0 F" + wire.TombstoneFlags + " T" + strconv.Itoa(int(b)) + end + "\r\n"
		e.Count.Marks[stats.TombstoneLeft][stats.TombstoneOfOther]++
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

// push adds the attempt a to the end of the queue.
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

// Give records that n more bytes of the attempt a were appended to c.Out.
func (c *Conn) Give(a *Attempt, n int) {
	a.Size += n
	c.Given += uint64(n)
	c.Server.e.Mark(&c.Link)
}

// AddKey adds a key to the multi-key read that is last in the queue. word is the key as the
// server gets it, with a space before it. n is its length when decoded.
func (c *Conn) AddKey(word []byte, n int) {
	c.Out.Append(&c.Server.e.Buffers, word)
	c.Tail.AddLength(n)
	c.Give(c.Tail, len(word))
}

// armDeadline makes sure that the deadlines of c are checked at t.
func (c *Conn) armDeadline(t int64) {
	if t < c.Deadline {
		c.Deadline = t
		c.Server.e.At(link.RequestTimer, t)
	}
}

// Flush runs in End and decides whether the bytes of c are sent now.
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
	if t := e.Tune; t.HoldDue > 0 && !c.answered && c.holding < t.HoldMax && !c.Lingering { // to a lingering connection no further requests are added
		if d := c.Due(); d >= promptFactor*t.HoldDue || d >= t.HoldDue && !e.Prompt {
			return
		}
	}
	c.answered = false
	c.holding = 0
	e.Effect(link.Write, &c.Link)
}

// close closes a connection without waiting clients.
func (c *Conn) close() {
	k := link.Close
	if c.Length > 0 { // late replies are due, which may never arrive
		k = link.Abort
	}
	c.disconnect(k)
	c.failAll("server "+c.Server.Label()+": no client waits for the answer", stats.Lost)
}

// promptFactor is how many times longer the queue must be before requests are held, if
// Servers.Prompt is set: only pipelines and multi-key reads make it that long.
const promptFactor = 4

// find returns the first attempt in the queue for which the function `so` returns true, or nil.
func (c *Conn) find(so func(a *Attempt) bool) *Attempt {
	a := c.Head
	for ; a != nil && !so(a); a = a.Next {
	}
	return a
}

// hasWaiters reports whether a reply on c has a receiver, or the greeting is not answered yet.
func (c *Conn) hasWaiters() bool {
	return c.find(func(a *Attempt) bool { return a.To != nil || a.Probe }) != nil
}

// Due is the number of requests that were sent and have no reply yet.
func (c *Conn) Due() int { return c.Length - c.holding }

// dial asks the driver for a socket.
func (c *Conn) dial() {
	e := c.Server.e
	c.State, c.Closed, c.Full, c.greeted = ConnDialing, false, false, false
	c.DialBy = e.Now + int64(c.Server.Connect)
	c.armDeadline(c.DialBy)
	c.Server.Count.Dials++
	if c.Server.Retired && !slices.Contains(e.Closing, c) { // a task that began before a reload keeps its route, and may still use a removed server
		e.Closing = append(e.Closing, c)
	}
	e.Effect(link.Dial, &c.Link)
}

// Target returns the address of the server.
func (c *Conn) Target() (network, address string) {
	return c.Server.Target.Network, c.Server.Target.Address
}

// Owed returns how many replies are still due on c, and the mean size in bytes of the recent
// ones; 0 before the first reply.
func (c *Conn) Owed() (answers, size int) { return c.Due(), c.meanBytes / max(c.meanAnswers, 1) }

// Came records that n bytes have arrived from the server.
func (c *Conn) Came(n int) {
	c.Server.Count.BytesIn += uint64(n)
	c.lastIn = c.Server.e.Now
	c.meanBytes += n
}

// Pending appends the bytes that may be sent now to iov.
func (c *Conn) Pending(iov [][]byte) [][]byte {
	if c.held != nil {
		return c.unheld(iov)
	}
	return c.Out.Spans(iov, link.SpansAtOnce)
}

// Sent records that the socket accepted n bytes.
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

// lateWrite is how long after the start of a wakeup a request may be sent and still count as
// sent at the start, in nanoseconds.
const lateWrite = int64(time.Millisecond)

// sentLate restarts the timeout of the requests that are in the last n bytes. Until now they
// waited in Ringside, so that time was not silence of the server.
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

// Up is called when the socket is connected. Requests that have waited are sent after the
// version command: its reply shows that a server process is alive.
func (c *Conn) Up() {
	e := c.Server.e
	c.State, c.life = ConnUp, life{e.Now, c.life.n + 1}
	if e.Debug {
		e.Log.Debug("server connected", "server", c.Server.Target.Name, "address", c.Server.Target.Address)
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

// AskFirst is Servers.Ask, but puts the request before all others in the queue of c, which has
// just connected.
func (c *Conn) AskFirst(to Asker, t *table.Timeouts, line []byte) {
	e := c.Server.e
	e.Wire.Next(line, &e.Plain)
	a := e.NewAttempt(&Collector{To: to})
	a.Op, a.Dialect, a.asked, a.limits = e.Plain.Op, e.Plain.Dialect, true, t
	c.Server.Count.Requests++
	e.Requests++
	c.putFirst(a, int64(t.Request), line)
}

// putFirst puts the attempt a, with the request line, before all others in the queue. Its
// timeout is wait.
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

// AskVersion is the first request on each new connection.
var AskVersion = []byte("version\r\n")

// idleRedial is how long Ringside waits before it dials a server that has closed an idle
// connection, unless a request needs the server earlier. It is long enough that a restart
// between two requests goes unnoticed, and short enough that a server that stays down is
// detected within seconds.
const idleRedial = 5 * time.Second

// Lost handles the end of a connection, or a dial that failed. If the server closed a
// connection on which it owed no reply, this is no failure: the server is dialed again for the
// next request, or after idleRedial.
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
			srv.e.Mark(&c.Link) // so that Flush dials again
			return
		}
		if owed == 0 {
			srv.Count.ClosedIdle++
			if srv.e.Debug {
				srv.e.Log.Debug("server closed an idle connection", "server", srv.Target.Name, "address", srv.Target.Address)
			}
			srv.RedialAt = srv.e.Now + int64(idleRedial)
			srv.e.At(link.RequestTimer, srv.RedialAt)
			return
		}
		srv.Count.Lost++
		srv.e.LogLimited(slog.LevelWarn, srv.Label(), "server connection lost with requests in flight", event.ConnectionLost.Attr(), "server", srv.Target.Name, "address", srv.Target.Address, "requests", owed, "why", why)
		c.failAll("server "+srv.Label()+": "+why, stats.Lost)
		return
	}
	srv.goDown(why, errors.Is(err, link.ErrRefused))
	c.failAll(srv.Why, stats.Unavailable)
}

// abort resets the connection and fails all its requests. The bytes of these requests that the
// kernel still has must not reach the server later: Ringside could not tell which mutations have
// run.
func (c *Conn) abort(why string, o stats.Outcome) {
	if c.State == ConnIdle {
		return
	}
	c.Server.e.Effect(link.Abort, &c.Link)
	c.reset()
	c.failAll(why, o)
}

// rejectGreeting ends a connection on which the server has not answered the greeting correctly,
// and marks the server as down. An immediate retry could repeat the failure forever.
func (c *Conn) rejectGreeting(why string, o stats.Outcome) {
	c.giveUp(c.Server.whyDown(why), o)
	c.Server.goDown(why, false)
}

// disconnect closes the socket with the effect k. Requests stay in the queue.
func (c *Conn) disconnect(k link.EffectKind) {
	c.Server.e.Effect(k, &c.Link)
	c.reset()
}

// reset drops the socket and the bytes. Requests stay in the queue.
func (c *Conn) reset() {
	e := c.Server.e
	c.State, c.Closed, c.Full, c.answered = ConnIdle, true, false, false
	c.StreamLeft, c.passing, c.Need, c.Features = 0, 0, 0, 0
	c.Out.Drop(&e.Buffers)
	if c.In != nil {
		e.Buffers.Put(c.In)
		c.In = nil
	}
	for a := c.Head; a != nil; a = a.Next {
		a.expired = a.Start >= c.Taken // no byte of the request was sent, so it can't run later: see Failure.Unsent
	}
	c.Given, c.Taken = 0, 0
	c.Deadline = link.Never
	if slices.Contains(c.Server.Conns, c) {
		c.Server.Unidentified = c.Server.StartedAt != 0 // the process that answers next may be a restarted one
	}
	c.forgetLingering()
}

// failAll fails every request in the queue, and empties the queue.
func (c *Conn) failAll(why string, o stats.Outcome) {
	c.Server.Count.LateDeletesLost += uint64(c.LateDeletes)
	c.Server.e.LateDeletes -= c.LateDeletes
	c.LateDeletes = 0
	a := c.Head
	c.Server.e.Outstanding -= c.Length
	c.Head, c.Tail, c.held, c.Length, c.Internal, c.holding = nil, nil, nil, 0, 0, 0 // before the calls, because a receiver may send requests again
	for a != nil {
		next := a.Next
		c.failOne(a, why, o)
		c.Server.e.freeAttempt(a)
		a = next
	}
}

// failOne calls Failed of a's receiver, if it has one. An attempt that stays in the queue is
// then an orphan.
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

// pop removes the head from the queue. The caller frees it.
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

// uncount updates the counters after the attempt a has left the queue.
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
