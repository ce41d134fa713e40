package health

// This file runs the changes of the server list (package resize) in a keeper.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health/resize"
	"ringside/proxy/health/roll"
)

// SetLists sets the lists of this process. Without this call, the keeper does not coordinate changes of
// the list.
func (k *Keeper) SetLists(l resize.Lists, now int64) { k.resize.Set(l, now) }

// Sweeps reports whether the work on the servers that the stage requires is due, and for which change:
// see resize.Resize.Sweeps.
func (k *Keeper) Sweeps() (change [2]uint32, ok bool) {
	change, ok = k.resize.Sweeps()
	if ok && k.off.Sweep {
		k.resize.Swept(change)
		k.next = 0
		return change, false
	}
	return change, ok
}

// Swept reports to the keeper that the work for the change is done.
func (k *Keeper) Swept(change [2]uint32, now int64) {
	k.resize.Swept(change)
	k.step(now)
}

// Resize returns the state of a change of the server list, and when this process adopted its stage or its
// wish. why is the reason if the change does not continue; empty: no reason is known. It is about a server, unless that is -1.
func (k *Keeper) Resize(now int64) (s resize.Status, began int64, why string, server int) {
	s, began, server = k.resize.Status, k.resize.Began(), -1
	switch {
	case !k.awaits():
		why, server = k.stalls(now)
		return s, began, why, server
	case s.Cut:
		return s, began, cutOffAll, server
	}
	for i := range k.servers {
		switch p := PhaseOf(k.servers[i].n); {
		case k.permits(i) && !(s.Announced && p == In && k.servers[i].suspect): // an announcement ends only when most servers have it
		case p == In && k.servers[i].unverified:
			return s, began, "is not used: " + unverified, i
		case p == In:
			return s, began, "is down: " + k.servers[i].suspectWhy, i
		default:
			return s, began, "is " + p.String(), i
		}
	}
	if s.Warm && k.pool == poolNoMeta {
		for i := range k.servers {
			if why = k.servers[i].lacks; why != "" {
				return s, began, strings.TrimPrefix(why, "a server "), i
			}
		}
	}
	if s.Serves() != resize.Nothing && k.resize.Overdue(now, k.pace()) {
		why = k.cutOff(now)
	}
	// An earlier record may be that of a proxy which has been reloaded since then.
	if why == "" && s.Serves() != resize.Nothing && k.resize.Overdue(k.opposedAt, k.pace()) {
		why = k.dissent(now)
	}
	if why == "" {
		why, server = k.stalls(now)
	}
	return s, began, why, server
}

// stalls returns the reason why a stage of a change does not continue because servers do not answer. It is about a server, unless that
// is -1. The work of a stage, and the next stage, begin when most servers answer and all instances know this stage.
func (k *Keeper) stalls(now int64) (why string, server int) {
	r := &k.resize
	if r.N == 0 || r.Stage() == resize.Stable || r.Serves() == resize.Nothing {
		return "", -1
	}
	if k.cutOff(now) != "" {
		return cutOffMost, -1
	}
	for i := range k.servers {
		s := &k.servers[i]
		known := r.In[i] != 0 && s.goodSent >= r.In[i]+k.wait()
		if k.strict() && PhaseOf(s.n) == In && s.suspect && !known {
			return "is down: " + s.suspectWhy, i
		}
	}
	return "", -1
}

// awaits reports whether a change of the server list is due, and no key has begun to move, or whether one is to be reversed.
func (k *Keeper) awaits() bool {
	s := &k.resize.Status
	return s.N != 0 && (s.TakenBack() || s.Retreats || s.Announced || s.Stage() == resize.Stable && s.List != s.Required())
}

// dissent names proxies that do not agree to a change of the server list; empty: all agree, as far as this proxy knows. The
// view records have the wish of a proxy, but not its name. So dissent names those with another configuration that still write to the list of instances.
func (k *Keeper) dissent(now int64) string {
	names := []string{}
	for _, e := range k.roll.Here() {
		if e.Config != k.roll.self.Config && e.Runs() {
			names = append(names, cmp.Or(e.Name, "without a name"))
		}
	}
	n := len(names)
	switch {
	case now >= k.opposedAt+foreignPings/2*int64(k.pace()):
		return ""
	case n > 3:
		names = append(names[:2], fmt.Sprintf("%d more", n-2))
	case n == 0:
		if k.resize.Again {
			return "another instance has another server list, or an older release"
		}
		return "another instance has another server list"
	}
	if n == 1 {
		return "instance " + names[0] + " has another configuration"
	}
	last := len(names) - 1
	return "instances " + strings.Join(names[:last], ", ") + " and " + names[last] + " have another configuration"
}

