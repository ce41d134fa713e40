package upstream

// This file implements the timeouts of requests and dials, and the dials of servers that are down.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
)

// Expire fails requests and dials that have timed out, and sets the timer for the next check.
// The timer may fire before any request times out. So a new request costs one comparison, and a
// reply does not have to change the timer.
func (e *Servers) Expire() {
	for _, srv := range e.List {
		srv.expire()
	}
	e.Closing = slices.DeleteFunc(e.Closing, func(c *Conn) bool { return c.State == ConnIdle && c.Length == 0 })
	for _, c := range e.Closing {
		c.Server.expire()
	}
	e.expireLingering()
}

// expire handles the timeouts of all connections of the server. If the server is down and RedialAt is
// reached, it also dials the server.
func (srv *Server) expire() {
	e := srv.e
	for _, c := range srv.Conns {
		c.checkTimeouts()
	}
	for _, c := range srv.Dedicated {
		c.checkTimeouts()
	}
	switch c := srv.Conns[0]; {
	case srv.Draining() || c.State != ConnIdle || !srv.Down && (srv.RedialAt == 0 || !srv.wantsConn()):
	case srv.RedialAt > e.Now:
		e.At(link.RequestTimer, srv.RedialAt)
	default:
		c.dial()
	}
}

// checkTimeouts fails the requests of c that have timed out, if c.Deadline is reached. It sets the
// timer for the next check.
func (c *Conn) checkTimeouts() {
	if c.Deadline <= c.Server.e.Now {
		c.expire()
	}
	c.Server.e.At(link.RequestTimer, c.Deadline)
	if c.Deadline == link.Never { // no request waits
		c.keepAlive()
	}
}

// expire ends the dial of c, and fails its requests, if they have timed out. It then finds the next
// deadline. Requests that the socket has not accepted leave the queue. Mutations that the socket has
// accepted may run late, so deletes are sent after them.
func (c *Conn) expire() {
	e, srv := c.Server.e, c.Server
	if c.Sock != nil && c.Sock.Unread() > 0 { // the loop was too busy to read the input
		c.Deadline = e.Now + int64(lookWait)
		return
	}
	if c.State == ConnDialing && c.DialBy <= e.Now {
		e.Effect(link.Abort, &c.Link)
		c.Lost(errConnect)
		return
	}
	c.Deadline = link.Never
	if c.State == ConnDialing {
		c.Deadline = c.DialBy
	}
	// unsent: a request has timed out before the socket accepted it. unguarded: a mutation that may
	// run late is not followed by a delete yet. stuck: the server has sent nothing since such a
	// mutation was sent. before: the number of timeouts in a row before this call.
	unsent, unguarded, stuck, before := false, false, false, srv.timeouts
	if by := c.foundDead(); by != alive {
		c.replace(by)
	}
	for a := c.Head; a != nil; a = a.Next {
		switch {
		case a.Ping && a.Deadline > e.Now && !c.Lingering:
			c.Deadline = min(c.Deadline, a.Deadline)
		case a.To == nil && !a.Probe: // no client waits for the reply to a any more
		case c.postpone(a) > e.Now:
			c.Deadline = min(c.Deadline, a.Deadline)
		case a.Probe:
			c.rejectGreeting(fmt.Sprintf("no answer within %v of connecting", srv.Greeting), stats.TimedOut)
			return
		case a.Internal && a.Begun && !c.stalls(a): // the replies after it would wait as long as the server likes
			c.broken(fmt.Sprintf("did not end its reply to a request of Ringside's own within %v", a.limits.Total), nil)
			return
		default:
			silent := c.lastIn <= max(a.sentAt, a.takenAt) || c.stalls(a) // if false, the server is sending other replies, so it is not down
			if a.Start >= c.Taken {
				unsent = true
				a.expired = true
			} else if silent && !c.Lingering && !a.limits.Cut {
				srv.timeouts++
			}
			if c.Lingering {
				c.forgetWaiter(a)
			}
			c.failOne(a, "server "+srv.Label()+" "+c.overdue(a), stats.TimedOut)
			if a.Unguarded() && !a.expired {
				unguarded, stuck = true, stuck || silent
			}
		}
	}
	if unsent {
		c.dropUnsent()
	}
	if unguarded {
		c.onLate(stuck)
	}
	if c.dead && c.mayEnd() {
		c.abort("server "+srv.Label()+": the connection was idle and no longer works", stats.Lost)
	}
	if srv.Draining() || c.Lingering {
		e.Mark(&c.Link)
	}
	if srv.timeouts >= srv.downAfter && srv.timeouts > before {
		srv.goDown(fmt.Sprintf("%d requests in a row were not answered in time", srv.timeouts), false)
	}
}

// lookWait is the time until the next check of a connection with a request that would time out now,
// but with input that the loop has not read yet.
const lookWait = time.Millisecond

