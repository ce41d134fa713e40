package health

// This file moves the servers of a pool from phase to phase. Every proxy checks all servers, and
// takes every step that is due. Several proxies may take the same step, because all of them write
// the same phase number. While a server rejoins, each proxy first waits for a short random time
// (jitter), so that usually only one proxy takes the step. An ejection has no jitter, because
// clients get errors until it is done.

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"ringside/proxy/health/barrier"
	"ringside/proxy/health/resize"
)

const (
	onlyTime = int64(30 * time.Second) // the maximum delay of the ejection of a server that may have the last copy of a key
	tellTime = int64(2 * time.Second)  // how long after a server has rejoined every loop has reported whether the server lacks replicas
	warmTime = int64(60 * time.Second) // the maximum time that a server stays WARM under OnRejoin Warm
	stayTime = int64(time.Minute)      // with Settings.Stays, how long a silent server that the next list has is not ejected
)

// The states of a pool as a whole, as reported to operators.
const (
	poolKept     = "kept"
	poolForeign  = "other-servers"  // instances have different lists of servers
	poolUnlike   = "other-settings" // instances have different settings of consistency or ping
	poolNoMeta   = "suspect-only"   // a server has no meta commands or no cas, so no server of the pool is ejected
	serverNoMeta = "a server doesn't know meta commands"
	serverNoCas  = "a server has no cas: start memcached without -C"
)

// stepSoon makes a step after a reply. The work of a step grows with the square of the number of servers, and so does
// the number of replies after an outage of many servers. So in a large pool, Tick makes one step for many replies.
func (k *Keeper) stepSoon(now int64) {
	n := int64(len(k.servers))
	if pause := n * n / 10_000 * int64(time.Millisecond); now < k.stepped+pause {
		k.next = min(k.next, k.stepped+pause)
		return
	}
	k.step(now)
}

// step does everything that is due now, for all servers of the pool, and sets the time of the next
// call.
func (k *Keeper) step(now int64) {
	k.stepped = now
	for i := range k.servers {
		if s := &k.servers[i]; s.since == 0 && PhaseOf(s.n) != In { // the server entered its phase before this keeper started
			s.since = now
		}
	}
	k.nameCounters()
	k.judge(now)
	for i := range k.servers {
		k.drive(i, now)
	}
	k.advanceHandover(now)
	k.advanceResize(now)
	k.driveLists(now)
	k.driveFormers(now)
	k.vote(now)
	k.callRoll(now)
	k.ping(now)
	k.schedule(now)
}

func (k *Keeper) schedule(now int64) {
	k.next = k.voteAt
	for _, until := range [...]int64{k.foreignUntil, k.unlikeUntil} {
		if now < until {
			k.next = min(k.next, until)
		}
	}
	if k.roll.self.ID != 0 {
		k.next = min(k.next, k.roll.at)
	}
	if k.resize.Seeks && now < k.search.until {
		k.next = min(k.next, k.search.until)
	}
	if k.formers.seeks && now < k.formers.until {
		k.next = min(k.next, k.formers.until)
	}
	for i := range k.servers {
		s := &k.servers[i]
		if !s.pinging {
			k.next = min(k.next, s.pingAt)
		}
		for _, at := range [...]int64{s.goAt, s.until} {
			if at > now {
				k.next = min(k.next, at)
			}
		}
	}
}

// judge determines the state of the pool as a whole (one of poolKept to poolNoMeta). It also
// determines whether so many servers are suspect that none may be ejected.
func (k *Keeper) judge(now int64) {
	k.unlike = now < k.unlikeUntil
	pool, cause := poolKept, ""
	switch {
	case k.shortcoming() != "":
		pool, cause = poolNoMeta, k.shortcoming()
	case now < k.foreignUntil:
		pool = poolForeign
		cause = "instances have different server lists: a view record was written under another list, by another instance or by this one before a reload"
	case k.unlike:
		pool = poolUnlike
		cause = "instances have a different consistency or ping: a view record was written with other settings, by another instance or by this one before a reload"
	case k.pool == poolForeign:
		cause = "all instances have had the same server list for some time"
	case k.pool == poolUnlike:
		cause = "all instances have had the same consistency and ping for some time"
	default:
		cause = "all servers can have view records"
	}
	if pool != k.pool {
		k.event(-1, k.pool, pool, cause)
		k.pool = pool
	}
	k.strange = pool == poolForeign && (now < k.strangeUntil || k.resize.Serves() == resize.Nothing)
	hangs := k.resize.Stage() != resize.Stable && !k.off.Hang && k.hangs(now)
	for g := range k.open {
		suspect, all := k.count(func(i int) bool { return k.group(i) == g && !k.waiting(i) }, func(i int) bool { return k.servers[i].suspect })
		// While keys move, the servers of each list count for themselves, because they may all hang for the same reason. After a
		// while they do not, because the change must end.
		open := 2*suspect > all || g == 0 && hangs
		if open {
			k.closed[g] = now
		}
		if open != k.open[g] {
			k.open[g] = open
			from, to := "closed", "fail-open"
			if !open {
				from, to = to, from
			}
			if !k.set.Stays {
				k.event(-1, from, to, fmt.Sprintf("%d of %d servers are suspect", suspect, all))
			}
		}
	}
	k.judgeGone(now)
}

