package health

// This file implements leases, and the WAIT: the time after which all proxies know a change.
//
// A ping that returns a server's view record grants a lease on the server. For Settings.Lease this
// proxy may act on what the record said when the ping was sent. The lease starts when the ping is
// sent, because the server may have read the record right then. So once a change has been in the
// records of enough servers for the duration of a lease, every proxy with valid leases knows it.

import (
	"math"
	"slices"
	"time"

	"ringside/proxy/health/resize"
)

// view returns the number of view servers. All servers of the pool and of its gutter are view servers.
func (k *Keeper) view() int { return len(k.servers) }

// majority returns the number of view servers on which a proxy needs leases: more than half of them.
// If there are only two view servers, both are needed (but see validUntil).
func (k *Keeper) majority() int { return majorityOf(k.view()) }

func majorityOf(n int) int {
	if n <= 2 {
		return n
	}
	return n/2 + 1
}

// strict reports whether this proxy checks its leases: strict consistency is configured, and is
// possible now. It also returns true while some proxies have other settings. Strict consistency then
// does not hold for commands through those proxies, but it holds among all others.
func (k *Keeper) strict() bool {
	return k.set.Strict && (k.pool == poolKept || k.pool == poolUnlike)
}

// pace returns an upper limit for the interval of pings in all proxies of the pool. The interval of
// proxies with other settings is not known. But it is at most a third of a lease, and leases have
// the same duration in all proxies.
func (k *Keeper) pace() time.Duration {
	if k.unlike {
		return max(k.set.Ping, k.set.Lease/3)
	}
	return k.set.Ping
}

// wait returns the WAIT: the time after which every proxy knows a published change, or has no valid
// leases. With strict consistency it is the duration of a lease plus that of a request sent at the
// end of the lease. A tenth is added because clocks may differ. With relaxed consistency the WAIT is
// two intervals of pings, enough for every proxy that reaches the servers. While other proxies may be
// strict, or ping less often, the WAIT is as with strict consistency.
func (k *Keeper) wait() int64 {
	if !k.strict() && !k.unlike {
		return 2 * int64(k.set.Ping)
	}
	w := int64(k.set.Lease + k.set.Request)
	return w + w/10 + int64(100*time.Millisecond)
}

// shortWait returns the same while all proxies have short leases, and ping four times as often: see Keeper.leaseTime. With
// relaxed consistency it is three of these intervals, and not shorter than a request may take, because a reply that comes later is
// passed on.
func (k *Keeper) shortWait() int64 {
	if !k.strict() && !k.unlike {
		return min(k.wait(), max(3*int64(k.set.Ping)/4, int64(k.set.Request+k.set.Request/10)))
	}
	w := k.shortLease() + int64(k.set.Request)
	return w + w/10 + int64(100*time.Millisecond)
}

// leastLease is the minimum duration of a short lease. A lease that is shorter ends each time that a process stalls.
const leastLease = 500 * time.Millisecond

// shortLease returns the duration of a short lease.
func (k *Keeper) shortLease() int64 {
	return int64(min(k.set.Lease, max(k.set.Lease/4, leastLease)))
}

// leaseTime returns the duration of the lease that a ping grants whose reply has the record r. The lease is short while a pause
// is announced (resize.State.Short), and while a server is in RETURN.
func (k *Keeper) leaseTime(r record) int64 {
	short := k.resize.Mine != 0 && resize.Merge(k.resize.State, r.resize).Short()
	for j, e := range r.entries {
		short = short || PhaseOf(merge(k.servers[j].entry, e).n) == Returning
	}
	if short && !k.off.Short {
		return k.shortLease()
	}
	return int64(k.set.Lease)
}

// PlaceholderLife is the TTL of a placeholder, in seconds. A proxy stores placeholders on a server in
// phase WARM. A proxy that knows the server as IN does not check for placeholders, so they must have
// expired before (see package failover). memcached may expire an item up to one second early, but
// never late.
const PlaceholderLife = 1

// waitOf returns how long the phase number of server i must be in the view records before the next
// step of the server. That is a WAIT, the time after which all proxies know the phase number. In
// SETTLE, the TTL of a placeholder is added: until the end of the WAIT, a proxy that knows the server
// as WARM may store a placeholder. The TTL is increased by a tenth, because clocks may differ.
func (k *Keeper) waitOf(i int) int64 {
	w := k.wait()
	if PhaseOf(k.servers[i].n) == Settling {
		w += PlaceholderLife * int64(11*time.Second/10)
	}
	return w
}

// knownUntil returns until when no other proxy is more than one phase ahead of this proxy, as far as
// the keys of server i depend on it. A phase must be in the view record of server i for a WAIT (see
// Keeper.wait) before the phase after it begins. This proxy knows all phases that its last good ping
// has found in the record. A tenth of the WAIT is subtracted, because clocks may differ.
func (k *Keeper) knownUntil(i int) int64 {
	w := k.wait()
	if !k.strict() { // use the shortest WAIT of any proxy: other proxies may not know yet that this proxy has other settings
		w = 2 * int64(k.set.Ping)
		if PhaseOf(k.servers[i].n) == Returning { // other proxies may change keys in WARM after a short WAIT
			w = min(w, k.shortWait())
		}
	}
	return k.servers[i].goodSent + w - w/10
}

