package upstream

// This file implements a connection to a server, with the queue of its requests.

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
// A Conn outlives its sockets: when a socket is closed, the next request makes Ringside dial again.
// A position is a number of bytes: it counts the bytes of requests that were added for the current
// socket, or wait for the next socket. Times are in nanoseconds on the loop's clock.
type Conn struct {
	link.Link
	Server *Server
	State  connState

	Head, Tail *Attempt // first and last request in the queue: requests that were sent, are being sent, and wait, in order
	Length     int      // number of requests in the queue
	Internal   int      // number of Ringside's own requests in the queue
	holding    int      // number of requests at the end of the queue that Flush has not yet decided to send
	held       *Attempt // the first request that waits until the server's version is known, with all requests after it: see release.go; nil: all may be sent
	login      *Attempt // the login, until the server has replied to it: see login.go; nil: none is due

	Given, Taken uint64 // positions (see Conn). Given: the end of the last request; Taken: the end of the bytes that the socket has accepted
	answered     bool   // a reply has arrived since requests were last sent
	greeted      bool   // the server has replied on the current socket

	meanBytes, meanAnswers int // recent bytes from the server, and recent replies: their quotient is the mean size of a reply

	passing    int  // number of gets at the head of a shared command line that the reply has skipped: their other keys are misses
	StreamLeft int  // while a value is passed on in pieces: number of its bytes that have not arrived yet
	streamLast bool // while a value is passed on in pieces: the reply to the request ends with this value

	Deadline int64 // a lower bound: no request in the queue times out earlier; link.Never: no request waits
	DialBy   int64 // when the dial times out
	moments

	TaskBytes int // bytes of the large requests of tasks whose client has no reply yet, and whose key has this connection as its first: see client.Session.waitsForServer

	Features wire.Features // what the server understands; 0: its release is not known yet on this socket
	lateWork
	life
	alone
}

// alone is what is known about failures of a connection while others of the server work: see failAlone.
type alone struct {
	dialAt int64  // for a connection for clients' requests: when it may be dialed again; 0: at once
	wait   int64  // time from the last failure to dialAt
	why    string // the error line for requests before dialAt

	isSpare bool // the connection is the server's spare one: see hasSpare
}

// life distinguishes the current connection from earlier ones of the same Conn.
type life struct {
	upAt int64  // when the socket was connected
	n    uint64 // number of times that the Conn has connected
}

// moments has the times of the last events on a connection.
type moments struct {
	lastIn  int64 // when the last bytes arrived
	headAt  int64 // when the last reply was complete, so that the next request became the first in the queue
	lastOut int64 // when the socket accepted the last bytes
}

// lateWork is what a connection still has to do for mutations that timed out and may still run: see
// latedelete.go.
type lateWork struct {
	LateDeletes int               // number of late deletes in the queue
	Lingering   bool              // the connection accepts no new requests, and stays open only for the requests in its queue
	dead        bool              // the connection lingers because it no longer works (keepalive.go): it is closed when no client waits any more
	Until       int64             // when a lingering connection without waiting clients is closed
	Untrusted   bool              // a reply may contain a raw key with line ends: an invalid reply says nothing about the server
	lastOf      map[uint64]uint64 // for a lingering connection: by number of the client, the position of the last request for which the client waits
}

type connState uint8

// The states of a connection.
const (
	ConnIdle    connState = iota // no socket
	ConnDialing                  // the driver is connecting a socket
	ConnUp                       // the socket is connected
)

// InternalFull reports whether c has no room for another of Ringside's own requests.
func (c *Conn) InternalFull() bool { return c.Internal >= maxInternal }

// Begin adds the attempt a to the queue, with a deadline from the timeouts t. The caller then appends
// the request's bytes to c.Out and calls Give.
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

// Enqueue adds the attempt a, with its request line and the timeouts t, to the queue. needs is what
// the server must understand to run the request.
func (c *Conn) Enqueue(a *Attempt, t *table.Timeouts, needs wire.Features, line []byte) {
	c.Begin(a, t)
	c.Require(a, needs)
	c.Out.Append(&c.Server.e.Buffers, line)
	c.Give(a, len(line))
}

