package upstream

// One memcached server as one loop sees it: its settings, and whether it is down.

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Server is one memcached server, identified by its address. Pools that name the same address
// share it. A Server and all its fields belong to one loop: each loop has its own Server for
// the same memcached.
type Server struct {
	e      *Servers
	Target table.Target
	label  string // for logs and errors: its name, and its address if that differs
	settings
	outage
	process

	Conns     []*Conn          // for clients' requests: settings.Connections, one for bulky clients, and maybe more after a reload with a lower number
	Dedicated map[uint32]*Conn // connections of Ringside's own tasks, by the number of the task
	Lingering int              // connections that only wait for late replies: see latedelete.go
	Asked     *Conn            // while a multi-key read is split: the connection of the part for this server; else nil

	Retired   bool            // no table names the server any more: its connections close when nothing is in flight
	override  health.Override // the mildest of the overrides in the pools that have the server
	queueFull string          // the error line for a request beyond settings.queue

	Release wire.Release // the release assumed since the last version reply; zero: not known yet
	Version string       // the version from that reply
	Number  uint16       // for package missreason, the log of reasons for misses
	Count   stats.ServerCounters

	lastError string // the last SERVER_ERROR to a client's command, truncated
}

// mostError is the maximum length of lastError.
const mostError = 100

// noteError counts a SERVER_ERROR to a client's command, and remembers its text. It
// allocates only for a text that differs from the last one.
func (srv *Server) noteError(line []byte) {
	srv.Count.Errors++
	if line = line[:min(len(line), mostError)]; string(line) != srv.lastError {
		srv.lastError = string(line)
	}
}

// settings are the combined settings of all pools that have the server: see Server.configure.
type settings struct {
	Connections       int           // for clients' requests
	queue             int           // maximum number of clients' requests that wait on one connection
	joinGets          bool          // gets that are sent together share lines: see Line
	preconnect        bool          // connections are opened before requests need them
	keepalive         time.Duration // how long a connection is idle before a ping; 0: no pings
	Connect, Greeting time.Duration // timeouts: of the dial; of the first reply on a new connection
	backoff           table.Backoff
	downAfter         int // number of unanswered requests in a row after which the server is down
}

// outage is whether the server is down, as seen from this loop's own connections. Requests then
// fail at once, and only Ringside dials, at RedialAt, until the server answers. Times are in
// nanoseconds on the loop's clock.
type outage struct {
	Down     bool
	Why      string // the error line for requests while it is down
	RedialAt int64  // when Ringside dials without a request: while the server is down, or has closed an idle connection; 0: never yet
	wait     int64  // time between the last two such dials
	timeouts int    // number of requests in a row that timed out

	violations int    // recent violations of the protocol
	violatedBy int64  // when the recent violations are forgotten
	changed    int64  // when the Server was created, or Down last changed
	before     uint64 // number of requests that were refused or failed until the server went down
}

// process identifies the server process, so that a restart, which loses all data, is detected.
// Where keys move or have replicas, it is queried on each new connection. All instances read the
// same start time and process ID for the same process.
type process struct {
	StartedAt, Pid int64 // start time, in seconds of the server's clock; 0: not known; process id
	Unidentified   bool  // there is a new connection, on which the process is not identified yet
	Identifying    *Conn // the connection on which the query is in flight; else nil
}

// defaultDownAfter is how many requests in a row must time out until a server is down, unless
// its pools set another number.
const defaultDownAfter = 3

// configure applies the settings of p. first means that p is the first pool of its table that
// names the server. Pools that name the same address share its connections, with the highest
// number of connections, the longest queue and the shortest timeouts of all of them. Request
// timeouts are those of the pool that the request uses.
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
	srv.e.Soon(link.RequestTimer) // a ping may be due earlier now
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

// newConn returns a connection without a socket.
func (srv *Server) newConn() *Conn {
	c := &Conn{Server: srv, Deadline: link.Never}
	c.End, c.Dialer = c, c
	return c
}

// Loop returns the servers of the loop that srv belongs to.
func (srv *Server) Loop() *Servers { return srv.e }

// Label returns the name of the server for logs and errors.
func (srv *Server) Label() string { return srv.label }

// Pick returns the connection for the next request of the client with that number, or why there
// is none. All requests of a client use the same connection, so that a get cannot overtake an
// earlier set that the client has not waited for. Ringside's own requests (internal) have a
// separate limit. If repairs, deletes and pings were rejected because the queue is full, they
// would be missing after the overload.
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
			return nil, internalFull, stats.QueueFull
		}
	case srv.e.MemoryFull:
		srv.Count.Shed++
		return nil, link.OutOfMemory, stats.QueueFull
	case c.Length-c.Internal >= srv.queue:
		srv.Count.QueueFull++
		return nil, srv.queueFull, stats.QueueFull
	}
	return c, "", 0
}

