package failover

// Which process answers on a new connection, as each loop finds out for itself.

import (
	"slices"
	"time"

	"ringside/proxy/health/process"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// Connected asks who answers on the new connection c, before all that waits there: a
// process that was started anew has lost what the one before it had, and a stranger has
// values of its own, which nobody is to see. So no request is answered on c before that is
// known. The keeper, who asks, too, may hear later that there is another process: of a
// connection that has ended while nothing was asked nobody tells it.
func (e *Keepers) Connected(c *upstream.Conn) {
	if srv := c.Server; e.asksWho(c) && srv.Identifying != c {
		srv.Identifying = c
		c.AskFirst(&identification{e, c, srv.Heard()}, whoAsks(srv), asksProcess)
	}
}

// Identify asks srv who it is, unless that is being asked already.
func (e *Keepers) Identify(srv *upstream.Server) {
	if c := srv.Conns[0]; srv.Identifying != c && c.State != upstream.ConnDialing && e.asksWho(c) {
		srv.Identifying = c
		e.Ask(c, &identification{e, c, srv.Heard()}, 0, whoAsks(srv), asksProcess, true)
		srv.Unidentified = srv.StartedAt != 0
	}
}

var asksProcess = []byte("stats\r\n")

func whoAsks(srv *upstream.Server) *table.Timeouts {
	return &table.Timeouts{Request: srv.Greeting, Deadline: srv.Connect + srv.Greeting}
}

// asksWho says whether it matters who answers on c: where keys move or have copies.
// Keepers hear that a server may lack copies until it is known.
func (e *Keepers) asksWho(c *upstream.Conn) (asks bool) {
	if !c.Server.Keeps(c) {
		return false
	}
	for _, m := range e.Registrations[c.Server] {
		if asks = asks || m.Copies || m.Bound.Pool.Failover.Mode != table.FailFast; m.Copies {
			m.Agent.View.SayIncomplete(m.Member, e.Now+int64(unsureTime))
		}
	}
	return asks
}

// unsureTime is how long a server that may lack copies counts as one that does.
const unsureTime = 2 * time.Second

// identification is the stats command that asks a server which process it is.
type identification struct {
	e     *Keepers
	c     *upstream.Conn // that it is asked on
	heard int64          // when the server was last heard of before the connection
}

// startUnknown is the StartedAt of a server whose stats don't tell. It counts as one
// process for ever.
const startUnknown = -1

func (d *identification) Client() uint64 { return 0 }

func (d *identification) Answered(_ int, r *upstream.Result) {
	e, srv := d.e, d.c.Server
	if srv.Identifying == d.c {
		srv.Identifying = nil
	}
	p, ok := process.Parse(r.Bytes)
	before := process.Process{PID: srv.Pid, Started: srv.StartedAt}
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
	unknown := func(m Registration) bool { return !m.Agent.View.Recognized(m.Member, p) }
	if p.Stranger(e.Now-d.heard) && slices.ContainsFunc(e.Registrations[srv], unknown) {
		srv.Reject(p.Answers())
	}
}
