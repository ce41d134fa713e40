package upstream

// All memcached servers of one loop.

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

	// If Prompt is set, requests wait for a larger batch only if the queue is so long that it was
	// filled by pipelines or multi-key reads. Otherwise they wait from Tune.HoldDue requests on.
	// The driver sets Prompt.
	Prompt bool

	WholeValue int64 // limits.value: see Conn.startStream

	ByAddress   map[string]*Server // by network and address; survives reloads of the table
	List        []*Server          // the servers of the table, in its order
	Closing     []*Conn            // connections of servers that no table names any more
	Lingering   []*Conn            // connections that only wait for late replies
	ToTranslate []*Conn            // connections whose server's memcached version is now known, with requests that waited for that

	LateDeletes int    // number of late deletes in the queues of all connections
	Outstanding int    // requests in the queues without a complete reply
	Requests    uint64 // requests added to connections so far
	opaque      uint64 // number in the last opaque that Ringside added

	FreeAttempts *Attempt     // kept for reuse, linked by Next
	Plain        wire.Request // scratch: the parsed form of a request that Ringside makes itself
	rep          wire.Reply   // scratch: the current reply
}

// Observer is notified of events on servers. It is called while these are being handled, so it
// must not close or open connections.
type Observer interface {
	// Down reports that a server does not answer any more, and why. refused means that nothing
	// listens at the address: the server process has ended.
	Down(srv *Server, why string, refused bool)

	// Up reports that a server answers again.
	Up(srv *Server)

	// Connected reports a new connection to a server.
	Connected(c *Conn)

	// LateDeleted reports that the request sent after a mutation that timed out has deleted the
	// value, or replaced it by a placeholder. key is in the form that the server knows.
	LateDeleted(srv *Server, key []byte)

	// Observe reports a reply of a server. A VALUE is only reported if Attempt.Values is set, and
	// of a multi-key read only the last one.
	Observe(c *Conn, a *Attempt, r *wire.Reply)
}

// Server returns the server of target, and creates it if there is none.
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

// AddTo adds the servers to the snapshot of all loops.
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
