// Package live says what a running proxy does, second by second, to those who
// watch: the page, ringside top, scripts. It makes numbers and sentences; package
// admin sends them.
//
// A Sampler takes one Snapshot of the loops' counters a second while somebody
// watches, whoever and however many they are, and one every five seconds else, for
// the last minutes that the next watcher is shown first. A Tick is what happened
// between two of them, of one pool. It is whole, so a watcher that misses one has
// lost nothing but that second.
//
//	Snapshot, Snapshot ► Tick ► Health: one sentence, and what follows from it
//	stats of a server  ► Memory, Slabs ► what is thrown away where memory is idle
//	log records        ► Events: the last of them, at Info and above
//	Traces of the loops ► package trace: what happens to keys that somebody follows
//	Report of the keys ► Hot: the keys and prefixes that are asked for most
//	Report of a book   ► Misses: why keys miss, and what they cost
//	roll call of a pool► Roll: which Ringsides there are, and who differs
//	counts of routes   ► package routes: rebuilds saved, tags invalidated, what servers lack
//
// # What it costs
//
//   - Nobody watches: a Snapshot every five seconds (a copy of some 30 KB a loop and
//     1 KB a server, made between two wakeups). No server is asked for anything, but for
//     its stats, every five seconds at most, where values are missing without a known cause.
//
//   - Somebody watches: a Snapshot a second, JSON made once for all; and each
//     server is asked for stats, stats slabs and stats items every five seconds, on
//     a connection for that alone, one server after the other.
//
//   - A watcher that is slow skips what it has not taken: see Watcher. It makes
//     nobody wait.
//
//   - Somebody follows keys: see package trace.
//
// # States
//
// A server is in one state: up, unknown (it has not answered yet), down, drained
// (by a person), suspect, or a phase of package health in small letters. Health
// goes by the worst of them:
//
//	down, suspect, leaving, out    bad: some keys miss, or live elsewhere
//	return, warm, settle           a server comes back
//	drained                        a person wants it so
//	none of these                  good, unless requests fail
//
// Overall is computed once for all pools: the sentence of the worst pool, and the level of
// each. The page, ringside top and its exit status, and ringside server list show it.
package live

// The package's manual.
