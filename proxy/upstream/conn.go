package upstream

// One connection to a server: the queue of its requests, from the dial to the end.

import (
	"slices"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Conn is one connection to a server: requests go out in order, answers come
// back in the same order, and that is all that pairs them. What an answer names
// only shows whether the order is right: see pairing.go.
type Conn struct {
	link.Link
	Server *Server
	State  connState
	life   uint32 // how many sockets it has had before

	Head, Tail *Attempt // sent, being sent and queued, in order
	Length     int
	Internal   int // of these, Ringside's own

	Given, Taken           uint64 // bytes given to this connection so far; bytes the socket took
	holding                int    // the last requests of the list, not sent yet
	answered               bool   // an answer came since the last flush
	meanBytes, meanAnswers int    // bytes and answers, of late: what an answer is long
	StreamLeft             int    // bytes of the head's value still to come
	streamLast             bool   // and that is the end of its answer
	Deadline               int64  // nothing here is due before
	lastIn                 int64  // when the last bytes came
	lastOut                int64  // when the socket took the last
	DialBy                 int64  // when to give up dialing
	greeted                bool   // the server has answered on this connection

	Speech wire.Features // what its server understands; 0: it has not told its release
	held   *Attempt      // from here on nothing goes out: see release.go

	lateWork
}

// lateWork is what is left to do on a connection for mutations that were not
// answered in time: see latedelete.go.
type lateWork struct {
	LateDeletes int               // in the list: deletes behind mutations that may run late
	Lingering   bool              // the connection gets no new requests and stays open for what is in the list
	Until       int64             // if nobody waits for it either
	lastOf      map[uint64]uint64 // of a zombie: where the last request of each client begins that waits for it
}

type connState uint8

const (
	ConnIdle connState = iota // no socket
	ConnDialing
	ConnUp
)

// Crowded says that c has no room for one more of Ringside's own requests.
func (c *Conn) InternalFull() bool { return c.Internal >= maxInternal }

// Begin puts a, which may take what t says, at the end of c's order. Its
// bytes follow, and then give.
func (c *Conn) Begin(a *Attempt, t *table.Timeouts) {
	e := c.Server.e
	c.enlist(a)
	a.wait = min(t.Request, t.Deadline)
	a.Deadline = e.Now + int64(t.Deadline)
	if c.State == ConnUp {
		a.Deadline = e.Now + int64(a.wait)
	}
	c.armDeadline(a.Deadline)
	c.Server.Count.Requests++
	e.Requests++
}

// enlist puts a at the end of c's order.
func (c *Conn) enlist(a *Attempt) {
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

// Give ends what begin began: all bytes of a are in c.out.
func (c *Conn) Give(a *Attempt, n int) {
	a.Size += n
	c.Given += uint64(n)
	c.Server.e.Mark(&c.Link)
}

// AddKey puts one more key into the read of many that c was given last: word, a
// space before it, with a key of n bytes decoded.
func (c *Conn) AddKey(word []byte, n int) {
	c.Out.Append(&c.Server.e.Buffers, word)
	c.Tail.rememberOne(n)
	c.Give(c.Tail, len(word))
}

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
			c.linger("")
		} else {
			c.close()
		}
		return
	}
	if c.Lingering && c.Length == 0 {
		c.close()
		return
	}
	if c.Out.Size == 0 || c.Full || c.held != nil && c.held.Start == c.Taken {
		return
	}
	if t := e.Tune; t.HoldDue > 0 && !c.answered && c.holding < t.HoldMax {
		if d := c.Due(); d >= promptFactor*t.HoldDue || d >= t.HoldDue && !e.Prompt {
			return
		}
	}
	c.answered = false
	c.holding = 0
	e.Effect(link.Write, &c.Link)
}

// close ends a connection on which nobody waits for anything.
func (c *Conn) close() {
	k := link.Close
	if c.Length > 0 { // late answers, which may never come
		k = link.Abort
	}
	c.disconnect(k)
	c.failAll("", stats.Lost)
}

// promptFactor is how much longer a queue must be to be held when the engine
// is to be prompt: one that long is fed by pipelines and reads of many keys.
const promptFactor = 4

// awaited says whether somebody waits for an answer on c.
func (c *Conn) hasWaiters() bool {
	for a := c.Head; a != nil; a = a.Next {
		if a.To != nil || a.Probe {
			return true
		}
	}
	return false
}

// Due is the number of requests that were sent and not answered.
func (c *Conn) Due() int { return c.Length - c.holding }

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
	c.Taken += uint64(n)
	c.lastOut = c.Server.e.Now
	if c.Out.Size == 0 {
		c.holding = 0
	}
}

