// Package roll is the roll call of a pool: which Ringsides serve it, and who of them runs
// something else than the others. A second item says which pools eject a server.
//
// People look at one Ringside of many, and ask whether it is like the rest: a file that has
// not arrived, a binary left behind, a server that only one of them suspects. So each says of
// itself, in some 60 bytes, its name, its version, one number of its pools and routes
// (Table.Print), whom it suspects, and who lacks copies: one that was started while a server is
// being filled does not know that by itself. Where keys have several copies it says one number
// more, of where it keeps them (Table.PrintCopies): who differs in that writes copies which
// others don't look for, and leaves those behind that they read.
//
// # The item
//
//	__rs_roll:POOL   rc1 <id>=<name>,<version>,<config>,<round>[,<suspects>[,<lacks>[,<copies>]]] …
//
// It stands beside the view record: on two servers of the pool, those whose names come first
// in an order by hash, among the servers that are in, answer, and know meta commands. Two, so
// that Ringsides whose lists differ by a server, or who disagree about one, meet on the
// other. It goes by the pool's name and the servers' names only, since whoever has another
// list is the one that is looked for. Numbers are in base 36, names escaped as in the record.
//
// A round takes 5 s, and longer where many answer (a tenth of a second for each beyond 50).
// In it each Ringside reads the item (mg k v c), puts in what it knows, and writes it back
// over what it has read (ms with C, or ME if there was none), with ten minutes to live. If
// somebody was faster it reads again, three times in a round at most: what it did not get in
// this round it says in the next. A reload begins a round at once. So a change is known to
// all after two rounds. A request that gets no answer is not made up for.
//
// # Who is gone
//
// An entry has the time of its writer's own clock, in seconds, which grows with each round.
// It is compared only with what it was: who has not grown for three rounds of the reader is
// gone, is no longer shown, and is left out when the reader writes. He is remembered for ten
// more rounds, so that whoever has not noticed yet does not bring him back. A process that
// starts anew has another id.
//
// # Many
//
// The item has 200 entries at most. Who finds it full and is not in it puts itself in the
// place of any other in one round of twenty, else only reads: so what it holds is a sample,
// and changes. How many there are in all is then told by the votes (see package health).
//
// # Hostile and broken contents
//
// Anybody who reaches the servers may write the item. Nothing is decided by it: it is shown,
// no more. A value above 64 KiB, or of another kind, is counted as bad and written over; an
// entry that is no entry, or has a field that is too long, is counted and left out; an entry
// more than 200 is not taken. Names are bytes like keys, and shown like these. Who writes
// under another's id can hide him: that is an error that shows, since he is missing.
//
// Servers without meta commands have no item, and a pool of only such servers has no roll
// call; the page says so.
//
// # Which pools eject a server
//
//	__rs_pools   rp1 <pool>=<number> …
//
// A pool that ejects servers flushes each when it returns. A pool of another file may have
// the same server. If it has another name, or does not eject the server, it loses then what it
// has stored there. Such pools have neither the view record nor the roll in common. So this
// item has the same name for all pools, and stands on each server.
//
// The process asks each server of its table, not the keepers: a pool in mode fail_fast has
// none (Proxy.AskPools). It asks once a minute, the first time a minute after the start, and
// asks only servers that are up and whose release has meta commands. Where it ejects the
// server by a pool, its gutter included, it writes the item over what it has read, with the
// entry of that pool one higher. If another Ringside was faster it reads
// again, three times in all. All Ringsides with a pool of that name share its entry.
//
// A Ringside that has the server and does not eject it only reads, until it sees that another
// one does eject it. From then on it writes, too: an entry with its pool's name after the
// character !, so that the other Ringside learns of it. So Ringsides in mode fail_fast write
// nothing to servers of their own accord unless two files are in conflict.
//
// An entry that has changed between two readings, and is of no pool by which this Ringside
// ejects the server, is reported (one with ! only by a Ringside that ejects the server): in the log, on the page, in ringside top and ringside server
// list, and by a metric. One that has not changed for three rounds is gone, and is left out
// when the item is written. So an entry that a reload has left behind is never reported by the
// Ringsides that were reloaded. They don't count what they have seen of a pool while they had
// it themselves.
//
// What is said above of hostile contents is true here, too. The item has 50 entries, and
// 16 KiB, at most. What is longer, or of another kind, counts as none.
package roll
