// Package misses remembers which clients were told that a guarded key is missing, and
// decides which set is stored.
//
// A set that answers a miss is a rebuild: its client has read the data source after the
// miss. It is stored only over the item that the miss has left or seen, which is known
// by its cas. So a rebuild that comes after a delete, or after another value, stores
// nothing. A set without a miss is a write, and is always stored.
//
// Decide is the rule, a pure function. Its state is an Entry for each key and scope: the
// connection, or with sets: after_miss the process. Its guarantees, in which "a delete or
// write" means one that is acknowledged:
//
//	G1  A set that was answered STORED is read until a later set, a delete, flush,
//	    invalidation, eviction or expiry. A set that is not stored is answered NOT_STORED.
//	G2  No get returns a rebuild that is older than a delete, or than a write by another
//	    connection.
//	G3  A set is refused only if its scope has an outstanding miss that is older than a
//	    delete or write by another connection, than a set of its own that had timed out and
//	    was stored late, than the end of its lease, or than a failure.
//	G4  A placeholder has one client that rebuilds.
//	G5  No client waits for itself, and each can fill the key by a get and a set.
//	G6  Two adds are not both STORED without a delete or expiry between them.
//
// A connection that pipelines is a shared scope: nobody knows which of its threads a set
// belongs to. There a set must fit all outstanding misses. If they have seen different
// items, none of its sets is stored until the older misses are as old as a lease. With
// clients: pooled nothing is recorded, so G2 does not hold.
//
// explore_test.go explores the rule in all interleavings of small configurations, and
// shows for each clause what breaks without it.
//
// A Table has the entries of one loop, with what is needed to send a bound set: where the
// item is (Spot), which connection has brought its cas, and which versions of tags were
// known. An entry ends by its set, by a value or delete of the same sequential
// connection, when the connection closes and no set of the key is still to come from it,
// after lease_max, or when the table is full.
package misses