// permits reports whether server i does not delay a change of the server list: it is not between two phases
// or out, unless it is out and the next list lacks it. With Settings.Stays, a server that does not reply
// delays the change, too: before the change it is not ejected.
func (k *Keeper) permits(i int) bool {
	s := &k.servers[i]
	switch PhaseOf(s.n) {
	case In:
		return !k.set.Stays || !s.suspect
	case Out:
		return s.goes
	}
	return false
}

// ListsKnown reports whether the keeper knows which list of servers is in force, and does not search for its text,
// nor for former lists. It does not know that either if it must use the list of its peers first.
func (k *Keeper) ListsKnown() bool {
	return !k.formers.seeks && k.formers.joins == nil && (k.resize.Mine == 0 || k.resize.N != 0 && !k.resize.Seeks)
}

// readResize handles the state and the wish in the view record r.
func (k *Keeper) readResize(r record, now int64) {
	if k.resize.Mine == 0 {
		return
	}
	if before := k.resize.Status; k.resize.Read(r.resize, now) {
		k.resized(before, now)
	}
	if r.wish != 0 && !k.resize.Agrees(r.wish) {
		k.wishUntil = now + foreignPings*int64(k.pace())
		k.opposedUntil = k.wishUntil
	}
}

// firstList puts the list of this process in force if the pool has none: each view server was tried, most have
// replied, or all others are unreachable, and no record names one. One server may be enough to learn that the pool
// has another list.
func (k *Keeper) firstList(now int64) {
	if k.resize.Mine == 0 || k.resize.N != 0 {
		return
	}
	heard, gone := 0, 0
	for i := range k.servers {
		if s := &k.servers[i]; s.record.entries != nil || s.absent != 0 || s.lacks != "" {
			heard++
		} else if s.suspect {
			gone++
		} else if s.soft == 0 {
			return
		}
	}
	if heard >= majorityOf(k.view()) || heard+gone == k.view() {
		k.resize.Read(resize.First(k.resize.Mine), now)
		k.resized(resize.Status{}, now)
	}
}

// advanceResize begins the next stage of a change of the server list if that is due.
func (k *Keeper) advanceResize(now int64) {
	k.firstList(now)
	// With strict consistency, a WAIT is only certain while leases are checked. But an instance that does not
	// know the list in force may have another list for ever. It serves no keys. So the change goes on after some time.
	patience := k.resize.Patience(k.pace())
	sure := k.pool != poolForeign || !k.set.Strict || now >= patience && (now >= k.wishUntil || k.resize.Stage() != resize.Stable)
	why := k.cutOff(now)
	cut := why != ""
	k.resize.Cut = why == cutOffAll && k.awaits() && k.resize.Serves() != resize.Nothing && k.resize.Overdue(now, k.pace())
	if cut { // the others must then have time for a record with their wish
		k.wishUntil = now + foreignPings*int64(k.pace())
	}
	replicated := func(more time.Duration) bool {
		switch {
		case k.off.Clear:
			return true
		case cut:
			return false
		}
		r := &k.resize
		number, state := r.Known(time.Duration(k.wait()), time.Duration(k.shortWait()))
		switch {
		case k.off.Announced:
			number, state = 0, time.Duration(k.wait())
		case k.off.Begun && !r.Announced:
			number = 0
		}
		known, _ := k.replicated(-1, r.Number.Since, r.Number.In, int64(number), now)
		done, _ := k.replicated(-1, r.Since, r.In, int64(state+more), now)
		return known && done && (sure || r.Stage() == resize.Clear)
	}
	ready := sure && !(k.resize.Warm && k.pool == poolNoMeta) && !k.any(func(i int) bool { return !k.permits(i) })
	before := k.resize.Status
	k.resize.Announce = k.resize.Mine != k.resize.Wish && k.resize.Stage() == resize.Stable && k.announces()
	k.resize.Recalls = k.resize.Unwanted() && !k.off.Recall && k.enoughInUse()
	k.resize.Retreats = k.resize.Replaced() && !k.off.Retreat && k.newIsOut()
	// Without view records, or if most servers in use are dead, a change would never end. So the list is in force as soon as
	// all proxies want it. If most servers of that list are dead, too, this would not help.
	stuck := k.pool == poolNoMeta || k.mostlyDead(k.inUse, now-deadTime) && !k.mostlyDead(k.inNext, now) && !k.recovers(k.inUse, now)
	if r := &k.resize; r.Own && stuck && now >= k.wishUntil && r.Overdue(now, k.pace()) && r.N != 0 && r.Stage() == resize.Stable && r.Later == 0 && r.List != r.Wish {
		r.Skip(now)
		k.skips = true
		k.resized(before, now)
		k.skips = false
		return
	}
	if k.resize.Step(now, now >= k.wishUntil, ready, replicated, k.pace()) {
		k.resized(before, now)
	}
}

