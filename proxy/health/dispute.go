package health

// This file detects that another proxy uses another memcached process as the same server, and stops the use of that server.
//
// Proxies can ask for the addresses of servers independently (docs/discovery.md). So one of them may have a new address of a
// server while another one still has the former address, where the former process still runs. Each process has a view record
// with an incarnation of its own. So each view record says, for each other server, which incarnation its last writer knows
// there (record.seen).
//
// A difference alone proves nothing, because the incarnation changes when a record is lost. So a proxy that reads a difference
// first pings the server in question. It replaces the other value by its own only if that ping still finds the incarnation that
// it knows. All proxies do that. So if a record had the value of this proxy and then has another one, and this proxy still
// finds its own incarnation, then the writer of the other value has found another incarnation in the same time. Both can't be
// the same process.
//
// Such a server is suspect to each proxy that has such a proof, and is ejected without vote and EjectAfter. It stays OUT until there has been no
// further proof for some time. Then it is flushed, like every server that rejoins.

import "cmp"

// disputed says which view records name another incarnation of a server's record than this proxy.
type disputed struct {
	mine     uint32  // the value of this proxy, to which claims belongs
	claims   []claim // for each view server, what its record has said; nil: no record has said anything else
	provenAt int64   // when this proxy last had a proof that another proxy uses another process; 0: never

	agreed    bool  // with strict consistency: since this proxy started, no other record has named another incarnation for the time of a WAIT
	doubtAt   int64 // when such a record was first found; 0: never
	doubtedAt int64 // when it was last found
}

// claim is what the view record on one server has said about the incarnation of the record on another one.
type claim struct {
	incarnation uint64 // of the record that says it: another record proves nothing
	had         bool   // the record has had the value of this proxy
	value       uint32 // another value, which the record has now; 0: none
	since       int64  // when a ping first found that other value
}

// otherProcess is the reason why a server is suspect that is another process for another proxy.
const otherProcess = "another instance uses another memcached process as this server: give all instances the same address for it, or stop one of the two"

// incarnationHash returns the hash of an incarnation that view records on other servers contain. It is not 0, and at most mostSteps.
func incarnationHash(incarnation uint64) uint32 { return 1 + uint32(incarnation%mostSteps) }

// seen returns the hash of the incarnation of the view record on server j, as this proxy knows it; 0: it knows none.
func (k *Keeper) seen(j int) uint32 {
	if r := &k.servers[j].record; r.entries != nil {
		return incarnationHash(r.incarnation)
	}
	return 0
}

// compares reports whether the record r shows which processes other proxies use. While proxies have different lists of servers, a name
// may belong to two servers.
func (k *Keeper) compares(r *record, now int64) bool {
	return !k.off.Dispute && !k.own && r.hash == k.hash && now >= k.foreignUntil
}

// dispute compares the incarnations that the view record on server i says with those that this proxy knows. before is the
// record that this proxy knew there before. dispute reports whether the record must be written.
func (k *Keeper) dispute(i int, before record, now int64) (write bool) {
	r := &k.servers[i].record
	if !k.compares(r, now) {
		return false
	}
	for j := range k.servers {
		s, mine, theirs := &k.servers[j], k.seen(j), r.seen[j]
		switch {
		case j == i || mine == 0:
		case theirs == 0:
			write = true
		case theirs == mine && (s.claims == nil || s.mine != mine):
		default:
			c := k.claimOf(i, j)
			if theirs == mine {
				*c = claim{incarnation: r.incarnation, had: true}
				continue
			}
			if c.value != theirs {
				c.had = c.had || before.incarnation == r.incarnation && before.hash == k.hash && before.seen[j] == mine
				c.value, c.since = theirs, now
				s.pingAt = min(s.pingAt, now)
			}
			if c.had && s.goodSent >= c.since {
				k.proveDispute(j, now)
			}
			write = write || k.replaces(c, j, now)
		}
	}
	return write
}

// claimOf returns what the view record on server i has said about server j.
func (k *Keeper) claimOf(i, j int) *claim {
	s := &k.servers[j]
	if mine := k.seen(j); s.claims == nil || s.mine != mine {
		s.mine, s.claims = mine, make([]claim, len(k.servers))
	}
	c := &s.claims[i]
	if is := k.servers[i].record.incarnation; c.incarnation != is {
		*c = claim{incarnation: is}
	}
	return c
}

// replaces reports whether this proxy must replace the value that a record says about server j by its own. If the record has had the
// value of this proxy, it waits until all proxies have read the other value.
func (k *Keeper) replaces(c *claim, j int, now int64) bool {
	return k.servers[j].goodSent >= c.since && (!c.had || now >= c.since+standPings*int64(k.pace()))
}

// proveDispute handles the proof that another proxy uses another process as server j.
func (k *Keeper) proveDispute(j int, now int64) {
	s := &k.servers[j]
	first := !k.isDisputed(j, now)
	s.provenAt = now
	if k.set.Stays && first {
		k.event(j, "record", "trouble", otherProcess)
	}
	if k.set.Stays {
		return
	}
	k.markSuspect(j, otherProcess, now)
	if !s.down && !s.stranger {
		s.suspectWhy = otherProcess
	}
}

// isDisputed reports whether another proxy has recently used another process as server j.
func (k *Keeper) isDisputed(j int, now int64) bool {
	s := &k.servers[j]
	return s.provenAt != 0 && now < s.provenAt+foreignPings*int64(k.pace())
}

// knownSeen returns what the record r, to be written to server i, says about the incarnations of other servers.
func (k *Keeper) knownSeen(i int, r *record, now int64) []uint32 {
	seen := make([]uint32, len(k.servers))
	if k.off.Dispute {
		copy(seen, r.seen)
		return seen
	}
	for j := range seen {
		if j == i {
			continue
		}
		if seen[j] = k.seen(j); r.hash != k.hash || r.seen == nil || r.seen[j] == 0 || r.seen[j] == seen[j] {
			continue
		}
		if c := k.claimOf(i, j); seen[j] == 0 || !k.compares(r, now) || c.value != r.seen[j] || !k.replaces(c, j, now) {
			seen[j] = r.seen[j]
		}
	}
	return seen
}

// agree determines which servers this proxy may use with strict consistency, although it has just started. Another proxy that has used the same
// server for longer may use another process. If a record says that, this proxy waits until the record has had its own incarnation for a WAIT. By
// then, the other proxy has a proof, or no valid leases.
func (k *Keeper) agree(now int64) {
	for j := range k.servers {
		s := &k.servers[j]
		if s.agreed || !k.strict() || now >= k.leasedUntil(j) {
			continue
		}
		mine := k.seen(j)
		if k.any(func(i int) bool {
			q := &k.servers[i]
			return i != j && now < q.lease && k.compares(&q.record, now) && q.record.seen[j] != 0 && q.record.seen[j] != mine
		}) {
			s.doubtAt, s.doubtedAt = cmp.Or(s.doubtAt, now), now
		}
		s.agreed = s.doubtAt == 0 || now >= s.doubtedAt+k.wait() || now >= s.doubtAt+foreignPings*int64(k.pace())
	}
}
