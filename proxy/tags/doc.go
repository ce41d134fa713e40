// Package tags lets clients that know only get, set and delete invalidate values in
// groups.
//
// A tag is one item on every server that keeps values with it, and its version is that
// item's cas id there. A value is stored behind a head with the versions of its tags
// (package stamp), and stands as long as these are the same. To invalidate a tag is to
// delete its item on all servers. Value and tags are on one server, so a get is one
// write and one read, no clock is compared, and a tag that is lost with its server, or
// evicted, only makes misses.
//
// # Commands
//
//	                        sent to the key's server                              then
//	get, tags known         mg __rs_t:ID c N0 for each, mg k f v c N R            all the same: the value. One write, one read
//	get, others in the head mg __rs_t:ID c N0 for those                           they are remembered for the key
//	get, a tag differs      md k I C<cas> T, mg k s f c t N R0                    W: miss with the versions of before; else as the guard
//	set, tags asked before  ms k C<cas> with the versions that its miss has read
//	set, others             mg __rs_t:ID c N0, mg __rs_b:N c N0 for those; ms k   stored if the tag or its bucket is older than the miss
//	set without a miss      mg __rs_t:ID c N0 for each; ms k                      stored with the versions of now
//	append                  look; ms MA C: the head stays in front
//	prepend, incr, decr     look; ms C with what they make of it; as they are on values without tags
//	delete tag:NAME         each server: ms __rs_b:N 0, md __rs_t:ID              DELETED when all have it
//
// Everything else is as in package guard, which leads all commands on values: to it a
// value that stands no more is one that was deleted and may be served while it is
// rebuilt. A get whose value stands is an ordinary exchange (hot.go).
//
// # Who names tags
//
// Patterns and the prefix of a route say which tags a key has; a suffix behind the key
// names more, of a value: set post:42;tags=user:7,cat:3. The suffix is cut before the
// key is routed, and no reply has it. Tags are a value's, not a key's: a set without
// the suffix has those of the patterns only.
//
// # Invalidations
//
// One goes to all servers of all pools with tagged routes, gutters included.
//
//	IN, WARM, SETTLE, RETURN   must answer
//	LEAVING, suspect           waited for until the deadline
//	OUT                        skipped: it is flushed before anybody reads it
//
// In mode fail_fast none is ever out, and one that refuses connections is not skipped
// either: it may be back, and be read by other Ringsides, before this one dials again.
//
// If one has not answered, the client gets an error that names it; the others have
// it. It must be repeated until it is DELETED. If the phases change meanwhile it is
// done once more by itself. While the view record of a pool shows that other Ringsides
// have another list of its servers, an invalidation may miss some that those know: with
// consistency strict it is answered by an error then, with relaxed it is counted.
//
// The bucket is written first, and the tag deleted then, on one connection. A set that
// names a tag reads the tag first and the bucket then. In any other order a rebuild of
// before the invalidation could be stored with the version of after it.
//
// # Left out
//
// Versions kept in Ringside for a while, so that a get asks for fewer: a value could be
// served after its invalidation was acknowledged elsewhere, and what is saved is
// one short command to the server for each tag, in a write that goes out anyway.
//
// A floor, below which all values of a server are invalid to one Ringside that may have
// missed an invalidation there: the others would still serve them. When a Ringside can
// have missed one, the fingerprint of the list in the view record shows it, and whoever
// invalidates is told.
//
// An acknowledgement without the servers that are silent: it needs that floor.
package tags

// The package's manual.
