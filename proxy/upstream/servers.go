package upstream

// This file defines the collection of all memcached servers of one loop.

import (
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Servers has the memcached servers of one loop, and the loop's connections to them.
type Servers struct {
	*link.IO
	Observer Observer

	// Prompt reduces how often requests wait for a larger batch. If it is set, they wait only if so
	// many replies are due that the requests must be from pipelines or multi-key reads. Otherwise
	// they wait if Tune.HoldDue replies are due. The driver sets Prompt.
	Prompt bool

	// Where returns where to connect to the server with this address in the table; nil: at that address.
	// The driver sets it.
	Where func(network, address string) string

	WholeValue int64 // limits.value in bytes: see ExceedsWhole

	Unread func(n int) // is called when a reply of n bytes begins to arrive that no client gets, because it has gone; nil: nothing is called

	ByAddress   map[string]*Server // by network and address; survives reloads of the table
	List        []*Server          // the servers of the table, in its order
	Closing     []*Conn            // connections to servers that no table contains any more
	Lingering   []*Conn            // connections that accept no new requests, and stay open only for late replies
	ToTranslate []*Conn            // connections with requests that have waited for the server's memcached version, which is known now

	LateDeletes int    // number of late deletes in the queues of all connections
	Outstanding int    // number of requests in the queues of all connections
	Requests    uint64 // number of requests that were added to connections so far
	opaque      uint64 // number in the last opaque that Ringside added

	FreeAttempts *Attempt     // unused attempts, kept for reuse, linked by their field Next
	Plain        wire.Request // buffer for the parsed form of a request that Ringside itself makes
	rep          wire.Reply   // buffer for the parsed form of the current reply
}

// Observer is notified of events on servers. Its methods are called while an event is being handled,
// so they must not close or open connections.
type Observer interface {
	// Down reports that a server was marked as down, or that a server that is down has failed
	// again, and why. refused means that nothing listens at the address: the server process has
	// ended.
	Down(srv *Server, why string, refused bool)

	// Up reports that a server that was down replies again.
	Up(srv *Server)

	// Connected reports a new connection to a server.
	Connected(c *Conn)

	// LateDeleted reports that a request that was sent after a mutation that timed out has deleted
	// the value of key, or has stored a tombstone in its place. key is in the form for the server.
	LateDeleted(srv *Server, key []byte)

	// Observe reports the reply r of a server to the attempt a. A VALUE is only reported if
	// Attempt.Values is set. Of the VALUEs of a multi-key read, only the last is reported.
	Observe(c *Conn, a *Attempt, r *wire.Reply)
}

// Server returns the Server of the address in target, with the settings of the pool p applied. It
// creates the Server if there is none.
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

// AddTo adds the counters and states of this loop's servers to the snapshot of all loops.
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

// addTo adds the server to the snapshot, which may already have the same server of other loops.
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
	if srv.lastError != "" {
		t.Error = srv.lastError
	}
	for _, c := range srv.Conns {
		if c.State == ConnUp {
			t.Conns++
		}
		t.Waiting += c.Length
	}
	t.Timeouts = max(t.Timeouts, srv.timeouts)
}
