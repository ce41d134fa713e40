package table

// What a configuration becomes: plain data that the engines serve by.

import (
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/replicate"
	"ringside/ring"
)

// Table is one generation of listeners, routes, pools and servers. It is
// immutable once it is handed to Swap: a reload builds another.
type Table struct {
	Listeners []Listener
	Pools     []*Pool
	Limits    Limits

	TagCommand string        // a delete of this with the name of a tag behind it invalidates that; empty: no route has tags
	LogSlow    time.Duration // commands that take so long are logged; 0: none
	NoHotKeys  bool          // nobody wants to know which keys are asked for most
	Misses     bool          // somebody wants to know why keys miss
}

// Has says whether a pool of t has a server of that name.
func (t *Table) Has(pool, server string) bool {
	return slices.ContainsFunc(t.Pools, func(p *Pool) bool {
		return p.Name == pool && slices.ContainsFunc(p.Servers, func(s Target) bool { return s.Name == server })
	})
}

// Listener is one address clients connect to, and the routes they get there.
type Listener struct {
	Network string // "tcp", "tcp4", "tcp6" or "unix"
	Address string // host:port or a path
	Mode    uint32 // permission bits of a unix socket; 0 leaves what the umask gives
	Routes  []Route
	Users   *Users // who may use it; nil: everybody
}

// Route sends the keys that begin with Prefix, or fit Match, to Pool. Of several
// that want a key the one wins that spells out most of it (Pattern.Literal); the
// order of the routes does not matter.
type Route struct {
	Class  string // the preset's name, for people; empty: none
	Prefix string
	Match  string // in place of Prefix: the whole key, with * for any bytes; empty: Prefix counts
	Pool   *Pool
	Strip  bool // the servers see the key without Prefix

	// Copies keeps several copies of each key. They stand in Pool, or one in
	// Pool and one in each of Also, in this order. Prefer is the one of these
	// that replicate.First reads first, nil for Pool: it may differ from one
	// Ringside to the next; the order, which says who decides, must not.
	Copies replicate.Policy
	Also   []*Pool
	Prefer *Pool
	Zone   string // Ringside's own, for replicate.Nearest

	Autocreate *Autocreate // of incr and decr: what becomes of a missing key; nil: it stays missing
	Buffer     *Buffer     // of incr: how long increments wait; nil: they don't

	GetErrors *bool          // takes the place of Pool.GetErrors; nil: that counts
	Total     *time.Duration // takes the place of that in Pool.Timeouts; nil: that counts

	Guard *Guard // lets one client rebuild a value at a time; nil: all who find it missing
	Tags  *Tags  // values stand as long as their tags do; they need a Guard. nil: values have no tags
	Near  *Near  // keeps values in Ringside; nil: servers answer all reads
}

// Autocreate is how a counter begins that was missing.
type Autocreate struct {
	Initial uint64        // before the incr that makes it; after a decr
	TTL     time.Duration // whole seconds, at most 30 days; 0: for ever
}

// Buffer is how increments wait, so that one request carries many of them.
type Buffer struct {
	Every time.Duration // the time between two flushes of a counter, give or take a tenth
	Keep  time.Duration // how long they wait for a server that can't be asked
	Last  bool          // an incr that waits is answered by what the server has said last, not by an estimate
	Keys  int           // counters of which increments wait, at most
}

// Pool is a list of servers and the rule that says which of them owns a key.
type Pool struct {
	Name         string
	Distribution string // the preset's name, for people
	Servers      []Target
	Place        ring.Placement

	GetErrors    bool // a read whose server can't answer gets SERVER_ERROR, not a miss
	InOrder      bool // a read of many keys is answered in their order, once all servers have answered
	DenyFlush    bool // refuse flush_all
	JoinGets     bool // gets that go out to a server together go as one get of many keys
	Connections  int  // to each server, from each loop
	Preconnect   bool // connect when the table is taken up, not at the first request
	QueueLimit   int  // requests of clients waiting for one server, for each loop
	Timeouts     Timeouts
	Keepalive    time.Duration // how long a connection to a server may be idle until Ringside asks there whether it still works; 0: for ever
	RetryBackoff Backoff
	Failover     Failover

	// Without is the rule of a client that rebuilds its ring without the
	// servers that are out; nil if it walks Place.Ring on from the owner. It is
	// asked for each key, by all loops at once: it keeps the rings.
	Without func(out []bool) (ring.Ring, error)
}