// shortcoming returns why no server of the pool can be ejected: a server can't have a view record that
// proxies replace. It returns "" if there is no such server.
func (k *Keeper) shortcoming() (why string) {
	for i := range k.servers {
		why = cmp.Or(why, k.servers[i].lacks)
	}
	return why
}

// judgeGone determines whether none of the pool's own servers replies. Proxies can then neither
// vote nor publish a phase, so no server is ejected, however long the outage lasts.
func (k *Keeper) judgeGone(now int64) {
	gone := !k.set.Stays && !k.any(func(i int) bool {
		return k.group(i) == 0 && !(k.servers[i].suspect && now >= k.ejectAt(i, now))
	})
	if gone == k.gone {
		return
	}
	k.gone = gone
	k.gen++
	if gone {
		k.event(-1, "fail-open", "gone", "no server of the pool answers")
	} else {
		k.event(-1, "gone", "back", "a server of the pool answers")
	}
}

// any reports whether the function `is` returns true for any server.
func (k *Keeper) any(is func(i int) bool) bool {
	for i := range k.servers {
		if is(i) {
			return true
		}
	}
	return false
}

// group returns 0 if server i is one of the pool's own, and 1 if it belongs to the pool's gutter.
func (k *Keeper) group(i int) int {
	if k.members[i].Gutter {
		return 1
	}
	return 0
}

// become makes e the entry of server i, which has its phase number and its overrides. If the phase
// changes, become resets everything that belongs to the previous phase. why is for logs.
func (k *Keeper) become(i int, e entry, why string, now int64) {
	s := &k.servers[i]
	was := s.entry
	if e == was {
		return
	}
	s.entry = e
	if was.override() != e.override() {
		s.down = s.down && e.override() == Down
		k.event(i, overrideEvent(was), overrideEvent(e), why)
	}
	if e.n == was.n && e.renamed == was.renamed {
		return
	}
	if s.since = now; PhaseOf(was.n) != Leaving || PhaseOf(e.n) != Out { // else the reason for which it leaves remains
		s.why = why
	}
	s.goTo, s.goAt, s.until = 0, 0, 0
	s.flush, s.warm, s.open = flushing{}, warmth{}, false
	s.held = nil
	here := k.present(i)
	s.stranger = s.stranger && here // an ejected server is flushed before it rejoins, so a foreign process (stranger) there does no more harm
	s.inherited = s.inherited && unflushed(PhaseOf(e.n))
	s.known = s.known && here // the process of an ejected server is identified again: a memcached that restarts with its old memory also has its old view record
	if p := PhaseOf(e.n); p != In && p != Out {
		s.held = make([]int64, len(k.servers))
	}
	k.gen++
	if from, to := PhaseOf(was.n), PhaseOf(e.n); from != to || e.renamed != was.renamed { // a reload that removes a server that is OUT starts another outage of it
		k.event(i, from.String(), to.String(), why)
	}
}

func overrideEvent(e entry) string {
	if e.override() == Restore {
		return "no order"
	}
	return "ordered " + e.override().String()
}

// publish adopts e, which this proxy has decided, as the entry of server i. It then pings all servers,
// so that e is written to their view records.
func (k *Keeper) publish(i int, e entry, why string, now int64) {
	k.become(i, e, why, now)
	k.pingAllNow(now)
}

