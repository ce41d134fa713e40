// Package copies keeps several copies of a key alike.
//
// Package replicate says which holders of a key a command goes to, and whose answer
// counts. This package carries that out: it spells the requests (requests.go), tells
// how far each holder can be trusted now (trust.go), gives the client its answer
// (copies.go), and remembers in a ledger for each pool what its members are missing
// (ledger.go). Each loop has ledgers of its own, of the keys that it leads. Whose key it is
// to have a copy of, the routes say (holders.go).
//
// A get is none of these commands where the copy that is read first has a value: package
// direct reads it, on the client's loop, at the copy that Copies.ReadAt names (read.go).
//
// # What it promises
//
//   - One loop of the process leads all commands on a key, but for gets that a value
//     answers. Of those that change the key, repairs included, one is at work at a time. So
//     what a repair has read is still true when it writes, unless another Ringside has
//     written meanwhile.
//   - A member that missed a write, or may have run one that nobody has acknowledged,
//     does not decide a read of that key until it has been repaired: on the loop that leads
//     the key, and on no other that is asked behind the answer to the write (Copies.doubt).
//   - In strict mode a set (with ack: all) and a delete that a server carries out late remove
//     nothing that was stored there meanwhile: replicate, Late writes. Nothing goes behind them.
//   - A member that has come back empty decides no miss until it is filled.
//   - No ledger flushes a server. One that can only be emptied is taken out by the keepers,
//     so that every Ringside knows; and whatever pool's keepers flush a server, each ledger
//     that has the server hears of it, and they hear of each whether the server may have
//     the only copy of a key.
//   - A read never waits for a repair, and a write only for one of its own key. Repairs
//     are limited in rate (repair) and number. Those that a read asks for are
//     dropped and counted at the limit; those that the ledger asks for wait.
//   - What is asked of the ledger changes nothing in it. It notices flushes before a
//     command uses it or adds to it (notice), and acts when it is tended (Tend).
//   - A reload changes nothing in the ledger of the same servers. Keys that it gives to
//     other holders stay where they are until all Ringsides have it. From then on nothing is
//     decided about a key, and no miss believed, before it has left its former holders
//     (move.go, package handover).
//
// # What a member may be missing
//
//	a member is    because                                     its reads                          until
//	dirty          it missed a write to this key               are asked of others                the key is deleted there, and copied again (stale.go)
//	overflowed     it missed more writes than DirtyKeys        are asked of others, for all keys  it has been flushed on its way back; then it is incomplete
//	incomplete     it was flushed on its way back, restarted,  count if they hit; a miss is       the keys of the others have been listed, and copied
//	               or given keys by a reload                   asked of others                    to it (resync.go); after a minute if repairs are off
//	gone           no server of its pool answers this process  are asked of others, and writes    a server of the pool answers; then it is
//	               (without strict)                            leave it out                       dirty for what was written
//	unidentified   it has a new connection, and may be         as incomplete                      it has said since when it runs (stats)
//	               another process
//
// There is one entry for each key that a member may have wrong. It passes through these states:
//
//	a write was missed ─► ToDelete ─ it answers ─► Deleting ─► ToCopy ─ another surely has it ─► Copying ─► forgotten
//	                         ▲                        │          ▲                                  │
//	                         └── no answer ───────────┘          └── failed, five times at most ────┘
//
// A write in doubt, and a key that a late delete has taken, begin at ToCopy. Where a route
// doesn't ask others for what one misses (read_through: off), the key is Known behind the
// delete, and dirty, for the miss would be believed; likewise where repairs are off.
//
// # Where keys are repaired from
//
// A member is given copies at one rate, the highest that a route sets for it, and one loop
// makes so many at once. Who is nearer to a read goes first:
//
//	what                  found by                                     in                    waits
//	one key, at once      a command that saw members differ            repair, in copier.go  not at all: a queue would hold what nobody
//	                                                                                         may read again, and who does asks again
//	keys that are stale   a write that was missed or is in doubt       copyLost, in stale.go as an entry, for room and for a source
//	all keys of a member  a flush or a restart                         resync, in resync.go  behind those, as a listing: as entries its keys
//	                                                                                         would need room for all that a server has
//
// All three ask hasRoom and end in copyKey, a command of its own by the rule
// replicate.Mend.
//
// # What it does not do
//
//   - It does not agree with other Ringsides about what is missing. Each repairs what it
//     knows of. Only the process's own keepers hear that a member is incomplete
//     (health.View.SayIncomplete), so that they don't let the last copies be flushed. They
//     tell others in the roll call, who refuse a person's order by it, and eject as ever.
//   - It does not remember anything over a restart of the process: all members
//     count as complete then.
//   - It does not look what it removes when it deletes a stale key at one member (ToDelete).
//     If that delete comes late, it takes a newer value there, which is copied again from
//     another member.
//   - It does not compare values. Copies that differ without a missed write, because two
//     Ringsides have written at once, stay so until the next write or until they expire.
//   - It does not decide who is out: package health does, and failover hosts it.
package copies
