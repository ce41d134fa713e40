// Package live describes what a running proxy does, second by second, for the
// dashboard, ringside top and scripts.
//
// It computes numbers and sentences; package admin sends them. A Sampler takes one
// Snapshot of the loops' counters per second while there is a watcher, and one every
// five seconds otherwise. The number of watchers does not matter. What happened in the last
// fifteen minutes is kept for the next watcher, in at most 1 MiB: see history. A Tick describes
// what happened in one pool between two samples. It is complete, so a watcher that misses a
// tick loses only that second.
//
//	all that is known  ► words.go, orders.go: one wording of states, problems, remedies and orders
//	Snapshot, Snapshot ► Tick ► Health: one sentence, and the consequences
//	stats of a server  ► Memory, Slabs ► evictions in one class while another has idle memory
//	Snapshot, 5 s, Snapshot ► Moment ► history: the last 15 minutes, for new watchers
//	log records        ► Events: the last ones, at Info and above
//	Traces of the loops ► trace.go: events of traced keys
//	Report of the keys ► Hot: the most requested keys and prefixes
//	Report of a book   ► Misses: the reasons of misses, and their cost
//	roll call of a pool► Roll: the instances, and those that differ
//	counts of routes   ► routes.go: saved rebuilds, invalidated tags, missing replicas
//
// # Cost
//
//   - Without a watcher: a Snapshot every five seconds (a copy of about 30 KB per loop
//     and 1 KB per server, made between two wakeups). Servers are asked for their stats
//     only if values are missing there for an unknown reason, at most every five
//     seconds.
//   - With a watcher: a Snapshot per second, encoded as JSON once for all watchers.
//     Each server is asked for stats, stats slabs and stats items every five seconds,
//     on a separate connection, one server after the other.
//   - A slow watcher skips what it has not read: see Watcher. It delays nothing else.
//   - Traced keys: see trace.go.
//
// # States
//
// The views only draw: words, levels, symbols and remedies are in this package, and counters of
// features in the lists of figures of package stats, which the metrics use too.
//
// A server has one state: up, unknown (no reply and no failure yet), down, drained (by
// an operator), suspect, or a phase of package health in lower case. Health depends on
// the worst state:
//
//	down, suspect, leaving, out    bad: some keys miss, or are on substitute servers
//	return, warm, settle           a server is rejoining
//	drained                        an operator has drained a server
//	none of these                  good, unless requests fail
//
// Overall is computed once for all pools: the sentence of the worst pool, and the level
// of each pool. The dashboard, ringside top with its exit status, and ringside server
// list show it.
package live

// This file is the documentation of the package.