// pingAllNow pings all servers now, so that the latest state is written to their view records.
func (k *Keeper) pingAllNow(now int64) {
	for j := range k.servers {
		k.servers[j].pingAt = min(k.servers[j].pingAt, now) // the reply to this ping contains the cas that is needed to write the view record
	}
}

// apartPings is how long, in pings, a handover waits for an instance with the same servers that keeps replicas on others of them, as the
// list of instances says. After that, it goes on: perhaps that instance has another configuration for good.
const apartPings = 120

// advanceHandover moves a handover to its next stage if that is due.
func (k *Keeper) advanceHandover(now int64) {
	replicated := func() bool {
		done, _ := k.replicated(-1, k.barrier.Since, k.barrier.Held, k.wait(), now)
		return done
	}
	if k.barrier.Withheld {
		k.told.since = cmp.Or(k.told.since, now)
		known, _ := k.replicated(-1, k.told.since, k.told.held, k.wait(), now)
		k.barrier.Withheld = !known && now < k.told.since+foreignPings*int64(k.pace()) // limited, because an unreachable server must not block writes
	}
	agreed := now >= k.foreignUntil && !(k.roll.apart != "" && barrier.Of(k.barrier.N) == barrier.Waiting && now < k.barrier.Since+apartPings*int64(k.pace()))
	if k.barrier.Step(k.hash, now, agreed, replicated, k.pace()) {
		k.pingAllNow(now)
	}
}

// drive moves server i to its next phase when that is due. Steps to LEAVING and OUT are
// taken at once, because no server serves the keys until OUT. Before other steps, drive
// waits for a short random time (jitter).
func (k *Keeper) drive(i int, now int64) {
	s := &k.servers[i]
	s.until = 0
	n, why := k.ahead(i, now)
	if n != s.goTo {
		s.goTo, s.goAt = n, 0
		if p := PhaseOf(n); n != 0 {
			s.goAt = now
			if p != Leaving && p != Out {
				s.goAt += k.jitter(int64(k.set.Lease) / 4)
			}
		}
	}
	if n != 0 && now >= s.goAt {
		e := s.entry
		e.n = n
		k.publish(i, e, why, now)
	}
}

// ahead returns the phase number to which server i is ready to move, and why; 0: none. It also sets
// the server's field step, which describes for operators what happens next.
func (k *Keeper) ahead(i int, now int64) (n uint32, why string) {
	s := &k.servers[i]
	phase := PhaseOf(s.n)
	if phase != Leaving && phase != Out {
		if why, ok := k.leaves(i, now); ok {
			return k.leaving(i), why
		}
	}
	switch phase {
	case Leaving:
		// OUT must follow, even if the server replies again: other proxies may already be in OUT.
		if k.off.Out && s.good >= goodPings {
			return s.n + 2, "ablation"
		}
		if k.settled(i, "next: OUT", now) || k.off.EjectWait {
			return s.n + 1, "all instances know that it leaves"
		}
	case Out:
		if why, ok := k.returns(i, now); ok {
			return s.n + 1, why
		}
	case Returning:
		if k.settled(i, "next: flush", now) || k.off.ReturnWait {
			k.driveFlush(i, now)
		}
	case Warming:
		if k.opens(i, now) && k.settled(i, "next: SETTLE", now) && k.isWarm(i, now) {
			if k.off.Settle {
				return s.n + 2, "ablation"
			}
			return s.n + 1, "all instances write to it"
		}
	case Settling:
		if k.settled(i, "next: IN", now) {
			return s.n + 1, "all instances read from it and delete on its substitute servers"
		}
	}
	return 0, ""
}

// settled reports whether all proxies know the phase number of server i (see Keeper.waited). It also
// sets the server's field step, which describes for operators what the keeper waits for.
func (k *Keeper) settled(i int, next string, now int64) bool {
	done, until := k.waited(i, now)
	s := &k.servers[i]
	s.step = next
	switch {
	case done:
	case until == 0:
		s.step = next + ", waits for a server to store the view record"
	default:
		s.step = next + ", waits until all instances must have read the view record"
		s.until = until
	}
	return done
}

// opens reports whether commands may change the keys of server i, which is in WARM: no proxy knows it as in RETURN, where the
// substitute server decides. All proxies have known RETURN since before the flush. Since then they have short leases.
func (k *Keeper) opens(i int, now int64) bool {
	s := &k.servers[i]
	if s.open {
		return true
	}
	s.open, s.until = k.replicated(i, s.since, s.held, k.shortWait(), now)
	s.open = s.open || k.off.Early
	s.step = "next: writes, when all instances must have read the view record"
	return s.open
}

