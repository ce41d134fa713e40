// Package config turns a file into a table, or into errors that say where it is
// wrong.
//
// The file is YAML, read strictly: an unknown key, a value of the wrong type, a
// name given twice or a bound that can't hold is an error, and all errors of a
// file are reported together, each with its place, what is allowed, and the
// nearest known word. deploy/ringside.example.yaml documents every key, and
// deploy/ringside.schema.json lets editors check while one types; both are held
// to the table of keys in keys.go by tests.
//
// # How a file becomes a table
//
//	bytes ─ document.go: YAML, bounded, aliases followed ─► a tree of nodes, each with its place
//	tree  ─ keys.go: the table of keys, by the kinds of values.go ─► File; document.where knows what was read from where
//	File  ─ decide (failover.go): what is left open, and presets decide ─► File, complete
//	File  ─ check*: what must hold between settings, building each placement on trial ─► File, or Errors
//	File  ─ Build (build.go) ─► table.Table
//
// # Choices where YAML or custom leave room
//
//   - Anchors, aliases and merge keys (<<) work. Keys at the top that begin with
//     x- are ignored, so that anchors have a place to stand. A second document,
//     an alias that contains itself, and a file that repeats more than 200,000
//     values are refused. Nothing is taken from the environment.
//   - Durations have a unit (500ms); a bare number is refused. Sizes are bytes or
//     have a binary unit (64KiB). off, where allowed, is a duration of 0.
//   - A pool inherits each setting it leaves out from defaults, including single
//     keys of timeouts and backoff; lists replace each other.
//   - A server without a port listens on 11211. IPv6 addresses stand in brackets.
//     The text of a server's address is what ketama clients hash, so host names
//     are not resolved and nothing is rewritten.
//   - A listener's IPv4 address accepts IPv4, an IPv6 address IPv6, and :port or
//     a host name whatever the system offers. Port 0 lets the system choose.
//   - Routes may be left out while there is one pool, not counting one that is
//     only another's gutter. A listener with routes of its own uses only those. A
//     key that no route takes gets an error.
//   - A setting of failover or of copies that would do nothing is an error,
//     because whoever writes it counts on it. What is inherited may do nothing in
//     one pool as long as it does something in another.
//   - A pool that leaves failover.mode open is fail_fast if its distribution stands
//     for an existing client, whatever that client does, or if it has less than
//     three servers; else it rehashes. Mode rehash works with every distribution: where the client has a rule for whom
//     to ask next, or builds its ring again, by that; else by ring's own order.
//   - preset: counters or sessions on a route sets the lease, the pings, eject_after, the
//     deadline and, from three view servers on, the consistency of its pool. The pool's own settings
//     win over it, and it wins over defaults, but for strict, which it keeps. It
//     leaves the mode alone: keys with copies have no stand-in in any mode.
//   - Two hosts are told apart by the text of addresses, in lower case and with IP
//     addresses in their usual form; loopback addresses and unix sockets are one
//     host. Nothing is resolved.
//   - Two ways to the same key of a server, be it by two listeners or because
//     strip_prefix makes one of two, must keep the same copies of it.
//   - The order of pools, servers and routes is that of the file, so building
//     twice gives equal tables.
//
// # What it does not do
//
//   - It asks no server and no resolver: that a server is there, or is memcached, is
//     seen when the table is in force.
//   - It puts nothing in force. The command does, and compares two files for people by
//     Changes and AtNextStart.
package config

import (
	"log/slog"
	"time"

	"ringside/proxy/table"
)

// What a file says once its defaults are filled in, and the way in.

// File is what a file says, with every default filled in. It is plain data; it
// passed all checks when it came from Parse or Load.
type File struct {
	Listen []Listener
	Admin  Admin
	Zone   string  // that of this Ringside; empty: none
	Pools  []Pool  // in the order of the file
	Routes []Route // for the listeners that have none of their own; never empty then
	Tags   TagSpace
	Traces []Trace
	Limits table.Limits
	Engine Engine
	Log    Log
	Watch  bool // the file is read again when it changes

	Warnings []string // what is right, but hardly what is wanted; each with its place
}

// Address is where to listen or connect.
type Address struct {
	Network string // "tcp", "tcp4", "tcp6" or "unix"; empty: nowhere
	Address string // host:port or a path, as package net takes it
}

// Listener is an address clients connect to.
type Listener struct {
	Address Address
	Mode    uint32  // permission bits of a unix socket; 0 leaves what the umask gives
	Routes  []Route // instead of those of the file

	AuthFile       string       // who may use it, as memcached's -Y has it; empty: everybody
	Users          *table.Users // whom it names
	AllowPlaintext bool         // let passwords cross a network as they are
}

// Admin is the HTTP interface for metrics, health and profiles.
type Admin struct {
	Address Address
	Pprof   string   // who may take profiles: "loopback", "on" (everybody) or "off"
	Control string   // who may drain servers and set faults: as Pprof
	Faults  bool     // faults may be set
	Page    string   // who may look at the page: as Pprof
	Hot     bool     // it is watched which keys are asked for most
	Misses  bool     // it is watched why keys miss
	Names   []string // by which a browser may know it
}

