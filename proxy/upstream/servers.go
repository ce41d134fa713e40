package upstream

// All memcached servers of one loop.

import (
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Servers are the memcached servers that one loop talks to, and its
// connections to them.
type Servers struct {
	*link.IO
	Observer Observer

	// Prompt holds requests only where a queue is so long that they came in
	// batches; without it they are held from Tune.HoldDue on. The driver sets it.
	Prompt bool

	ByAddress   map[string]*Server // by network and address, over generations of the table
	List        []*Server          // the same, in the order of the table
	Closing     []*Conn            // connections of servers that no table names any more
	Lingering   []*Conn            // connections that wait for late answers only
	ToTranslate []*Conn            // connections that hold what their servers may not understand, and know the release now

	LateDeletes int    // in the queues of all connections
	Outstanding int    // requests in the queues, which have no answer yet
	Requests    uint64 // requests given to connections so far
	opaque      uint64 // the last that a meta command of Ringside's own has got

	FreeAttempts *Attempt     // kept for reuse, linked by Next
	Plain        wire.Request // scratch: a request that Ringside makes itself, parsed
	rep          wire.Reply   // scratch: the reply at hand
}

// Observer is told what happens to servers. It is asked while that is being
// dealt with, so it must not close or open connections.
type Observer interface {
	// Down is told that a server does not answer any more, and why; refused says that
	// nobody listens there: the server's process has ended.
	Down(srv *Server, why string, refused bool)

	// Up is told that a server answers again.
	Up(srv *Server)

	// Connected is told that there is a new connection to a server.
	Connected(c *Conn)

	// LateDeleted is told that what went behind a mutation that timed out has
	// deleted something, or put a mark in its place: key, as the server knows it.
	LateDeleted(srv *Server, key []byte)

	// Fate is told what a server has answered, unless it is a value of a key that it
	// leaves as it was.
	Fate(c *Conn, a *Attempt, r *wire.Reply)
}

// Server finds or makes the server of target.
func (e *Servers) Server(target table.Target, p *table.Pool) *Server {
	key := target.Network + " " + target.Address
	srv := e.ByAddress[key]
	if srv == nil {
		srv = &Server{e: e, Target: target, Retired: true, outage: outage{changed: e.Now}}
		e.ByAddress[key] = srv
	}
	if srv.Retired {
		e.List = append(e.List, srv)
	}
	srv.configure(p, target, srv.Retired)
	return srv
}

// AddTo adds the servers to what is told of all loops.
func (e *Servers) AddTo(into *stats.Snapshot) {
	for a := e.FreeAttempts; a != nil; a = a.Next {
		into.Kept += AttemptSize
	}
	if into.Servers == nil {
		into.Servers = map[string]*stats.ServerSnapshot{}
	}
	for key, srv := range e.ByAddress {
		t := into.Servers[key]
		if t == nil {
			t = &stats.ServerSnapshot{Target: srv.Target}
			into.Servers[key] = t
		}
		srv.addTo(t)
	}
}

// addTo adds the server to what other loops tell of it.
func (srv *Server) addTo(t *stats.ServerSnapshot) {
	t.ServerCounters.Add(&srv.Count)
	t.Lingering += srv.Lingering
	age := srv.e.Now - srv.changed
	switch {
	case srv.Down && t.Down > 0:
		t.Down++
		t.Age = max(t.Age, age)
	case srv.Down:
		t.Down, t.Why, t.Age = 1, srv.Why, age
	case t.Down == 0 && (t.Age == 0 || age < t.Age):
		t.Age = age
	}
	t.Known = t.Known || srv.Release != (wire.Release{})
	if srv.Version != "" {
		t.Version = srv.Version
	}
	for _, c := range srv.Conns {
		if c.State == ConnUp {
			t.Conns++
		}
		t.Waiting += c.Length
	}
	t.Timeouts = max(t.Timeouts, srv.timeouts)
}
