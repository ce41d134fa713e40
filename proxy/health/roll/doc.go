// Package roll lets the instances that serve a pool list themselves on its servers, so
// that each instance sees which of them differ. A second item lists the pools that
// eject a server.
//
// An operator looks at one instance of many and asks whether the others are alike. A configuration
// file may not have been deployed everywhere, a binary may be old, or only one instance may suspect
// a server. So each instance publishes an entry of about 60 bytes. It contains the name, the
// version, a hash of its pools and routes (Table.Print), the servers that it suspects, and the
// servers that lack replicas. An instance that was started while a server is being filled learns
// only from these entries that the server lacks replicas. If keys are replicated the entry also
// contains a hash of the placement of replicas (Table.PrintCopies). An instance with another
// placement writes replicas that others do not read, and leaves dirty ones that they do read.
//
// # The item
//
//	__rs_roll:POOL   rc1 <id>=<name>,<version>,<config>,<round>[,<suspects>[,<lacks>[,<copies>]]] …
//
// The item is stored next to the view record, on two servers of the pool. These are the
// first two, in an order by hash of the name, of the servers that are in, reply, and
// support meta commands. With two servers, instances find a common server even if their
// server lists differ by a server, or if they disagree about the state of a server. The
// location depends only on the names of the pool and the servers, because an instance with
// another server list must find the item, too. Numbers are in base 36, names are escaped as
// in the view record.
//
// A round lasts 5 s, plus a tenth of a second for each instance beyond 50. In each round an
// instance reads the item (mg k v c), merges its own knowledge, and writes the item back with ten
// minutes to live. It does not overwrite an item that has changed in between (ms with C, or ME if
// there was none). If another instance was faster, it reads and writes again, at most three times
// in a round. If all attempts fail, the instance publishes its entry in the next round. A reload
// starts a round at once. So all instances know a change after two rounds. A request without a reply
// is not repeated.
//
// # Expiry of entries
//
// An entry contains the time of its writer's clock in seconds, which grows with each
// round. A reader compares this time only with the earlier time in the same entry. If the
// time has not grown for three rounds of the reader, the instance is gone: the reader does
// not show it any more, and omits its entry when it writes. The reader remembers the entry
// for ten more rounds. So an instance that has not noticed yet and still writes the entry
// does not bring it back. A restarted process has another ID.
//
// A process that ends in the regular way signs off: it writes its entry with the highest
// possible time (Ended). Readers do not show such an instance. They write its entry for
// three more rounds, so that each other instance reads it. An instance of an older release
// shows the entry for three rounds, as if the process had been killed.
//
// # Many instances
//
// The item has at most 200 entries. An instance without an entry in a full item
// replaces a random entry in one round of twenty, and otherwise only reads. So the item
// is a changing sample. The total number of instances is then known from the votes (see
// package health).
//
// # Hostile and broken contents
//
// Any client of the servers may write the item. It is only displayed; no decision
// depends on it. A value above 64 KiB or of another format is counted as bad and
// overwritten. An invalid entry, or one with a field that is too long, is counted and
// omitted, and so are entries beyond 200. Names are arbitrary bytes, and are displayed
// like keys. A writer that uses another instance's ID can hide that instance. This is
// visible, because that instance is missing.
//
// Servers without meta commands have no item. A pool with only such servers has no list
// of instances, and the dashboard says so.
//
// # Pools that eject a server
//
//	__rs_pools   rp1 <pool>=<number> …
//
// A pool that ejects servers flushes each server when it rejoins. A pool in another
// configuration file may contain the same server. If that pool has another name, or does
// not eject the server, the flush deletes its values there. Such pools share neither the
// view record nor the list of instances. So this item has the same name for all pools,
// and is stored on each server.
//
// The process itself asks each server of its table (Proxy.AskPools), not the keepers,
// because a pool in mode fail_fast has no keeper. It asks once a minute, first one
// minute after the start. It skips servers that are not up, and servers without meta
// commands. If it ejects the server by a pool, it adds one to the number of that pool's
// entry and writes the item back. The servers of a pool's gutter count, too. If another
// instance was faster it reads again, three times in all. All instances with a pool of
// that name share its entry.
//
// An instance that has the server but does not eject it only reads, until it sees that
// another instance ejects the server. Then it writes, too: an entry with its pool's
// name after the character !, so that the other instance learns of it. So instances in
// mode fail_fast never write to servers unless two configuration files are in conflict.
//
// An entry is reported if its number has changed between two reads, and if this
// instance does not eject the server by that pool. An entry with ! is reported only by
// an instance that ejects the server. Reports appear in the log, on the dashboard, in
// ringside top and ringside server list, and as a metric. An entry that has not changed
// for three rounds is gone, and is omitted when the item is written. So an entry that
// is left over from before a reload is never reported by the reloaded instances: they
// ignore what they saw of a pool while they had it themselves.
//
// The section about hostile contents also applies to this item. It has at most 50
// entries and 16 KiB. A longer item, or one of another format, counts as empty.
package roll
