package upstream

// Connections whose answers a client does not take, while others wait behind them.

import (
	"ringside/proxy/link"
	"ringside/proxy/wire"
)

// setAside gives c's place to a new connection, if the client that waits for a, which c's
// server is answering, takes nothing: else all would wait behind an answer of any size.
//
//	c          get many, begun ► get k ► set j 1 ► get i     lingers: no new requests
//	its place  get k ► get i ► new requests
//
// What the server has not begun to answer is taken back and asked there, if it is a
// plain read and its client has nothing else on c: that may be asked twice, and
// nothing of the client can overtake it. What can't be taken back is answered on c,
// behind what comes; so is all that those clients ask until then.
func (c *Conn) setAside(a *Attempt) {
	srv := c.Server
	to, ok := a.To.(Streamer)
	if !ok || !to.Behind() || c.Lingering || srv.Draining() || srv.Lingering >= LingeringPerConn*srv.Connections {
		return
	}
	srv.e.Log.Debug("set a server connection aside: a client does not take its answers", "server", srv.Target.Name, "address", srv.Target.Address, "requests", c.Length)
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
	c.linger("")
	srv.e.At(link.RequestTimer, c.Until)
}

// mayTakeBack says whether a, for which a client waits, may be asked again.
func (a *Attempt) mayTakeBack() bool {
	_, ok := a.To.(Taker)
	return ok && a.plainRead() && !a.Begun
}

// plainRead says whether a is a read that does nothing else, and can be spelled again.
func (a *Attempt) plainRead() bool {
	return a.Dialect == wire.Text && a.Op <= wire.Gets && a.AsText == nil && !a.Probe
}

// unwanted says that nobody would miss the answers that are due on c, nor what is
// asked there.
func (c *Conn) unwanted() bool {
	return c.find(func(a *Attempt) bool {
		_, waits := a.client()
		return waits || !a.Ping && (a.asked || a.Internal || !a.plainRead())
	}) == nil
}
