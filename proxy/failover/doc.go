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
//	SETTLE       F                                F, and a delete of key' at I; behind what may have met a mark, a look
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
// In SETTLE incr, append and touch may meet the mark of a Ringside that is in WARM still. A look
// on the same connection behind them shows it. An incr waits 20 ms for the mark's owner to bring the
// value, and is tried again; else the mark is removed, by its cas, and the command is tried
// again. The owner sees that and begins again.
//
// Not mended: a gat that meets the mark of a Ringside which has just died lengthens its life,
// and a replace in SETTLE that meets a mark is STORED though there may be no value.
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
