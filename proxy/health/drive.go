package health

// The steps from phase to phase. Every proxy checks all servers and does every step
// that is ready. Several proxies may take the same step, because all of them write the
// same number. While a server rejoins, a little jitter makes it likely that only one
// acts first. An ejection has no jitter, because clients get errors until it is done.

import (
	"errors"
	"fmt"
	"time"
)

const (
	onlyTime = int64(30 * time.Second) // the maximum delay of the ejection of a silent server that may have the last copy of a key
	tellTime = int64(2 * time.Second)  // time after a server has rejoined until all loops have reported which replicas it lacks
	warmTime = int64(60 * time.Second) // the maximum time that a server stays WARM under OnRejoin Warm
)

// The states of a pool as a whole.
const (
	poolKept     = "kept"
	poolForeign  = "other-servers"  // instances have different lists of servers
	poolUnlike   = "other-settings" // instances have different settings of consistency or ping
	poolNoMeta   = "suspect-only"   // servers become suspect, and are not ejected
	serverNoMeta = "a server doesn't know meta commands"
)

// step runs everything that is due.
func (k *Keeper) step(now int64) {
	for i := range k.servers {
		if s := &k.servers[i]; s.since == 0 && PhaseOf(s.n) != In { // the server entered its phase before this keeper started
			s.since = now
		}
	}
	k.judge(now)
	for i := range k.servers {
		k.drive(i, now)
	}
	k.advanceHandover(now)
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

// judge determines the state of the pool as a whole: see the constants pool….
func (k *Keeper) judge(now int64) {
	k.unlike = now < k.unlikeUntil
	pool, cause := poolKept, ""
	switch {
	case k.any(func(i int) bool { return k.servers[i].noMeta }):
		pool, cause = poolNoMeta, serverNoMeta
	case now < k.foreignUntil:
		pool = poolForeign
		cause = "instances have different server lists: a view record was written under another list, by another instance or by this one before a reload"
	case k.unlike:
		pool = poolUnlike
		cause = "instances have a different consistency or ping: a view record was written with other settings, by another instance or by this one before a reload"
	}
	if pool != k.pool {
		k.event(-1, k.pool, pool, cause)
		k.pool = pool
	}
	for g := range k.open {
		suspect, all := 0, 0
		for i := range k.servers {
			if k.group(i) == g {
				all++
				if k.servers[i].suspect {
					suspect++
				}
			}
		}
		open := 2*suspect > all
		if open != k.open[g] {
			k.open[g] = open
			from, to := "closed", "fail-open"
			if !open {
				from, to = to, from
			}
			k.event(-1, from, to, fmt.Sprintf("%d of %d servers are suspect", suspect, all))
		}
	}
	k.judgeGone(now)
}

// judgeGone determines whether none of the pool's own servers replies. Proxies can then neither
// vote nor publish a phase, so no server is ejected, however long the outage lasts.
func (k *Keeper) judgeGone(now int64) {
	gone := true
	for i := range k.servers {
		if s := &k.servers[i]; k.group(i) == 0 {
			gone = gone && s.suspect && now >= k.ejectAt(i, now)
		}
	}
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

// group returns 0 for the pool's own servers and 1 for its gutter.
func (k *Keeper) group(i int) int {
	if k.members[i].Gutter {
		return 1
	}
	return 0
}

// become adopts a new entry for a server, and resets the state of its previous phase.
func (k *Keeper) become(i int, e entry, why string, now int64) {
	s := &k.servers[i]
	was := s.entry
	if e == was {
		return
	}
	s.entry = e
	if e.overrides != was.overrides {
		s.down = s.down && e.override() == Down
		k.event(i, overrideEvent(was), overrideEvent(e), why)
	}
	if e.n == was.n && e.renamed == was.renamed {
		return
	}
	if e.n/phases != was.n/phases {
		s.restored = false
	}
	s.why, s.since = why, now
	s.goTo, s.goAt, s.until = 0, 0, 0
	s.flush, s.warm = flushing{}, warmth{}
	s.held = nil
	here := k.present(i)
	s.stranger = s.stranger && here // a stranger (see identity.go) is flushed before the server rejoins
	s.inherited = s.inherited && unflushed(PhaseOf(e.n))
	s.known = s.known && here // identify the process again: a memcached that restarts with its old memory also has its old record
	if p := PhaseOf(e.n); p != In && p != Out {
		s.held = make([]int64, len(k.servers))
	}
	k.gen++
	k.event(i, PhaseOf(was.n).String(), PhaseOf(e.n).String(), why)
}

func overrideEvent(e entry) string {
	if e.override() == Restore {
		return "no order"
	}
	return "ordered " + e.override().String()
}

// publish adopts an entry that this proxy decided, and pings all servers to write it to
// their records.
func (k *Keeper) publish(i int, e entry, why string, now int64) {
	k.become(i, e, why, now)
	k.pingAllNow(now)
}

// pingAllNow pings all servers now, so that the latest state is written to them.
func (k *Keeper) pingAllNow(now int64) {
	for j := range k.servers {
		k.servers[j].pingAt = min(k.servers[j].pingAt, now) // the replies to these pings contain the cas that is needed to write the records
	}
}

// advanceHandover moves a handover to its next stage if that is due.
func (k *Keeper) advanceHandover(now int64) {
	replicated := func() bool {
		done, _ := k.replicated(-1, k.barrier.Since, k.barrier.Held, k.wait(), now)
		return done
	}
	if k.barrier.Step(k.hash, now, now >= k.foreignUntil, replicated, k.pace()) {
		k.pingAllNow(now)
	}
}

// drive moves server i to its next phase when it is ready. Steps to LEAVING and OUT are
// taken at once, because no server serves the keys until OUT. Other steps wait for a
// jitter first.
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

// ahead returns the number that server i is ready to move to, or 0. It also sets step,
// which describes for operators what happens next.
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
		if k.off.Out && s.good >= k.set.GoodPings {
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
		if k.settled(i, "next: SETTLE", now) && k.isWarm(i, now) {
			if k.off.Settle {
				return s.n + 2, "ablation"
			}
			return s.n + 1, "warm"
		}
	case Settling:
		if k.settled(i, "next: IN", now) {
			return s.n + 1, "all instances read from it and delete on its substitute servers"
		}
	}
	return 0, ""
}

// settled reports whether all proxies know the number of server i (see Keeper.waited), and describes for
// operators what the keeper waits for.
func (k *Keeper) settled(i int, next string, now int64) bool {
	done, until := k.waited(i, now)
	s := &k.servers[i]
	s.step = next
	switch {
	case done:
	case until == 0:
		s.step = next + ", waits for a server to take its record"
	default:
		s.step = next + ", waits until all instances must have read the record"
		s.until = until
	}
	return done
}

// leaves reports whether server i should be ejected, in whatever phase it is.
func (k *Keeper) leaves(i int, now int64) (why string, ok bool) {
	s := &k.servers[i]
	s.step = ""
	if s.override() != Restore {
		s.step = "next: LEAVING, by order"
		return "by order", true
	}
	unfit := s.unfit && !s.suspect && PhaseOf(s.n) == In
	if !s.suspect && !unfit {
		return "", false
	}
	ejectAt := k.ejectAt(i, now)
	opinion := k.countVotes(i, now)
	switch {
	case k.pool == poolNoMeta && (unfit || s.stranger):
		s.step = "is to be emptied, but can't be: " + serverNoMeta
	case k.parting:
		s.step = "stays: by a reload the keys of the pool move no more"
	case k.pool == poolNoMeta:
		s.step = "suspect for this instance only: " + serverNoMeta
	case unfit && k.onlyCopy(i, now):
		s.step = "is to be emptied, when the other servers are complete"
	case (unfit || s.stranger) && !(k.relieved(i) && k.reaches(i, now)):
		s.step = "is to be emptied, when others can take over"
	case unfit:
		s.step = "next: LEAVING"
		return "it has missed more writes than are remembered, and is emptied", true
	case s.stranger:
		s.step = "next: LEAVING"
		return s.suspectWhy, true
	case now < ejectAt:
		s.step, s.until = "next: LEAVING, if it does not answer", ejectAt
	case k.onlyCopy(i, now) && now < s.suspectSince+onlyTime:
		s.step, s.until = "stays: another server is not complete, so this one may have the only replica of a key", s.suspectSince+onlyTime
	case k.open[k.group(i)]:
		s.step = "stays: more than half of the servers are suspect, so it may be this instance that is cut off"
	case !k.relieved(i):
		s.step = "stays: no other server could take over"
	case !k.reaches(i, now):
		s.step = "stays: this instance reaches too few of the others"
	case opinion == noData, opinion == notAsked:
		s.step = "next: LEAVING, if most instances suspect it too"
	case opinion == reachable:
		s.step = "stays: most instances reach it"
	default:
		s.step = "next: LEAVING"
		return s.suspectWhy, true
	}
	return "", false
}

// ejectAt returns the time at which the suspicion of server i has lasted long enough to
// eject it. The shorter time for refused connections applies only if a refusal was seen
// at its end too, because the server may have restarted in between.
func (k *Keeper) ejectAt(i int, now int64) int64 {
	s := &k.servers[i]
	silent := s.suspectSince + int64(k.set.EjectAfter.Silent)
	refused := s.refused.since + int64(k.set.EjectAfter.Refused)
	switch {
	case s.refused.since == 0 || now >= silent:
		return silent
	case s.refused.last >= refused || now < refused:
		return min(silent, refused)
	}
	s.pingAt = min(s.pingAt, now) // one more ping, whose reply decides
	return silent
}

// onlyCopy reports whether server i may have the last copy of a key, so that it must
// not be ejected and flushed. Only a silent server can still have its data. The result
// is also true while a reload that removes a server is in progress, because keys of
// that server have one replica less.
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
		return j != i && k.group(j) == k.group(i) && (PhaseOf(o.n) != In || o.incomplete || returned || o.refused.since != 0)
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

// returns reports whether server i, which is OUT, should rejoin.
func (k *Keeper) returns(i int, now int64) (why string, ok bool) {
	s := &k.servers[i]
	held := s.since + int64(k.set.Hold)
	opinion := k.countVotes(i, now)
	switch {
	case s.override() != Restore:
		s.step = "stays out, by order"
	case k.pool == poolNoMeta:
		s.step = "stays out: " + serverNoMeta
	case s.suspect || s.good < k.set.GoodPings:
		s.step = "next: RETURN, when it answers"
	case k.set.OnRejoin == Hold && !s.restored && now < held:
		s.step, s.until = "next: RETURN, after its hold", held
	case opinion == rejected:
		s.step = "stays out: most instances don't reach it"
	case opinion == noData:
		s.step = "next: RETURN, when the other instances have said whether they reach it"
	case k.strict() && now >= k.quorum:
		s.step = "stays out: this instance reaches too few of the others"
	default:
		s.step = "next: RETURN"
		return "it answers again", true
	}
	return "", false
}

var (
	errAlone = errors.New("no other server could take over: bring one back first")
	errFew   = errors.New("this instance reaches too few of the other servers: give the order to another one")
)

// override applies an operator's override.
func (k *Keeper) override(i int, o Override, now int64) error {
	s := &k.servers[i]
	if s.down = o == Down; s.down {
		k.markSuspect(i, "by order", now)
	}
	if o != Restore && k.present(i) {
		if !k.relieved(i) {
			return errAlone
		}
		if !k.reaches(i, now) {
			return errFew
		}
	}
	s.restored = o == Restore && !k.present(i)
	s.stranger = s.stranger && o != Restore
	e := s.entry.overridden(o)
	if o != Restore && k.present(i) {
		e.n = k.leaving(i)
	}
	k.publish(i, e, "by order", now)
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
