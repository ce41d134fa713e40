package guard

// This file describes how the guard uses package replication for keys with several replicas.
//
// The guard runs each command of such a key as a step of the client's command, and package
// replication carries out the step. So package replication decides which replica is the primary,
// the one with the reply that counts, and which servers take part. It also decides which commands
// wait, which replicas are repaired first, and when a reply still counts. The guard has none of
// these rules. It knows only a replicaReply: the server that has answered, and the token of the
// cas in the reply.
//
//	get     mg as the route reads (read:): a value that is not due is served;
//	        otherwise mg N R, which only the primary answers
//	set     after a miss: ms C at the primary, then copies to the followers
//	delete  a look, then the delete of package replication: tombstones at all replicas, then removal
//
// A miss belongs to the primary alone. The guard records it with a cas token, which package
// replication seals for the key and this server. The token is valid for one life of the server's
// process, between two flushes. If the primary dies, rejoins or changes, a set after an earlier
// miss finds another cas and is not stored. A new primary has no placeholder, so one more client
// rebuilds after each such change.
//
// The value of a bound set must not be written to all followers at once, unlike that of an
// ordinary set. Another instance may have finished a delete at all replicas in between. The older
// value would then be stored after that delete. So the value is copied to the followers later
// (replicate.Command.Bound), in three steps:
//
//   - the follower is read or claimed;
//   - the primary is asked;
//   - the follower is filled if nothing has changed in between.
//
// If a delete had finished at the follower before the first step, it would have finished at the
// primary before the second.
//
// Only the primary has placeholders. They are not copied: a repair treats one as an absent item.
// A read that finds a placeholder at another replica continues at the primary. A tombstone
// belongs to another command: a get that finds one waits, and no set is bound to a tombstone. A
// waiter polls until the placeholder is gone, and then reads the key itself.
//
// An unused lease is canceled by removing the item at the primary, even if the item is a value
// that is due. If it were soft-deleted there, other replicas would still serve it as fresh. For
// the same reason routes with several replicas can't set stale. md I does not run at all replicas
// at the same moment, and a repair from a replica that missed it would restore the value.
