// Package guard is the dogpile guard: it makes one client at a time rebuild a value
// that is missing, while other clients wait or get the old value.
//
// Clients need only get, set and delete. A guarded get is one mg with the flag N. It
// also has R on routes that rebuild values before they expire or serve old ones.
// memcached itself then grants the rebuild to one client, the lease holder (flag W),
// and stores an empty placeholder. Other clients see the flag Z. They get the old
// value if it may still be served. Otherwise they wait.
//
// The guard records every miss that it reports to a client (misses.go), with the
// cas of the item that the get left or saw. The set that answers the miss is stored
// only if the key has not changed since. So it can't restore a value that was deleted
// in between.
//
// All state that instances must share is on the servers: placeholders, the flags W, Z
// and X, and cas. An instance that dies loses only its recorded misses and its waiting
// gets. If the guard is not sure, it answers a set with NOT_STORED and keeps the
// stored item.
//
// # What is on a server
//
//	placeholder     empty, client flags 0, with one of W, Z, X: created by mg N; clients see a miss
//	empty value     of a client, with flags 0: stored with the flags 0x52530000, shown with 0
//	Z, TTL < R      another client rebuilds the value before it expires; other clients get it
//	X               deleted, kept to be served during the rebuild (stale); a miss for all other commands
//
// # Commands
//
//	            sent                                             W                Z on a placeholder
//	get         mg k f v c t N R k                               miss             waits, then a value or a miss
//	gets        mg k f v c t N k                                 miss             waits; never gets an old value
//	            W on an old value with less than a lease left: md k I C<cas> T, mg k s f c t N R0
//	set         after a miss: ms k C<cas>; HD: stored; NF, EX: NOT_STORED; without a miss: ms k
//	delete      mg k s f c t R0, md k; with stale: md k I C<cas> T<stale+lease>
//	add         after a miss of a placeholder or X: as set; of a value: NOT_STORED; without a miss: ms k ME;
//	            on NS: look; placeholder, X: ms k C<cas>
//	replace     after a miss: as set, with MR; of a placeholder: NOT_STORED
//	replace, append, prepend: look; ms k MR C<cas>, MA, MP; a placeholder, X: NOT_STORED
//	incr, decr  unchanged, with the longer time; if there is no number: look; with stale: look, ma k C<cas>
//	touch       look, then unchanged, with the longer time
//	gat         as get; of a value: mg T with the longer time; a placeholder, X: read again
//	mg with N or R, me: unchanged
//	cas, ms with C, md with C, ma with C: unchanged; on EX or CLIENT_ERROR: look; a placeholder, X: NF; an ma with N creates the item
//	ms with C and I: look; a placeholder, X: without I
//	md with I: look; a placeholder: md k C<cas>, and NF; X, with stale: md k I C<cas>, and NF
//	ms with I and without C: memcached ignores I, so it is left out
//
// A deleted value (X) is kept for stale and lease, and served while it has more than a
// lease left. So the set of a rebuild that began while it was served finds it.
//
// "look" is an mg that does not start a rebuild (rule.look).
//
// # A key
//
//	none ► mg N: W ► placeholder(Z) ► ms C ► value ► TTL < R: W ► due(Z) ► ms C ► value
//	placeholder ► its lease ends or is canceled, md ► none
//	value ► delete, stale: md I ► X ► mg: W ► X(Z) ► ms C ► value
//	Z for a lease with one cas ► lease canceled by an instance that sees it
//
// To cancel a lease means to remove the placeholder, or to mark the item with md I, so
// that the next get rebuilds.
//
// # How a command runs
//
// A rule (rule.go) runs one command. Each of its requests names the method that handles the reply, and
// what the command must know in between is in the fields of the rule. There are three paths:
//
//	get       read ► judge ► the value, a wait (wait.go), or a miss; or md I and another read (mark), or another
//	          look at the item (checkLease)
//	set       rebuild decides whether it is the rebuild after a miss ► store ► stored ► rebuilt
//	others    write ► look ► looked decides by the item ► store, change, md or ma, over this item only
//	          ► the reply; if the item has changed in between, the command starts again (again)
//
// On a route with tags, each read requests the versions of the key's tags before the item (inspect), and
// judged checks them. A store requests the versions of its tags first (stamp).
//
// # Replicated keys
//
// For a key with several replicas the guard does not send commands to servers itself.
// It runs each one as a step of the client's command, and package replication carries out
// the step: see copied.go.
//
// # Keys that move
//
// A key with one copy that moves to another server (package health/resize) is served in steps, too. Package
// replication asks both servers. Misses and waiting gets belong to the new owner of the key. A set after a miss at
// the old owner finds another place, and is not stored. A command that began before the key moves sends no
// further request to the old owner. Waiting gets start again.
//
//	get     mg without N, at both owners; a miss, or an item that may have to be rebuilt: mg N R, which moves
//	        the value first
//	others  each request moves the value first; the second request of a pair follows the reply to the first
//
// A value with tags is not moved, and a read does not ask the old owner for it: the versions of tags belong to one
// server.
//
// # Keys whose server rejoins
//
// While the key's own server is in WARM, the substitute server may have the only copy of the value. The commands
// then are:
//
//	get       mg N; on a placeholder: mg at the substitute server, and ms C with its value; if it has none, a look
//	delete    mg and md at the substitute server, then as usual; DELETED if either server had a value
//	set       as usual, but md at the substitute server before the ms; a set that is refused deletes nothing
//	others    the backfill of package failover (CopyBack), md at the substitute server, then as usual
//
// A get that finds the placeholder of another client waits, if it may. It reads from the substitute server
// before it would get a miss. The look is needed because another command may have moved the value in between.
//
// The backfill stores a tombstone. Another command that finds one waits for a moment, and starts again. A
// value with tags is only read: a get serves it without a wait, and an add is not stored. For other commands it
// counts as missing, and they leave it there unless they create the item.
//
// All tasks of one key run on one loop of the process. That loop has the misses and
// the waiting gets of the key. Plain hits do not use it.
//
// # Limits
//
//   - The guard does not guarantee that a key is rebuilt only once. A lease that ends, a
//     placeholder that its server has lost, and a wait that times out each let one
//     more client rebuild.
//   - The guard does not check a set without a miss: this set is stored as on any route,
//     unless the route has sets: after_miss.
//   - The guard does not keep values. Package near does, and memcached keeps old values.
package guard
