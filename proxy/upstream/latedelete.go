package upstream

// Mutations that timed out and may still run: the deletes that are sent after them, and the
// connections that stay open for these deletes.

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
// acknowledged. A reset does not remove the mutation from that buffer. So a delete of its key
// is sent right after it, on the same connection, and at worst the key misses. Until then, the
// mutation is unguarded.
//
//	set k v1 ► timeout ► delete k, after it; new traffic uses a new connection
//	server continues: v1 is stored, k is deleted; both replies are discarded
//
// If the connection is closed while such a delete is in flight, memcached drops the bytes that
// it has not read yet: the set could run and the delete not. So the connection lingers, without
// new requests, until the delete is answered.
//
// The delete asks for a reply, and every server understands it (md only for a key in base64). It
// has exactly one reply, so pairing by order still works. Its reply also shows that everything
// before it has run. For a key with replicas a placeholder is stored and the key is not deleted. A
// reader that finds the placeholder asks the other replicas. Some mutations need neither request:
// see LateAction.

const (
	// lingerTime is how long a lingering connection waits for the reply to its last late
	// delete.
	lingerTime = 60 * time.Second

	// ackTime is the maximum delay before a kernel acknowledges bytes that it has received:
	// Linux needs at most 200 ms.
	ackTime = 250 * time.Millisecond

	// LingeringPerConn limits the lingering connections of one server, for each connection that
	// it may have. Beyond the limit a connection is aborted, and its mutations may still take
	// effect later.
	LingeringPerConn = 4
)

// LateAction says what is sent after a mutation that may run late. A positive number is the
// lifetime of a placeholder in seconds.
type LateAction int32

const (
	Delete  LateAction = 0
	Nothing LateAction = -1
)

// Unguarded reports whether no client waits for a any more, it may run late and leave a value,
// and nothing was sent after it yet.
func (a *Attempt) Unguarded() bool { return a.LeavesValue && a.To == nil && a.behind != Nothing }

// deleteLate adds a delete to the end of c for each unguarded mutation.
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

// mayArrive reports whether the server's kernel may have received all bytes of a mutation that is
// unguarded, or that is unguarded once c is closed. Bytes that are still in this machine's kernel
// never arrive after an Abort.
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

// onLate is called when mutations on c have become unguarded. stuck means that the server has
// sent nothing since they were sent. New requests then use another connection. If no mutation
// can have arrived, c is aborted instead.
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

// giveUp fails every request on c with the reason why. c then lingers if a delete must follow a
// mutation; otherwise it is aborted.
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

// linger keeps c open for the requests in its queue, and replaces it with a new connection for
// new requests. A request that has not timed out may still be answered. If too many connections
// linger, c is aborted with the reason why.
func (c *Conn) linger(why string) {
	srv := c.Server
	c.stepAside()
	if srv.Lingering > LingeringPerConn*srv.Connections {
		c.abort(why, stats.Lost)
		return
	}
	srv.e.Mark(&c.Link)
}

// stepAside turns c into a lingering connection. It returns the new connection that replaces c.
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

// routeToLingering returns the connection for the next request of a client that would use c.
// This is a lingering connection if that still has a request of the client, which the new
// request must not overtake. The case is rare; inlined, the check would cost every request some
// instructions.
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

// forgetWaiter is called when no client waits any more for the attempt a, on a lingering connection.
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

// forgetLingering removes c from the lingering connections, if it is one of them.
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

// HasLateDelete reports whether the server may have a value of key that a late mutation left,
// or may get one for a moment: the delete after that mutation is not answered yet.
func (srv *Server) HasLateDelete(key []byte) bool {
	in := func(c *Conn) bool {
		return c.LateDeletes > 0 && c.Server == srv &&
			c.find(func(a *Attempt) bool { return a.LateDelete && divert.IsNameOf(a.Room(), key) }) != nil
	}
	return srv.e.LateDeletes > 0 && (slices.ContainsFunc(srv.Conns, in) || slices.ContainsFunc(srv.e.Lingering, in))
}
