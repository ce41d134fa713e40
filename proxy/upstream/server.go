package upstream

// One memcached server as one engine sees it: its settings, and whether it is down.

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Server is one memcached server by address. Pools that name the same address
// share it. It belongs to one loop, as all it has: each loop has its own Server
// for the same memcached.
type Server struct {
	e      *Servers
	Target table.Target
	label  string // by people: its name, and its address if that differs
	settings
	outage
	process

	Conns     []*Conn          // for clients' requests: settings.Connections, one for bulky clients, and perhaps more, after a reload
	Dedicated map[uint32]*Conn // each for one errand of Ringside's own, by the errand's number
	Lingering int              // connections that only wait for late answers: see latedelete.go
	Asked     *Conn            // where the part for this server is of the read that is being split

	Retired   bool            // no table names it any more: close when nothing is in flight
	override  health.Override // of all pools that name it, the one that asks least
	queueFull string          // the error line for a request over settings.queue

	Release wire.Release // what it counted as, on the connection that asked it last; zero: none has
	Version string       // what it called that itself
	Number  uint16       // for the book of why keys miss
	Count   stats.ServerCounters
}

// settings are those of the pools that name the server: see configure.
type settings struct {
	Connections       int           // for clients' requests
	queue             int           // clients' requests that may wait on one connection
	joinGets          bool          // gets that go out together share lines: see names.Line
	preconnect        bool          // connections are opened ahead of requests
	keepalive         time.Duration // how long a connection is idle before a ping; 0: for ever
	Connect, Greeting time.Duration // for a connection to be made; for the first answer on it
	backoff           table.Backoff
	downAfter         int // requests in a row without an answer that make the server down
}

// outage is whether the server is down, as this loop's own connections show it.
// Requests then fail at once, and Ringside alone asks, at RedialAt, until the
// server answers. Times are in nanoseconds on the loop's clock.
type outage struct {
	Down     bool
	Why      string // the error line for its requests while it is down
	RedialAt int64  // when Ringside alone dials: while it is down, or has closed an idle connection; 0: not so far
	wait     int64  // between the last two redials
	timeouts int    // requests in a row that were not answered in time

	violations int    // of the protocol, of late
	violatedBy int64  // when they are forgotten
	changed    int64  // when the server was made, or Down changed
	before     uint64 // requests refused or failed when it went down
}

// process tells a server that was started anew, which has lost all it had, from
// the one before. It is asked where keys move or have copies, on each new connection.
// Every Ringside gets the same numbers of the same process.
type process struct {
	StartedAt, Pid int64 // since when it runs, in seconds by its own clock; its number
	Unidentified   bool  // there is a new connection, on which it has not said them yet
	Identifying    *Conn // on which it is being asked
}

// defaultDownAfter is how many requests in a row without an answer make a server
// down, unless its pools say otherwise.
const defaultDownAfter = 3

