package failover

// This file identifies the process that replies on a new connection. Each loop does that.

import (
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// Connected sends a request that identifies the server process on the new connection c, before all
// requests that wait there. A restarted process has lost its items, and a foreign process has values
// that no client may see. So no client's request is sent before this one. The keeper also identifies
// the process, but perhaps later: it does not notice that an idle connection was closed.
func (e *Keepers) Connected(c *upstream.Conn) {
	if srv := c.Server; e.asksIdentity(c) && srv.Identifying != c {
		srv.Identifying = c
		c.AskFirst(&identification{e, c, srv.Heard()}, srv.OwnTimeouts(srv.Greeting), asksProcess)
	}
}

// Identify sends a request that identifies the process of srv, unless such a request is in flight.
func (e *Keepers) Identify(srv *upstream.Server) {
	if c := srv.Conns[0]; srv.Identifying != c && c.State != upstream.ConnDialing && e.asksIdentity(c) {
		srv.Identifying = c
		e.Ask(c, &identification{e, c, srv.Heard()}, 0, srv.OwnTimeouts(srv.Greeting), asksProcess, true)
		srv.Unidentified = srv.StartedAt != 0
	}
}

var asksProcess = []byte("stats\r\n")

// asksIdentity reports whether the process that replies on c must be identified, because a pool of
// the server moves its keys or keeps replicas. If a pool keeps replicas, asksIdentity also reports to
// its keeper that the server may lack replicas, for unsureTime.
func (e *Keepers) asksIdentity(c *upstream.Conn) (asks bool) {
	if !c.Server.Keeps(c) {
		return false
	}
	for _, m := range e.Registrations[c.Server] {
		if asks = asks || m.Copies || m.Bound.Pool.Failover.Mode != table.FailFast; m.Copies {
			m.Agent.View.SayIncomplete(m.ServerIndex, e.Now+int64(unsureTime))
		}
	}
	return asks
}

// unsureTime is how long a server counts as incomplete after a new connection: the process there may
// be a new one, which lacks replicas.
const unsureTime = 2 * time.Second

// identification is the receiver of the reply to a stats command, which identifies the process of a
// server.
type identification struct {
	e     *Keepers
	c     *upstream.Conn // the connection on which the request is sent
	heard int64          // when the server last sent something before the stats command
}

// startUnknown is the value of upstream.Server.StartedAt if the server does not report a start time.
// Such a server always counts as the same process.
const startUnknown = -1

func (d *identification) Answered(_ int, r *upstream.Result) {
	e, srv := d.e, d.c.Server
	if srv.Identifying == d.c {
		srv.Identifying = nil
	}
	p, ok := health.ParseProcess(r.Bytes)
	before := health.Process{PID: srv.Pid, Started: srv.StartedAt}
	switch {
	case r.Bytes == nil || !ok && before.Started > 0:
		return
	case !ok:
		srv.StartedAt, srv.Unidentified = startUnknown, false
		return
	}
	srv.Unidentified = false
	srv.StartedAt, srv.Pid = p.Started, p.PID
	if before.Started <= 0 || p.Is(before) {
		return
	}
	e.StartedAnew(srv)
	unknown := func(m Registration) bool { return !m.Agent.View.Recognized(m.ServerIndex, p) }
	if p.Stranger(e.Now-d.heard) && slices.ContainsFunc(e.Registrations[srv], unknown) {
		e.Notify(srv, (*health.Keeper).Rejected)
		srv.Reject(p.Answers())
	}
}
