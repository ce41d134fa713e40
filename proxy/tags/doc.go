// Package tags invalidates groups of values, for clients that use only get, set and
// delete.
//
// A tag is an item on every server that stores values with the tag. The cas id of that
// item is the tag's version on that server. A value is stored after a head with the
// versions of its tags (package stamp). It is valid as long as these versions are
// unchanged. To invalidate a tag is to delete its item on all servers.
//
// A value and the items of its tags are on the same server. So a get needs one write
// and one read, and no clocks are compared. If a tag is evicted or lost with its
// server, the only effect is additional misses.
//
// # Commands
//
//	                        sent to the key's server                              then
//	get, tags known         mg __rs_t:ID c N0 for each, mg k f v c N R            all versions equal: the value
//	get, more in the head   mg __rs_t:ID c N0 for these                           they are remembered for the key
//	get, newer in the head  mg __rs_t:ID c N0 for these                           the value may be newer than the versions that were read
//	get, a tag differs      md k I C<cas> T, mg k s f c t N R0                    W: miss, with the versions read first; else as the guard
//	set, versions known     ms k C<cas> with the versions that its miss has read
//	set, others             mg __rs_t:ID c N0, mg __rs_b:N c N0 for these; ms k   stored if the tag or its bucket is older than the miss
//	set without a miss      mg __rs_t:ID c N0 for each; ms k                      stored with the current versions
//	append                  look; ms MA C: the head stays in front
//	prepend, incr, decr     look; ms C with the new value; unchanged for values without tags
//	delete tag:NAME         each server: ms __rs_b:N 0, md __rs_t:ID              DELETED when all servers have done it
//
// A value is invalid only if a version differs that was read after the value, or that is
// newer than the one in its head: cas ids only grow. Otherwise another client may have
// invalidated the tag and stored the value after the version was read.
//
// Package guard serves all commands on values. It treats an invalid value like one
// that was deleted and may be served during its rebuild. A get of a valid value is an
// ordinary exchange (hot.go).
//
// # Naming tags
//
// The patterns and the prefix of a route assign tags to a key. A suffix after the key
// names more tags for a value: set post:42;tags=user:7,cat:3. The suffix is removed
// before the key is routed, and replies do not contain it. Tags belong to a value, not
// to a key: a set without the suffix stores only the tags of the patterns.
//
// # Invalidations
//
// An invalidation is sent to all servers of all pools with tagged routes, including
// gutters. What happens depends on the phase of the server:
//
//	IN, WARM, SETTLE, RETURN   must answer
//	LEAVING, suspect           waited for until the deadline
//	OUT                        skipped: the server is flushed before it serves reads again
//
// In mode fail_fast no server is ever OUT. A server that refuses connections is not
// skipped either: it may have restarted, and serve reads of other instances, before
// this instance connects again.
//
// If a server has not answered, the client gets an error that names it. The other
// servers have done the invalidation. The client must repeat it until the reply is
// DELETED. If phases change while it runs, it is repeated automatically.
//
// The view record of a pool can show that other instances have a different list of its
// servers. An invalidation may then miss some of their servers. With consistency
// strict the client gets an error, with relaxed the case is counted. If this instance
// has all servers of the other list, as while a change of the list waits, there is no
// error. But no server is skipped then: the other instances may use one that is out here.
//
// The bucket is written first, and then the tag is deleted, on one connection. A set that names a
// tag reads the tag first and then the bucket. In any other order, a rebuild that is older than the
// invalidation could be stored with the tag's newer version. A model (stamp/explore_test.go) explores the orders of
// these requests.
//
// # Rejected designs
//
// Caching versions in Ringside, so that a get requests fewer: a value could be served
// after another instance has acknowledged its invalidation. It would save only one
// short command per tag, in a write that is sent anyway.
//
// A lowest valid cas for each server, set by an instance that may have missed an invalidation
// there: other instances would still serve the older values. The fingerprint of the server list in
// the view record shows if an instance can have missed one. The client that invalidates then gets
// the error.
//
// An acknowledgement without a reply from the silent servers: it would need that lowest valid cas.
package tags
