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
//     repetitions by aliases included, are rejected.
//   - ${NAME}, ${NAME:-default} and ${file:/path} in a value are replaced after the
//     YAML was parsed: a variable cannot add structure. The type of a value is that of
//     the result; a quoted value can also be a text. If all variables of a setting or a
//     list item are empty (${NAME:-}), it is left out. $$ is a dollar. Values of files are
//     secrets: errors, warnings and changes show the variable instead.
//   - Durations have a unit (500ms); a bare number is rejected. Sizes are bytes or
//     have a binary unit (64KiB). off, where allowed, is a duration of 0.
//   - A pool inherits each setting that it leaves out from defaults, including
//     single keys of timeouts and backoff. A list in a pool replaces the whole list in
//     defaults.
//   - The default port of a server is 11211. IPv6 addresses are in brackets. Host
//     names are not resolved and addresses are not rewritten, because ketama
//     clients hash the text of a server's address.
//   - A listener with an IPv4 address accepts IPv4. A listener with an IPv6 address
//     accepts IPv6. A listener with :port or a host name accepts what the system
//     supports. Port 0 means that the system chooses a port.
//   - Routes are optional if there is one pool, not counting pools that are only
//     gutters of others. A listener with its own routes uses only those. A request
//     for a key that no route matches gets an error.
//   - A setting that older versions had is an error that says what replaces it.
//   - A setting of failover or of replicas that has no effect is an error, because
//     its author relies on it. An inherited setting must have an effect in at
//     least one pool.
//   - The default of failover.mode is fail_fast for the distribution of an existing
//     client, whatever that client does, and for pools with less than three
//     servers. Otherwise it is rehash. Mode rehash works with every distribution. If
//     the client has a rule for the next server or for a rebuilt ring, mode rehash
//     uses that rule, else the order of package ring.
//   - preset: counters or sessions on a route sets the lease, the pings,
//     eject_after, and the deadline of its pool. With at least three view servers,
//     which store the record of ejected servers, it also sets the consistency.
//     Settings of the pool override the preset. The preset overrides defaults, except
//     consistency: strict. The preset does not set the mode, because keys with replicas
//     have no substitute server in any mode.
//   - Hosts are compared by the text of addresses, in lower case and with IP
//     addresses in canonical form. Loopback addresses and unix sockets are one
//     host. Names are not resolved.
//   - Two routes to the same key of a server must keep the same replicas of it. Two
//     listeners, or strip_prefix, can cause this.
//   - The order of pools, servers and routes is that of the file, so building
//     twice returns equal tables.
//
// # What this package does not do
//
//   - It does not contact servers or resolvers. Whether a server is reachable is
//     known only when the table is in use.
//   - It does not apply a file. Package instance applies it, and describes the
//     differences of two files with Changes and AtNextStart.
package config

import (
	"log/slog"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/replicate"
)

// This file contains the types for the settings of a configuration file.

// File holds the settings of a configuration file, with every default filled in. It is plain data.
// A File that Parse or Load returned has passed all checks.
type File struct {
	Listen []Listener
	Admin  Admin
	Zone   string  // the zone of this instance; empty: none
	Pools  []Pool  // the pools, in the order of the file
	Routes []Route // routes of all listeners that have no routes of their own; not empty if there is such a listener
	Tags   TagSpace
	Traces []Trace
	Users  []User // what users may do; nil: everything
	Limits table.Limits
	Engine Engine
	Log    Log
	Watch  bool // whether the file is reloaded when it changes

	Source    []byte            // the text of the file
	Variables map[string]string // environment variables that the file uses, with their values
	secrets   secrets
	read      *document // how the file was read
	index     *index    // pools and routes by name and server; nil: see look
	Warnings  []string  // settings that are valid but probably not intended, each with its position
}

// Address is an address to listen on or to connect to.
type Address struct {
	Network string // "tcp", "tcp4", "tcp6" or "unix"; empty: the Address is not set
	Address string // host:port, or the path of a unix socket, as in package net
}

// Listener is an address that clients connect to.
type Listener struct {
	Address Address
	Mode    uint32  // permission bits of a unix socket; 0: the umask decides
	Routes  []Route // routes for the clients of this listener, in place of File.Routes; nil: File.Routes applies

	AuthFile       string       // path of the users' passwords, in the format of memcached's -Y; empty: no authentication
	Users          *table.Users // the users in the file at AuthFile; nil: AuthFile is empty, or the file was not read
	AllowPlaintext bool         // allow passwords in plain text over a network
	TLS            ListenerTLS  // clients must use TLS; the zero ListenerTLS: they must not
}

// Admin is the HTTP interface for metrics, health and profiles.
type Admin struct {
	Address Address
	Pprof   string   // which clients can take profiles: "loopback", "on" (all) or "off" (none)
	Control string   // which clients can drain servers and inject faults: "loopback", "on" (all) or "off" (none)
	Faults  bool     // allow operators to inject faults
	Page    string   // which clients can see the dashboard: "loopback", "on" (all) or "off" (none)
	Misses  bool     // whether the instance records why keys miss
	Names   []string // host names under which browsers can open the dashboard

	AuthFile string       // path of the users' passwords, as for a listener; empty: no login
	Users    *table.Users // the users in the file at AuthFile; nil: AuthFile is empty, or the file was not read
	TLS      ListenerTLS  // clients must use TLS; the zero ListenerTLS: they must not. Handshake is not used
}

// Trace is a file that records what happens to some keys.
type Trace struct {
	Keys []string // patterns of the keys that are recorded
	File string
	Max  int64 // maximum size of the trace file in bytes; the file is renamed before it would grow larger
	Keep int   // how many renamed trace files are kept
}