// Bulky is a bit in the number of a client. It means that the replies are so large that other
// clients should not wait for them: see package client. Bulky clients share a separate connection, which is
// created for the first such request.
const Bulky = 1 << 63

// connOf returns the connection for the requests of a client.
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
	// maxInternal limits how many of Ringside's own requests wait on one connection. Late
	// deletes do not count: each client request causes at most one.
	maxInternal  = 1024
	internalFull = "too many of Ringside's own requests wait for it"
)

// wantsConn reports whether connections are opened before requests need them.
func (srv *Server) wantsConn() bool { return srv.preconnect && !srv.Down && !srv.Draining() }

// goDown marks the server as down for the reason why. Its requests then fail at once, and only
// Ringside's own dials, at growing intervals, try it until it answers. refused is passed on to
// the Observer.
func (srv *Server) goDown(why string, refused bool) {
	e := srv.e
	b := srv.backoff
	if !srv.Down {
		srv.Count.WentDown++
		srv.changed = e.Now
		srv.wait = int64(b.First)
		srv.before = srv.Count.Refused + srv.Count.Failed
		e.LogLimited(slog.LevelWarn, srv.Label(), "server down", event.ServerDown.Attr(), "server", srv.Target.Name, "address", srv.Target.Address, "why", why)
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

// Reject marks the server as down for the reason why, because of something that it has replied.
func (srv *Server) Reject(why string) { srv.goDown(why, false) }

// Heard returns when the last bytes arrived on its connections for clients.
func (srv *Server) Heard() (at int64) {
	for _, c := range srv.Conns {
		at = max(at, c.lastIn)
	}
	return at
}

// Keeps reports whether c is one of the connections for clients' requests.
func (srv *Server) Keeps(c *Conn) bool { return slices.Contains(srv.Conns, c) }

func (srv *Server) whyDown(why string) string {
	return fmt.Sprintf("server %s is down: %s", srv.Label(), why)
}

// comeUp ends an outage of the server, or resets its count of timeouts. A late reply on a
// lingering connection does neither.
func (c *Conn) comeUp() {
	srv := c.Server
	if c.Lingering {
		return
	}
	srv.timeouts = 0
	if srv.Down {
		out := time.Duration(srv.e.Now - srv.changed).Round(time.Millisecond)
		srv.Down, srv.Why, srv.changed = false, "", srv.e.Now
		srv.e.LogLimited(slog.LevelInfo, srv.Label(), "server up", event.ServerUp.Attr(), "server", srv.Target.Name, "address", srv.Target.Address,
			"out", out.String(), "failed", srv.Count.Refused+srv.Count.Failed-srv.before)
		srv.e.Observer.Up(srv)
	}
}

// reason returns the innermost error as text, without the address, which the log line has
// already.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// Apply sets o, the mildest override in all pools that name the server.
func (srv *Server) Apply(o health.Override) {
	if srv.override == o {
		return
	}
	srv.override = o
	for _, c := range slices.Clone(srv.Conns) { // giveUp may replace the connections
		if o == health.Down && (c.State != ConnIdle || c.Length > 0) {
			c.giveUp(o.Refusal(srv.Target.Name), stats.Unavailable)
		}
		srv.e.Mark(&c.Link) // so that Flush closes the connection, or opens it in advance
	}
	if o == health.Restore && srv.Down { // the server is dialed at once
		srv.RedialAt = srv.e.Now
		srv.e.At(link.RequestTimer, srv.e.Now)
	}
}

// Draining reports whether the server gets no new requests, because no table names it any more
// or an operator has drained it. Its connections close when no reply is due.
func (srv *Server) Draining() bool { return srv.Retired || srv.override != health.Restore }

// DedicatedConn returns the connection for Ringside's own task with the number n. It creates
// the connection if needed.
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

// CloseDedicated closes the connection of the task with the number n.
func (srv *Server) CloseDedicated(n uint32) {
	c := srv.Dedicated[n]
	if c == nil {
		return
	}
	delete(srv.Dedicated, n)
	if c.State != ConnIdle {
		c.disconnect(link.Close)
	} else {
		c.reset() // queued requests must not make the connection dial again
	}
	c.failAll("the errand is done", stats.Lost)
}
