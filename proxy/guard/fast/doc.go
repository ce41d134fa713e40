// Package fast reads guarded keys as ordinary exchanges, which is all that is needed
// where a value answers.
//
// A text get of a guarded key goes to its server as an mg, whose receiver is the
// client's own exchange (Reader): there is no task, and no other loop. What comes
// decides how it goes on:
//
//	a value that stands, nobody rebuilds it     the client gets it, as VALUE
//	a value, somebody rebuilds it, not old yet  the same: Reader.fresh
//	W, a stub, a mark, an old value, EN         a task of package guard goes on with this answer: Guard.Resume
//	an error, or none                           the same, which ends it as the route wants
//	the client has gone                         what was won for it is given back: guard.GiveBack
//	the route has no guard any more             the value as it is, or a miss
//
// A value of more than 64 KiB comes to its client as it comes from the server, if
// memcached says of it nothing but what it is. On routes with tags the versions of the
// tags come first (package tags), and Reader.Judge compares them with the head of the
// value.
//
// It holds no get, records no miss and changes no item: the task does. A value ends the
// miss of a sequential client, if it has one (Guard.Found).
package fast