// enoughInUse reports whether so many servers in use serve that a change can begin: with strict consistency, each majority of these servers must
// have one of them.
func (k *Keeper) enoughInUse() bool {
	serves, all := k.count(k.inUse, func(i int) bool { return PhaseOf(k.servers[i].n) == In && !k.servers[i].suspect })
	return serves > all-majorityOf(all)
}

// newIsOut reports whether a server that only the list Wish has is out, and the configuration lacks it. All servers in use serve.
func (k *Keeper) newIsOut() bool {
	return !k.any(func(i int) bool { return k.inUse(i) && (PhaseOf(k.servers[i].n) != In || k.servers[i].suspect) }) &&
		k.any(func(i int) bool {
			return k.members[i].Joins && k.inNext(i) && k.servers[i].goes && PhaseOf(k.servers[i].n) == Out
		})
}

// recalls reports whether this proxy takes the announcement of a pause back in a view record that has the state s.
func (k *Keeper) recalls(i int, s resize.State, now int64) bool {
	return k.present(i) && k.resize.Recall(s, now, now >= k.wishUntil, k.pace())
}

// announces reports whether all proxies know announcements of a pause, as far as this one knows: they have its release.
func (k *Keeper) announces() bool {
	peers, self := k.roll.Here(), k.roll.self.Shortened()
	if k.off.Announced || k.off.Begun || self.ID != 0 && !k.roll.met || 1+len(peers) >= roll.Most {
		return false
	}
	return !slices.ContainsFunc(peers, func(e roll.Instance) bool { return e.Version != self.Version })
}

// inUse and inNext report whether server i is in the list Mine, and in the list Wish.
func (k *Keeper) inUse(i int) bool  { return !k.members[i].Gutter && !k.members[i].Joins }
func (k *Keeper) inNext(i int) bool { return !k.members[i].Gutter && k.members[i].Next != "" }

// waiting reports whether server i is not in use yet: only the next list has it, and the change has not begun. Proxies
// that have not loaded that list do not know the server.
func (k *Keeper) waiting(i int) bool {
	r := &k.resize
	return k.members[i].Joins && r.Stage() == resize.Stable && r.List == r.Mine
}

// cutOff returns why this proxy may be cut off from the servers in use, and so does not see what the others wish. Either most of
// these servers have not replied for less than deadTime. Or none of them replies, and another proxy had another wish before, or this one
// has got its wish since then. The others may then still use the servers, so deadTime does not count. If all of them refuse connections,
// they are dead. If this proxy is not cut off, cutOff returns "".
func (k *Keeper) cutOff(now int64) string {
	answers := k.any(func(i int) bool { return k.inUse(i) && !k.servers[i].suspect && k.servers[i].good > 0 })
	refuse := !k.any(func(i int) bool { return k.inUse(i) && !k.servers[i].refuses })
	if answers {
		k.resize.Opposed = now < k.opposedUntil
	}
	switch {
	case !answers && !refuse && k.resize.Opposed:
		return cutOffAll
	case k.mostlyDead(k.inUse, now) && !k.mostlyDead(k.inUse, now-deadTime):
		return cutOffMost
	}
	return ""
}

// cutOffMost is the reason for which a change waits for a minute.
const cutOffMost = "most servers in use do not answer, so this instance may be cut off"

// cutOffAll is the reason for which a change waits until an operator says that the servers are dead: see View.DeclareDead.
const cutOffAll = "no server in use answers, and other instances may have another server list"

// deadTime is how long most servers in use must be suspect until the next list is in force without a move. A shorter hang must not
// cost their values.
const deadTime = int64(time.Minute)

// returnTime is how long the servers of a list are not given up after one of them has begun to answer: others may follow, and then their
// values can move.
const returnTime = int64(20 * time.Second)