// writesBy returns when commands can probably change the keys of server i, if they can't now because of its phase: when it will be
// Out, if it is Leaving, or when opens is true, if it is Warming. Otherwise it returns 0. Half an interval of pings is added for the last
// ping before that, and for delays in other proxies.
func (k *Keeper) writesBy(i int) int64 {
	switch s := &k.servers[i]; {
	case PhaseOf(s.n) == Leaving:
		return max(s.since+k.wait(), s.until) + int64(k.set.Ping)/2
	case PhaseOf(s.n) == Warming && !s.open:
		return max(s.since+k.shortWait(), s.until) + int64(k.set.Ping)/8
	}
	return 0
}

// recount computes until when this proxy has leases on a majority of the view servers (k.quorum), or on all but those that are OUT
// and removed if these are enough.
func (k *Keeper) recount() {
	leases := k.scratch[:0]
	for i := range k.servers {
		leases = append(leases, k.servers[i].lease)
	}
	slices.Sort(leases)
	k.quorum = leases[len(leases)-k.majority()]
	k.scratch = leases
	removed := func(i int) bool { return k.servers[i].goes && PhaseOf(k.servers[i].n) == Out }
	if k.enough(removed) {
		rest := int64(math.MaxInt64)
		for i := range k.servers {
			if !removed(i) {
				rest = min(rest, k.servers[i].lease)
			}
		}
		k.quorum = max(k.quorum, rest)
	}
}

// enough reports whether leases on all view servers are enough, except on those for which the function removed returns true: the
// configuration does not have these any more, so no proxy with that configuration serves with leases on them only. The others must be in each
// majority of the view servers. While no change has begun, they must also be in each majority of the list in force, because other proxies may
// not have the configuration yet. So with an even number of servers, half of them are enough.
func (k *Keeper) enough(removed func(i int) bool) bool {
	meets := func(in func(i int) bool) bool {
		rest, all := k.count(in, func(i int) bool { return !removed(i) })
		return rest > all-majorityOf(all)
	}
	if k.off.Enough || k.resize.Mine == 0 || !k.any(removed) {
		return false
	}
	return meets(func(int) bool { return true }) && (k.resize.Stage() != resize.Stable || meets(k.inUse))
}

// validUntil returns until when this proxy may use server i: while it has leases on server i
// and on a majority of the view servers. If there are only two view servers and the other
// server is OUT, the lease on server i is enough.
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
	return k.count(wanted, func(i int) bool { return now < k.servers[i].lease })
}

// count returns the number of servers for which the function of returns true (all), and for how many of them the function is
// returns true, too (n).
func (k *Keeper) count(of, is func(i int) bool) (n, all int) {
	for i := range k.servers {
		if of(i) {
			all++
			if is(i) {
				n++
			}
		}
	}
	return n, all
}

// reaches reports whether this proxy has leases on enough other servers to eject server i. A
// proxy that reaches few servers must not decide.
func (k *Keeper) reaches(i int, now int64) bool {
	if k.strict() {
		have, _ := k.leases(now, func(j int) bool { return j != i })
		removed := func(j int) bool { return k.servers[j].goes && (!k.present(j) || k.isDead(j, now)) }
		lacks := func(j int) bool { return now >= k.servers[j].lease && !removed(j) }
		return have >= min(k.majority(), k.view()-1) || removed(i) && k.enough(removed) && !k.any(lacks)
	}
	have, all := k.leases(now, func(j int) bool { return j != i && k.present(j) && !k.waiting(j) })
	return all > 0 && have >= majorityOf(all)
}

// present reports whether server i is neither LEAVING nor OUT. Only the view records of such servers
// must contain a published change before the change is in force.
func (k *Keeper) present(i int) bool {
	p := PhaseOf(k.servers[i].n)
	return p != Leaving && p != Out
}

// waited reports (done) whether every proxy knows the phase number of server i by now, or has no
// valid leases. For this, the number must have been in enough view records for the time of waitOf
// without interruption, and a ping after that must have found it there. Enough means all servers
// that are not LEAVING or OUT, and so many servers that every majority includes one of them. If done
// is false, until is the time at which it will probably be true; 0: unknown.
//
// Without strict consistency, servers that this proxy can't reach are ignored.
func (k *Keeper) waited(i int, now int64) (done bool, until int64) {
	return k.replicated(i, k.servers[i].since, k.servers[i].held, k.waitOf(i), now)
}

// replicated reports (done) whether every proxy knows some content of the view records by now, or
// has no valid leases: see waited. `since` is when the content was published. For each server, held
// is the time from which its view record has contained the content; 0: it does not contain it. The
// content is about server i; -1: about no server. wait is how long the content must have been in
// the records. If done is false, until is the time at which it will probably be true; 0: unknown.
func (k *Keeper) replicated(i int, since int64, held []int64, wait, now int64) (done bool, until int64) {
	holders := 0
	done, until = true, since+wait
	for j := range k.servers {
		q := &k.servers[j]
		due := held[j] + wait
		switch {
		case held[j] != 0 && q.goodSent >= due:
			holders++
		case !k.present(j), !k.strict() && (q.suspect || q.lacks != "") && j != i:
		default:
			done = false
			if held[j] == 0 {
				due = math.MaxInt64
			} else if now >= due && q.good > 0 {
				q.pingAt = min(q.pingAt, now) // ping now: done requires a ping after the wait
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
