package table

// This file defines the types of a table: the configuration as plain data for the engines.

import (
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/replicate"
	"ringside/ring"
)

// Table is one generation of listeners, routes, pools and servers. It is immutable once
// proxy.Proxy.SetTable has received it: a reload builds another one.
type Table struct {
	Listeners []Listener
	Pools     []*Pool
	Limits    Limits

	TagCommand string        // a delete of this text followed by the name of a tag invalidates the tag
	LogSlow    time.Duration // commands that last at least this long can be logged; 0: none
	Misses     bool          // record why keys miss

	Permissions *Permissions // what users may do; nil: everything
}

// Has reports whether t has a pool called pool with a server called server.
func (t *Table) Has(pool, server string) bool {
	return slices.ContainsFunc(t.Pools, func(p *Pool) bool {
		return p.Name == pool && slices.ContainsFunc(p.Servers, func(s Target) bool { return s.Name == server })
	})
}

// Listener is an address that clients connect to, and the routes of these clients.
type Listener struct {
	Network string // "tcp", "tcp4", "tcp6" or "unix"
	Address string // host:port or a path
	Mode    uint32 // permission bits of a unix socket; 0: the umask decides
	Routes  []Route
	Users   *Users       // users that can authenticate; nil: clients need no password
	TLS     *ListenerTLS // clients must use TLS; nil: they must not
}

// Route sends the keys that begin with Prefix, or match Match, to Pool. If several routes
// match a key, the most specific one wins (Pattern.Literal), whatever their order.
type Route struct {
	Class  string // name of the preset that the configuration gives the route, for people; empty: none
	Prefix string
	Match  string // pattern of the whole key, * matches any bytes; empty: Prefix applies
	Pool   *Pool
	Strip  bool // servers see the key without Prefix

	// Copies is how replicas of each key are kept: several in Pool, or one in Pool
	// and one in each pool of Also. Prefer is the pool that replicate.First reads
	// first; nil means Pool. Prefer can differ between instances. The order of the
	// pools must not, because it determines the primary.
	Copies replicate.Policy
	Also   []*Pool
	Prefer *Pool
	Zone   string // the zone of this instance, for replicate.Nearest

	Autocreate *Autocreate // how incr and decr create a missing counter; nil: they do not
	Buffer     *Buffer     // how increments wait; nil: they are sent at once

	GetErrors *bool          // overrides Pool.GetErrors unless nil
	Total     *time.Duration // overrides Total of Pool.Timeouts unless nil

	Guard *GuardSettings // one client at a time rebuilds a value; nil: every client that misses it does
	Tags  *TagSettings   // values are valid until one of their tags is invalidated; this requires Guard. nil: values have no tags
	Near  *NearSettings  // settings of the near cache; nil: servers answer all reads
}

// Autocreate is how incr and decr create a missing counter.
type Autocreate struct {
	Initial uint64        // the value before the incr that creates the counter; if a decr creates it, the value after that decr
	TTL     time.Duration // whole seconds, at most 30 days; 0: it does not expire
}

// Buffer is how increments wait in Ringside, so that one request carries many of them.
type Buffer struct {
	Every time.Duration // time between two sends of a counter, plus or minus a tenth
	Keep  time.Duration // how long increments wait for a server that cannot be reached
	Last  bool          // the reply to a waiting incr is the last value of the server, not an estimate
	Keys  int           // maximum number of counters with waiting increments
}

