// Package replication runs the commands on keys that have several replicas, and repairs
// replicas that differ.
//
// Package replicate decides which replicas of a key get a command, and which reply the
// client gets. This package carries that out. It formats the requests (requests.go)
// and knows how far each replica can be trusted at the moment (trust.go). It replies
// to the client (replication.go). A ledger for each pool records what the servers of the
// pool are missing (ledger.go). The keepers of package health are
// informed of that. Each loop has its own ledgers, for the keys that it owns. The
// routes say which servers keep a replica of a key (holders.go).
//
// Plain hits don't use this path. direct.go sends a get on the client's loop to
// the replica that directReader.Conn returns. Only if that replica has no value
// does the get become a command here.
//
// # Guarantees
//
//   - One loop of the process, the owner of the key, runs all commands on it, except
//     plain hits. Commands that change the key, repairs included, wait in the line of
//     the key, a queue, and run one at a time. So what a repair has read is still true
//     when it writes, unless another instance has written in between.
//   - A replica may have missed a write, or may have run one without an
//     acknowledgement. It then does not decide a read of that key until it has been
//     repaired. This holds on the loop that owns the key. It also holds on every other
//     loop, for reads that are sent after the reply to the write (Replicator.disableDirectReads).
//   - In strict mode, a set (with ack: all) or a delete that a server runs late does
//     not remove a newer value there: see replicate, Late writes. Ringside sends
//     nothing after such a write.
//   - A miss of a replica that has rejoined empty does not count until the replica is
//     filled.
//   - A ledger does not flush a server. If only a flush can help, the keepers eject
//     the server, so that all instances know. Each ledger is informed of every flush
//     of its servers, whatever pool's keepers send it. The keepers are informed which
//     servers may have the only replica of a key.
//   - A read never waits for a repair, and a write waits only for a repair of its own
//     key. Repairs are limited in rate (repair) and number. At the limit, repairs for
//     reads are dropped and counted, and repairs for the ledger wait.
//   - Queries do not change a ledger. Before a command uses a ledger, or adds to it, the
//     ledger checks whether its servers were flushed (notice). Only Tend sends requests
//     for a ledger.
//   - A reload that keeps the servers of a pool keeps its ledger. If a reload assigns
//     keys to other servers, the keys stay until all instances have the new
//     configuration. From then on, a command decides nothing about a key, and no miss
//     counts, before the key has left its former servers (move.go, handover.go).
//
// # What a replica may be missing
//
//	a replica is    because                                    its reads                         until
//	dirty          it missed a write to this key              use other replicas                 the key is deleted there, and copied again (stale.go)
//	overflowed     it missed more writes than DirtyKeys       use other replicas, for all keys   it was flushed before it rejoined; then it is incomplete
//	incomplete     it was flushed before it rejoined,         count if they hit; a miss uses    the keys of the other replicas have been listed and
//	               restarted, or got keys by a reload         other replicas                     copied to it (resync.go); 1 minute if repairs are off
//	gone           no server of its pool answers this         use other replicas; writes         a server of the pool answers; then it is dirty for
//	               process (without strict)                   skip it                           the keys written
//	unidentified   it has a new connection, so it may be      as for incomplete                 it has sent its start time (stats)
//	               another process
//
// The ledger has one entry for each key that a replica may have wrong. An entry passes
// through these states:
//
//	a write was missed ─► ToDelete ─ it answers ─► Deleting ─► ToCopy ─ another surely has it ─► Copying ─► forgotten
//	                         ▲                        │          ▲                                  │
//	                         └── no answer ───────────┘          └── failed, at most five times ────┘
//
// A key starts at ToCopy if its write is in doubt, because no reply has arrived. A key
// also starts at ToCopy if a late delete has removed it: a delete that Ringside sent
// after a write that had timed out. On a route with read_through: off a miss is believed.
// So the key is Known after the delete, and stays dirty. The same is true if repairs are
// off.
//
// # Sources of repairs
//
// A replica receives copies at one rate, the highest that a route sets for it. One loop
// runs a limited number of copies at once. Copies that are nearer to a read have
// priority:
//
//	what                  found by                                     in                    if there is no room
//	one key, at once      a command that saw replicas differ            repair, in copier.go  it is dropped: if the key is read again, that
//	                                                                                         read requests the repair again
//	keys that are dirty   a write that was missed or is in doubt       copyLost, in stale.go it waits as an entry, for room and for a source
//	all keys of a replica  a flush or a restart                         resync, in resync.go  it waits after these, as a listing: entries for
//	                                                                                         all keys of a server would need too much memory
//
// All three call hasRoom and then copyKey, which runs a command with the rule
// replicate.Mend.
//
// # Limits
//
//   - The package does not agree with other instances about what is missing. Each instance
//     repairs what it knows of. Only the keepers of the same process are informed that
//     a replica is incomplete (health.View.SayIncomplete), so that they don't flush the
//     last replica. They report it in the roll call. Other instances then reject an
//     operator's override that would lose data, but still eject as usual.
//   - The package does not remember anything over a restart of the process: all replicas count
//     as complete then. But while keys move to other servers, each instance stores the former
//     lists of servers on the servers. A process that is started then reads them
//     (Replicator.learn).
//   - The package does not check what it removes when it deletes a dirty key at one replica
//     (ToDelete). If that delete runs late, it removes a newer value, which is copied
//     again from another replica.
//   - The package does not compare values. Two instances that write at once can make replicas
//     differ without a missed write. These replicas differ until the next write or
//     until they expire.
//   - The package does not decide which servers are ejected: package health does, and
//     package failover runs package health.
package replication
