package upstream

// This file defines a memcached server as one loop sees it: its settings, and whether it is down.

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
	label  string // name of the server for logs and errors, with the address if that differs from the name
	settings
	outage
	process
	items itemSize

	Conns     []*Conn          // connections for clients' requests: as many as configured, perhaps one for clients with large replies, and perhaps some that are superfluous since a reload
	Dedicated map[uint32]*Conn // connections that Ringside uses for a single task of its own, by the number of the task
	Lingering int              // number of connections that stay open only for late replies: see latedelete.go
	Asked     *Conn            // while a multi-key read is divided among servers: the connection for the keys of this server; else nil

	Retired   bool            // no table contains the server any more: its connections close when nothing is in flight
	override  health.Override // the mildest override (Restore, Drain, Down) of this server in the pools that contain it
	queueFull string          // the error line for a client's request when the queue is full: see settings.queue

	Release wire.Release // the memcached release of the server, by its last reply to version; zero: not known yet
	Version string       // the memcached version of the server as text, from its last reply to version
	Number  uint16       // number by which package missreason, the log of reasons for misses, identifies the server
	Count   stats.ServerCounters

	lastError string // the last SERVER_ERROR reply to a client's command, cut to mostError bytes
}

// mostError is the maximum length of lastError.
const mostError = 100

// noteError counts a SERVER_ERROR reply to a client's command, and stores the text of the error. It
// allocates memory only if the text differs from that of the last error.
func (srv *Server) noteError(line []byte) {
	srv.Count.Errors++
	if line = line[:min(len(line), mostError)]; string(line) != srv.lastError {
		srv.lastError = string(line)
	}
}

// settings are the combined settings of all pools that have the server: see Server.configure.
type settings struct {
	Connections       int           // number of connections for clients' requests
	queue             int           // maximum number of clients' requests that wait on one connection
	joinGets          bool          // gets that are sent together share a command line: see Line
	preconnect        bool          // connections are opened before requests need them
	keepalive         time.Duration // how long a connection must be idle before Ringside sends a ping on it; 0: no pings
	Connect, Greeting time.Duration // Connect: timeout of the dial; Greeting: timeout of the first reply on a new connection
	backoff           table.Backoff
	security          table.Security
	login             table.Login
	downAfter         int // number of requests in a row without a reply in time after which the server is down
}

// outage says whether the server is down, by this loop's own connections. While the server is down,
// requests fail at once, and Ringside dials at RedialAt, again and again until the server replies.
// Times are in nanoseconds on the loop's clock.
type outage struct {
	Down     bool
	Why      string // the error line for requests while the server is down
	RedialAt int64  // when Ringside dials the server although no request waits: the server is down, or has closed an idle connection; 0: never yet
	wait     int64  // while the server is down: time from the last failed dial to the next dial
	timeouts int    // number of requests in a row that the server has not answered in time

	violations int    // number of recent violations of the protocol by the server
	violatedBy int64  // until when the violations in the field violations count as recent
	changed    int64  // when the server was last marked as down or as up, or when this Server was created
	before     uint64 // number of requests that were refused or had failed before the server was marked as down
}

// process identifies the server process, so that a restart, which loses all data, is detected. If a
// pool moves its keys or keeps replicas, Ringside asks for the process on each new connection. All
// instances read the same start time and process ID of the same process.
type process struct {
	StartedAt, Pid int64 // StartedAt: start time of the process, in seconds of the server's clock; 0: not known. Pid: ID of the process
	Unidentified   bool  // a connection has ended or is new, and the process that replies now is not identified yet
	Identifying    *Conn // the connection on which a request that identifies the process is in flight; nil: none
}

// OwnTimeouts returns the timeouts of a request of Ringside itself, not of a client, which may take that time on a connection that is open.
func (srv *Server) OwnTimeouts(request time.Duration) *table.Timeouts {
	all := srv.Connect + request
	return &table.Timeouts{Connect: srv.Connect, Request: request, Deadline: all, Total: all}
}

// defaultDownAfter is how many requests in a row must time out before a server is down, if its pools
// do not set another number.
const defaultDownAfter = 3