// Pool is a list of servers, with the placement rule that selects the owner of a key.
type Pool struct {
	Name         string
	ID           string // identifies the pool in state that the process keeps by pool and key. It stays the same when a reload renames the pool; set by Inherit
	Distribution string // name of the placement rule's preset, for people
	Servers      []Target
	Unknown      bool // the servers are not known yet, so there are none, and all commands on keys of the pool are rejected
	Place        ring.Placement

	GetErrors    bool // a read gets SERVER_ERROR, not a miss, if its server cannot reply
	InOrder      bool // values of a multi-get are sent in the order of its keys, after all servers have replied
	DenyFlush    bool // reject flush_all
	JoinGets     bool // combine gets that are sent to a server together into one get with several keys
	Connections  int  // number of connections to each server, from each loop
	Preconnect   bool // connect when an engine switches to the table, not at the first request
	QueueLimit   int  // maximum number of client requests that wait for one server, in each loop
	Timeouts     Timeouts
	Keepalive    time.Duration // a connection to a server that was idle for this time is checked with a ping; 0: never
	RetryBackoff Backoff
	Failover     Failover
	TLS          Security // TLS of the connections to the servers; pools with the same server have the same
	Login        Login    // login to the servers; pools with the same server have the same

	Resize      ResizeMode
	ResizeLater ResizeMode // the mode that the configuration requires, if Next is not nil: Resize is that of the present change
	ResizeUsual bool       // Resize is the usual mode, which the file has not chosen: see resize.Lists.Own
	ResizeRate  int        // in mode ResizeWarm: how many keys each old owner may lose to other servers in a second, by the walk and by reads, for each process
	Next        *List      // the list to which the instances change, while they still use the former one: see Hold; nil: none
	From        *List      // the list by which a process serves that does not know another one in force; nil: its own. It is not Next: see Hold
	Former      string     // name of the pool in the configuration that says From; no process serves by a pool of this name
	Later       *List      // the list that the configuration requires, if it is not Next because keys already move to that list, or may begin to; nil: it is Next

	Joins *List // the list that the configuration requires, while the pool uses the list of its peers: see Join; nil: it does not

	Fill *Fill // a pool that has the values which this one lacks; nil: none

	// Without returns the pool's ring without the servers with out[i] set, for pools that
	// rebuild their ring without ejected servers. It is nil if substitute servers are the next
	// ones of Place.Ring after the owner. All loops call it concurrently, for each key, so it
	// must cache the rings.
	Without func(out []bool) (ring.Ring, error)

	Text     []byte                           // the pool's list for other instances, as ReadList reads it: package health stores it on the servers; nil: it is not stored
	ReadList func(text []byte) (*List, error) // returns the list in a text of another instance; nil: this process learns none
	Learned  bool                             // the pool's list is not from the configuration: this process has read its text from the servers
}

// Fill is how a pool fills from another one, the source, which stays in use by others and is never written.
type Fill struct {
	From     *Pool         // the source, which is not in Table.Pools: its servers, their placement, and how they are reached
	Rate     int           // plain reads that each server of the source gets in a second at most, from each process; 0: the source is not read
	Remember time.Duration // how long a write hides the value of the source: the TTL of a mark, in whole seconds
}

// Failover is what a pool does when one of its servers is down.
type Failover struct {
	Mode          Mode
	Gutter        *Pool         // the pool with the substitute servers, for mode Gutter; else nil
	SubstituteTTL time.Duration // longest expiry of values that a substitute server stores
	Wait          time.Duration // how long a write can wait, within its Deadline, until its server is ejected; 0: it fails at once
	health.Settings
}

// Mode is where the keys of a failed server move.
type Mode uint8

// The modes.
const (
	FailFast Mode = iota // nowhere: reads miss, writes are rejected
	Rehash               // to other servers of the pool
	Gutter               // to another pool, the gutter
)

func (m Mode) String() string { return [...]string{"fail_fast", "rehash", "gutter"}[m] }

// Target is one server of a pool.
type Target struct {
	Name    string // name in metrics and for people; the address unless the file sets a name
	Network string // "tcp" or "unix"
	Address string // host:port or a path
	Weight  int
	Host    string // machine; with replicate.Hosts, replicas are on different ones
	Zone    string // zone of the server; with replicate.Zones, the replicas of a key are in different zones; empty: none
}

// SameAddress reports whether t and o have the same address, so that they are the same memcached.
func (t Target) SameAddress(o Target) bool { return t.Network == o.Network && t.Address == o.Address }

// Apart returns the host, the zone or the address of t; the parameter `a` says which. Two
// replicas of a key must differ in it.
func (t *Target) Apart(a replicate.Apart) string {
	switch a {
	case replicate.Hosts:
		return t.Host
	case replicate.Zones:
		return t.Zone
	}
	return t.Network + " " + t.Address
}

