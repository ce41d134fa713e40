package guard

// This file describes how the guard records the misses of guarded keys that clients got as
// replies, and how it decides which set is stored.
//
// A set that answers a miss is a rebuild: its client has read the data source after the miss. It
// is stored only over the item that the miss has created or seen, which is identified by its cas.
// So a rebuild that arrives after a delete, or after another value, is not stored. A set without
// a miss is a write, and is always stored.
//
// The function Decide is the rule. Its state is a KeyMisses for each key and scope. The scope is
// the connection, or with sets: after_miss the process. The guarantees follow. "Delete or write"
// means one that was acknowledged:
//
//	G1  A set that was answered STORED is read until a later set, a delete, flush,
//	    invalidation, eviction or expiry. A set that is not stored is answered NOT_STORED.
//	G2  No get returns a rebuild that is older than a delete, or than a write by another
//	    connection.
//	G3  A set is refused only if its scope has an outstanding miss (one without a set since)
//	    that is older than one of these: a delete or write by another connection; a flush;
//	    a set of its own that had timed out and was stored late; the end of its lease; a
//	    failure.
//	G4  A placeholder has one lease holder.
//	G5  No client waits for itself, and each can fill the key by a get and a set.
//	G6  Two adds are not both STORED without a delete or expiry between them.
//	G7  A replace is STORED only if the key has a value.
//
// A miss is outstanding until a set follows it. A connection that pipelines is a shared scope,
// because the proxy can't see to which of the client's threads a set belongs. In a shared scope a
// set must fit all outstanding misses. If these have seen different items, no set of the scope is
// stored until the older misses are as old as a lease. With clients: pooled no miss is recorded,
// so G2 does not hold.
//
// explore_test.go explores the rule in all interleavings of small configurations. It shows for
// each clause what breaks without it.
//
// A missTable has the entries of one loop, and what is needed to send a bound set: the place of
// the item (itemPlace), the connection that its cas came from, and the known versions of its
// tags. An entry is removed in one of these cases:
//
//   - its set is done;
//   - the same sequential connection gets a value, deletes the key or changes its item;
//   - the connection closes and has no pending set of the key;
//   - it is older than lease_max;
//   - the table is full.
