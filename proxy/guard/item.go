package guard

// This file describes what the item of a guarded key can be on its server.
//
// The package parses the reply of a server (parseItem, Item) and formats requests to servers
// (appendFlags, storedTTL, plainLine). It also builds replies to clients (appendText, appendMeta,
// appendBare).
//
// # What an item can be
//
//	             what mg shows                              clients see                 created by
//	absent       EN                                         nothing
//	value        VA, none of W, Z, X                        the value                   a set
//	empty        VA 0, flags emptyFlags                     an empty value, flags 0     a set of no bytes with flags 0, or emptyFlags
//	due          VA with W or Z, flags of a client          the value, as long as the   memcached: its TTL is below R
//	                                                        route serves old ones
//	soft         VA with X                                  nothing, but an old value   md I: a delete on a route with stale
//	                                                        if the route serves them
//	placeholder  size 0, flags 0, one of W, Z, X            nothing                     mg N of an absent key
//	tombstone    flags tombstoneFlags                       nothing                     an instance that has the key replicated
//	invalid      a value with a tag that has changed        nothing                     an invalidation
//
// W means that the client of this request is the lease holder, so it is expected to rebuild the
// value. Z means that another client is the lease holder (Item.HasLease, Item.IsLeased). A value
// is kept longer than its client wanted, so that it can be served while it is old. A value with a
// short TTL is also kept longer so that it is not due from its first second (storedTTL).
// appendMeta subtracts the additional time from the TTL that a client sees.
