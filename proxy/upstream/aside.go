package upstream

// This file handles connections that are blocked by a client that does not read its replies.

import (
	"math"
	"slices"

	"ringside/proxy/link"
	"ringside/proxy/wire"
)

// spareConn is the number of the dedicated connection that replaces a blocked one as soon as the server has replied
// on it. Until then the blocked connection stays in use. So nothing fails if the server accepts no further
// connection, for example because it has reached its limit.
const spareConn = math.MaxUint32

// hasSpare reports whether the server has replied to the greeting on its spare connection. Without a spare connection it dials one.
func (srv *Server) hasSpare() bool {
	c := srv.DedicatedConn(spareConn)
	if c.State == ConnIdle && c.dialAt <= srv.e.Now && !srv.Down {
		c.isSpare = true
		c.dial()
	}
	return c.State == ConnUp && c.Features != 0
}

// useSpare is called when the server's release is known on its spare connection. The connection replaces one that is
// blocked, or is closed if none is blocked any more.
func (srv *Server) useSpare() {
	for _, c := range slices.Clone(srv.Conns) {
		if a := c.Head; a != nil && a.Begun {
			c.setAside(a)
		}
	}
	srv.CloseDedicated(spareConn)
}

// setAside replaces c with a new connection if the client of a does not read its replies. a is
// the request that the server is replying to. Without a new connection, all other requests on c
// would wait until that client has read its reply, which may be large.
//
//	c             get many, begun ► get k ► set j 1 ► get i     lingers: no new requests
//	replacement   get k ► get i ► new requests
//
// A request without a reply so far moves to the new connection, if it is a plain read and its
// client has no other request on c. So a read may run twice, but no request of a client
// overtakes another request of the client. All other requests stay on c. While they have no
// replies, new requests of their clients also use c.
func (c *Conn) setAside(a *Attempt) {
	srv := c.Server
	to, ok := a.To.(Streamer)
	if !ok || !to.IsSlow() || c.Lingering || srv.Draining() || srv.Lingering >= LingeringPerConn*srv.Connections || !srv.hasSpare() {
		return
	}
	srv.e.Log.Debug("server connection no longer shared: a client does not read its replies", "server", srv.Target.Name, "address", srv.Address(), "requests", c.Length)
	stay := map[uint64]bool{}
	for a := c.Head; a != nil; a = a.Next {
		if client, ok := a.client(); ok && !a.mayTakeBack() {
			stay[client] = true
		}
	}
	for a := c.Head; a != nil; a = a.Next {
		if client, ok := a.client(); ok && !stay[client] {
			to := a.To.(Taker)
			a.To, a.expired = nil, a.Start >= c.Taken
			to.TakeBack(a)
		}
	}
	c.dropUnsent()
	c.Until = srv.e.Now + int64(lingerTime)
	c.stepAside()
	srv.e.Mark(&c.Link)
	srv.e.At(link.RequestTimer, c.Until)
}

// mayTakeBack reports whether a, a client's request without a reply so far, may be taken from its
// connection and sent again on another one.
func (a *Attempt) mayTakeBack() bool {
	to, ok := a.To.(Taker)
	return ok && to.TakesBack() && a.plainRead() && !a.Begun
}

// plainRead reports whether a is a read without side effects, and whether its bytes can be made
// again from the keys that a remembers (Names).
func (a *Attempt) plainRead() bool {
	return a.Dialect == wire.Text && a.Op <= wire.Gets && a.AsText == nil && !a.Probe
}

// unwanted reports whether all requests in the queue of c may be dropped: they are pings, or plain
// reads of clients that no longer wait.
func (c *Conn) unwanted() bool {
	return c.find(func(a *Attempt) bool {
		_, waits := a.client()
		return waits || !a.Ping && (a.asked || a.Internal || !a.plainRead())
	}) == nil
}