// Pool is a list of servers, with the settings for requests to them.
type Pool struct {
	Name         string
	Distribution string // the name or an alias of a preset
	Placement    PlacementOptions
	Servers      []Server // the servers of the file and of its sources; nil: a source has not answered yet
	Sources      []Source // where servers are found; nil: the file lists all
	GetErrors    bool     // a read gets SERVER_ERROR, not a miss, if its server cannot reply
	Multiget     string   // order of a multi-get's values: "arrival" or "request"; empty: what the clients of the distribution need
	JoinGets     bool     // whether gets that are sent to a server together are combined into one get with several keys
	DenyFlush    bool     // whether flush_all from clients is rejected
	Connections  int      // number of connections that each loop has to each server
	Queue        int      // client requests that can wait for one server, in each loop
	Timeouts     table.Timeouts
	Keepalive    time.Duration // a server connection that was idle for this time is checked with a ping; 0: never
	Backoff      table.Backoff
	MaxMove      float64        // a reload that moves more than this percentage of the keys to other servers is rejected, unless an operator accepts it
	Resize       Resize         // what happens to keys with one copy when their servers change
	WarmFrom     string         // name of the pool with the former servers; empty: none
	From         *Pool          // that pool, which is not in File.Pools; nil: there is none
	Fill         Fill           // the pool that has the values which this one lacks
	TLS          PoolTLS        // connections to the servers use TLS; the zero PoolTLS: they do not
	Security     table.Security // what the settings in TLS and their files contain; the zero Security: there is no TLS
	Auth         PoolAuth       // login to the servers; the zero PoolAuth: none
	Login        table.Login    // what Auth and its file contain
	Failover     Failover       // what the pool does when a server is down; defaults of the mode and the preset are filled in
}

// Resize says what happens to keys with one copy when a reload changes which server owns them.
type Resize struct {
	Mode  table.ResizeMode
	Why   string // why Mode is in force: as the file says, or because it is the default
	Usual bool   // Mode is the default, and not plain
	Rate  int    // in mode warm, keys that each server may give to others in a second, for each process
}

// Fill says from which pool a pool fills. The zero Fill is off.
type Fill struct {
	Pool     string        // name of the source; empty: none
	From     *Pool         // that pool, which is not in File.Pools; nil: there is none
	Rate     int           // plain reads that each server of the source gets in a second at most, from each process; 0: none
	Remember time.Duration // how long a write hides the value of the source
}

// Server is one server of a pool.
type Server struct {
	Address Address
	Name    string // text that is hashed for the points of the server; empty: the distribution derives it from the address
	Weight  int
	Host    string // name of the machine on which the server runs; empty: the host of the address
	Zone    string // zone in which the server runs; empty: none

	Source string // text of the source that has the server; empty: the file lists it
	at     string // host:port where a server of a source is now
}

// Engine holds the settings of the event loops and the network driver. The function engineValue
// documents each setting.
type Engine struct {
	Driver     string // network driver: "auto", "epoll" or "portable"
	Loops      int
	Moderation bool // whether a loop may wait under high load
}

// Log holds the settings of logging.
type Log struct {
	Level  slog.Level
	Format string        // format of log lines: "text" or "json"
	Slow   time.Duration // a sample of the commands that last at least this long is logged; 0: none
}

// Route is a set of keys, with the pool or pools that store them. The keys begin with Prefix, or
// match the pattern Match. With several pools, each pool stores a replica of each key.
type Route struct {
	Prefix     string
	Match      string // pattern of the whole key, * matches any bytes; empty: Prefix applies
	Pool       string
	Pools      []string       // the pools that each store a replica of each key; set in place of Pool
	Prefer     string         // name of the pool that is read first, one of Pools; empty: the first of Pools
	Strip      bool           // servers see the key without Prefix
	Preset     string         // sets defaults of the other settings; empty: none
	GetErrors  *bool          // whether a read gets an error if its server cannot reply; nil: the setting of the pool applies
	Total      *time.Duration // deadline_total: the limit for the whole duration of a command; nil: the setting of the pool applies
	Copies     replicate.Policy
	Guard      Guard
	Near       Near
	Tags       Tags
	Autocreate *table.Autocreate
	Buffer     *table.Buffer // how increments wait; nil: they are sent at once
}

// TagSpace holds the settings of all routes with tags.
type TagSpace struct {
	Command   string // prefix of keys that name tags: a delete of such a key invalidates the tag that the rest of the key names
	Namespace string // text that separates the tags of different applications on the same servers
}

// Tags holds the tag settings of a route. The zero Tags is off.
type Tags struct {
	On        bool
	Read      bool   // whether values with tags of other instances are understood, but no values with tags are stored
	Suffix    string // separates a key from the tags that the client names; empty: clients cannot name tags
	Patterns  []TagPattern
	PrefixTag bool // all keys of the route have a tag with the name of its prefix
}

// TagPattern assigns tags to the keys that match a pattern.
type TagPattern struct {
	Match string
	Tags  []string
}

// Failover holds the settings for what a pool does when one of its servers is down.
type Failover struct {
	Mode            table.Mode
	Gutter          string        // name of the pool with the substitute servers, for mode gutter
	InterimTTL      time.Duration // longest expiry of values that a substitute server stores
	Wait            time.Duration // how long a write can wait until its server is ejected; 0: it fails at once
	health.Settings               // all settings of package health except Request, which Build sets to the request timeout of the pool

	WhyMode, WhyConsistency string // reasons for the values of Mode and of Strict (consistency), as texts for people
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
