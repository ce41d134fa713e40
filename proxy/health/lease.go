package health

// Leases, and the WAIT that is based on them.
//
// A ping that returns a server's record grants a lease. For Settings.Lease this proxy may act on
// what the record said when the ping was sent. The lease starts when the ping is sent, because the
// server may have read the record right then. So once a change has been published on enough servers
// for the duration of a lease, every proxy with valid leases knows it.

import (
	"math"
	"slices"
	"time"
)

// view returns the number N of view servers: all servers have view records.
func (k *Keeper) view() int { return len(k.servers) }

// majority returns R, the number of view servers on which a proxy needs leases. Two
// servers have no majority, so both are needed (but see validUntil).
func (k *Keeper) majority() int { return majorityOf(k.view()) }

func majorityOf(n int) int {
	if n <= 2 {
		return n
	}
	return n/2 + 1
}

// strict reports whether this proxy checks its leases: strict consistency is configured and can be
// kept now. It also returns true while other proxies have other settings. The guarantee then does
// not hold for commands through those proxies, but it holds among all others.
func (k *Keeper) strict() bool {
	return k.set.Strict && (k.pool == poolKept || k.pool == poolUnlike)
}

// pace returns the longest interval of pings in any proxy of the pool. If other proxies have
// another interval, it is not known, but it is at most a third of a lease, and all proxies have the
// same lease.
func (k *Keeper) pace() time.Duration {
	if k.unlike {
		return max(k.set.Ping, k.set.Lease/3)
	}
	return k.set.Ping
}

// wait returns the WAIT: how long a published change needs to reach all proxies that
// may act on it. With Strict that is a lease plus the duration of a request sent at its
// end. A tenth is added because clocks may differ. Without Strict it is two pings,
// enough for any proxy that can reach the servers. If other proxies may be strict, or ping
// less often, it is as with Strict.
func (k *Keeper) wait() int64 {
	if !k.strict() && !k.unlike {
		return 2 * int64(k.set.Ping)
	}
	w := int64(k.set.Lease + k.set.Request)
	return w + w/10 + int64(100*time.Millisecond)
}

// PlaceholderLife is the TTL of a placeholder, in seconds. Proxies in WARM leave them, and
// those in IN don't check for them (see package failover). memcached may expire an item up
// to one second early, but never late.
const PlaceholderLife = 1

// waitOf returns how long the number of server i must be in the records before the server's next
// step. In SETTLE that is a WAIT, after which no proxy acts as in WARM any more, plus the TTL of a
// placeholder that one has made until then. A tenth is added because clocks may differ.
func (k *Keeper) waitOf(i int) int64 {
	w := k.wait()
	if PhaseOf(k.servers[i].n) == Settling {
		w += PlaceholderLife * int64(11*time.Second/10)
	}
	return w
}

// knownUntil returns until when no other proxy is more than one phase ahead of what this proxy
// knows, about any server, if the keys of server i depend on it. The next phase must be in the
// record of server i for a WAIT before the phase after it begins, and the last good ping has not
// found the next phase there. A tenth is subtracted because clocks may differ.
func (k *Keeper) knownUntil(i int) int64 {
	w := k.wait()
	if !k.strict() { // other proxies may not know yet that this proxy has other settings
		w = 2 * int64(k.set.Ping)
	}
	return k.servers[i].goodSent + w - w/10
}

// outBy returns when server i, which is Leaving, will probably be Out, and 0 for other
// servers. It adds half a ping for the final check and for CPU delays in other proxies.
func (k *Keeper) outBy(i int) int64 {
	if s := &k.servers[i]; PhaseOf(s.n) == Leaving {
		return max(s.since+k.wait(), s.until) + int64(k.set.Ping)/2
	}
	return 0
}

// recount computes until when this proxy has R leases.
func (k *Keeper) recount() {
	leases := k.scratch[:0]
	for i := range k.servers {
		leases = append(leases, k.servers[i].lease)
	}
	slices.Sort(leases)
	k.quorum = leases[len(leases)-k.majority()]
	k.scratch = leases
}

// validUntil returns until when server i may be used: while this proxy has leases on it
// and on R view servers. With two servers one lease is enough if the other server is
// OUT.
func (k *Keeper) validUntil(i int) int64 {
	if !k.strict() {
		return math.MaxInt64
	}
	if k.view() == 2 && PhaseOf(k.servers[1-i].n) == Out {
		return k.servers[i].lease
	}
	return min(k.servers[i].lease, k.quorum)
}

// leases returns the number of servers for which the function wanted returns true (all), and on how
// many of them this proxy has a lease (have).
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

// reaches reports whether this proxy reaches enough other servers to eject server i. A
// proxy that reaches few servers should not decide.
func (k *Keeper) reaches(i int, now int64) bool {
	if k.strict() {
		have, _ := k.leases(now, func(j int) bool { return j != i })
		return have >= min(k.majority(), k.view()-1)
	}
	have, all := k.leases(now, func(j int) bool { return j != i && k.present(j) })
	return all > 0 && have >= majorityOf(all)
}

// present reports whether a published change must be in the record of server i before it is in
// force: the server is not LEAVING or OUT.
func (k *Keeper) present(i int) bool {
	p := PhaseOf(k.servers[i].n)
	return p != Leaving && p != Out
}

// waited reports whether every proxy knows the number of server i by now, or has no
// valid leases. That is so if the number has been in enough records for a WAIT (in
// SETTLE longer: waitOf) without interruption, and a ping after that has found it there.
// Enough is every server that is not LEAVING or OUT, and N-R+1 in all, so that any R
// leases include one of them. If not done, until is when it will be; 0: unknown.
//
// Without the guarantee of Strict, servers that this proxy can't reach are ignored.
func (k *Keeper) waited(i int, now int64) (done bool, until int64) {
	return k.replicated(i, k.servers[i].since, k.servers[i].held, k.waitOf(i), now)
}

// replicated is like waited, for any content of the records. The parameter `since` is when that
// content was published. For each server, held is the time from which its record has contained it;
// 0: it does not. The content is about server i, or about no server if i is -1. wait is how long
// the content must have been in the records.
func (k *Keeper) replicated(i int, since int64, held []int64, wait, now int64) (done bool, until int64) {
	holders := 0
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
				q.pingAt = min(q.pingAt, now) // the final check
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
