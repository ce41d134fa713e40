package upstream

// Connections that no longer work, and are silent about it: pings on idle connections,
// and what happens to a connection that is found dead.

import (
	"log/slog"
	"slices"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// A firewall, a NAT or a load balancer may forget a connection that was idle for long, and
// drop its packets silently. Both ends still believe that the connection is open. Two
// signs show that it is dead:
//
//	ping       no request waits, nothing came for keepalive ► version ► no answer in timeouts.request
//	request    nothing came for quietTime ► a client's request ► no answer in timeouts.request
//	           or nothing came for keepalive, whatever was sent
//
// Then a new connection takes its place at once. Such a timeout does not count towards
// after_failures: it tells of the path, and the greeting on the new connection tells of
// the server. If that is not answered, or the dial fails, the server is down.
//
//	c          get a ► set j 1 ► get b ► incr n 1     set and incr may still be answered: c lingers for them
//	its place  version ► get a ► get b ► new requests
//
// A plain read without a byte of an answer is sent again on the new connection, once and
// within its deadline, unless its client has something else on c: then it could overtake
// that. All other requests stay on c: memcached may have run them.
//
// A request costs nothing more than before: the time of the last bytes is noted anyway, and
// the timer is set when the requests on a connection are checked.

// quietTime is how long a connection must have been silent and without a request, at
// least, so that one timeout of the next request counts as a sign that it is dead. It is
// longer than keepers wait between two pings, by default.
const quietTime = time.Second

// foundBy is the sign that showed that a connection is dead.
type foundBy uint8

const (
	alive     foundBy = iota
	byPing            // a ping on the idle connection had no answer
	byRequest         // the first request behind a quiet period had none
)

func (f foundBy) String() string { return [...]string{"", "ping", "request"}[f] }

// keepAlive sends a ping on c if it was idle for long enough. Otherwise it sets the timer.
// No request may wait on c.
func (c *Conn) keepAlive() {
	srv := c.Server
	if srv.keepalive == 0 || c.State != ConnUp || c.Lingering || c.held != nil || srv.Draining() {
		return
	}
	if at := c.lastIn + int64(srv.keepalive); at > srv.e.Now {
		srv.e.At(link.RequestTimer, at)
		return
	}
	c.ping()
}

// ping asks the server whether c still works.
func (c *Conn) ping() {
	e := c.Server.e
	a := e.NewAttempt(nil)
	a.Op, a.Ping = wire.Version, true
	c.MarkInternal(a)
	c.push(a)
	a.Deadline = e.Now + int64(c.Server.Greeting)
	c.armDeadline(a.Deadline)
	c.Out.Append(&e.Buffers, AskVersion)
	c.Give(a, len(AskVersion))
	c.answered = true // it is not held for company
}

// pingOthers sends a ping on each other connection of c's server that was quiet and has no
// request: the cause of c's death may have cut these, too.
func (c *Conn) pingOthers() {
	srv := c.Server
	if srv.keepalive == 0 {
		return
	}
	for _, o := range srv.Conns {
		if o != c && o.State == ConnUp && o.Deadline == link.Never && o.held == nil && o.lastIn+int64(quietTime) <= srv.e.Now {
			o.ping()
		}
	}
}

// foundDead says by which sign c is known to be dead. A keeper's own pings are no such
// sign: the keeper counts them itself.
func (c *Conn) foundDead() foundBy {
	e, a := c.Server.e, c.Head
	if a == nil || c.State != ConnUp || c.Lingering || c.Server.Draining() {
		return alive
	}
	quiet := a.sentAt-c.lastIn >= int64(quietTime) || c.Server.keepalive > 0 && e.Now-c.lastIn >= int64(c.Server.keepalive)
	quiet = quiet && c.greeted && c.Server.Keeps(c) // an errand's connection is the errand's business
	for ; a != nil; a = a.Next {
		switch {
		case a.Ping: // what comes before its answer shows that c works, too
			if a.Deadline = max(a.Deadline, c.lastIn+int64(c.Server.Greeting)); a.Deadline <= e.Now {
				return byPing
			}
		case quiet && a.To != nil && !a.Internal && a.Start < c.Taken && c.postpone(a) <= e.Now:
			return byRequest
		}
	}
	return alive
}

// replace gives c's place to a new connection, because c is dead by that sign. Plain reads
// go to the new one; c lingers for what else waits on it.
func (c *Conn) replace(by foundBy) {
	e, srv := c.Server.e, c.Server
	srv.noteDead(c, by)
	if !srv.Keeps(c) { // an errand's
		c.abort("server "+srv.Label()+": the connection was idle and no longer works", stats.TimedOut)
		e.Mark(&c.Link) // it is opened again
		return
	}
	type read struct {
		a  *Attempt
		to Receiver
	}
	var reads []read
	stay := map[uint64]bool{}
	for a := c.Head; a != nil; a = a.Next {
		if client, ok := a.client(); ok && !a.mayAskAgain(e.Now) {
			stay[client] = true
		}
	}
	for a := c.Head; a != nil; a = a.Next {
		if client, ok := a.client(); ok && !stay[client] {
			reads = append(reads, read{a, a.To})
			a.To, a.expired = nil, a.Start >= c.Taken
		}
	}
	fresh := c.stepAside()
	for _, r := range reads {
		fresh.askAgain(r.a, r.to)
	}
	c.dropUnsent()
	c.dead = true
	c.Until = e.Now + int64(lingerTime)
	e.At(link.RequestTimer, c.Until)
	e.Mark(&c.Link)
	fresh.pingOthers()
}

// mayEnd says whether c, which was found dead, may end now: it lingers, no client waits on it
// and no delete is behind a mutation, or too many others linger.
func (c *Conn) mayEnd() bool {
	srv := c.Server
	return c.Lingering && c.LateDeletes == 0 && !c.hasWaiters() || c.Lingering && srv.Lingering > LingeringPerConn*srv.Connections
}

// noteDead counts that c was found dead, and logs it.
func (srv *Server) noteDead(c *Conn, by foundBy) {
	srv.e.LogLimited(slog.LevelWarn, srv.Label(), "replaced a server connection that was idle and no longer works", "server", srv.Target.Name, "address", srv.Target.Address,
		"found_by", by.String(), "idle", time.Duration(srv.e.Now-c.lastIn).Round(time.Millisecond).String())
	if by == byPing {
		srv.Count.DeadByPing++
	} else {
		srv.Count.DeadByRequest++
	}
}

// mayAskAgain says whether a, for which a client waits, may be sent again on another
// connection now: it has no effect, its bytes can be made again from its names, and its
// deadline leaves time.
func (a *Attempt) mayAskAgain(now int64) bool {
	return a.plainRead() && !a.Begun && !a.asked && !a.Internal && !a.TakenOver && a.sentAt+int64(a.limits.Deadline) > now
}

// askAgain sends the plain read old of another connection on c, for the receiver to.
func (c *Conn) askAgain(old *Attempt, to Receiver) {
	e := c.Server.e
	a := e.NewAttempt(to)
	a.Op, a.Dialect, a.Flags = old.Op, old.Dialect, old.Flags
	a.Values, a.Share, a.TTL, a.Strip = old.Values, old.Share, old.TTL, old.Strip
	keys := old.AppendKeys(nil, "")
	c.Server.Count.ReadsResent++
	c.Begin(a, old.limits.Within(time.Duration(old.sentAt+int64(old.limits.Deadline)-e.Now)))
	command := wire.Get
	if old.Op == wire.Gets || old.Flags&wire.Binary != 0 { // a frame's answer shows the cas
		command = wire.Gets
	}
	if !old.Many {
		a.Reuse(append(a.Room(), keys[1:]...))
		e.Line = append(append(append(e.Line[:0], command.String()...), keys...), wire.CRLF...)
		c.Out.Append(&e.Buffers, e.Line)
		c.Give(a, len(e.Line))
		return
	}
	c.BeginLine(a, nil, []byte(command.String()), 0)
	for len(keys) > 0 {
		n := keysEnd(keys)
		c.AddKey(keys[:n], n-1)
		keys = keys[n:]
	}
	c.EndLine(a)
}

// keysEnd is where the first key ends in keys, each of which follows a space.
func keysEnd(keys []byte) int {
	if n := slices.Index(keys[1:], ' '); n >= 0 {
		return n + 1
	}
	return len(keys)
}
