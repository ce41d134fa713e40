// Package config parses and checks a configuration file, and builds its table.
//
// The file is YAML. An unknown key, a value of the wrong type, a duplicate name or
// an impossible bound is an error. All errors of a file are reported together, each
// with its position, what is allowed, and the nearest known word.
// deploy/ringside.example.yaml documents every key, and deploy/ringside.schema.json
// is for editors. Tests compare both with the table of keys in keys.go.
//
// # How a file becomes a table
//
//	bytes ─ document.go: parse YAML within bounds, follow aliases ─► a tree of nodes, each with its position
//	tree  ─ keys.go: the table of keys, with groups.go and values.go ─► File; document.where has the position of each setting
//	File  ─ decide (load.go): set what the file leaves open, apply presets ─► File, complete
//	File  ─ check*: compare settings, build each placement once ─► File, or Errors
//	File  ─ Build (build.go) ─► table.Table
//
// # Rules of the format
//
//   - Anchors, aliases and merge keys (<<) work. Keys at the top level that begin
//     with x- are ignored, so that they can define anchors. A second document, an
//     alias that contains itself, and a file with more than 200,000 values,
//     repetitions by aliases included, are rejected. Environment variables are not
//     expanded.
//   - Durations have a unit (500ms); a bare number is rejected. Sizes are bytes or
//     have a binary unit (64KiB). off, where allowed, is a duration of 0.
//   - A pool inherits each setting that it leaves out from defaults, including
//     single keys of timeouts and backoff. Lists replace each other.
//   - The default port of a server is 11211. IPv6 addresses are in brackets. Host
//     names are not resolved and addresses are not rewritten, because ketama
//     clients hash the text of a server's address.
//   - A listener with an IPv4 address accepts IPv4, one with an IPv6 address IPv6.
//     One with :port or a host name accepts what the system supports. Port 0 means
//     that the system chooses a port.
//   - Routes are optional if there is one pool, not counting pools that are only
//     gutters of others. A listener with its own routes uses only those. A request
//     for a key that no route matches gets an error.
//   - A setting of failover or of replicas that has no effect is an error, because
//     its author relies on it. An inherited setting must have an effect in at
//     least one pool.
//   - The default of failover.mode is fail_fast for the distribution of an existing
//     client, whatever that client does, and for pools with less than three
//     servers. Otherwise it is rehash. Mode rehash works with every distribution.
//     It uses the client's rule for the next server or for a rebuilt ring if there
//     is one, else the order of package ring.
//   - preset: counters or sessions on a route sets the lease, the pings,
//     eject_after, and the deadline of its pool. With at least three view servers,
//     which store the record of ejected servers, it also sets the consistency.
//     Settings of the pool override the preset, and the preset overrides defaults,
//     but it keeps consistency: strict from defaults. It does not set the mode,
//     because keys with replicas have no substitute server in any mode.
//   - Hosts are compared by the text of addresses, in lower case and with IP
//     addresses in canonical form. Loopback addresses and unix sockets are one
//     host. Names are not resolved.
//   - Two routes to the same key of a server must keep the same replicas of it. Two
//     listeners, or strip_prefix, can cause this.
//   - The order of pools, servers and routes is that of the file, so building
//     twice returns equal tables.
//
// # What it does not do
//
//   - It does not contact servers or resolvers. Whether a server is reachable is
//     seen once the table is in use.
//   - It does not apply a file. The command does, and describes the differences of
//     two files with Changes and AtNextStart.
package config

import (
	"log/slog"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/replicate"
)

// The settings of a file with their defaults, and the functions that read it.

// File holds the settings of a file, with every default filled in. It is plain data. A File
// that Parse or Load returned has passed all checks.
type File struct {
	Listen []Listener
	Admin  Admin
	Zone   string  // the zone of this instance; empty: none
	Pools  []Pool  // in the order of the file
	Routes []Route // routes of the listeners without their own; not empty if there are such listeners
	Tags   TagSpace
	Traces []Trace
	Limits table.Limits
	Engine Engine
	Log    Log
	Watch  bool // reload the file when it changes

	Warnings []string // settings that are valid but probably not intended, each with its position
}

// Address is an address to listen on or to connect to.
type Address struct {
	Network string // "tcp", "tcp4", "tcp6" or "unix"; empty: no address
	Address string // host:port or a path, as for package net
}

// Listener is an address that clients connect to.
type Listener struct {
	Address Address
	Mode    uint32  // permission bits of a unix socket; 0: the umask decides
	Routes  []Route // replace the routes of the file; nil: those apply

	AuthFile       string       // path of the users' passwords, in the format of memcached's -Y; empty: no authentication
	Users          *table.Users // the users of AuthFile; nil if that is empty or was not read
	AllowPlaintext bool         // allow passwords in plain text over a network
}

// Admin is the HTTP interface for metrics, health and profiles.
type Admin struct {
	Address Address
	Pprof   string   // which clients can take profiles: "loopback", "on" (all) or "off" (none)
	Control string   // which clients can drain servers and inject faults; values as for Pprof
	Faults  bool     // allow the injection of faults
	Page    string   // which clients can see the dashboard; values as for Pprof
	Hot     bool     // find hot keys
	Misses  bool     // record why keys miss
	Names   []string // host names under which browsers can open the dashboard
}

