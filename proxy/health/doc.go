// Package health decides from outcomes and time whether a server takes traffic.
//
// A Keeper is the failover keeper of one pool. It is told what the engine sees
// of the servers, what they answer to its own requests, and the time; it says
// what to send and in which phase every server is. All proxies of a pool have
// one, and agree through an item on each server, the view record.
//
// # Phases
//
// Every server has a number n that only grows. Its phase is n mod 6 and means
// the same to everybody, for the keys whose own server it is:
//
//	phase       reads                              mutations
//	0  IN       the server                         the server
//	1  LEAVING  miss                               wait if OUT is near (View.OutBy), else fail
//	2  OUT      the interim server, key'           the interim server, key'
//	3  RETURN   the interim server, key'           the interim server, key', and delete on the server
//	4  WARM     the server, on a miss the interim  the server, and delete key' on the interim
//	5  SETTLE   the server                         the server, and delete key' on the interim
//
// Where there are two writes both must be answered before the client is. The
// interim server is the next one of the key's order that is IN, or the gutter's.
// key' is the key with a number before it that is another one in each outage
// (Generation, divert.AppendKey), so nothing left by an earlier outage is ever read.
// Path walks a key's order and says all this for one key.
//
// # Why six
//
// Neighbouring phases never contradict each other: what one proxy writes in one
// phase, another one in the next phase sees or misses, but nobody reads what is
// older than that. Phases that are further apart do contradict each other, as
// IN and OUT do. So between them everybody must have learnt the new phase:
// a step waits (see WAIT) before LEAVING becomes OUT, before the flush that
// turns RETURN into WARM, before SETTLE and before IN.
//
//	IN ─ suspected long enough, by most ─► LEAVING ─ WAIT ─► OUT ─ answers again ─► RETURN
//	RETURN ─ WAIT, what was on its way has arrived, flush ─► WARM ─ WAIT, warm ─► SETTLE ─ WAIT ─► IN
//
// A server that fails on its way back goes to the next LEAVING. A LEAVING always
// goes to OUT: some proxy may be there already. What comes back is always
// flushed: it holds what was there before the outage, and who knows what late
// requests have done to it. Any proxy may take any step that is ready, all write
// the same; on the way back jitter of up to a quarter of a lease lets usually one be first.
//
// # WAIT and leases
//
// A ping reads a server's view record and is a lease on it, from its sending.
// With Settings.Strict a proxy serves from a server only as long as it has leases
// of it and of a majority R of all view servers (all servers of the pool and of
// its gutter); the engine compares the time of every answer with
// Verdict.ValidUntil, and Gen with what it was at the sending. A new number is in
// force when it has stood for a lease and a request's time (plus a tenth and
// 100 ms) on every server that isn't LEAVING or OUT, and on N-R+1 at least, and a
// last look has found it there, in the same incarnation of the record. So whoever
// hasn't learnt it has no leases left. Of two servers both are needed, or one if
// the other is OUT: that bears one fault at a time, not two crosswise cuts.
//
// Without Strict the steps are the same, but ValidUntil is never reached, a WAIT
// is two pings, and servers that this proxy can't reach are not waited for. Then
// what is stale can be read while proxies disagree about a server.
//
// # Choices
//
//   - A server is suspect to this proxy at once (its keys miss, writes fail). It is
//     ejected only if that has lasted Settings.EjectAfter, more than half of the
//     proxies say the same (see vote.go), not more than half of the pool is
//     suspect to this proxy, this proxy reaches enough others and somebody can take
//     over. Otherwise it stays suspect here; good pings end that.
//   - A server that refuses every connection has no process any more, and nothing
//     that a flush could cost. So it is believed to be gone sooner than one that is
//     silent, and proxies tell each other at once (vote.go). The WAITs stay what they are:
//     what others may still believe doesn't depend on what is wrong with the server. But
//     who knows that one is leaving pings all four times as often, to learn of each step.
//   - Where routes keep copies a silent server stays, for half a minute, while
//     another one is not In or lacks copies: it may have the only copy of a key, and
//     who leaves is flushed. Until then its keys are errors. One that refuses
//     connections has nothing that could be kept. Each proxy knows of its own repairs
//     only, and of the phases.
//   - A server that has missed more writes than its copies' ledger remembers answers,
//     but can't be mended key by key. When the others are complete it leaves, without
//     vote and EjectAfter, and is flushed on its way back.
//   - If none of the pool's own servers answers, there is nowhere to vote and no
//     record to write: nobody is ejected. Where each proxy must decide for itself
//     then (copies, without Strict), it asks View.Gone.
//   - A lost record (restart, flush, eviction, not readable) is put back by whoever
//     has leases of R others, or of all others that are IN or coming back. If R
//     records are missing, as at a first start, everybody waits a WAIT first. If
//     nobody can do either for ten WAITs, so much has failed that any lease will
//     do. All servers losing their records at once counts as a first start: their
//     contents are taken as they are. Without Strict nobody waits.
//   - Who has lost its record, or has another one, is asked which process it is, before
//     a lease on it counts and before it gets a record. Another process than before
//     that has run for longer than nobody has heard of that one is a stranger, with
//     values of its own: addresses are used again. It is suspect, leaves without vote
//     and EjectAfter, and is flushed on its way back; Restore takes it as it is. One
//     that was started since is as good as empty. A proxy that didn't know the one
//     before can't tell, and neither can one whose connections never broke off.
//   - Records are merged by the names of servers. What a record says of unknown
//     servers stays in it. A record of another membership list suspends the
//     guarantee of Strict for twenty pings; it never causes misses.
//   - Keys that have several copies go to other servers when a reload has reached all. The
//     stage in which that is stands in the record beside the list, as one number, and all
//     take each step together, by the same WAIT: package barrier.
//   - A server without meta commands can't hold a record: then nobody ejects, and
//     the guarantee is suspended too. It shows by an ERROR to a ping. One whose
//     release has none is not sent the ping: the engine asks its version instead,
//     and says ERROR for it.
//   - A server that refuses flush_all is renamed while it is in RETURN: its keys
//     get n as their number, in the view record, and RETURN waits once more, since
//     everybody must delete under the new names before anybody reads them.
//     The number of a diverted key and Renamed are added up, so a renamed interim
//     server is safe as well. A later outage whose flush succeeds keeps the number.
//   - Overrides by people stand in the record, counted, so that the last one wins at
//     every proxy. Down makes a server suspect only at the proxy that was told; the
//     others follow with LEAVING. Drain and Down skip vote and EjectAfter but not
//     WAIT. Restore ends a Hold too.
//   - OnRejoin Warm ends when a proxy sees 90 % of at least 100 reads answered by
//     the server itself, or after 60 s. Hold counts from when this proxy has seen
//     the server OUT.
//   - A server comes back only if not most proxies say that they can't reach it.
//   - The record that follows a flush in its pipeline still says RETURN; WARM is
//     published when the server has said OK. One that refuses, or has lost its
//     record before, would else be declared WARM unflushed.
package health
