// Package failover serves the keys of a server that is out or rejoining, and runs the
// keepers that decide the phase of each server.
//
// The package has two halves. Keepers host the keepers of pools (package health), which decide in
// which phase each server is. SingleCopy serves the commands on unreplicated keys by these
// phases. Package replication serves replicated keys.
//
// # Keepers
//
// A pool has a keeper if its keys move (failover.mode rehash or gutter), or if it keeps
// replicas. The keeper pings every server and agrees with the keepers of other instances.
// It is a state machine without clock and sockets, hosted by an Agent. One loop of the
// process runs all keepers. The other loops report server failures to it (Notify), and read
// its decisions in the agent's View, as atomic words. Each loop itself identifies the
// process on a new connection (identify.go), because a keeper may learn of another process
// at the server's address only later.
//
//	any loop: a server fails ─► Notify ─► the keepers' loop: Keeper.ServerFailed
//	the keepers' loop: KeeperTimer ─► RunKeepers ─► Tick ─► requests ─► Ask ─► Keeper.Answered
//	                                                   └► View.Publish ─► all loops, at their next look
//
// An agent outlives reloads that change neither the pool's servers and distribution nor its
// failover settings, except wait. After other reloads, the pool's new agent inherits the phase
// numbers of the servers, so that a server that is out does not serve its old values. It finds the
// phase number of a server by the names of the pool and the server, and otherwise by the server's
// address: a reload may rename either, or move the server to another pool. A pool that ejects no
// server has an agent, too, while one of its servers is out. If no agent has a server any more, its
// state is kept until a reload adds the server again.
//
// # Commands on an unreplicated key
//
// F is the key's own server (First in the code). I is its substitute server (Interim in the code).
// key' is the key with the epoch of the outage before it, so that nothing of an earlier outage is
// read.
//
//	phase of F   a read                           a mutation
//	IN           F                                F
//	 suspected   error (or a miss: get_errors)    error
//	LEAVING      error (or a miss)                parked until the phase changes, if that is likely within
//	                                              failover.wait (View.WritesBy); else error at once
//	OUT          key' at I                        key' at I
//	RETURN       key' at I                        key' at I, then a delete at F
//	WARM         F; on a miss or a placeholder    F, and a delete of key' at I. If the command depends on the existing value
//	             key' at I                        (add, incr, append, replace, cas, touch …), the value is copied from I first
//	 early WARM  as in WARM                       parked until WARM, within the deadline; else error at once
//	SETTLE       F                                F, and a delete of key' at I. If the command depends on the existing value:
//	                                              see Placeholders
//
// In early WARM, other instances may know F as in RETURN (package health). There I decides about a mutation, and in WARM F does. So
// if instances in both phases carried out mutations, an add could be STORED twice, and two sets could remove each other's value. Reads are
// compatible with both, also if they copy the value back: an instance in RETURN deletes at F what a backfill has
// stored there. A read with an effect (gat, mg with T, N or R) is parked like a mutation. handoff_test.go explores the
// commands of two and three instances in 1.7 million states: no add is STORED twice, no read finds an older value than an acknowledged one, and none
// misses it, unless a set or incr of another client is in progress. The model also shows that the wait must last as long as a request
// of an instance in RETURN, also with relaxed consistency.
//
// With mode fail_fast and replicas, unreplicated keys fail while their server is out. If a
// client's rule rebuilds its ring without a dead server, only that server's keys use the
// rebuilt ring, so that one outage moves one share. While any other server is between two
// phases, these keys wait.
//
// # Backfill
//
// While a server is WARM, a value that only I has is copied back before a command that
// depends on the value, or on its absence (Spot.CopyBack, also for package guard). With on_rejoin: warm it is
// also copied after a read. On a route with a guard, a placeholder of the guard on F is replaced by the value. The copy is made as for replicas: a tombstone guards it (package replicate), which
// is recognized by its flags in WARM and SETTLE. An empty item that a client has made (mg N)
// is a value.
//
// An instance that knows F as IN deletes at F only, and does not check for tombstones. So an
// instance that knows F as WARM copies nothing back if another instance may know F as IN
// already, for example after its own process was stopped for a while (MayFill). Its last good
// ping of F must be more recent than a WAIT, the time after which all instances know a new phase
// (View.KnownUntil), also with relaxed consistency. And the phases must be those of the lookup. Both
// conditions are checked before a tombstone is sent, and again when the reply to it arrives. If the
// second check fails, the tombstone may have been stored too late, and it is removed and not filled.
// If the first check fails, a read misses, and other commands wait until the phases are known.
//
// # Placeholders
//
// The tombstone of a backfill is called a placeholder: an empty item that is not a value.
// Commands of an instance in WARM or SETTLE may find the placeholder of another instance in
// WARM. A read reports the placeholder as a miss. A set replaces it and a delete removes it: the
// owner of the placeholder notices that by the cas, and begins again. Other commands follow a
// rule (building.go):
//
//	                                   effect of a placeholder                  so
//	replace, append, prepend, md I     the command succeeds, without a value    look first; then the command with the cas of the value
//	ms MA with N                       the same                                 the same; if nothing is there, an add
//	incr, decr                         "non-numeric value"                      believed if looks before and after show the same value
//	add                                NOT_STORED                               look: believed if there is a value
//	cas, ms and ma with C              EXISTS                                   the same
//	md C                               EXISTS                                   the same, after a look
//	touch                              its TTL is extended                      sent as mg T, which shows it; then it is removed
//	gat, mg T                          its TTL is extended                      it is removed before the client gets its miss
//
// An instance in WARM that finds a placeholder copies the value back. For that it first waits
// 20 ms for the owner of the placeholder. An instance in SETTLE only waits. If the placeholder is
// still there, it is removed by its cas, and the command begins again. After five placeholders, or
// 30 changes by others, the command fails. In SETTLE the substitute server gets its delete only
// after the command has been carried out: until then the owner of a placeholder may need the value
// there.
//
// model_test.go explores two and three commands of instances in WARM, SETTLE and IN, with
// backfills, placeholders that expire, and an instance that dies. In 3.4 million states:
//
//   - G1: no client is shown a placeholder, and none outlives its TTL.
//   - G2: no command is acknowledged that was carried out on a placeholder, and none is
//     refused because of one.
//   - G3: no acknowledged write is undone by a backfill, and no older value returns.
//   - G4: a refused command does not remove the value at the substitute server.
//
// If any one of 14 clauses of the rules is removed, the test finds a state that breaks a guarantee.
// An instance in SETTLE does not see a value that only the substitute server has.
//
// Not covered:
//
//   - An instance stops for seconds between the check and the sending of a placeholder.
//     Instances in IN then show it until its owner removes it, at most for its TTL.
//   - The request that stores a placeholder times out, and the server runs it more than a second later.
//     Instances in IN may then show the placeholder, for at most its TTL. No late delete follows the
//     request, because it could remove the value of another client.
//   - A gat, touch or mg T extends the TTL of a placeholder, and both the owner of the placeholder
//     and the instance of the command die before the placeholder is removed. Reads may then find an
//     empty item with the flags of a placeholder until the extended TTL has passed.
//   - An ms with C and I (store as stale) and a token older than a placeholder is STORED in
//     its place.
//   - In WARM, a set is sent to both servers at once. The delete at I can be earlier than the value at F.
//     An add or an incr of another client finds nothing in between.
//   - mg N grants the right to fill in WARM although the substitute server has the value. For a
//     placeholder the reply is EN.
//
// # Keys that move in a resize
//
// A key whose server rejoins has two places, like a key that moves in a resize (replicate.Relocate). The states of
// the key are the same. Only the old place has it, or the new place has a placeholder, or both have it, or only the
// new place. Copies follow the same rule in both cases (replicate.Mend). The commands follow different rules, for
// three reasons:
//
//   - Here, other instances may know F as IN. Their commands do not look for placeholders. In a resize, no
//     instance that does not look for placeholders sends a command to the new place while there may be one.
//   - So here only an instance in WARM stores a placeholder, and other instances may remove it. In a resize, each
//     write stores one, and other commands wait until it is gone.
//   - A set takes one round trip here, and three in a resize: placeholder, removal at the old place, value.
//
// # What it promises
//
// With strict consistency, a client gets no reply that other instances may contradict. A
// reply counts only while this process has a lease on the servers that sent it. The value of a
// write that can't be confirmed in this way is deleted again, and the write fails. With relaxed
// consistency, the client gets what the servers replied.
//
// # What it does not do
//
// The package has no part in a keeper's decisions. It never changes which server owns a key: only a
// table does.
package failover