// Trace is a file that records what happens to some keys.
type Trace struct {
	Keys []string // patterns of keys
	File string
	Max  int64 // bytes; a file that would grow larger is renamed
	Keep int   // number of renamed files that are kept
}

// Pool is a list of servers and how they are used.
type Pool struct {
	Name         string
	Distribution string // the name or an alias of a preset
	Placement    PlacementOptions
	Servers      []Server
	GetErrors    bool   // a read gets SERVER_ERROR, not a miss, if its server cannot reply
	Multiget     string // order of a multi-get's values: "arrival" or "request"; empty: what the clients of the distribution need
	JoinGets     bool   // combine gets that are sent to a server together into one get with several keys
	DenyFlush    bool   // reject flush_all
	Connections  int    // to each server, from each loop
	Queue        int    // client requests that can wait for one server, in each loop
	Timeouts     table.Timeouts
	Keepalive    time.Duration // a server connection that was idle for this time is checked with a ping; 0: never
	Backoff      table.Backoff
	Failover     Failover // complete: decide has set what the file leaves open
}

// Server is one server of a pool.
type Server struct {
	Address Address
	Name    string // label that is hashed; empty: the distribution derives it from the address
	Weight  int
	Host    string // machine; empty: the host of the address
	Zone    string // empty: no zone
}

// Engine holds the settings of the event loops and the network driver. engineValue documents
// each.
type Engine struct {
	Driver         string // "auto", "epoll" or "portable"
	Loops          int
	Wait           string // "raw" or "syscall"
	CoalesceServer CoalesceServer
	CoalesceClient CoalesceClient
	Moderation     Moderation
}

// CoalesceServer delays requests to a busy server, so that one send carries several.
type CoalesceServer struct {
	On      bool
	MinDue  int // replies that the server must owe before its requests are delayed
	MaxHeld int // maximum number of delayed requests
}

// CoalesceClient delays replies, so that one send carries the replies to requests that were
// read together.
type CoalesceClient struct {
	On       bool
	MaxDelay time.Duration
	MaxBytes int
}

// Moderation makes a loop wait under high load.
type Moderation struct {
	On    bool
	Above int // requests per second of one loop to servers, above which it can wait
	Sleep time.Duration
	Pace  string // "auto", "answers" or "sleep"
}

// Log holds the settings of logging.
type Log struct {
	Level  slog.Level
	Format string        // "text" or "json"
	Slow   time.Duration // a sample of the commands that last at least this long is logged; 0: none
}

// Route sends the keys that begin with Prefix, or match Match, to a pool, or keeps a replica of
// each in several pools.
type Route struct {
	Prefix     string
	Match      string // pattern of the whole key, * matches any bytes; empty: Prefix applies
	Pool       string
	Pools      []string       // instead of Pool: each of them keeps a replica of each key
	Prefer     string         // the pool of Pools that is read first; empty: the first
	Strip      bool           // servers see the key without Prefix
	Preset     string         // sets defaults of the other settings; empty: none
	GetErrors  string         // "miss" or "error"; empty: the setting of the pool applies
	Total      *time.Duration // deadline_total of commands; nil: that of the pool applies
	Copies     replicate.Policy
	Guard      Guard
	Near       Near
	Tags       Tags
	Autocreate Autocreate
	Buffer     *Buffer // how increments wait; nil: they are sent at once
}

// Buffer is how increments wait in Ringside, so that one request carries many of them.
type Buffer struct {
	Every  time.Duration
	Answer string // "estimate" or "last"
	Keys   int
	Keep   time.Duration
}

// Autocreate is how incr and decr create a missing counter.
type Autocreate struct {
	On      bool
	Initial int           // the counter's value before the incr that creates it; if a decr creates it, the value after that decr
	TTL     time.Duration // of the counter; 0: it does not expire
}

// TagSpace holds the settings of all routes with tags.
type TagSpace struct {
	Command   string // a delete of a key with this prefix invalidates the tag named by its rest
	Namespace string // separates the tags of applications that share servers
}

// Tags holds the tag settings of a route. The zero Tags is off.
type Tags struct {
	On        bool
	Read      bool   // understand values that other instances have stored with tags, but store none
	Suffix    string // separates a key from the tags that the client names; empty: clients cannot name tags
	Patterns  []TagPattern
	PrefixTag bool // all keys of the route have a tag with the name of its prefix
}

// TagPattern assigns tags to the keys that match a pattern.
type TagPattern struct {
	Match string
	Tags  []string
}

// Failover is what a pool does when one of its servers is down.
type Failover struct {
	Mode            table.Mode
	Gutter          string        // name of the pool with the substitute servers, for mode gutter
	InterimTTL      time.Duration // longest expiry of values that a substitute server stores
	Wait            time.Duration // how long a write can wait until its server is ejected; 0: it fails at once
	health.Settings               // without Request, which Build sets to the pool's timeout

	WhyMode, WhyConsistency string // why Mode and Strict have their values, for people
}

// Guard holds the guard settings of a route. The zero Guard is off.
type Guard struct {
	On bool
	table.GuardSettings
}

// Near holds the near cache settings of a route. The zero Near is off.
type Near struct {
	On bool
	table.NearSettings
}