// Trace is a file into which is written what happens to some keys.
type Trace struct {
	Keys []string // patterns
	File string
	Max  int64 // bytes, until it is moved aside
	Keep int   // files that were
}

// Pool is a list of servers and how they are used.
type Pool struct {
	Name         string
	Distribution string // the name or an alias of a preset
	Placement    PlacementOptions
	Servers      []Server
	GetErrors    bool   // a read whose server can't answer gets SERVER_ERROR, not a miss
	Multiget     string // "arrival" or "request": the order of a multi-get's answers; empty: what the clients of the distribution need
	JoinGets     bool   // gets that go out to a server together share a line
	DenyFlush    bool   // refuse flush_all
	Connections  int    // to each server, from each loop
	Queue        int    // requests of clients waiting for one server, in each loop
	Timeouts     table.Timeouts
	Keepalive    time.Duration // how long a connection to a server may be idle before a ping; 0: for ever
	Backoff      table.Backoff
	Failover     Failover // complete: what the file leaves open is decided
}

// Server is one server of a pool.
type Server struct {
	Address Address
	Name    string // the label that is hashed; empty: what the distribution makes of the address
	Weight  int
	Host    string // the machine; empty: that of the address
	Zone    string // empty: none
}

// Engine is how the driver moves bytes. See the keys of the same names.
type Engine struct {
	Driver         string // "auto", "epoll" or "portable"
	Loops          int
	Wait           string // "raw" or "syscall"
	CoalesceServer CoalesceServer
	CoalesceClient CoalesceClient
	Moderation     Moderation
}

// CoalesceServer holds requests to a busy server.
type CoalesceServer struct {
	On      bool
	MinDue  int // answers due from the server from which on requests are held
	MaxHeld int // requests held at most
}

// CoalesceClient holds answers until their companions are there.
type CoalesceClient struct {
	On       bool
	MaxDelay time.Duration
	MaxBytes int
}

// Moderation makes a loop wait under high load.
type Moderation struct {
	On    bool
	Above int // requests to servers in a second, of one loop
	Sleep time.Duration
	Pace  string // "auto", "answers" or "sleep"
}

// Log is what is logged, and how.
type Log struct {
	Level  slog.Level
	Format string        // "text" or "json"
	Slow   time.Duration // some of the commands that take so long are logged; 0: none
}

func defaultFile() File {
	return File{
		Admin: Admin{Pprof: "loopback", Control: "loopback", Page: "loopback", Hot: true, Misses: true},
		Tags:  defaultTagSpace(),
		Limits: table.Limits{
			Clients:    10_000,
			Key:        250,
			Line:       1 << 20,
			Value:      8 << 20,
			InFlight:   4096,
			Waiting:    10_000,
			Tickets:    65536,
			Tags:       16,
			TagKeys:    65536,
			Output:     1 << 20,
			OutputHard: 64 << 20,
			Memory:     256 << 20,
			Unfinished: 30 * time.Second,
			Drain:      10 * time.Second,
		},
		Engine: Engine{
			Driver:         "auto",
			Loops:          1,
			Wait:           "raw",
			CoalesceServer: CoalesceServer{On: true, MinDue: 4, MaxHeld: 16},
			CoalesceClient: CoalesceClient{On: true, MaxDelay: time.Millisecond, MaxBytes: 16 << 10},
			Moderation:     Moderation{On: true, Above: 20_000, Sleep: 200 * time.Microsecond, Pace: "auto"},
		},
		Log: Log{Level: slog.LevelInfo, Format: "text", Slow: 100 * time.Millisecond},
	}
}

func defaultPool() Pool {
	return Pool{
		Connections: 1,
		Queue:       65_536,
		Keepalive:   30 * time.Second,
		JoinGets:    true,
		Timeouts:    table.Timeouts{Connect: 1200 * time.Millisecond, Request: 500 * time.Millisecond, Deadline: 2 * time.Second},
		Backoff:     table.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second},
		Failover:    defaultFailover(),
	}
}

// Load reads and parses the file at path. The error is that of the system when
// it can't be read, and Errors when it is wrong.
func Load(path string) (*File, error) {
	data, err := ReadFile(path, maxBytes+1)
	if err != nil {
		return nil, err // with the path in it
	}
	return read(path, data, true)
}

// Parse reads a file and checks everything about it, the placement of keys
// included, but not the files that it names: of a listener with an auth_file
// nobody is a user then. name stands in the errors, which are Errors.
func Parse(name string, data []byte) (*File, error) { return read(name, data, false) }

func read(name string, data []byte, others bool) (*File, error) {
	d := &document{others: others, name: name, isKey: isKey, where: map[any]*node{}, base: defaultPool()}
	s := &settings{defaultFile(), defaultPool()}
	d.defaults = &s.Defaults
	if root := d.parse(data); root != nil {
		if whose := stranger(root); whose != "" {
			d.failAt(root, "%s", whose) // alone: what else is wrong with it is no news
		} else {
			fileKeys().read(d, root, "", s)
			d.check(root, s)
		}
	}
	if err := d.errs.orNil(); err != nil {
		return nil, err
	}
	for _, w := range d.warnings.sorted() {
		s.File.Warnings = append(s.File.Warnings, w.Error())
	}
	return &s.File, nil
}