// leaves reports whether server i must be ejected now, and why. The server may be in any phase but
// LEAVING and OUT. If it must not, leaves describes the reason for operators, in the field step.
func (k *Keeper) leaves(i int, now int64) (why string, ok bool) {
	s := &k.servers[i]
	s.step = ""
	if s.override() != Restore {
		s.step = "next: LEAVING, by an operator"
		return "by an operator", true
	}
	unfit := s.unfit && !s.suspect && PhaseOf(s.n) == In
	if !s.suspect && !unfit || !k.ejects(i) {
		return "", false
	}
	ejectAt := k.ejectAt(i, now)
	if s.refused.since == 0 { // if most servers hang and go on together, the first one that replies ends fail-open
		ejectAt = max(ejectAt, k.closed[k.group(i)]+int64(k.set.EjectAfter.Silent))
	}
	switch {
	case k.pool == poolNoMeta && (unfit || s.stranger):
		s.step = "must be flushed, but can't be: " + k.shortcoming()
	case k.parting:
		s.step = "stays: since a reload, the keys of the pool do not move"
	case k.pool == poolNoMeta:
		s.step = "suspect for this instance only: " + k.shortcoming()
	case unfit && k.onlyCopy(i, now):
		s.step = "will be flushed when the other servers are complete"
	case (unfit || s.stranger) && !(k.relieved(i) && k.reaches(i, now)):
		s.step = "will be flushed when other servers can take over"
	case unfit:
		s.step = "next: LEAVING"
		return "it has missed more writes than are remembered, so it is flushed", true
	case s.stranger:
		s.step = "next: LEAVING"
		return s.suspectWhy, true
	case now < ejectAt:
		s.step, s.until = "next: LEAVING, if it does not answer", ejectAt
		if last := ejectAt - int64(k.set.Ping)/2; s.memory != memoryLost && now < last { // a server that is back a ping before ejectAt is then noticed in time
			s.pingAt = min(s.pingAt, last)
		}
	case s.good > 0 && s.memory != memoryLost:
		s.step = "next: up, if it answers another ping"
	case now < s.rejected+int64(k.set.Ping) && s.memory != memoryLost:
		s.step, s.until = "next: LEAVING, if it does not answer", s.rejected+int64(k.set.Ping)
	case k.onlyCopy(i, now) && now < s.suspectSince+onlyTime:
		s.step, s.until = "stays: another server is not complete, so this one may have the only replica of a key", s.suspectSince+onlyTime
	case k.open[k.group(i)]:
		s.step = "stays: more than half of the servers are suspect, so it may be this instance that is cut off"
	case !k.relieved(i):
		s.step = "stays: no other server could take over"
	case !k.reaches(i, now):
		s.step = "stays: this instance reaches too few of the others"
	default:
		switch k.countVotes(i, now) {
		case noData, notAsked:
			s.step = "next: LEAVING, if most instances suspect it too"
		case reachable:
			s.step = "stays: most instances reach it"
		default:
			s.step = "next: LEAVING"
			return s.suspectWhy, true
		}
	}
	return "", false
}

// ejects reports whether server i may be ejected if it fails. With Settings.Stays, it may only while the server
// list changes: an old owner of keys that move then counts as empty, and the change does not wait for a server
// that the next list lacks.
func (k *Keeper) ejects(i int) bool {
	return !k.set.Stays || k.resize.Stage() != resize.Stable || k.servers[i].goes
}

// ejectAt returns the time from which server i may be ejected, because its suspicion has lasted long
// enough. The shorter time for refused connections applies only if the server still refuses
// connections at the end of that time, because it may have restarted in between.
func (k *Keeper) ejectAt(i int, now int64) int64 {
	s := &k.servers[i]
	silent := s.suspectSince + int64(k.set.EjectAfter.Silent)
	if s.memory != memoryLost && !k.off.Restart { // the flush after an ejection would remove items that the server has kept over its restart
		silent = s.suspectSince + int64(max(k.set.EjectAfter.Silent, k.set.EjectAfter.Restart))
	}
	if k.set.Stays && !s.goes { // the server goes on with its items when it replies again
		silent = s.suspectSince + max(stayTime, silent-s.suspectSince)
	}
	refused := s.refused.since + int64(k.set.EjectAfter.Refused)
	switch {
	case s.refused.since == 0 || now >= silent:
		return silent
	case s.refused.last >= refused || now < refused:
		return min(silent, refused)
	}
	s.pingAt = min(s.pingAt, now) // ping once more: this ping shows whether the server still refuses connections
	return silent
}

