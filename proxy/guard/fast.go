package guard

// A Reader serves guarded reads that are plain hits, without a task (task.Read).
//
// It sends a text get of a guarded key to the server as an mg. The reply decides what happens next:
//
//	a valid value, without a lease holder       the client gets it, as VALUE
//	a value with a lease holder, not old yet    the same: Reader.fresh
//	W, a placeholder, a tombstone, an old       a task of package guard continues with this reply:
//	value, EN                                   Reader.Resume
//	an error, or no reply                       the same; the task ends as the route says
//	the client has gone                         the lease is canceled: Reader.Drop
//	the route has no guard any more             the same, and a task reads the key again
//
// A value of more than 64 KiB is streamed to the client, if its reply has none of the flags W, Z
// and X. On routes with tags the versions of the tags arrive before the value (package tags).
// Reader.Judge compares these versions with the header of the value.
//
// If the client sends a set of the same key after the get, the set waits for the reply to the get.
// So the set can be the rebuild after the miss that this reply reports.
//
// A Reader does not make gets wait, record misses or change items: tasks do that. A hit ends the
// recorded miss of a client that sends one request at a time (Guard.Found).