// Timeouts bound how long a request may wait. While bytes of a reply keep arriving, only
// Total ends it.
type Timeouts struct {
	Connect  time.Duration // maximum time to connect to a server
	Request  time.Duration // maximum time in which a server sends nothing: before the first byte of a reply, or between two bytes
	Deadline time.Duration // maximum time from a client's command to the first byte of its reply, whatever the command waits for
	Total    time.Duration // maximum time from a client's command to the last byte of its reply; 0: unlimited
	Whole    time.Duration // Deadline of the whole command, if Within has subtracted a part of it; else 0
	Cut      bool          // Request is less than half of what is configured, because a command is near its Deadline: a server that exceeds it may be healthy
}

// Within returns the timeouts for one request of a command. left is the time until the
// command's Deadline. Within subtracts the time that has passed from Deadline and Total, and
// limits Request to left.
func (t *Timeouts) Within(left time.Duration) *Timeouts {
	gone := t.Deadline - max(left, time.Millisecond)
	if gone <= 0 {
		return t
	}
	less := *t
	if less.Whole == 0 {
		less.Whole = t.Deadline
	}
	less.Deadline -= gone
	less.Request = min(less.Request, less.Deadline)
	less.Cut = less.Request < t.Request/2
	if less.Total > 0 {
		less.Total -= gone
	}
	return &less
}

// Backoff is the time between two attempts to connect to a server that refuses connections:
// First, doubled after each failure, up to Max.
type Backoff struct{ First, Max time.Duration }

// Limits bound the resources that clients can use. The documentation of package client
// describes what happens at each limit. The file link/memory.go describes the limit Memory.
type Limits struct {
	Clients    int           // maximum number of client connections; further clients receive an error and are closed
	Key        int           // maximum length of a key, in bytes
	Line       int           // maximum length of a command line, in bytes
	Value      int           // maximum size of a value, in bytes
	InFlight   int           // number of requests of one client without a reply at which Ringside stops reading from the client
	Output     int           // number of unsent bytes for one client at which Ringside stops reading from the client
	OutputHard int           // number of unsent bytes for one client above which the client is disconnected
	Memory     int64         // maximum number of bytes buffered for all clients and servers together
	Idle       time.Duration // a client with nothing in flight is disconnected after this time without a byte; 0: never
	Unfinished time.Duration // a client in the middle of a command is disconnected after this time without a byte; 0: never
	Waiting    int           // maximum number of gets that wait on guarded routes
	Tickets    int           // maximum number of misses on guarded routes that are remembered until the set that follows each
	Tags       int           // maximum number of tags of one value
	TagKeys    int           // maximum number of keys that are remembered with the tags that clients named for them
	Linger     time.Duration // how long new clients are accepted after SIGTERM, while /readyz already fails
	Drain      time.Duration // after Linger: how long requests in flight may take, at most, before the process ends
}

// NeedsKeeper reports whether p, a pool of t, needs a keeper. It does if it ejects servers, because its keys move
// to other servers or a route keeps replicas in it, or if it coordinates changes of its servers.
func (p *Pool) NeedsKeeper(t *Table) bool {
	return p.Failover.Mode != FailFast || p.Copied(t) || p.Stays(t)
}

// Stays reports whether p, a pool of t, has a keeper only to coordinate changes of its servers: see
// health.Settings.Stays.
func (p *Pool) Stays(t *Table) bool {
	return p.Failover.Mode == FailFast && p.Resize != ResizePlain && !p.Unknown && !p.Copied(t)
}

// KeepsReplicas reports whether the route keeps several replicas of each key.
func (r *Route) KeepsReplicas() bool {
	return r.Copies.Several() || len(r.Also) > 0
}

// Copied reports whether a route of t keeps replicas in p.
func (p *Pool) Copied(t *Table) bool {
	for _, l := range t.Listeners {
		for _, r := range l.Routes {
			if r.KeepsReplicas() && (r.Pool == p || slices.Contains(r.Also, p)) {
				return true
			}
		}
	}
	return false
}
