package health

// Leases, and the waiting that rests on them.
//
// A ping that brings a server's record is a lease on it: this proxy now knows
// all that the record said when the ping was sent, and may act on that for
// Settings.Lease. It counts from the sending, because the server may have
// answered right then. What is published on enough servers is therefore known,
// one lease later, to everybody who still may act.

import (
	"math"
	"slices"
	"time"
)

// view is the number of view servers: all members are.
func (k *Keeper) view() int { return len(k.servers) }

// majority is R, how many view servers a proxy needs leases of. Two servers
// have no majority, both are needed (but see validUntil).
func (k *Keeper) majority() int { return majorityOf(k.view()) }

func majorityOf(n int) int {
	if n <= 2 {
		return n
	}
	return n/2 + 1
}

// strict says whether the guarantee is to be kept and can be.
func (k *Keeper) strict() bool { return k.set.Strict && k.pool == poolKept }

// wait is how long what was published takes to be known to all who may act on
// it. Strict: a lease, and the time of a request that was sent at its end; clocks
// may differ by a tenth. Else two pings are enough for everybody who isn't cut off.
func (k *Keeper) wait() int64 {
	if !k.strict() {
		return 2 * int64(k.set.Ping)
	}
	w := int64(k.set.Lease + k.set.Request)
	return w + w/10 + int64(100*time.Millisecond)
}

// outBy is by when server i, which is Leaving, is likely to be Out; 0 for others. For
// the last look, and for processors that others have, it adds half a ping.
func (k *Keeper) outBy(i int) int64 {
	if s := &k.servers[i]; PhaseOf(s.n) == Leaving {
		return max(s.since+k.wait(), s.until) + int64(k.set.Ping)/2
	}
	return 0
}

// recount finds until when this proxy has R leases.
func (k *Keeper) recount() {
	leases := k.scratch[:0]
	for i := range k.servers {
		leases = append(leases, k.servers[i].lease)
	}
	slices.Sort(leases)
	k.quorum = leases[len(leases)-k.majority()]
	k.scratch = leases
}

// validUntil is how long a server may be used: as long as there are leases of
// it and of R view servers. Of two servers one will do when the other is OUT.
func (k *Keeper) validUntil(i int) int64 {
	if !k.strict() {
		return math.MaxInt64
	}
	if k.view() == 2 && PhaseOf(k.servers[1-i].n) == Out {
		return k.servers[i].lease
	}
	return min(k.servers[i].lease, k.quorum)
}

// leases counts the servers that this proxy has a lease of and that are wanted.
func (k *Keeper) leases(now int64, wanted func(i int) bool) (have, all int) {
	for i := range k.servers {
		if wanted(i) {
			all++
			if now < k.servers[i].lease {
				have++
			}
		}
	}
	return have, all
}

// reaches says whether this proxy reaches enough others to take server i out.
// That is policy: who sees little should not decide.
func (k *Keeper) reaches(i int, now int64) bool {
	if k.strict() {
		have, _ := k.leases(now, func(j int) bool { return j != i })
		return have >= min(k.majority(), k.view()-1)
	}
	have, all := k.leases(now, func(j int) bool { return j != i && k.present(j) })
	return all > 0 && have >= majorityOf(all)
}

// present says whether a server must hold what is published.
func (k *Keeper) present(i int) bool {
	p := PhaseOf(k.servers[i].n)
	return p != Leaving && p != Out
}

// waited says whether everybody knows the number of server i by now, or may not
// act: its record has been on enough servers for a WAIT, without a gap, and a
// last look after that has found it still there on each of them. Enough is
// every server that isn't LEAVING or OUT, and N-R+1 in all, so that any R leases
// have one of them among them. If not, until is when it will be so; 0: not known.
//
// A proxy that does not keep the guarantee waits for no server that it can't reach.
func (k *Keeper) waited(i int, now int64) (done bool, until int64) {
	return k.stood(i, k.servers[i].since, k.servers[i].held, now)
}

// stood is waited for whatever a record says since a time, of server i or, if that is -1, of
// none. held is since when each server has had it in its record.
func (k *Keeper) stood(i int, since int64, held []int64, now int64) (done bool, until int64) {
	wait, holders := k.wait(), 0
	done, until = true, since+wait
	for j := range k.servers {
		q := &k.servers[j]
		due := held[j] + wait
		switch {
		case held[j] != 0 && q.goodSent >= due:
			holders++
		case !k.present(j), !k.strict() && (q.suspect || q.noMeta) && j != i:
		default:
			done = false
			if held[j] == 0 {
				due = math.MaxInt64
			} else if now >= due && q.good > 0 {
				q.pingAt = min(q.pingAt, now) // the last look
			}
			until = max(until, due)
		}
	}
	if k.strict() && holders <= k.view()-k.majority() || now < since+wait {
		done = false
	}
	if until == math.MaxInt64 || until <= now {
		until = 0
	}
	return done, until
}
