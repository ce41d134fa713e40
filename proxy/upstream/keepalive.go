package upstream

// This file handles dead connections: connections that are open but no longer work. It pings idle
// connections, and replaces a connection that is found dead.

import (
	"log/slog"
	"slices"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// A firewall, a NAT or a load balancer may forget a connection that was idle for long, and
// silently drop its packets. Both ends then still consider the connection open. Two signs show
// that it is dead:
//
//	ping       no request waits, nothing arrived for keepalive ► version ► no reply within timeouts.request
//	request    nothing arrived for quietTime ► a client's request ► no reply within timeouts.request
//	           or nothing arrived for keepalive, whatever was sent
//
// A new connection then replaces the dead connection at once. The timeout does not count towards
// after_failures, because it is a sign of a broken network path. The new connection shows the
// state of the server: if the dial fails, or the server does not reply to the greeting, the server
// is down.
//
//	c             get a ► set j 1 ► get b ► incr n 1     set and incr may still be answered: c lingers for them
//	replacement   version ► get a ► get b ► new requests
//
// A plain read without a byte of its reply is sent again on the new connection, once and within
// its deadline. A read is not sent again if its client has other requests on c, because it could
// overtake them. All other requests stay on c, because memcached may have run them.
//
// This adds no cost to a request: the time of the last received bytes is recorded anyway, and the
// timer for pings is set when the timeouts of a connection are checked.

// quietTime is a time without any bytes from the server. If no bytes have arrived for so long, a
// timeout of the next request is a sign that the connection is dead. quietTime is longer than the
// default interval between two pings of a keeper.
const quietTime = time.Second

// foundBy is the sign that showed that a connection is dead.
type foundBy uint8

const (
	alive     foundBy = iota
	byPing            // a ping on the idle connection was not answered
	byRequest         // the first request after a period without any bytes from the server was not answered
)

func (f foundBy) String() string { return [...]string{"", "ping", "request"}[f] }

// keepAlive sends a ping on c if c was idle for the time srv.keepalive, and otherwise sets the timer
// for the ping. It must only be called while no request waits on c.
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

// ping sends the version command on c, to check whether the connection still works.
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
	c.answered = true // so that Flush sends the request at once, without waiting for a batch
}

// pingOthers sends a ping on each other connection of the server that has no request and has received
// nothing for quietTime. These connections may be dead like the connection that c has replaced.
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

// foundDead returns the sign that shows that c is dead: byPing or byRequest. Without a sign it returns
// alive. Other requests of Ringside itself are no sign, because a keeper counts its pings itself.
func (c *Conn) foundDead() foundBy {
	e, a := c.Server.e, c.Head
	if a == nil || c.State != ConnUp || c.Lingering || c.Server.Draining() {
		return alive
	}
	quiet := a.sentAt-c.lastIn >= int64(quietTime) || c.Server.keepalive > 0 && e.Now-c.lastIn >= int64(c.Server.keepalive)
	quiet = quiet && c.greeted && c.Server.Keeps(c) // a dedicated connection is handled by its user
	for ; a != nil; a = a.Next {
		switch {
		case a.Ping: // other bytes that arrive before the reply to a ping also show that c works
			if a.Deadline = max(a.Deadline, c.lastIn+int64(c.Server.Greeting)); a.Deadline <= e.Now {
				return byPing
			}
		case quiet && a.To != nil && !a.Internal && a.Start < c.Taken && c.postpone(a) <= e.Now:
			return byRequest
		}
	}
	return alive
}

// replace replaces c with a new connection, because the sign `by` shows that c is dead. Plain
// reads move to the new connection. c lingers for the other requests in its queue.
func (c *Conn) replace(by foundBy) {
	e, srv := c.Server.e, c.Server
	srv.noteDead(c, by)
	if !srv.Keeps(c) { // a dedicated connection
		c.abort("server "+srv.Label()+": the connection was idle and no longer works", stats.TimedOut)
		e.Mark(&c.Link) // so that the dedicated connection is dialed again
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

// mayEnd reports whether c, a lingering connection that was found dead, may be closed now. It may be
// if no client waits on c and no late delete is in its queue, or if too many connections linger.
func (c *Conn) mayEnd() bool {
	srv := c.Server
	return c.Lingering && c.LateDeletes == 0 && !c.hasWaiters() || c.Lingering && srv.Lingering > LingeringPerConn*srv.Connections
}

// noteDead counts and logs that c was found dead by the given sign.
func (srv *Server) noteDead(c *Conn, by foundBy) {
	srv.e.LogLimited(slog.LevelWarn, srv.Label(), "server connection replaced: it was idle and no longer works", "server", srv.Target.Name, "address", srv.Address(),
		"found_by", by.String(), "idle", time.Duration(srv.e.Now-c.lastIn).Round(time.Millisecond).String())
	if by == byPing {
		srv.Count.DeadByPing++
	} else {
		srv.Count.DeadByRequest++
	}
}

// mayAskAgain reports whether a, a client's request, may be sent again on another connection
// now. It must be a read without side effects and without a reply so far, its bytes must be known
// from the keys that a remembers, and its deadline must not have passed.
func (a *Attempt) mayAskAgain(now int64) bool {
	return a.plainRead() && !a.Begun && !a.asked && !a.Internal && a.sentAt+int64(a.limits.Deadline) > now
}

// askAgain sends a plain read again, on c and for the receiver `to`. old is its attempt on another
// connection.
func (c *Conn) askAgain(old *Attempt, to Receiver) {
	e := c.Server.e
	a := e.NewAttempt(to)
	a.Op, a.Dialect, a.Flags = old.Op, old.Dialect, old.Flags
	a.Values, a.Share, a.TTL, a.Strip = old.Values, old.Share, old.TTL, old.Strip
	keys := old.AppendKeys(nil, "")
	c.Server.Count.ReadsResent++
	c.Begin(a, old.limits.Within(time.Duration(old.sentAt+int64(old.limits.Deadline)-e.Now)))
	command := wire.Get
	if old.Op == wire.Gets || old.Flags&wire.Binary != 0 { // the reply to a request of the binary protocol includes the cas
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

// keysEnd returns the end of the first key in keys. Each key has a space before it.
func keysEnd(keys []byte) int {
	if n := slices.Index(keys[1:], ' '); n >= 0 {
		return n + 1
	}
	return len(keys)
}