// onlyCopy reports whether server i may have the last copy of a key, so that it must
// not be ejected and flushed. A server that refuses connections has lost its data, so the
// result is false, unless it has restartable memory (refusalMeansLoss). The result is true while a
// reload that removes a server is in progress, because keys of the removed server have one replica
// less.
func (k *Keeper) onlyCopy(i int, now int64) bool {
	switch {
	case k.off.OnlyCopy || k.servers[i].refused.since != 0:
		return false
	case k.servers[i].needed:
		return true
	case !k.copies:
		return false
	case k.pool == poolForeign, len(k.departed) > 0 && !k.barrier.Settled:
		return true
	}
	return k.any(func(j int) bool {
		o := &k.servers[j]
		returned := o.n >= phases && now < o.since+tellTime
		return j != i && k.group(j) == k.group(i) && (PhaseOf(o.n) != In || returned || o.refused.since != 0 || k.lacks(j))
	})
}

// relieved reports whether there is a substitute server for the keys of server i.
func (k *Keeper) relieved(i int) bool {
	gutter := k.members[len(k.members)-1].Gutter
	return k.any(func(j int) bool {
		s := &k.servers[j]
		return j != i && k.members[j].Gutter == gutter && PhaseOf(s.n) == In && !s.suspect
	})
}

// returns reports whether server i, which is OUT, must rejoin now, and why. If it must not, returns
// describes the reason for operators, in the field step.
func (k *Keeper) returns(i int, now int64) (why string, ok bool) {
	s := &k.servers[i]
	switch {
	case s.override() != Restore:
		s.step = "stays out, by an operator"
	case k.pool == poolNoMeta:
		s.step = "stays out: " + k.shortcoming()
	case now+foreignPings/2*int64(k.pace()) < k.foreignUntil && k.copies && k.removed(i):
		// A proxy without the server does not write to it. Such a proxy is noticed again within half of
		// foreignPings. A longer wait would end after the keys of a server that is added again have moved.
		s.step = "stays out: an instance had no such server in the pool some seconds ago"
	case s.suspect || s.good < goodPings:
		s.step = "next: RETURN, when it answers"
	default:
		switch opinion := k.countVotes(i, now); {
		case opinion == rejected:
			s.step = "stays out: most instances don't reach it"
		case opinion == noData:
			s.step = "next: RETURN, when the other instances have reported whether they reach it"
		case k.strict() && now >= k.quorum:
			s.step = "stays out: this instance reaches too few of the others"
		default:
			s.step = "next: RETURN"
			return "it answers again", true
		}
	}
	return "", false
}

var (
	errAlone = errors.New("no other server could take over: restore one first")
	errFew   = errors.New("this instance reaches too few of the other servers: use another instance")
)

// override applies an operator's override o to server i. It returns an error if no other server can
// serve the keys, or if this proxy reaches too few servers to decide.
func (k *Keeper) override(i int, o Override, now int64) error {
	s := &k.servers[i]
	if s.down = o == Down; s.down {
		k.markSuspect(i, "by an operator", now)
	}
	if o != Restore && k.present(i) {
		if !k.relieved(i) {
			return errAlone
		}
		if !k.reaches(i, now) {
			return errFew
		}
	}
	s.stranger = s.stranger && o != Restore
	e := s.entry.overridden(o)
	if o != Restore && k.present(i) {
		e.n = k.leaving(i)
	}
	k.order(i, o, e, now)
	return nil
}

func (k *Keeper) isWarm(i int, now int64) bool {
	s := &k.servers[i]
	end := s.since + warmTime
	if k.set.OnRejoin != Warm || s.warm.Enough || now >= end {
		return true
	}
	s.step, s.until = "next: SETTLE, when it answers most reads itself", end
	return false
}

func (k *Keeper) event(i int, from, to, why string) {
	k.events = append(k.events, Event{Server: i, From: from, To: to, Why: why})
}

// jitter returns a random time from 0 up to limit, exclusive.
func (k *Keeper) jitter(limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return k.random.Int64N(limit)
}