// configure takes up the settings of p; first says that p is the first pool of
// its table that names the server. Pools that name the same address share
// its connections: the most connections, the longest queue and the shortest
// waits of them count. What a request may take is its own pool's.
func (srv *Server) configure(p *table.Pool, t table.Target, first bool) {
	if first {
		srv.Retired = false
		srv.Target.Name, srv.Target.Weight = t.Name, t.Weight
		srv.label = t.Name
		if t.Name != t.Address {
			srv.label += " (" + t.Address + ")"
		}
		srv.Connections, srv.queue, srv.preconnect, srv.keepalive = 1, 0, false, 0
		srv.Connect, srv.Greeting, srv.backoff = p.Timeouts.Connect, p.Timeouts.Request, p.RetryBackoff
		srv.downAfter = math.MaxInt
		srv.joinGets = true
	}
	srv.downAfter = min(srv.downAfter, cmp.Or(p.Failover.AfterFailures, defaultDownAfter))
	srv.Connections = max(srv.Connections, p.Connections)
	srv.queue = max(srv.queue, p.QueueLimit)
	srv.preconnect = srv.preconnect || p.Preconnect
	srv.joinGets = srv.joinGets && p.JoinGets
	if k := p.Keepalive; k > 0 && (srv.keepalive == 0 || k < srv.keepalive) {
		srv.keepalive = k
	}
	srv.e.Soon(link.RequestTimer) // another keepalive may be due earlier
	srv.Connect = min(srv.Connect, p.Timeouts.Connect)
	srv.Greeting = min(srv.Greeting, p.Timeouts.Request)
	srv.backoff.First = min(srv.backoff.First, p.RetryBackoff.First)
	srv.backoff.Max = min(srv.backoff.Max, p.RetryBackoff.Max)
	srv.queueFull = fmt.Sprintf("server %s has %d requests waiting", srv.Label(), srv.queue)
	for len(srv.Conns) < srv.Connections {
		srv.Conns = append(srv.Conns, srv.newConn())
	}
	if srv.preconnect {
		for _, c := range srv.Conns {
			srv.e.Mark(&c.Link)
		}
	}
}

// newConn makes a connection without a socket.
func (srv *Server) newConn() *Conn {
	c := &Conn{Server: srv, Deadline: link.Never}
	c.End, c.Dialer = c, c
	return c
}

// Loop is the servers of the loop that srv belongs to.
func (srv *Server) Loop() *Servers { return srv.e }

// Label names a server for people.
func (srv *Server) Label() string { return srv.label }

// Pick returns the connection for the next request of a client, by its number, or
// why there is none. A client's requests all get the same one: a get behind a set
// that was not waited for must not overtake it on another. Requests of Ringside's
// own (internal) have a bound of their own: repairs, deletes and pings that a
// full queue kept out would be missed when the load is over.
func (srv *Server) Pick(client uint64, internal bool) (c *Conn, trouble string, o stats.Outcome) {
	if srv.Down {
		srv.Count.Refused++
		return nil, srv.Why, stats.Unavailable
	}
	c = srv.Conns[0]
	if srv.Connections > 1 || client&Bulky != 0 {
		c = srv.connOf(client)
	}
	if srv.Lingering > 0 {
		c = c.routeToLingering(client)
	}
	switch {
	case internal:
		if c.InternalFull() {
			return nil, internalFull, stats.Crowded
		}
	case srv.e.MemoryFull:
		srv.Count.Shed++
		return nil, link.OutOfMemory, stats.Crowded
	case c.Length-c.Internal >= srv.queue:
		srv.Count.Crowded++
		return nil, srv.queueFull, stats.Crowded
	}
	return c, "", 0
}

// Bulky is set in the number of a client whose answers are so large that others
// should not wait behind them: see package client. Its requests go by a connection
// of their own, which is made for the first.
const Bulky = 1 << 63

// connOf is the connection that the requests of a client go by.
func (srv *Server) connOf(client uint64) *Conn {
	if client&Bulky == 0 {
		return srv.Conns[client%uint64(srv.Connections)]
	}
	if len(srv.Conns) == srv.Connections {
		srv.Conns = append(srv.Conns, srv.newConn())
	}
	return srv.Conns[srv.Connections]
}

const (
	// maxInternal bounds how many of Ringside's own requests wait on one
	// connection, late deletes apart: a client's request has one of those at most.
	maxInternal  = 1024
	internalFull = "too many of Ringside's own requests wait for it"
)

// wantsConn says whether connections are opened ahead of requests.
func (srv *Server) wantsConn() bool { return srv.preconnect && !srv.Down && !srv.Draining() }

