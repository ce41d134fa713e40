package proxy

// What has waited too long: requests, dials, outages.

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// expire fails what has waited too long, and finds the next moment it must
// look. The moment is a lower bound, so that a request costs one comparison
// and an answered one nothing.
func (e *Servers) expire() {
	for _, srv := range e.list {
		srv.expire()
	}
	e.leaving = slices.DeleteFunc(e.leaving, func(c *Conn) bool { return c.state == connIdle && c.length == 0 })
	for _, c := range e.leaving {
		c.srv.expire()
	}
	e.expireZombies()
}

// expire fails the requests that have waited too long, gives up dials, and
// dials a server that is down when its time has come.
func (srv *Server) expire() {
	e := srv.e
	for _, c := range srv.conns {
		if c.deadline <= e.now {
			c.expire()
		}
		e.at(requestTimer, c.deadline)
	}
	for _, c := range srv.own {
		if c.deadline <= e.now {
			c.expire()
		}
		e.at(requestTimer, c.deadline)
	}
	switch c := srv.conns[0]; {
	case !srv.down || srv.leaving() || c.state != connIdle:
	case srv.redialAt > e.now:
		e.at(requestTimer, srv.redialAt)
	default:
		c.dial()
	}
}

func (c *Conn) expire() {
	e, srv := c.srv.e, c.srv
	if c.state == connDialing && c.dialBy <= e.now {
		e.effect(Abort, &c.Link)
		c.Lost(errConnect)
		return
	}
	c.deadline = never
	if c.state == connDialing {
		c.deadline = c.dialBy
	}
	unsent, loose, stuck, before := false, false, false, srv.timeouts
	for a := c.head; a != nil; a = a.next {
		switch {
		case a.to == nil && !a.probe: // an orphan
		case a.deadline > e.now:
			c.deadline = min(c.deadline, a.deadline)
		case a.probe:
			c.unfit(fmt.Sprintf("no answer within %v of connecting", srv.greeting), TimedOut)
			return
		default:
			if a.start >= c.taken {
				unsent = true
				a.expired = true
			} else {
				silent := c.lastIn <= a.sentAt // else it is busy with a large answer, not gone
				if silent && !c.zombie {
					srv.timeouts++
				}
				if a.leaves {
					loose, stuck = true, stuck || silent
				}
			}
			srv.count.TimedOut++
			if c.zombie {
				c.forget(a)
			}
			c.failOne(a, fmt.Sprintf("server %s did not answer within %v", srv.label(), time.Duration(a.deadline-a.sentAt)), TimedOut)
		}
	}
	if unsent {
		c.dropUnsent()
	}
	if loose {
		c.late(stuck)
	}
	if srv.leaving() || c.zombie {
		e.mark(&c.Link)
	}
	if srv.timeouts >= srv.downAfter && srv.timeouts > before {
		srv.fail(fmt.Sprintf("%d requests in a row were not answered in time", srv.timeouts))
	}
}

// dropUnsent takes expired requests that the socket has not got out of the
// queue, so that they can never run.
func (c *Conn) dropUnsent() {
	e := c.srv.e
	var keep queue
	pos, given := c.taken, c.taken // in the old order of bytes, and in the new
	prev, list, i := (*Attempt)(nil), c.head, 0
	flushed := c.length - c.holding
	for a := list; a != nil; i++ {
		next := a.next
		if a.expired {
			n := int(a.start - pos)
			c.out.transfer(&e.pool, &keep, n)
			given += uint64(n)
			c.out.consume(&e.pool, a.size)
			pos = a.start + uint64(a.size)
			if prev == nil {
				c.head = next
			} else {
				prev.next = next
			}
			if c.tail == a {
				c.tail = prev
			}
			c.length--
			if a.internal {
				c.internal--
			}
			e.unheard--
			if i >= flushed {
				c.holding--
			}
			e.freeAttempt(a)
		} else {
			if end := a.start + uint64(a.size); end > pos {
				n := int(end - pos) // with what an answered request before it still has to send
				pos = end
				given += uint64(n)
				a.start = given - uint64(a.size)
				c.out.transfer(&e.pool, &keep, n)
			}
			prev = a
		}
		a = next
	}
	c.out.drop(&e.pool)
	c.out, c.given = keep, given
	for c.held = c.head; c.held != nil && c.held.needs&^c.speech == 0; c.held = c.held.next {
	}
}

var errConnect = errors.New("no connection within the connect timeout")

// unsent is what c holds of requests that its server has not been sent.
func (c *Conn) unsent() int64 {
	n := int64(c.out.room())
	for a := c.head; a != nil; a = a.next {
		if c.mayShed(a) {
			n += attemptSize
		}
	}
	return n
}

func (c *Conn) mayShed(a *Attempt) bool { return a.start >= c.taken && !a.internal }

// shed fails the requests that c's server has not been sent: it takes less than
// it is asked.
func (c *Conn) shed(held int64) {
	srv, shed := c.srv, 0
	why := fmt.Sprintf("%s, and server %s does not take what is sent to it", outOfMemory, srv.label())
	last := c.tail // who is told may ask again
	for a := c.head; a != nil; a = a.next {
		if c.mayShed(a) {
			a.expired = true
			c.failOne(a, why, Crowded)
			shed++
		}
		if a == last {
			break
		}
	}
	c.dropUnsent()
	srv.count.Shed += uint64(shed)
	srv.e.log.Warn("refused what a server has not taken: limits.memory reached", "server", srv.target.Name, "address", srv.target.Address, "requests", shed, "held", held, "limit", srv.e.most)
}
