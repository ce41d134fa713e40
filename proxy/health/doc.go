// Package health decides which servers of a pool take traffic, from observed failures
// and time.
//
// A Keeper is the failover state machine of one pool. Its inputs are the failures that
// the engine sees, the replies to its own requests, and the time. Its outputs are
// requests to send and the phase of every server. Every proxy of a pool runs its own
// keeper. The keepers agree through one item that is stored on each server, the view
// record.
//
// # Phases
//
// Every server has a phase number n, which only grows. The phase of the server is n mod 6.
// The phase determines where all proxies send commands on the keys that the server owns:
//
//	phase       reads                              mutations
//	0  IN       the server                         the server
//	1  LEAVING  miss                               wait if OUT comes soon (View.WritesBy), else fail
//	2  OUT      the substitute, key'               the substitute, key'
//	3  RETURN   the substitute, key'               the substitute, key', and delete on the server
//	4  WARM     the server, on a miss the          the server, and delete key' on the substitute. They wait
//	            substitute                         until all proxies know WARM (View.WritesBy)
//	5  SETTLE   the server                         the server, and delete key' on the substitute
//
// If a mutation has two writes, both must succeed before the client gets its reply. The
// substitute server (Interim in the code) is the next server in the key's order that is
// IN, or a server of the gutter. key' is the key with the epoch of the outage before it
// (Generation, divert.AppendKey). So data left over from an earlier outage is never read.
// Path determines the server, the substitute server and key' for one key.
//
// # Why six
//
// Neighboring phases are compatible: a write made by a proxy in one phase is either
// seen or missed by a proxy in the next phase, but that proxy never reads older data.
// Phases that are further apart are not compatible, for example IN and OUT. So all
// proxies must know a phase before the next one starts. A step therefore waits (see
// WAIT) before LEAVING becomes OUT, before the flush that turns RETURN into WARM,
// before SETTLE and before IN.
//
// RETURN and WARM are compatible only for reads: in RETURN the substitute server decides about a mutation, and in WARM the server does.
// So a proxy that learns WARM first parks mutations, until it knows that no proxy knows RETURN any more (Keeper.opens). This early WARM has no
// phase number of its own, because older releases know six phases. It is compatible with RETURN, with WARM and with SETTLE
// (failover/handoff_test.go). SETTLE says that all proxies know WARM, so a proxy that learns it parks nothing.
//
//	IN ─ suspected long enough, by most ─► LEAVING ─ WAIT ─► OUT ─ replies again ─► RETURN
//	RETURN ─ WAIT, late requests have arrived, flush ─► WARM ─ WAIT, warm ─► SETTLE ─ WAIT + 1.1 s ─► IN
//
// SETTLE lasts 1.1 s longer than a WAIT. After the WAIT no proxy acts as in WARM any more, so no
// proxy stores placeholders. 1.1 s later, all placeholders have expired (waitOf, and package
// failover). Proxies in IN don't check for placeholders.
//
// A server that fails while it rejoins moves to its next LEAVING. LEAVING is always
// followed by OUT, because some proxy may already be in OUT. A server that rejoins is
// always flushed: its data is from before the outage, and late requests may have
// changed it. Any proxy may take any step that is due, because all proxies write the
// same phase number. While a server rejoins, each proxy waits for a random time of up to a
// quarter of a lease before a step, so that usually only one proxy takes it.
//
// # WAIT and leases
//
// A ping reads a server's view record. Its reply is a lease on that server, which
// starts when the ping was sent. With Settings.Strict a proxy uses a server only while
// it has leases on that server and on a majority R of all N view servers. All servers
// of the pool and of its gutter are view servers. The engine compares the time of every
// reply with Verdict.ValidUntil, and Gen with its value when the request was sent.
//
// A new phase number is in force after a WAIT: once it has been in enough records for the
// duration of a lease and of a request (plus a tenth and 100 ms). Enough means every server
// that is not LEAVING or OUT, and at least N-R+1 servers. A last ping after that time must
// still find the number there, in the same incarnation of the record. A proxy that does not
// know the number by then has no valid leases left. With two servers, leases on both are
// needed, or on one if the other is OUT. That tolerates one fault at a time, but not two
// partitions that cut off different servers from different proxies.
//
// While the server list changes, the view servers are those of both lists. If half of them are dead, no proxy has leases on a majority.
// Then leases on all others are enough if the list that the configuration requires lacks the dead ones (Keeper.enough). Such servers
// are ejected after a minute, with these leases. N-R+1 of the others are in every majority, so every proxy with a majority knows
// that. A proxy that reaches only the dead servers has the same configuration, so it does not count the others as removed.
//
// Before keys move because the server list changes, leases are short for a moment, a quarter of the configured duration but at
// least 500 ms, and pings are four times as frequent. So writes wait for a shorter WAIT (package resize). The same holds while a server
// is in RETURN, for the wait in early WARM: all proxies know RETURN before the flush, after a usual WAIT. So a proxy that
// does not know WARM yet has only short leases then.
//
// Without Strict the steps are the same, but ValidUntil is never reached, a WAIT is two
// pings, and the WAIT ignores servers that this proxy can't reach. Stale data can then
// be read while proxies disagree about a server.
//
// # Choices
//
//   - A failing server is suspect to this proxy at once: its keys miss, and writes
//     fail. It is ejected only if the suspicion has lasted for Settings.EjectAfter and
//     more than half of the proxies agree (see vote.go). In addition, at most half of
//     the pool may be suspect to this proxy, this proxy must reach enough other
//     servers, and a substitute server must exist. Otherwise the server stays suspect
//     to this proxy only, until pings succeed.
//   - A server that refuses every connection has no process and no data that a flush
//     could destroy. So it is ejected sooner than a server that only stops replying,
//     and proxies inform each other at once (vote.go). The WAITs are not shorter,
//     because they depend on what other proxies may still believe and not on the kind
//     of failure. A server with restartable memory (memcached -e) keeps its data when
//     its process ends. So its refusals count as silence, and it is not ejected before
//     EjectAfter.Restart, nor between the first good ping after a restart and the next
//     ping, nor right after a loop has rejected its new process (Keeper.Rejected). It is
//     pinged half a ping before EjectAfter.Restart ends. The same holds while the proxy does not know yet whether the server has such
//     memory. While a server is leaving, in RETURN
//     or in early WARM, a proxy pings all servers four times as often, to notice each step early.
//   - If routes keep replicas, a silent server is not ejected for half a minute while
//     another server is not In or lacks replicas. The silent server may have the last
//     copy of a key, and an ejected server is flushed. Until then its keys return
//     errors. A server that refuses connections has no data left to protect. Each proxy
//     considers the phases and the repairs that it knows of itself, and which servers
//     lack replicas as its peers write in the list of instances. A new proxy assumes
//     that all servers do, until it has read that list.
//   - A server that missed more writes than the replication ledger can record still
//     replies, but can't be repaired key by key. Once the other servers are complete it
//     is ejected without vote and EjectAfter, and it is flushed before it rejoins.
//   - While keys move, no server is ejected while most servers of one of the two lists are silent, for up to a minute. They may go on
//     with their values. Without a change, that holds for the pool's servers, without a limit.
//   - A reload that removes a server from a pool with replicas publishes that at once, because the proxy that reloads
//     no longer writes to it. With Strict it publishes LEAVING, and the proxies that still have the server move it to OUT after
//     a WAIT: IN and OUT are not compatible. Without Strict it publishes OUT. A removed server rejoins only when all proxies
//     have the same list.
//   - A reload that removes servers from a pool without replicas publishes that they are OUT only when all proxies have had the same
//     list for some time. Until then, other proxies use them.
//   - If none of the pool's own servers replies, proxies can neither vote nor write a
//     record, so no server is ejected. Code that must decide without other proxies then
//     (replicas without Strict) uses View.Gone.
//   - A lost record (restart, flush, eviction, corruption) is restored by a proxy that
//     has leases on R other servers, or on all others that are not LEAVING or OUT. If R
//     records are missing, as at a first start, every proxy first waits a WAIT. If no
//     proxy can restore a record for ten WAITs, several things have failed at once, and
//     any lease is enough. If all servers lose their records at once, that counts as a
//     first start: their contents are kept. Without Strict no proxy waits.
//   - If the record of a server is lost or changes its incarnation, the proxy asks for
//     the server's process ID and start time first. Only after the reply does a ping
//     count as a lease, and is a new record written. A new process that was already
//     running when the old process last replied is a stranger: another memcached with its
//     own data, because addresses are reused. A stranger is suspect, is ejected without
//     vote and EjectAfter, and is flushed before it rejoins. An operator's Restore accepts
//     a stranger with its data. A process that started later is as good as empty. A
//     stranger is not detected by a proxy that did not know the old process, or that has
//     not lost its connections since.
//   - Records are merged by the names of servers. While the list of servers changes, two
//     servers can have the same name: names.go. A record keeps its entries about
//     servers that this proxy does not know. A record with another server list
//     suspends the guarantee of Strict for twenty pings, but never causes misses.
//   - The record also has a hash of two settings that WAITs depend on, Strict and Ping.
//     (Lease, Request and the mode are in the hash of the server list.) A record with another
//     hash of settings has an effect like a record with another server list. But leases are
//     still checked, and a WAIT is as with Strict, because other proxies may need it. The
//     interval of their pings is not known, but is at most a third of a lease. Older releases
//     do not know the hash of settings, but keep it in the records.
//   - Keys with several replicas move to other servers only when a reload has reached
//     all proxies. The stage of that handover is one number in the record, next to the
//     hash of the list. All proxies take each step together, with the same WAIT:
//     package barrier.
//   - Keys with one copy move to other servers when all proxies require the same server list, if
//     the pool coordinates that. The record has the list in force, the stage, and the vote of
//     the last writer: package resize. The texts of the lists are further items on the servers, so that
//     a proxy which is started with another list can serve like its peers: lists.go.
//   - With Settings.Stays, keys of a failed server do not move to other servers. The keeper then
//     only coordinates changes of the server list. A server is ejected only while keys may move, or
//     while it is about to be removed: an ejected old owner counts as empty, and all proxies must
//     agree about that before a key is changed without emptying it. So that server is flushed before
//     it serves again. A silent server has a minute, because it still has its items. Otherwise no
//     suspicion has an effect on requests.
//   - A server without meta commands can't store a record. Then no server of the pool
//     is ejected, and the guarantee is suspended too. The keeper recognizes such a
//     server by an ERROR reply to a ping. If the release of the server is known to have
//     no meta commands, the engine asks for its version instead and reports ERROR.
//   - A server that rejects flush_all is renamed in RETURN: from then on its keys carry
//     the phase number n, which is stored in the view record. RETURN then waits again,
//     because all proxies must delete under the new names before any of them reads. On a
//     renamed substitute server, a key carries the sum of that number and the epoch of the
//     outage. After a later outage with a successful flush the keys keep that number.
//   - Overrides by operators are stored in the record with a counter, so the last one
//     wins at every proxy. A proxy may receive an override before it has read an earlier
//     one with a higher counter. It then uses a still higher counter (override.go). Down
//     makes a server suspect only at the proxy that received the command. The others
//     follow when they read LEAVING. Drain and Down skip the vote and EjectAfter, but not
//     WAIT.
//   - OnRejoin Warm ends when a proxy sees that the server itself answers 90 % of at
//     least 100 reads, or after 60 s.
//   - A server rejoins only if no majority of the proxies reports that it can't reach
//     it.
//   - The record that is written right after a flush still says RETURN. WARM is
//     published only after the server has replied OK. Otherwise a server that rejected
//     the flush, or lost its record before the flush, would become WARM without a flush.
package health
