// Package table is the configuration as data, and says where a key goes.
//
// Package config makes a Table out of a file, and tests make theirs by hand. A
// Table is immutable once an engine has it: a reload builds another one, and
// each engine takes up the newest at the beginning of a wakeup.
//
//	Table
//	├── Listeners   an address, and the routes that its clients get
//	│   └── Routes  a prefix or pattern ► one Pool, or several that keep a copy each
//	├── Pools       servers, the rule that gives keys to them, timeouts, failover
//	│   └── Servers (Target) name, address, weight, host, zone
//	└── Limits      what clients can make Ringside hold
//
// # Plan
//
// Plan says, without asking anybody, what a table does with one key:
//
//	route       of those that want the key, the one that spells out most of it
//	hash        of the part of the key that the pool's rule looks at
//	owner       the server that the rule gives the key to
//	successors  whom the rule asks next, while the ones before are dead
//	copies      who keeps a copy, the one that decides first
//	interim     who stands in for the owner while it is out
//
// It allocates, and is for people (`ringside route KEY`) and for tests that hold
// engines to it. On the way of a request the same is worked out by package
// routing.
//
// # What it does not do
//
// It checks nothing: config does, and refuses a file as a whole. It knows
// nothing of connections, of who is down, or of bytes. What a person wants of a
// server (health.Override) is no part of it: that outlives reloads.
package table
