// Package table represents the configuration as data, and computes the servers of a key.
//
// Package config builds a Table from a file, and tests build theirs by hand. A
// Table is immutable once an engine uses it. A reload builds another one, and
// each engine switches to the newest one at the start of a wakeup.
//
//	Table
//	├── Listeners   an address, and the routes of its clients
//	│   └── Routes  a prefix or pattern ► one Pool, or several that keep a replica each
//	├── Pools       servers, the placement rule, timeouts, failover
//	│   └── Servers (Target) name, address, weight, host, zone
//	└── Limits      bounds on the resources that clients can use
//
// # Plan
//
// Plan computes, without any request to a server, what a table does with one key:
//
//	route       the most specific route that matches the key
//	hash        of the part of the key that the placement rule hashes
//	owner       the server that the placement rule selects
//	successors  the servers that the rule selects next, while the ones before are dead
//	copies      the replicas of the key, the primary first
//	interim     the substitute servers while the owner is ejected
//
// Plan allocates memory. It is for people (`ringside route KEY`) and for tests that
// compare engines with it. For requests, package routing does the same.
//
// # Limits of the package
//
// The package does not check a Table. Package config does, and rejects an invalid file as a
// whole. A Table has no data about connections, the state of servers, or bytes. Overrides of the
// operator (health.Override) are not part of a Table, because they outlive reloads.
package table