// EnqueueDelete adds the attempt a to the queue, as a delete of key, with the timeouts t. It uses the
// text command, which every server understands. If encoded is set, the key, which is given without
// encoding, must be sent in base64. The command is md then.
func (c *Conn) EnqueueDelete(a *Attempt, t *table.Timeouts, key []byte, encoded bool) {
	c.Begin(a, t)
	c.giveLate(a, key, encoded, Delete)
}

// giveLate appends the bytes of a, which is last in the queue, to c.Out. They are a delete of key or,
// if b is positive, a request that stores a tombstone with a TTL of b seconds.
func (c *Conn) giveLate(a *Attempt, key []byte, encoded bool, b LateAction) {
	e := c.Server.e
	command, end := "md ", ""
	a.Op, a.Dialect = wire.Delete, wire.Text
	if encoded {
		end = " b"
	}
	if b > 0 {
		a.Op, command = wire.Set, "ms "
		end = " 0 F" + wire.TombstoneFlags + " T" + strconv.Itoa(int(b)) + end + "\r\n"
		e.Count.Marks[stats.TombstoneLeft][stats.TombstoneOfOther]++
	}
	if e.Line = e.Line[:0]; !encoded && b <= 0 {
		e.Line = wire.AppendDelete(e.Line, key)
	} else {
		a.Dialect = wire.Meta
		c.Require(a, wire.Metas)
		e.Line = append(e.Line, command...)
		if encoded {
			e.Line = base64.StdEncoding.AppendEncode(e.Line, key)
		} else {
			e.Line = append(e.Line, key...)
		}
		e.Line = append(append(e.Line, end...), wire.CRLF...)
	}
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

// AddKey adds a key to the multi-key read that is last in the queue. word is the key in the form for
// the server, with a space before it. n is the length of the key without base64.
func (c *Conn) AddKey(word []byte, n int) {
	c.Out.Append(&c.Server.e.Buffers, word)
	c.Tail.AddLength(n)
	c.Give(c.Tail, len(word))
}

// armDeadline makes sure that the timeouts of c are checked at time t at the latest.
func (c *Conn) armDeadline(t int64) {
	if t < c.Deadline {
		c.Deadline = t
		c.Server.e.At(link.RequestTimer, t)
	}
}

// Flush decides whether the bytes of c are sent now, and whether c is dialed or closed. It runs at the
// end of a wakeup.
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
		if c.isSpare && c.Features != 0 {
			c.Server.useSpare()
		}
		return
	}
	if t := e.Tune; t.HoldDue > 0 && !c.answered && c.holding < t.HoldMax && !c.Lingering { // requests on a lingering connection are not held, because no further requests join them
		if d := c.Due(); d >= promptFactor*t.HoldDue || d >= t.HoldDue && !e.Prompt {
			return
		}
	}
	c.answered = false
	c.holding = 0
	e.Effect(link.Write, &c.Link)
}

// close closes c, on which no client waits. Requests that are still in the queue fail.
func (c *Conn) close() {
	k := link.Close
	if c.Length > 0 { // late replies are due, and may never arrive
		k = link.Abort
	}
	c.disconnect(k)
	c.failAll("server "+c.Server.Label()+": no client waits for the answer", stats.Lost)
}

// promptFactor multiplies the number of due replies from which on requests are held for a larger
// batch, if Servers.Prompt is set. Only pipelines and multi-key reads make a queue that long.
const promptFactor = 4

// find returns the first attempt in the queue for which the function `so` returns true, or nil.
func (c *Conn) find(so func(a *Attempt) bool) *Attempt {
	a := c.Head
	for ; a != nil && !so(a); a = a.Next {
	}
	return a
}

// hasWaiters reports whether a request in the queue of c has a receiver for its reply, or is the
// greeting.
func (c *Conn) hasWaiters() bool {
	return c.find(func(a *Attempt) bool { return a.To != nil || a.Probe }) != nil
}

// Due returns the number of requests on c that were sent and have no complete reply yet.
func (c *Conn) Due() int { return c.Length - c.holding }

// dial asks the driver for a socket.
func (c *Conn) dial() {
	e := c.Server.e
	c.State, c.Closed, c.Full, c.greeted = ConnDialing, false, false, false
	c.DialBy = e.Now + int64(c.Server.Connect)
	c.armDeadline(c.DialBy)
	c.Server.Count.Dials++
	if c.Server.Retired && !slices.Contains(e.Closing, c) { // a task that began before a reload may still use a server that the reload has removed
		e.Closing = append(e.Closing, c)
	}
	e.Effect(link.Dial, &c.Link)
}