// postpone returns a time before which the attempt a does not time out, and sets a.Deadline to it. If
// the result is in the past, a times out now. A new time is only computed when the old one has
// passed, so not while replies arrive in time. In terms of the timeouts in a.limits, a times out
//
//	if its reply has begun                      Request after the last byte
//	if the server sends replies to others       Request after the last byte, at most Deadline
//	otherwise                                   Request after a was sent, or Deadline while a can't be sent
//	in all cases                                after Total at the latest
func (c *Conn) postpone(a *Attempt) int64 {
	if a.Deadline > c.Server.e.Now || a.Probe {
		return a.Deadline
	}
	t := max(c.lastIn, a.takenAt) + int64(a.limits.Request)
	if !a.Begun {
		t = min(t, a.sentAt+int64(a.limits.Deadline))
	}
	if total := a.limits.Total; total > 0 {
		t = min(t, a.sentAt+int64(total))
	}
	a.Deadline = max(a.Deadline, t)
	return a.Deadline
}

// stalls reports whether a part of the reply to the attempt a has arrived, but then no bytes for the
// time of the timeout a.limits.Request.
func (c *Conn) stalls(a *Attempt) bool {
	return a.Begun && c.lastIn+int64(a.limits.Request) <= c.Server.e.Now
}

// overdue returns the text for the error line that says what the server has not done in time for the
// attempt a.
func (c *Conn) overdue(a *Attempt) string {
	switch {
	case c.stalls(a):
		return fmt.Sprintf("sent nothing for %v in the middle of its answer", a.limits.Request)
	case a.Begun:
		return fmt.Sprintf("did not end its answer within %v", a.limits.Total)
	}
	since := a.sentAt
	if a.takenAt > 0 && a.limits != nil && a.Deadline < since+int64(a.limits.Deadline) { // the timeout counts from takenAt: before that, the request waited in Ringside
		since = a.takenAt
	}
	had := time.Duration(a.Deadline - since)
	if l := a.limits; l != nil && l.Whole > 0 && l.Request == l.Deadline { // the command's deadline was near when the request was made
		return fmt.Sprintf("did not answer within timeouts.deadline, %v since the command began; this request had %v", l.Whole, had)
	}
	if l := a.limits; l != nil && had > time.Duration(l.Request) && had < time.Duration(l.Deadline) { // other replies have postponed the end: see postpone
		return fmt.Sprintf("sent nothing for %v, and did not answer", l.Request)
	}
	return fmt.Sprintf("did not answer within %v", had)
}

// dropUnsent removes the expired requests of which the socket has no byte from the queue, so
// that they can never run.
func (c *Conn) dropUnsent() {
	e := c.Server.e
	c.keepLines()
	var keep link.Queue
	pos, given := c.Taken, c.Taken // pos: position in the queue's bytes as they are now; given: the same position after the expired requests are removed
	prev, list, i := (*Attempt)(nil), c.Head, 0
	flushed := c.Length - c.holding
	for a := list; a != nil; i++ {
		next := a.Next
		if a.expired {
			n := int(a.Start - pos)
			c.Out.Transfer(&e.Buffers, &keep, n)
			given += uint64(n)
			c.Out.Consume(&e.Buffers, a.Size)
			pos = a.Start + uint64(a.Size)
			if prev == nil {
				c.Head = next
			} else {
				prev.Next = next
			}
			if c.Tail == a {
				c.Tail = prev
			}
			c.uncount(a)
			if i >= flushed {
				c.holding--
			}
			e.freeAttempt(a)
		} else {
			if end := a.Start + uint64(a.Size); end > pos {
				n := int(end - pos) // n includes the unsent rest of an earlier request that the server has already replied to
				pos = end
				given += uint64(n)
				a.Start = given - uint64(a.Size)
				c.Out.Transfer(&e.Buffers, &keep, n)
			}
			prev = a
		}
		a = next
	}
	c.Out.Drop(&e.Buffers)
	c.Out, c.Given = keep, given
	c.findHeld()
}

var errConnect = errors.New("no connection within the connect timeout")

// Unsent is the memory, in bytes, that c uses for requests that were not sent to the server
// yet.
func (c *Conn) Unsent() int64 {
	n := int64(c.Out.Room())
	for a := c.Head; a != nil; a = a.Next {
		if c.mayShed(a) {
			n += AttemptSize
		}
	}
	return n
}

// Idle returns for how long the server has not read what Ringside sends on c; 0: it reads.
func (c *Conn) Idle() time.Duration {
	if c.Full {
		return time.Duration(c.Server.e.Now - c.lastOut)
	}
	return 0
}

// mayShed reports whether a is a client's request of which the socket has no byte.
func (c *Conn) mayShed(a *Attempt) bool { return a.Start >= c.Taken && !a.Internal }

// Shed fails the clients' requests on c that were not sent yet, because the server reads more slowly
// than requests arrive. held is the memory in bytes that these requests use, for the log.
func (c *Conn) Shed(held int64) {
	srv, shed := c.Server, 0
	why := fmt.Sprintf("%s, and server %s does not take what is sent to it", link.OutOfMemory, srv.Label())
	last := c.Tail // remember the end of the queue, because the receiver of a failed request may add another request
	for a := c.Head; a != nil; a = a.Next {
		if c.mayShed(a) {
			a.expired = true
			c.failOne(a, why, stats.QueueFull)
			shed++
		}
		if a == last {
			break
		}
	}
	c.dropUnsent()
	srv.Count.Shed += uint64(shed)
	srv.e.Log.Debug("requests rejected: a server does not read them, limits.memory reached", "server", srv.Target.Name, "address", srv.Address(), "requests", shed, "held", held, "limit", srv.e.MemoryLimit)
}
