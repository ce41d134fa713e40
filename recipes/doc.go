// Package recipes builds locks, counters, logs, lists and caches from the
// commands of memcached.
//
// A recipe is a way of using a handful of keys so that many processes can work
// on them at once. The articles that this project comes from print a dozen of
// them; several are wrong in ways that only traffic shows. Package
// recipes/examples/seeds has them as printed, and a test that puts both beside
// each other. What this package has:
//
//	Key                 parts to a legal key; different parts never meet
//	Lock                by add, with a token, renewal, safe release and a fencing number
//	Counter             counts, and makes itself at the first count
//	ViewCounter         counts on from a number of the database; the first view is exact
//	VisitorCounter      visitors of the last whole period
//	OnlineCounter       visitors of the last five whole minutes
//	EventLog            events in a ring of keys, read from a cursor
//	Array               a list: additions and removals by append, changes by cas
//	Table               members, with values, and the list of them
//	TaggedCache         values that die when one of their tags is invalidated
//	GuardedCache        one rebuild at a time, others get the old value or wait
//	DistributedCounter  counts in the process, one row for each process, and their sum
//
// # Use
//
// A Store is what they share: a client, a prefix for keys, a clock, bounds. Any
// client with the methods of Client will do; *memcache.Client of gomemcache has
// them, and recipes/meta has an adapter for clients of the meta protocol.
//
//	store := &recipes.Store{Client: memcache.New("127.0.0.1:11211"), Prefix: "shop:"}
//	lock, err := recipes.NewLock(store, "report", 30*time.Second)
//	…
//	lease, err := lock.Acquire(ctx, 5*time.Second)
//	if errors.Is(err, recipes.ErrLocked) { … }
//	defer lease.Release(ctx)
//
// A name stands in its keys as it is, so one with a hash tag, {user7}:cart, keeps all
// keys of a recipe, and all recipes with that tag, on one server where the pool says
// hash_tag: "{}".
//
// All types may be used by many goroutines. Their zero values are not usable.
//
// # Guarantees
//
// memcached runs each command on a key alone, whatever thread serves it, so a
// guarantee here rests on single commands: add, incr, append, cas. Names and
// values that memcached would refuse or misread (see CheckKey, ErrExpiry,
// ErrTooLarge) are refused before anything is sent. No loop is without a bound:
// it ends with its context, after Store.Tries tries, or after the wait that its
// doc names. A server's error ends it at once.
//
// A write that ends with an error may have been done or not; the doc of a type
// says what that means. Through Ringside, a set or an add that ends with an error
// is deleted behind it where keys have one copy, and what others have counted or
// appended there meanwhile goes with it; that concerns the write that makes a key.
//
// A key may go at any time: by eviction, with a server that dies, or because
// Ringside flushes a server before it serves again. The docs speak of three places
// where a key can live: on one copy (the loss of its server is the loss of the
// key), on two (a Ringside route with replicas: 2 keeps it through the loss of
// one), and through an ejection, the time in which a pool with failover.mode rehash
// serves the keys of a lost server elsewhere: they begin there as if they had never
// been, and are lost again when the server is back. What copies can't do is in
// Ringside's docs/failover.md.
package recipes

// The package's manual.