// Target returns the address of the server.
func (c *Conn) Target() (network, address string) {
	return c.Server.Target.Network, c.Server.Target.Address
}

// Security returns the TLS of the next connection.
func (c *Conn) Security() table.Security { return c.Server.security }

// Owed returns how many replies are still due on c, and the mean size of recent replies in bytes; 0:
// there was no reply yet.
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

// sentLate restarts the timeout of the requests in the n bytes that the socket has just accepted.
// These requests have waited in Ringside for long, and that time was not silence of the server.
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

// Up is called when the socket of c is connected. It puts the version command before the requests
// that wait: the reply to it shows that a server process is alive. The login, if the server needs one, is
// before all others.
func (c *Conn) Up() {
	e := c.Server.e
	c.State, c.life = ConnUp, life{e.Now, c.life.n + 1}
	if e.Debug {
		e.Log.Debug("server connected", "server", c.Server.Target.Name, "address", c.Server.Address())
	}
	e.Observer.Connected(c)
	c.askItemSize()
	a := e.NewAttempt(nil)
	a.Op, a.Probe = wire.Version, true
	c.putFirst(a, int64(c.Server.Greeting), AskVersion)
	if c.Server.login.On() {
		c.logIn()
	}
	for a := c.Head; a != nil; a = a.Next {
		if !a.Probe {
			a.Deadline = min(a.Deadline, e.Now+int64(a.limits.Request))
		}
		c.armDeadline(a.Deadline)
	}
	e.Mark(&c.Link)
}

// AskFirst does what Servers.Ask does, but puts the request before all others in the queue of c. c
// must just have been connected.
func (c *Conn) AskFirst(to Asker, t *table.Timeouts, line []byte) {
	e := c.Server.e
	e.Wire.One(line, &e.Plain)
	a := e.NewAttempt(&Collector{To: to})
	a.Op, a.Dialect, a.Flags, a.asked, a.limits = e.Plain.Op, e.Plain.Dialect, e.Plain.Flags, true, t
	c.Server.Count.Requests++
	c.Server.Count.Own++
	e.Requests++
	c.putFirst(a, int64(t.Request), line)
}

// putFirst puts the attempt a, with its request line, before all others in the queue. a times out
// after wait nanoseconds.
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

// AskVersion is the first request on each new connection, or the first after the login.
var AskVersion = []byte("version\r\n")

// idleRedial is how long Ringside waits before it dials a server that has closed an idle
// connection, unless a request needs the server earlier. The time is long enough for a server to
// restart, and short enough to notice within seconds that a server stays down.
const idleRedial = 5 * time.Second

// Lost handles the end of the socket of c, or a dial that failed. If the server has closed a
// connection on which no reply was due, this is no failure: Ringside dials the server again for the
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
				srv.e.Log.Debug("server closed an idle connection", "server", srv.Target.Name, "address", srv.Address())
			}
			srv.RedialAt = srv.e.Now + int64(idleRedial)
			srv.e.At(link.RequestTimer, srv.RedialAt)
			return
		}
		srv.Count.Lost++
		srv.e.LogLimited(slog.LevelWarn, srv.Label(), "server connection lost with requests in flight", event.ConnectionLost.Attr(), "server", srv.Target.Name, "address", srv.Address(), "requests", owed, "why", why)
		c.failAll("server "+srv.Label()+": "+why, stats.Lost)
		return
	}
	if srv.worksWithout(c) {
		c.failAlone(why, stats.Unavailable)
		return
	}
	srv.goDown(why, errors.Is(err, link.ErrRefused))
	c.failAll(srv.Why, stats.Unavailable)
}

// heardTime is how long a server counts as up because of the last bytes on one of its connections, although a
// new connection to it fails. It is longer than the default interval between two pings of a keeper.
const heardTime = 2 * time.Second

