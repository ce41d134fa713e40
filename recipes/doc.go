// Package recipes implements locks, counters, logs, lists and caches on top of
// memcached commands.
//
// A recipe uses a few keys in a way that lets many processes work on them at the
// same time. The articles that this project is based on print about a dozen
// recipes. Several of them are wrong in ways that only real traffic shows. Package
// recipes/examples/seeds contains them as printed, and tests that compare them
// with the types of this package:
//
//	Key                 builds a legal key from parts; different parts never collide
//	Lock                add with a token, renewal, safe release, and a fencing number
//	Counter             a counter that creates itself at the first count
//	ViewCounter         continues from a number in the database; the first view is exact
//	VisitorCounter      visitors of the last whole period
//	OnlineCounter       visitors of the last five whole minutes
//	EventLog            events in a ring of keys, read from a cursor
//	Array               a list: add and remove by append, update by cas
//	Table               members with values, and the list of all members
//	TaggedCache         values that become invalid when one of their tags is invalidated
//	GuardedCache        one rebuild at a time; other callers get the old value or wait
//	DistributedCounter  counts in the process; one row per process, and the sum of all rows
//
// # Use
//
// All recipes share a Store: a client, a key prefix, a clock and limits. Any
// client that implements Client can be used. *memcache.Client of gomemcache does,
// and recipes/meta has an adapter for clients of the meta protocol.
//
//	store := &recipes.Store{Client: memcache.New("127.0.0.1:11211"), Prefix: "shop:"}
//	lock, err := recipes.NewLock(store, "report", 30*time.Second)
//	…
//	lease, err := lock.Acquire(ctx, 5*time.Second)
//	if errors.Is(err, recipes.ErrLocked) { … }
//	defer lease.Release(ctx)
//
// The name of a recipe is part of its keys, unchanged. A name with a hash tag,
// such as {user7}:cart, therefore keeps all keys of the recipe on one server if
// the pool has hash_tag: "{}". All recipes with the same tag share that server.
//
// All types are safe for use by multiple goroutines. Their zero values are not
// usable.
//
// # Guarantees
//
// memcached runs each command on a key atomically, so the guarantees rest on
// single commands: add, incr, append, cas. Names and values that memcached would
// reject or misread (see CheckKey, ErrExpiry, ErrTooLarge) are rejected before
// anything is sent. Every loop is bounded: it ends when its context ends, after
// Store.Tries tries, or after the wait that its doc comment names. An error of a
// server ends it immediately.
//
// A write that returns an error may or may not have been executed. The doc comment
// of each type says what that means. Where a key has one copy, Ringside sends a
// delete after a set or an add that failed. That delete also removes what other
// processes counted or appended to the key in between. It affects only writes that
// create a key.
//
// A key can disappear at any time: it is evicted, its server dies, or Ringside
// flushes a server before it rejoins. The doc comments describe three cases:
//
//   - One copy: the key is lost when its server is lost.
//   - Two copies: a Ringside route with replicas: 2 keeps the key when one server
//     is lost.
//   - An ejection: a pool with failover.mode rehash serves the keys of an ejected
//     server from other servers. The keys start empty there, and they are lost
//     again when the server rejoins.
//
// Ringside's docs/failover.md describes the limits of copies.
package recipes

// This file contains only the documentation of the package.