// configure applies the settings of the pool p to srv. first means that p is the first pool of the
// table that contains the server. Pools that contain the same server share its connections. The
// highest number of connections, the longest queue and the shortest timeouts of these pools apply.
// But the timeout of a request is that of the pool that the request uses.
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
		srv.secure(p.TLS)
		srv.login = p.Login
	}
	srv.downAfter = min(srv.downAfter, cmp.Or(p.Failover.AfterFailures, defaultDownAfter))
	srv.Connections = max(srv.Connections, p.Connections)
	srv.queue = max(srv.queue, p.QueueLimit)
	srv.preconnect = srv.preconnect || p.Preconnect
	srv.joinGets = srv.joinGets && p.JoinGets
	if k := p.Keepalive; k > 0 && (srv.keepalive == 0 || k < srv.keepalive) {
		srv.keepalive = k
	}
	srv.e.Soon(link.RequestTimer) // check the timers of srv soon, because a ping may be due earlier now
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

// secure applies the TLS settings t. Requests in flight complete on the connections that they are on.
func (srv *Server) secure(t table.Security) {
	before := srv.security
	srv.security = t
	if before.Outlasts(t) {
		return
	}
	for _, c := range slices.Clone(srv.Conns) {
		if c.State != ConnIdle {
			c.linger("server " + srv.Label() + ": too many connections wait for late answers")
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

// Address returns the address to which Ringside connects, for logs. The address in the table of a server
// from a source may only be a name.
func (srv *Server) Address() string {
	if srv.e.Where == nil {
		return srv.Target.Address
	}
	return srv.e.Where(srv.Target.Network, srv.Target.Address)
}

// Pick returns the connection for the next request of the client with that number, or the reason why
// the request can't be sent (trouble). All requests of a client use the same connection, so that a
// get cannot overtake an earlier set that the client has not waited for. Ringside's own requests
// (internal), such as repairs, deletes and pings, have a separate limit, so that clients' requests
// can't fill the queue for them.
func (srv *Server) Pick(client uint64, internal bool) (c *Conn, trouble string, o stats.Outcome) {
	if srv.Down {
		srv.Count.Refused++
		return nil, srv.Why, stats.Unavailable
	}
	c = srv.Conns[0]
	if srv.Connections > 1 || client&Bulky != 0 {
		if c, trouble = srv.usableConnOf(client); c == nil {
			return nil, trouble, stats.Unavailable
		}
	}
	if srv.Lingering > 0 {
		c = c.routeToLingering(client)
	}
	switch {
	case internal:
		if c.InternalFull() {
			return nil, srv.internalFull(), stats.QueueFull
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

func (srv *Server) internalFull() string {
	return "server " + srv.Label() + ": too many of Ringside's own requests wait for it"
}

// Crowded returns why a command of a client that needs Ringside's own requests should wait; "": it need not. It
// leaves half of the room for other requests, such as those of keepers.
func (srv *Server) Crowded() string {
	if srv.Conns[0].Internal < maxInternal/2 {
		return ""
	}
	return srv.internalFull()
}

// ConnFor returns the connection that Pick would return for a request of the client with that number, or
// nil if it does not exist yet.
func (srv *Server) ConnFor(client uint64) *Conn {
	if client&Bulky != 0 && len(srv.Conns) == srv.Connections {
		return nil
	}
	return srv.connOf(client)
}

// Bulky is a bit in the number of a client. It means that the replies to the client are so large that
// other clients should not wait for them: see package client. All clients with this bit share a
// separate connection to each server, which is created for the first request.
const Bulky = 1 << 63

// connOf returns the connection for the requests of the client with that number.
func (srv *Server) connOf(client uint64) *Conn {
	if client&Bulky == 0 {
		return srv.Conns[client%uint64(srv.Connections)]
	}
	if len(srv.Conns) == srv.Connections {
		srv.Conns = append(srv.Conns, srv.newConn())
	}
	return srv.Conns[srv.Connections]
}

// usableConnOf returns connOf(client), or why that connection can't be used now. It is not inlined, so that the code for
// servers with one connection stays short.
//
//go:noinline
func (srv *Server) usableConnOf(client uint64) (c *Conn, trouble string) {
	if c = srv.connOf(client); c.dialAt > srv.e.Now {
		srv.Count.Refused++
		return nil, c.why
	}
	return c, ""
}

const (
	// maxInternal is the number of Ringside's own requests in the queue of one connection from which
	// on no more are accepted. Late deletes are added in any case: each request of a client causes at
	// most one late delete.
	maxInternal = 1024
)

// wantsConn reports whether the server's connections are opened before requests need them. Those of a
// server without cas are: only a new connection shows that the server was restarted with cas, and
// until then the requests that need a cas are rejected, so they open none.
func (srv *Server) wantsConn() bool {
	return (srv.preconnect || srv.LacksCas()) && !srv.Down && !srv.Draining()
}

// goDown marks the server as down, for the reason why. While it is down, its requests fail at once,
// and Ringside dials the server at growing intervals until it replies. refused means that the server
// has refused a connection; goDown passes it on to the Observer.
func (srv *Server) goDown(why string, refused bool) { srv.goDownFor(srv.Label(), why, refused) }

// goDownFor does what goDown does, but its log line has the subject `of`. So the line does not wait for lines of other reasons.
func (srv *Server) goDownFor(of, why string, refused bool) {
	e := srv.e
	b := srv.backoff
	if !srv.Down {
		srv.Count.WentDown++
		srv.changed = e.Now
		srv.wait = int64(b.First)
		srv.before = srv.Count.Refused + srv.Count.Failed
		srv.logDown(of, why)
	} else {
		srv.wait = min(srv.wait*2, int64(b.Max))
		if srv.Why != srv.whyDown(why) {
			srv.logDown(srv.Label()+" still", why)
		}
	}
	srv.Down = true
	srv.items.max = 0 // the server may be restarted with another size
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

// logDown logs that the server is down, for the reason why. Another reason of the same outage has another
// subject `of`, so that its line does not wait for ten seconds.
func (srv *Server) logDown(of, why string) {
	srv.e.LogInOrder(slog.LevelWarn, srv.Label(), of, "server down", event.ServerDown.Attr(), "server", srv.Target.Name, "address", srv.Address(), "why", why)
}

// Reject marks the server as down for the reason why, because of something that it has replied. If it was down shortly before,
// the log line does not wait: it would be read as another failure.
func (srv *Server) Reject(why string) { srv.goDownFor(srv.Label()+" rejected", why, false) }

// Heard returns when the last bytes from the server arrived on its connections for clients' requests.
func (srv *Server) Heard() (at int64) {
	for _, c := range srv.Conns {
		at = max(at, c.lastIn)
	}
	return at
}

// Keeps reports whether c is one of the server's connections for clients' requests, and does not
// linger.
func (srv *Server) Keeps(c *Conn) bool { return slices.Contains(srv.Conns, c) }

func (srv *Server) whyDown(why string) string {
	return fmt.Sprintf("server %s is down: %s", srv.Label(), why)
}

// comeUp is called when the server has replied on c. It marks the server as up, and resets its count
// of timeouts. A late reply on a lingering connection has no such effect.
func (c *Conn) comeUp() {
	srv := c.Server
	if c.Lingering {
		return
	}
	srv.timeouts = 0
	if srv.Down {
		out := time.Duration(srv.e.Now - srv.changed).Round(time.Millisecond)
		srv.Down, srv.Why, srv.changed = false, "", srv.e.Now
		srv.e.LogInOrder(slog.LevelInfo, srv.Label(), srv.Label(), "server up", event.ServerUp.Attr(), "server", srv.Target.Name, "address", srv.Address(),
			"out", out.String(), "failed", srv.Count.Refused+srv.Count.Failed-srv.before)
		srv.e.Observer.Up(srv)
	}
}

// reason returns the innermost error in err as text. That text has no address: the address is already
// in the log line.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// Apply sets the override of the server to o, the mildest override of the server in all pools that
// contain it.
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
	if o == health.Restore && srv.Down { // dial the server at once, although it is marked as down
		srv.RedialAt = srv.e.Now
		srv.e.At(link.RequestTimer, srv.e.Now)
	}
}

// Draining reports whether the server gets no new requests, because no table contains it any more
// or because of an operator's override. Its connections close when no reply is due.
func (srv *Server) Draining() bool { return srv.Retired || srv.override != health.Restore }

// DedicatedConn returns the connection to the server that only Ringside's own task with the number n
// uses. It creates the connection if needed.
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

// CloseDedicated closes the connection to the server that only Ringside's own task with the number n
// uses.
func (srv *Server) CloseDedicated(n uint32) {
	c := srv.Dedicated[n]
	if c == nil {
		return
	}
	delete(srv.Dedicated, n)
	if c.State != ConnIdle {
		c.disconnect(link.Close)
	} else {
		c.reset() // drop what waits to be sent, so that the connection is not dialed again
	}
	c.failAll("a request of Ringside itself has ended", stats.Lost)
}