// recovers reports whether one of the servers for which in returns true has begun to answer in the last returnTime.
func (k *Keeper) recovers(in func(i int) bool, now int64) bool {
	return k.any(func(i int) bool {
		s := &k.servers[i]
		return in(i) && !k.off.Returns && s.good > 0 && s.goodSince > now-returnTime
	})
}

// isDead reports whether this proxy has suspected server i for deadTime.
func (k *Keeper) isDead(i int, now int64) bool {
	return k.servers[i].suspect && k.servers[i].suspectSince <= now-deadTime
}

// hangs reports whether most servers in use, or most servers of the next list, hang, and may still answer.
func (k *Keeper) hangs(now int64) bool {
	one, other := k.mostlyHang(k.inUse, &k.silentAt[0], now), k.mostlyHang(k.inNext, &k.silentAt[1], now)
	return one || other
}

// mostlyHang reports whether most servers for which in returns true are silent, and may still answer. They may for deadTime. When one of them
// has begun to answer, the others may for returnTime, even if these are fewer than half. last is the last time at which most were silent.
func (k *Keeper) mostlyHang(in func(i int) bool, last *int64, now int64) bool {
	isSilent := func(i int) bool { return k.servers[i].suspect && k.servers[i].refused.since == 0 }
	silent, all := k.count(in, isSilent)
	hang, _ := k.count(in, func(i int) bool { return isSilent(i) && !k.isDead(i, now) })
	if 2*silent > all {
		*last = now
	}
	return 2*hang > all || silent > 0 && *last > 0 && *last > now-returnTime && k.recovers(in, now)
}

// mostlyDead reports whether this proxy has suspected more than half of the servers for which in returns true since the given time. A
// server that it may not use yet does not count as suspect.
func (k *Keeper) mostlyDead(in func(i int) bool, since int64) bool {
	dead, all := k.count(in, func(i int) bool {
		s := &k.servers[i]
		return s.suspect && s.suspectSince <= since && !s.unverified
	})
	return 2*dead > all
}

// resized publishes a new state of a change of the server list, and logs what has changed for clients. before
// is the state before.
func (k *Keeper) resized(before resize.Status, now int64) {
	k.gen++
	k.takeNames(before.List, now)
	k.pingAllNow(now)
	k.driveLists(now)
	if !k.resize.Seeks {
		k.tellResized(before)
	} else if !before.Seeks {
		k.search.before = before
	}
}

// tellResized logs what has changed for clients since the state before.
func (k *Keeper) tellResized(before resize.Status) {
	from := "resizing"
	switch was := before.Serves(); {
	case before.N == 0:
		from = "started"
	case was == resize.Nothing:
		from = "outdated"
	case was == resize.All, before.Superseded():
		from = "resized"
	}
	switch s := k.resize.Status; {
	case s.Serves() == resize.All && (from == "started" || from == "resized"):
	case from == "outdated" && s.Serves() != resize.Nothing:
		k.event(-1, from, "resized", "this instance has the server list of its peers now")
	case s.Serves() == resize.All, s.Superseded():
		if from == "resized" { // this instance has missed the stages between
			from = "resizing"
		}
		text := "the keys are served by the servers of this configuration"
		if k.skips {
			text += "; no values have moved to them, because a server has no meta commands, or most of the former servers have not replied for a minute"
		}
		k.event(-1, from, "resized", text)
	case s.Serves() == resize.Staying:
		k.event(-1, from, "resizing", "all instances have this configuration: for a moment, keys that move miss, and their writes wait")
	case s.Serves() == resize.Paused:
		k.event(-1, from, "resizing", "all instances have this configuration: for a moment, writes of keys that move wait; then the keys move with their values")
	case s.Serves() == resize.Turning:
		k.event(-1, from, "resizing", "the change is reversed: for a moment, writes of keys that move wait; then the keys move back")
	case s.UsesOwn() && from != "outdated":
		k.event(-1, from, "outdated", "the instances use another server list, and no server has its text ("+k.Lacking()+"): this instance uses its own, so reads can be old until all instances have the same configuration")
	case s.Serves() == resize.Nothing && (from != "outdated" || before.UsesOwn() && !s.UsesOwn()):
		k.event(-1, from, "outdated", "the instances use another server list, and no server has its text ("+k.Lacking()+"): this instance serves no keys until all instances have the same configuration")
	}
}
