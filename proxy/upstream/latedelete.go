package upstream

// This file handles mutations that timed out and may still run. It sends deletes after them, and
// keeps connections open for these deletes.

import (
	"slices"
	"time"

	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// A mutation that failed with an error or a timeout may be in the server's receive buffer, and
// run when the server continues. In between, a newer write or delete may have been
// acknowledged. A reset of the connection does not remove the mutation from that buffer. So a
// delete of the key is sent right after the mutation, on the same connection, and at worst the key
// misses. A mutation without this delete is called unguarded.
//
//	set k v1 ► timeout ► delete k, after it; new traffic uses a new connection
//	server continues: v1 is stored, k is deleted; both replies are discarded
//
// If the connection is closed while such a delete is in flight, memcached drops the bytes that
// it has not read yet: the set could run and the delete not. So the connection lingers, without
// new requests, until the delete is answered.
//
// The delete is a text command, which every server understands (md only for a key in base64). It
// has exactly one reply, so replies are still paired by order. This reply also shows that everything
// before the delete has run. For a key with replicas, a tombstone is stored in place of the delete.
// An instance that reads the tombstone asks the other replicas. Some mutations need neither the
// delete nor a tombstone: see LateAction.

const (
	// lingerTime is how long a lingering connection waits for the reply to its last late
	// delete.
	lingerTime = 60 * time.Second

	// ackTime is an upper limit for the time in which the server's kernel acknowledges bytes that it
	// has received: Linux needs at most 200 ms.
	ackTime = 250 * time.Millisecond

	// LingeringPerConn is the maximum number of lingering connections of one server, for each
	// connection that it has by configuration. Beyond this number a connection is aborted, and its
	// mutations may still take effect later.
	LingeringPerConn = 4
)

// LateAction says what is sent after a mutation that may run late: Delete, Nothing, or a tombstone.
// A positive number is the TTL of the tombstone, in seconds.
type LateAction int32

const (
	Delete  LateAction = 0
	Nothing LateAction = -1
)

// Unguarded reports whether a late delete, or a tombstone, must be sent after a: no client waits for
// a any more, a may run late and replace a newer value, and nothing was sent after it yet.
func (a *Attempt) Unguarded() bool { return a.LeavesValue && a.To == nil && a.behind != Nothing }

// deleteLate adds to the end of the queue of c, for each unguarded mutation in the queue, the delete or
// the tombstone that must follow it.
func (c *Conn) deleteLate() {
	for a := c.Head; a != nil; a = a.Next { // Unguarded is false for the deletes that this loop appends
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
	c.giveLate(u, key, a.Flags&wire.Base64 != 0, a.behind)
	c.answered = true // so that Flush sends the delete at once, without waiting for a batch
	c.LateDeletes++
	e.LateDeletes++
	c.Server.Count.LateDeletes++
}

// mayArrive reports whether the server's kernel may have received all bytes of a mutation on c that
// could replace a newer value if it runs late. If not, an Abort of c is enough: bytes that are still in this
// machine's kernel then never arrive.
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

// onLate is called when mutations on c have timed out and may run late. It sends the deletes after
// them. stuck means that the server has sent nothing since these mutations were sent. In this case
// new requests use another connection, and if no mutation can have arrived, c is aborted.
func (c *Conn) onLate(stuck bool) {
	switch {
	case stuck && c.LateDeletes == 0 && !c.mayArrive():
		c.abort("server "+c.Server.Label()+": aborted, because it does not acknowledge what was sent", stats.Lost)
	case stuck && !c.Lingering:
		c.deleteLate()
		c.linger("server " + c.Server.Label() + ": too many connections wait for late answers")
	default:
		c.deleteLate()
	}
}

// giveUp fails every request on c with the reason why. If a delete must then follow a mutation, c
// lingers for the reply to the delete; otherwise c is aborted.
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
	if c.State == ConnIdle { // not dialed yet
		c.reset()
		c.failAll(why, o)
		return
	}
	c.abort(why, o)
}

// linger keeps c open only for the requests in its queue, and replaces c with a new connection for
// new requests. Requests on c that have not timed out may still get their replies. If too many
// connections linger, c is aborted with the reason why.
func (c *Conn) linger(why string) {
	srv := c.Server
	c.stepAside()
	if srv.Lingering > LingeringPerConn*srv.Connections {
		c.abort(why, stats.Lost)
		return
	}
	srv.e.Mark(&c.Link)
}

// stepAside turns c into a lingering connection, which accepts no new requests. It returns the new
// connection that replaces c.
func (c *Conn) stepAside() (fresh *Conn) {
	srv := c.Server
	e := srv.e
	if fresh = srv.Dedicated[spareConn]; fresh != nil && fresh.Features != 0 {
		delete(srv.Dedicated, spareConn)
		fresh.isSpare = false
	} else {
		fresh = srv.newConn()
		fresh.lastIn, fresh.alone = c.lastIn, c.alone
	}
	srv.Conns[slices.Index(srv.Conns, c)] = fresh
	if srv.wantsConn() {
		e.Mark(&fresh.Link)
	}
	c.Lingering = true
	srv.Lingering++
	e.Lingering = append(e.Lingering, c)
	c.lastOf = map[uint64]uint64{}
	for a := c.Head; a != nil; a = a.Next {
		a.Probe = a == c.login
		if client, ok := a.client(); ok {
			c.lastOf[client] = a.Start
		}
	}
	return fresh
}

// routeToLingering returns the connection for the next request of a client that would use c. If a
// lingering connection of the same server still has a request of the client, it returns that
// connection, because the new request must not overtake the earlier one. The function is rarely
// called, and is not inlined, so that the code of other requests stays short.
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

// forgetWaiter removes the attempt a, for which no client waits any more, from the requests that a
// client waits for on c, a lingering connection.
func (c *Conn) forgetWaiter(a *Attempt) {
	if client, ok := a.client(); ok && c.lastOf[client] == a.Start {
		delete(c.lastOf, client)
	}
}

// client returns the number of the client that waits for the reply to a, if there is one.
func (a *Attempt) client() (id uint64, ok bool) {
	if a.To == nil {
		return 0, false
	}
	id = a.To.Client()
	return id, id != 0
}

// forgetLingering removes c from the list of lingering connections, if c is in it.
func (c *Conn) forgetLingering() {
	e := c.Server.e
	if i := slices.Index(e.Lingering, c); i >= 0 {
		e.Lingering = slices.Delete(e.Lingering, i, i+1)
		c.Server.Lingering--
	}
}

// expireLingering ends the lingering connections that have reached Until. A connection on which a
// client still waits for a reply stays open.
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

// HasLateDelete reports whether a late delete of key is in flight on this loop's connections to the
// server. The server may then have a value of a mutation that ran late, or may get such a value for a
// moment.
func (srv *Server) HasLateDelete(key []byte) bool {
	in := func(c *Conn) bool {
		return c.LateDeletes > 0 && c.Server == srv &&
			c.find(func(a *Attempt) bool { return a.LateDelete && divert.IsNameOf(a.Room(), key) }) != nil
	}
	return srv.e.LateDeletes > 0 && (slices.ContainsFunc(srv.Conns, in) || slices.ContainsFunc(srv.e.Lingering, in))
}