// Up sends what has waited, behind the question for the server's version: the
// answer to that says that somebody is alive there.
func (c *Conn) Up() {
	e := c.Server.e
	c.State = ConnUp
	if e.Debug {
		e.Log.Debug("connected to a server", "server", c.Server.Target.Name, "address", c.Server.Target.Address)
	}
	c.greet(e.Now + int64(c.Server.Greeting))
	for a := c.Head; a != nil; a = a.Next {
		if !a.Probe {
			a.Deadline = min(a.Deadline, e.Now+int64(a.wait))
		}
		c.armDeadline(a.Deadline)
	}
	e.Observer.Connected(c)
	e.Mark(&c.Link)
}

// greet puts Ringside's own question before all that waits.
func (c *Conn) greet(until int64) {
	e := c.Server.e
	a := e.NewAttempt(nil)
	a.Op, a.Probe, a.Size = wire.Version, true, len(AskVersion)
	c.MarkInternal(a)
	a.sentAt, a.Deadline = e.Now, until
	var q link.Queue
	q.Append(&e.Buffers, AskVersion)
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

var AskVersion = []byte("version\r\n")

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
	zombie := c.Lingering
	c.reset()
	if zombie {
		c.failAll("server "+srv.Label()+": "+why, stats.Lost)
		return
	}
	if was == ConnUp && greeted {
		if owed == 0 {
			srv.Count.ClosedIdle++
			if srv.e.Debug {
				srv.e.Log.Debug("a server closed a connection that owed nothing", "server", srv.Target.Name, "address", srv.Target.Address)
			}
			if srv.wantsConn() {
				srv.e.Mark(&c.Link)
			}
			return
		}
		srv.Count.Lost++
		srv.e.Log.Warn("server connection lost with requests in flight", "server", srv.Target.Name, "address", srv.Target.Address, "requests", owed, "why", why)
		c.failAll("server "+srv.Label()+": "+why, stats.Lost)
		return
	}
	srv.goDown(why)
	c.failAll(srv.Why, stats.Unavailable)
}

// abort throws the connection away: what the kernel still holds of our
// requests must not reach the server later, and no answer on it can be
// trusted any more.
func (c *Conn) abort(why string, o stats.Outcome) {
	if c.State == ConnIdle {
		return
	}
	c.Server.e.Effect(link.Abort, &c.Link)
	c.reset()
	c.failAll(why, o)
}

// unfit gets rid of a connection on which the server has not greeted, and
// takes it for down: one that is asked again at once might do so for ever.
func (c *Conn) rejectGreeting(why string, o stats.Outcome) {
	c.giveUp(c.Server.whyDown(why), o)
	c.Server.goDown(why)
}

// hangUp closes a connection; its requests stay in the list.
func (c *Conn) disconnect(k link.EffectKind) {
	c.Server.e.Effect(k, &c.Link)
	c.reset()
}

// clear forgets the socket and the bytes; the requests stay in the list.
func (c *Conn) reset() {
	e := c.Server.e
	c.State, c.Closed, c.Full, c.answered = ConnIdle, true, false, false
	c.life++
	c.StreamLeft, c.Need, c.Speech = 0, 0, 0
	c.Out.Drop(&e.Buffers)
	if c.In != nil {
		e.Buffers.Put(c.In)
		c.In = nil
	}
	for a := c.Head; a != nil; a = a.Next {
		a.expired = a.Start >= c.Taken // it can't run later: see answer.unsent
	}
	c.Given, c.Taken = 0, 0
	c.Deadline = link.Never
	if slices.Contains(c.Server.Conns, c) {
		c.Server.Unidentified = c.Server.StartedAt != 0 // whoever answers next may have been started anew
	}
	c.forgetLingering()
}

// failAll fails every request on c.
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

// failOne settles a without an answer.
func (c *Conn) failOne(a *Attempt, why string, o stats.Outcome) {
	to := a.To
	if to == nil {
		return
	}
	f := Failure{Why: why, Outcome: o, Unsent: a.expired || c.State == ConnUp && a.Start >= c.Taken, Busy: c.lastIn > a.sentAt}
	a.To = nil
	if !a.asked {
		c.Server.Count.Failed++
	}
	to.Failed(c, a, f)
}

// pop takes the head off the list. The caller frees it.
func (c *Conn) pop() *Attempt {
	a := c.Head
	c.Head = a.Next
	if c.Head == nil {
		c.Tail = nil
	}
	a.Next = nil
	c.Length--
	c.Server.e.Outstanding--
	if a.Internal {
		c.Internal--
		if a.LateDelete {
			c.LateDeletes--
			c.Server.e.LateDeletes--
		}
	}
	return a
}
