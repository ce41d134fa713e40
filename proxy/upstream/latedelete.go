package upstream

// Mutations that nobody waits for any more and that may still run: the delete
// behind them, and the connections that live on for it.

import (
	"slices"
	"time"

	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// A mutation that was answered with an error or a timeout may lie in the
// server's receive buffer and run when the server goes on: after a newer write
// or delete that was acknowledged meanwhile. No reset takes it out of there.
// So a delete of its key goes right behind it, on the same connection, and the
// worst that is left is a miss. Until it does, the mutation is unguarded.
//
//	set k v1 ► timeout ► delete k, behind it; new traffic goes to a new connection
//	server goes on: v1 is stored, k is deleted; both answers are discarded
//
// A connection that is closed with such a delete on it makes memcached drop what
// it has not read yet: the set runs and the delete does not. So the connection
// lingers, without new requests, until the delete is answered.
//
// The delete is loud (md for a key in base64) and for every server: one answer
// each, so that pairing by order goes on, and the last is the barrier. Where copies
// are kept a mark goes there instead, which tells every reader to ask the others, or
// nothing: see Behind.

const (
	// lingerTime is how long a lingering connection waits for the answer to its
	// last late delete.
	lingerTime = 60 * time.Second

	// ackTime is how long a kernel may have bytes before it acknowledges them:
	// Linux 200 ms at most.
	ackTime = 250 * time.Millisecond

	// LingeringPerConn bounds the lingering connections of one server, for each
	// connection that it may have. A mutation on one more is aborted and may outlive
	// that.
	LingeringPerConn = 4
)

// Behind is what goes behind a mutation that may run late: a positive number is
// for how many seconds a mark stands there.
type Behind int32

const (
	Delete  Behind = 0
	Nothing Behind = -1
)

// Unguarded says that nobody waits for a any more, that it may run late and leave a
// value, and that nothing is behind it yet.
func (a *Attempt) Unguarded() bool { return a.LeavesValue && a.To == nil && a.behind != Nothing }

// deleteLate puts a delete behind all that is on c, for each unguarded mutation.
func (c *Conn) deleteLate() {
	for a := c.Head; a != nil; a = a.Next { // the deletes that it appends are not unguarded
		if a.Unguarded() {
			c.deleteLateOne(a)
		}
	}
	c.Until = c.Server.e.Now + int64(lingerTime)
}

func (c *Conn) deleteLateOne(a *Attempt) {
	e := c.Server.e
	u := e.NewAttempt(nil)
	u.LateDelete = true
	c.MarkInternal(u)
	key, _ := a.Named()
	u.Reuse(append(u.Room(), key...))
	a.LeavesValue = false
	c.push(u)
	c.giveBehind(u, key, a.Flags&wire.Base64 != 0, a.behind)
	c.answered = true // it is not held for company
	c.LateDeletes++
	e.LateDeletes++
	c.Server.Count.LateDeletes++
}

// mayArrive says whether the server's kernel may have all of a mutation that is unguarded,
// or would be when c ends. What is still in this machine's kernel never gets there after
// an Abort.
func (c *Conn) mayArrive() bool {
	switch first := c.find(func(a *Attempt) bool { return a.LeavesValue && a.behind != Nothing }); {
	case first == nil || c.Sock == nil:
		return false
	case c.Server.e.Now-c.lastOut < int64(ackTime):
		return true
	default:
		return first.Start+uint64(first.Size)+uint64(c.Sock.Unsent()) <= c.Taken
	}
}

// onLate is called when mutations on c have become unguarded. If the server has not
// said anything since they were sent, the connection is stuck: new requests go to
// another, and what has not left this machine never will.
func (c *Conn) onLate(stuck bool) {
	switch {
	case stuck && c.LateDeletes == 0 && !c.mayArrive():
		c.abort("server "+c.Server.Label()+": aborted, for what was sent does not arrive there", stats.Lost)
	case stuck && !c.Lingering:
		c.deleteLate()
		c.linger("server " + c.Server.Label() + ": too many connections wait for late answers")
	default:
		c.deleteLate()
	}
}

// giveUp fails every request on c for the reason why. Then c lingers, if a delete
// has to go behind a mutation, or is aborted.
func (c *Conn) giveUp(why string, o stats.Outcome) {
	if c.State == ConnUp {
		for a := c.Head; a != nil; a = a.Next {
			a.expired = a.To != nil && a.Start >= c.Taken
			c.failOne(a, why, o)
		}
		if c.LateDeletes > 0 || c.mayArrive() {
			c.dropUnsent()
			c.deleteLate()
			c.linger(why)
			return
		}
	}
	if c.State == ConnIdle { // not dialled yet
		c.reset()
		c.failAll(why, o)
		return
	}
	c.abort(why, o)
}

// linger lets c live for what is in its queue; new requests go to a new connection
// in its place. What has not timed out may still be answered in time. If too many
// connections linger, c is aborted instead, for the reason why.
func (c *Conn) linger(why string) {
	srv := c.Server
	c.stepAside()
	if srv.Lingering > LingeringPerConn*srv.Connections {
		c.abort(why, stats.Lost)
		return
	}
	srv.e.Mark(&c.Link)
}

// stepAside makes c a lingering connection. The new one in its place is fresh.
func (c *Conn) stepAside() (fresh *Conn) {
	srv := c.Server
	e := srv.e
	fresh = srv.newConn()
	fresh.lastIn = c.lastIn
	srv.Conns[slices.Index(srv.Conns, c)] = fresh
	if srv.wantsConn() {
		e.Mark(&fresh.Link)
	}
	c.Lingering = true
	srv.Lingering++
	e.Lingering = append(e.Lingering, c)
	c.lastOf = map[uint64]uint64{}
	for a := c.Head; a != nil; a = a.Next {
		a.Probe = false
		if client, ok := a.client(); ok {
			c.lastOf[client] = a.Start
		}
	}
	return fresh
}

// routeToLingering is where the next request of a client goes that would go to c: to
// the lingering connection that still has one of that client, which it must not
// overtake. It is rare; inlined, it would cost every request some instructions.
//
//go:noinline
func (c *Conn) routeToLingering(client uint64) *Conn {
	for _, old := range c.Server.e.Lingering {
		if old.Server != c.Server || old.Head == nil {
			continue
		}
		if start, ok := old.lastOf[client]; ok && start >= old.Head.Start {
			old.lastOf[client] = old.Given
			return old
		}
	}
	return c
}

// forgetWaiter says that nobody waits any more for a, on a lingering connection.
func (c *Conn) forgetWaiter(a *Attempt) {
	if client, ok := a.client(); ok && c.lastOf[client] == a.Start {
		delete(c.lastOf, client)
	}
}

// client is the number of the client that waits for a, if one does.
func (a *Attempt) client() (id uint64, ok bool) {
	if a.To == nil {
		return 0, false
	}
	id = a.To.Client()
	return id, id != 0
}

// forgetLingering takes c off the lingering connections, if it is one.
func (c *Conn) forgetLingering() {
	e := c.Server.e
	if i := slices.Index(e.Lingering, c); i >= 0 {
		e.Lingering = slices.Delete(e.Lingering, i, i+1)
		c.Server.Lingering--
	}
}

// expireLingering ends the lingering connections that have waited long enough. One
// on which a client still waits for an answer goes on.
func (e *Servers) expireLingering() {
	for _, c := range slices.Clone(e.Lingering) {
		if c.Deadline <= e.Now {
			c.expire()
		}
		if c.Until <= e.Now {
			if !c.hasWaiters() {
				c.abort("server "+c.Server.Label()+": no late answer came", stats.TimedOut)
				continue
			}
			c.Until = e.Now + int64(lingerTime)
		}
		if c.State == ConnUp {
			e.At(link.RequestTimer, min(c.Deadline, c.Until))
		}
	}
}

// HasLateDelete says whether the server may have, or get for a moment, what a late
// mutation of key leaves: the delete behind that is not answered.
func (srv *Server) HasLateDelete(key []byte) bool {
	in := func(c *Conn) bool {
		return c.LateDeletes > 0 && c.Server == srv &&
			c.find(func(a *Attempt) bool { return a.LateDelete && divert.IsNameOf(a.Room(), key) }) != nil
	}
	return srv.e.LateDeletes > 0 && (slices.ContainsFunc(srv.Conns, in) || slices.ContainsFunc(srv.e.Lingering, in))
}