// worksWithout reports whether the server is not down although its new connection c fails: c is only for a task of
// Ringside itself, or the server has replied lately on another connection for clients' requests. New
// connections also fail because the server has too many, or because its name can't be resolved now.
func (srv *Server) worksWithout(c *Conn) bool {
	return !srv.Keeps(c) || slices.ContainsFunc(srv.Conns, func(o *Conn) bool {
		return o != c && o.State == ConnUp && o.greeted && !o.Full && srv.e.Now-o.lastIn < int64(heardTime)
	})
}

// failAlone fails the requests on c, a new connection that fails for the reason why although the server is up. If c is
// for clients' requests, Ringside waits before it dials again, longer after each failure in a row.
func (c *Conn) failAlone(why string, o stats.Outcome) {
	srv := c.Server
	e, b := srv.e, srv.backoff
	if c.wait = min(2*c.wait, int64(b.Max)); c.wait == 0 || e.Now > c.dialAt+int64(b.Max) {
		c.wait = int64(b.First)
	}
	c.dialAt, c.why = e.Now+c.wait, "server "+srv.Label()+": a new connection fails: "+why
	e.LogLimited(slog.LevelWarn, srv.Label()+" new connection", "a new connection to a server fails; others work", "server", srv.Target.Name, "address", srv.Address(), "why", why)
	switch {
	case c.State == ConnIdle:
		c.failAll(c.why, o)
	case srv.Keeps(c):
		c.giveUp(c.why, o) // a mutation that was sent may run late
	default:
		c.abort(c.why, o)
	}
}

// abort resets the connection and fails all its requests with the reason why. A reset also drops the
// bytes of these requests that this machine's kernel still has, so they can't run later.
func (c *Conn) abort(why string, o stats.Outcome) {
	if c.State == ConnIdle {
		return
	}
	c.Server.e.Effect(link.Abort, &c.Link)
	c.reset()
	c.failAll(why, o)
}

// rejectGreeting ends a connection on which the server has not replied correctly to the greeting,
// and marks the server as down, with the reason why, unless another connection works. So Ringside waits before
// it dials the server again.
func (c *Conn) rejectGreeting(why string, o stats.Outcome) {
	if c.Server.worksWithout(c) {
		c.failAlone(why, o)
		return
	}
	c.giveUp(c.Server.whyDown(why), o)
	c.Server.goDown(why, false)
}

// disconnect closes the socket with the effect k. Requests stay in the queue.
func (c *Conn) disconnect(k link.EffectKind) {
	c.Server.e.Effect(k, &c.Link)
	c.reset()
}

// reset makes c a connection without a socket, and drops the bytes to send and those received.
// Requests stay in the queue.
func (c *Conn) reset() {
	e := c.Server.e
	c.State, c.Closed, c.Full, c.answered = ConnIdle, true, false, false
	c.StreamLeft, c.passing, c.Need, c.Features, c.login = 0, 0, 0, 0, nil
	c.Out.Drop(&e.Buffers)
	if c.In != nil {
		e.Buffers.Put(c.In)
		c.In = nil
	}
	for a := c.Head; a != nil; a = a.Next {
		a.expired = a.Start >= c.Taken // if no byte of the request was sent, it can't run later: see Failure.Unsent
	}
	c.Given, c.Taken = 0, 0
	c.Deadline = link.Never
	if slices.Contains(c.Server.Conns, c) {
		c.Server.Unidentified = c.Server.StartedAt != 0 // the process that replies on the next connection may be a new one
	}
	c.forgetLingering()
}

// failAll fails every request in the queue of c with the reason why, and empties the queue.
func (c *Conn) failAll(why string, o stats.Outcome) {
	c.Server.Count.LateDeletesLost += uint64(c.LateDeletes)
	c.Server.e.LateDeletes -= c.LateDeletes
	c.LateDeletes = 0
	a := c.Head
	c.Server.e.Outstanding -= c.Length
	c.Head, c.Tail, c.held, c.Length, c.Internal, c.holding = nil, nil, nil, 0, 0, 0 // empty the queue before Failed is called, because a receiver may send requests again
	for a != nil {
		next := a.Next
		c.failOne(a, why, o)
		c.Server.e.freeAttempt(a)
		a = next
	}
}

// failOne calls Failed of a's receiver, if a has one, with the reason why. a has no receiver after
// that. It may stay in the queue, so that its late reply is discarded.
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

// pop removes the first attempt from the queue and returns it. The caller must free the attempt.
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
