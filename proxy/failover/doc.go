// Package failover serves keys whose server is out or comes back, and hosts what decides that.
//
// It has two halves. Keepers run the keepers of pools (package health), which
// decide in which phase each server is; SingleCopy leads the commands on keys of
// one copy by these phases. Keys of several copies are package copies'.
//
// # Keepers
//
// In a pool whose keys move (failover.mode rehash or gutter), or that keeps
// copies, a keeper pings every server and agrees with the keepers of other
// Ringsides. It is a state machine without a clock or a socket: an Agent hosts it.
// One loop of the process lets all keepers work; the other loops tell it what they
// see (Notify) and read what is decided in the agent's View, as atomic words.
// Each loop asks itself who answers on a new connection (identify.go): it is answered
// there before a keeper hears that another process is at the server's address.
//
//	any loop: a server goes down ─► Notify ─► the keepers' loop: Keeper.ServerFailed
//	the keepers' loop: KeeperTimer ─► RunKeepers ─► Tick ─► requests ─► Ask ─► Keeper.Answered
//	                                                   └► View.Publish ─► all loops, at their next look
//
// An agent outlives reloads that change neither the pool's members and placement nor
// its settings, wait excepted.
//
// # Commands on a key of one copy
//
// F is the key's own server. I is who stands in for it. key' is the key with the
// number of the outage before it, so that nothing of an earlier outage is read.
//
//	phase of F   a read                           a mutation
//	IN           F                                F
//	 suspected   error (or a miss: get_errors)    error
//	LEAVING      error (or a miss)                parked until the phase changes, if that is likely to be within
//	                                              failover.wait (View.OutBy); else error at once
//	OUT          key' at I                        key' at I
//	RETURN       key' at I                        key' at I, then a delete at F
//	WARM         F; on a miss or a mark key' at I  F, and a delete of key' at I; before it, what builds on a
//	                                              value (add, incr, append, replace, cas, touch …) brings it from I
//	SETTLE       F                                F, and a delete of key' at I; what builds on a value: see Placeholders
//
// With mode fail_fast and copies, keys of one copy fail while their server is out.
// Where a client's rule rebuilds its ring without a dead server, only the dead
// server's keys are asked of the rebuilt ring, so that one outage moves one share;
// and while any other server is between two phases, they wait.
//
// # Backfill
//
// While a server is WARM a value that only I has is brought back before a command that
// builds on it, or on that there is none, and with on_rejoin: warm also behind a read.
// It is copied as copies are: guarded by a mark (package replicate), which is known by its
// flags in WARM and SETTLE. A client's own empty item (mg N) is one of its values.
//
// # Placeholders
//
// The mark of a backfill is a placeholder: an empty item that is not a value. Commands of an
// instance in WARM or SETTLE may meet the placeholder of another instance in WARM. A read
// takes it for a miss. A set replaces it and a delete removes it: its owner sees that by the
// cas, and begins again. The other commands follow a rule (building.go):
//
//	                                   what a placeholder would do              so
//	replace, append, prepend, md I     the command succeeds, without a value    look first; then the command with the cas of the value
//	ms MA with N                       the same                                 the same; if nothing is there, an add
//	incr, decr                         "non-numeric value"                      believed if looks before and after show the same value
//	add                                NOT_STORED                               look: believed if there is a value
//	cas, ms and ma with C              EXISTS                                   the same
//	md C                               EXISTS                                   the same, after a look
//	touch                              it lives longer                          sent as mg T, which shows it; then it is removed
//	gat, mg T                          it lives longer                          it is removed before the client gets its miss
//
// An instance in WARM that finds a placeholder brings the value back, which waits 20 ms for the
// owner. One in SETTLE only waits. If the placeholder is still there, it is removed by its cas, and
// the command begins again. After five placeholders, or 30 changes by others, it fails.
// In SETTLE the interim server is told to delete the key only when the command has been
// carried out: until then the owner of a placeholder may need what is there.
//
// model_test.go explores two and three commands of instances in WARM, SETTLE and IN, with
// backfills, placeholders that expire, and an instance that dies. In 3.4 million states:
//
//   - G1: no client is shown a placeholder, and none outlives its time.
//   - G2: no command is acknowledged that was carried out on a placeholder, and none is
//     refused because of one.
//   - G3: no acknowledged write is undone by a backfill, and no older value comes back.
//   - G4: a refused command does not remove the value at the interim server.
//
// Without any one of 14 clauses it finds a state that breaks the guarantee. A value only the
// interim server has is nothing to an instance in SETTLE.
//
// Not covered:
//
//   - gat, touch or mg T meets the placeholder of an instance that has died, and its own instance
//     dies too before it has removed it. Reads may then find an empty item with the flags of
//     a placeholder until the time of the touch has passed.
//   - ms with C and I (store as stale) whose token is older than a placeholder is STORED in its place.
//   - mg N gives the right to fill in WARM although the interim server has the value. For a
//     placeholder it says EN.
//
// # What it promises
//
// With consistency strict a client is told nothing that other Ringsides may
// contradict: an answer counts only while this process holds a lease on the servers
// that gave it, and a write that is not sure is deleted again and fails. With
// relaxed it is told what the servers said.
//
// # What it does not do
//
// It takes no part in what a keeper decides. It never changes which server owns a
// key: only a table does.
package failover