// goDown takes the server for down, for the reason why: its requests fail at
// once, and Ringside alone asks it, at growing intervals, until it answers. refused
// is what the observer is told.
func (srv *Server) goDown(why string, refused bool) {
	e := srv.e
	b := srv.backoff
	if !srv.Down {
		srv.Count.WentDown++
		srv.changed = e.Now
		srv.wait = int64(b.First)
		srv.before = srv.Count.Refused + srv.Count.Failed
		e.LogLimited(slog.LevelWarn, srv.Label(), "server down", "server", srv.Target.Name, "address", srv.Target.Address, "why", why)
	} else {
		srv.wait = min(srv.wait*2, int64(b.Max))
	}
	srv.Down = true
	srv.Why = srv.whyDown(why)
	srv.RedialAt = e.Now + srv.wait
	e.At(link.RequestTimer, srv.RedialAt)
	for _, c := range srv.Conns {
		c.giveUp(srv.Why, stats.Unavailable)
	}
	for _, c := range srv.Dedicated {
		c.abort("is down: "+why, stats.Unavailable)
	}
	srv.e.Observer.Down(srv, why, refused)
}

// Reject takes the server for down, for the reason why, by what it has said of itself.
func (srv *Server) Reject(why string) { srv.goDown(why, false) }

// Heard is when its connections have last brought anything.
func (srv *Server) Heard() (at int64) {
	for _, c := range srv.Conns {
		at = max(at, c.lastIn)
	}
	return at
}

// Keeps says whether c is one of the connections that clients' requests go by.
func (srv *Server) Keeps(c *Conn) bool { return slices.Contains(srv.Conns, c) }

func (srv *Server) whyDown(why string) string {
	return fmt.Sprintf("server %s is down: %s", srv.Label(), why)
}

// comeUp ends an outage of c's server, or a row of timeouts that might have become
// one. What comes late, on a lingering connection, ends none.
func (c *Conn) comeUp() {
	srv := c.Server
	if c.Lingering {
		return
	}
	srv.timeouts = 0
	if srv.Down {
		out := time.Duration(srv.e.Now - srv.changed).Round(time.Millisecond)
		srv.Down, srv.Why, srv.changed = false, "", srv.e.Now
		srv.e.LogLimited(slog.LevelInfo, srv.Label(), "server up", "server", srv.Target.Name, "address", srv.Target.Address,
			"out", out.String(), "failed", srv.Count.Refused+srv.Count.Failed-srv.before)
		srv.e.Observer.Up(srv)
	}
}

// reason is err without what people know already: which address it was.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// Apply puts o in force: what all pools that name the server want at least.
func (srv *Server) Apply(o health.Override) {
	if srv.override == o {
		return
	}
	srv.override = o
	for _, c := range slices.Clone(srv.Conns) { // giveUp may put others in their place
		if o == health.Down && (c.State != ConnIdle || c.Length > 0) {
			c.giveUp(o.Refusal(srv.Target.Name), stats.Unavailable)
		}
		srv.e.Mark(&c.Link) // to be closed, or opened ahead of requests
	}
	if o == health.Restore && srv.Down { // it is asked at once
		srv.RedialAt = srv.e.Now
		srv.e.At(link.RequestTimer, srv.e.Now)
	}
}

// Draining says that the server gets no new requests, because no table names it
// any more or a person wants it so: its connections close when they owe nothing.
func (srv *Server) Draining() bool { return srv.Retired || srv.override != health.Restore }

// DedicatedConn is the connection for one errand of Ringside's own, by the
// errand's number.
func (srv *Server) DedicatedConn(n uint32) *Conn {
	c := srv.Dedicated[n]
	if c == nil {
		c = srv.newConn()
		if srv.Dedicated == nil {
			srv.Dedicated = map[uint32]*Conn{}
		}
		srv.Dedicated[n] = c
	}
	return c
}

// CloseDedicated closes an errand's connection.
func (srv *Server) CloseDedicated(n uint32) {
	c := srv.Dedicated[n]
	if c == nil {
		return
	}
	delete(srv.Dedicated, n)
	if c.State != ConnIdle {
		c.disconnect(link.Close)
	} else {
		c.reset() // what has been asked must not open it again
	}
	c.failAll("the errand is done", stats.Lost)
}
