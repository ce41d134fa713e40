// Package watch sees which keys clients ask for, and what becomes of them.
//
// A loop looks at some of its requests, drawn at random: about a thousand a second,
// whatever the load. So what it costs is constant, and on a request that it does not
// look at a decrement and a branch. Of one that it looks at it takes the key where the
// request is given to a server, and the outcome where the answer comes: a Sight stands
// between the connection and the receiver of the answer.
//
//	request ► Left-- ► Look: a Sight in front of the receiver ► answer ► sketches
//
// # Hot keys
//
// Which keys are asked for most is kept by Space-Saving (Metwally, Agrawal, El Abbadi
// 2005): a table of fixed size, in which a key that is new takes the place of the one
// that was seen least, and its count, as what it may be too high by. Counts are halved
// every ten seconds, so they follow the present.
//
//	keys       512 a loop, of which a key that is new costs a walk through all: some 0.3 µs
//	prefixes   64 a loop: a key's prefix ends with its first colon; keys without one have none together
//
// What is told of a key says how far it may be off, MoreOrLess: by what the table
// forgot, and by chance, of which it is three standard deviations. The loops' tables
// are added up; a key that a full table does not have may have as much there as what
// that table has least of.
//
// A command that takes several requests to servers is looked at where it ends.
//
// # Traces
//
// Somebody may follow the keys that fit a Pattern: then a loop looks at every request,
// at most of them only to compare the key. What has become of one is told in a letter:
//
//	H  a read found it                       M  it found nothing
//	S  it found an old value (meta flag X)   R  it is told to make it anew (W)
//	L  add stored: a lock is won             l  add refused: another has it
//	W  set, replace, cas, append or prepend stored    w  it was refused
//	U  a lock was deleted                    D  another key was       d  there was nothing to delete
//	I  incr, decr                            T  touch, gat            E  it failed, or was refused as a mistake
//
// The key of a lock is Lock and what it locks: a pattern that fits the one fits the other.
// What goes past Ringside is not seen, and not claimed. A loop keeps 4,096 events until
// they are taken; more are counted and dropped. Values are never kept.
//
// # What is not seen
//
// What clients ask for that goes to no server, because the server is down or nobody
// has the key, is not seen.
package watch

// The package's manual.
