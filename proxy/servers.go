package proxy

// All memcached servers of one loop.

import "ringside/proxy/wire"

// Servers are the memcached servers that one loop talks to, and its
// connections to them.
type Servers struct {
	*IO
	observer Observer

	// Prompt holds requests only where a queue is so long that they came in
	// batches; without it from Tune.HoldDue on. It is the driver's to set.
	Prompt bool

	byAddress map[string]*Server // by network and address, over generations
	list      []*Server          // the same, in the order of the table
	leaving   []*Conn            // of servers that no table names any more
	zombies   []*Conn            // wait for late answers only
	misfits   []*Conn            // hold what their servers may not understand, and have told their release

	undos   int    // in the lists of all connections
	unheard int    // requests in them that have no answer yet
	asked   uint64 // requests given to them so far
	opaque  uint64 // of Ringside's own meta commands, the last

	freeAttempts *Attempt
	plain        wire.Request // one that Ringside makes itself, parsed
	rep          wire.Reply   // the one at hand
}

// Observer is told what happens to servers. It is asked while that is being
// dealt with, so it must not close or open connections.
type Observer interface {
	// Down is told that a server does not answer any more, and why.
	Down(srv *Server, why string)

	// Up is told that a server answers again.
	Up(srv *Server)

	// Connected is told that there is a new connection to a server.
	Connected(c *Conn)

	// LateDeleted is told that the delete behind a mutation that timed out has
	// deleted something: key, as the server knows it.
	LateDeleted(srv *Server, key []byte)
}

// server finds or makes the server of target.
func (e *Servers) server(target Target, p *Pool) *Server {
	key := target.Network + " " + target.Address
	srv := e.byAddress[key]
	if srv == nil {
		srv = &Server{e: e, target: target, retired: true, changed: e.now}
		e.byAddress[key] = srv
	}
	if srv.retired {
		e.list = append(e.list, srv)
	}
	srv.settle(p, target, srv.retired)
	return srv
}

// addTo adds the servers to what is told of all loops.
func (e *Servers) addTo(into *Snapshot) {
	for a := e.freeAttempts; a != nil; a = a.next {
		into.Kept += attemptSize
	}
	if into.Servers == nil {
		into.Servers = map[string]*ServerSnapshot{}
	}
	for key, srv := range e.byAddress {
		t := into.Servers[key]
		if t == nil {
			t = &ServerSnapshot{Target: srv.target}
			into.Servers[key] = t
		}
		srv.addTo(t)
	}
}

func (srv *Server) addTo(t *ServerSnapshot) {
	t.ServerCounters.add(&srv.count)
	t.Zombies += srv.zombies
	age := srv.e.now - srv.changed
	switch {
	case srv.down && t.Down > 0:
		t.Down++
		t.Age = max(t.Age, age)
	case srv.down:
		t.Down, t.Why, t.Age = 1, srv.why, age
	case t.Down == 0 && (t.Age == 0 || age < t.Age):
		t.Age = age
	}
	if srv.version != "" {
		t.Version = srv.version
	}
	for _, c := range srv.conns {
		if c.state == connUp {
			t.Conns++
		}
		t.Waiting += c.length
	}
	t.Timeouts = max(t.Timeouts, srv.timeouts)
}