// Failover is what a pool does when one of its servers is gone.
type Failover struct {
	Mode       Mode
	Gutter     *Pool         // of mode Gutter
	InterimTTL time.Duration // at most, of what another server keeps for one that is out
	Wait       time.Duration // that a write may wait, within its Deadline, while its server is being taken out; 0: it fails at once
	health.Settings
}

// Mode is where the keys of a server go that is gone.
type Mode uint8

// The modes.
const (
	FailFast Mode = iota // nowhere: reads miss, writes are refused
	Rehash               // to the next servers of the pool
	Gutter               // to another pool
)

func (m Mode) String() string { return [...]string{"fail_fast", "rehash", "gutter"}[m] }

// Target is one server of a pool.
type Target struct {
	Name    string // what people and metrics call it; the address unless named
	Network string // "tcp" or "unix"
	Address string // host:port or a path
	Weight  int
	Host    string // what replicate.Hosts keeps apart
	Zone    string // what replicate.Zones keeps apart; empty: none
}

// Apart is what two copies of a key must not have in common by the choice a.
func (t *Target) Apart(a replicate.Apart) string {
	switch a {
	case replicate.Hosts:
		return t.Host
	case replicate.Zones:
		return t.Zone
	}
	return t.Network + " " + t.Address
}

// Timeouts bound how long a request may wait. No answer that comes is cut but
// by Total.
type Timeouts struct {
	Connect  time.Duration // for a connection to a server to be established
	Request  time.Duration // of a server's silence: before the answer's first byte, and between two of its bytes
	Deadline time.Duration // of a client's command until the answer's first byte, whatever it waits for
	Total    time.Duration // of a client's command, to the last byte of its answer; 0: there is no such bound
}

// Within is t for one request of a command of whose Deadline so much is left.
func (t *Timeouts) Within(left time.Duration) *Timeouts {
	gone := t.Deadline - max(left, time.Millisecond)
	if gone <= 0 {
		return t
	}
	less := *t
	less.Deadline -= gone
	less.Request = min(less.Request, less.Deadline)
	if less.Total > 0 {
		less.Total -= gone
	}
	return &less
}

// Backoff spaces attempts to connect to a server that refuses.
type Backoff struct{ First, Max time.Duration }

// Limits bound what clients can make Ringside hold. The doc of package client
// says what happens at each, and link/memory.go at Memory.
type Limits struct {
	Clients    int           // connections at once; the next one gets an error and is closed
	Key        int           // bytes of a key
	Line       int           // bytes of a command line
	Value      int           // bytes of a value
	InFlight   int           // requests of one client without an answer; then its input waits
	Output     int           // unsent bytes of one client at which its input waits
	OutputHard int           // unsent bytes of one client at which it is closed
	Memory     int64         // bytes held for all clients and servers together
	Idle       time.Duration // without a byte from a client with nothing in flight; 0 never
	Unfinished time.Duration // without a byte from a client in the middle of a command; 0 never
	Waiting    int           // gets that guarded routes hold
	Tickets    int           // misses of guarded routes of which the set is awaited
	Tags       int           // of a value
	TagKeys    int           // keys of which the tags are remembered that clients name with their values
	Linger     time.Duration // how long new clients are taken after the process is told to stop and /readyz says so
	Drain      time.Duration // for what is in flight then
}

// NeedsKeeper says whether p, a pool of t, needs a keeper: its keys move, or it keeps
// copies.
func (p *Pool) NeedsKeeper(t *Table) bool {
	return p.Failover.Mode != FailFast || p.Copied(t)
}

// KeepsCopies says that the route keeps several copies of each key.
func (r *Route) KeepsCopies() bool {
	return r.Copies.Several() || len(r.Also) > 0
}

// Copied says whether a route of t keeps copies in p.
func (p *Pool) Copied(t *Table) bool {
	for _, l := range t.Listeners {
		for _, r := range l.Routes {
			if r.KeepsCopies() && (r.Pool == p || slices.Contains(r.Also, p)) {
				return true
			}
		}
	}
	return false
}
