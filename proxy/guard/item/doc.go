// Package item knows what an item of a guarded route is on its server.
//
// It reads what a server says of an item (See, Seen), spells what is asked of a server
// (AppendFlags, Longer, Spelled), and makes an answer to a client of what a server has
// said (AppendText, AppendMeta, AppendBare).
//
// # What an item can be
//
//	           what mg shows                              to clients                  made by
//	absent     EN                                         nothing
//	value      VA, none of W, Z, X                        the value                   a set
//	empty      VA 0, flags EmptyFlags                     an empty value, flags 0     a set of no bytes with flags 0, or EmptyFlags
//	due        VA with W or Z, flags of a client          the value, as long as the   memcached: its TTL is below R
//	                                                      route serves old ones
//	soft       VA with X                                  nothing, but an old value   md I: a delete on a route with stale
//	                                                      where the route serves them
//	stub       size 0, flags 0, one of W, Z, X            nothing                     mg N of what was absent
//	mark       flags MarkFlags                            nothing                     a Ringside whose table keeps copies of the key
//	fallen     a value of which a tag has changed         nothing                     an invalidation
//
// W says that who has asked is to rebuild the value, Z that somebody else is (Seen.Wins,
// Seen.Taken). A value is kept longer than its client has said, by the time for which
// it may be served old, and by what it needs not to be due from its first second
// (Longer); AppendMeta takes that off the TTL that a client is shown.
//
// # What it does not do
//
// It remembers nothing and asks nobody: package misses remembers, package guard asks.
package item
