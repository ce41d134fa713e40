package health

// This file implements the roll call: each proxy of the pool writes its entry to a list of
// instances on two servers, and reads the entries of the others. Package roll defines the list.

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health/roll"
)

// rollCall is what this proxy publishes about itself and has read about its peers.
type rollCall struct {
	roll.Call
	self  roll.Instance // the entry of this proxy; ID 0: introduce was not called yet, so nothing is published
	at    int64         // when this proxy next reads and writes the list of instances
	met   bool          // the list of instances was read from a server at least once
	heard bool          // a server has replied since the reads of the list of instances that were sent last
	tries int
	offBy int64  // when this proxy, which ends, stops waiting for the writes of its sign-off; 0: it does not end
	off   int    // number of servers that have stored its sign-off
	apart string // name of a peer that keeps replicas on other servers than this proxy, as last logged; empty: none
}

// introduce sets what this proxy publishes about itself. A change is published at once.
func (k *Keeper) introduce(self roll.Instance, now int64) {
	if k.roll.self != self {
		k.roll.self, k.roll.at = self, now
		k.next = min(k.next, now)
	}
}

// signOffTime is how long a proxy that ends waits at most until its sign-off is stored.
const signOffTime = int64(300 * time.Millisecond)

// SignOff makes this proxy publish that it ends, so that its peers do not list it any more.
func (k *Keeper) SignOff(now int64) {
	if r := &k.roll; r.self.ID != 0 && r.offBy == 0 {
		r.offBy, r.at = now+signOffTime, now
		k.next = min(k.next, now)
	}
}

// SigningOff reports whether this proxy should wait with its end, because the servers have not stored its sign-off yet.
func (k *Keeper) SigningOff(now int64) bool {
	return now < k.roll.offBy && k.roll.off < len(k.recordServers())
}

// Roll is the list of the instances of a pool, as the keeper of this instance knows it.
type Roll struct {
	Self   roll.Instance   // entry of this proxy in the list of instances; its ID is 0 while the list is not written
	Others []roll.Instance // peers that are alive, sorted by name
	All    int             // number of proxies: those in the list of package roll, or, if that list is full, as estimated from counters (tally.go)
	Bad    int             // number of unreadable lists of instances, and of unreadable entries, so far
	Where  bool            // a server of the pool has the list of instances, or can store it
}

// Roll returns the list of the instances of the pool, as this keeper knows it now.
func (k *Keeper) Roll() Roll {
	r := Roll{Self: k.describe(), Others: k.roll.Here(), Bad: k.roll.Bad, Where: len(k.recordServers()) > 0}
	r.All = 1 + len(r.Others)
	if r.All >= roll.Most { // the list is full, so Others is only a sample of the instances
		for i := range k.servers {
			r.All = max(r.All, int(k.servers[i].live.Rate()))
		}
	}
	return r
}

// describe returns this proxy's current entry, including the servers that it suspects
// and those that lack replicas.
func (k *Keeper) describe() (e roll.Instance) {
	e = k.roll.self.Shortened()
	for i, s := range k.servers {
		if name := k.members[i].Name; s.suspect {
			e.Suspects = strings.TrimSpace(e.Suspects + " " + name)
		}
		if name := k.members[i].Name; s.incomplete {
			e.Lacks = strings.TrimSpace(e.Lacks + " " + name)
		}
	}
	return e
}

// lacks reports whether server i lacks replicas, as far as this proxy or a peer knows. A proxy that has
// just started does not know it itself. Until it has read the list of instances, any server may lack
// replicas.
func (k *Keeper) lacks(i int) bool {
	if k.servers[i].incomplete {
		return true
	}
	if k.off.Peers || k.roll.self.ID == 0 {
		return false
	}
	return !k.roll.met || k.roll.Lacks(k.members[i].Name)
}

// recordServers returns the servers that store the list of instances. They depend only on the names
// and the states of servers, so all proxies choose the same servers.
func (k *Keeper) recordServers() (list []int) {
	for i := range k.servers {
		if s := &k.servers[i]; k.group(i) == 0 && k.present(i) && !s.suspect && s.lacks == "" && s.good > 0 {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b int) int {
		return cmp.Compare(roll.Place(k.members[a].Name), roll.Place(k.members[b].Name))
	})
	return list[:min(roll.Homes, len(list))]
}

// callRoll starts to read and write the list of instances when that is due.
func (k *Keeper) callRoll(now int64) {
	r := &k.roll
	if r.self.ID == 0 || now < r.at {
		return
	}
	homes := k.recordServers()
	if len(homes) == 0 {
		r.at = now + int64(k.set.Ping)
		return
	}
	if r.heard { // if no server has replied, this proxy may be cut off: peers must not count as gone for that
		r.NextRound()
	}
	r.heard, r.tries = false, 0
	pause := int64(roll.Pause(len(r.Here())))
	r.at = now + pause - k.jitter(pause/10)
	for _, i := range homes {
		k.askRoll(i, now)
	}
}

func (k *Keeper) askRoll(i int, now int64) {
	k.send(ask{kind: askRoll, server: i, about: i}, now, MetaGet(k.keys.Roll))
}

// rolled handles the list of instances that was read from a server, and writes it back with this
// proxy's own entry.
func (k *Keeper) rolled(a ask, answer []byte, now int64) {
	value, cas, ok := MetaValue(answer)
	switch {
	case ok:
		k.roll.Hear(value, k.roll.self.ID)
	case !IsMetaMiss(answer):
		return
	}
	k.roll.heard, k.roll.met = true, true
	if apart := k.roll.Apart(k.roll.self.Copies); (apart == "") != (k.roll.apart == "") {
		if k.roll.apart = apart; apart != "" {
			k.event(-1, "alike", "apart", apart+" keeps replicas on other servers than this instance")
		} else {
			k.event(-1, "apart", "alike", "all instances keep replicas on the same servers")
		}
	}
	self := k.describe()
	if self.Round = uint64(now / int64(time.Second)); k.roll.offBy != 0 {
		self.Round = roll.Ended
	}
	if item, ok := k.roll.Item(self, k.random.Uint64()); ok {
		k.send(ask{kind: askRollWrite, server: a.server, about: a.server}, now, MetaPut(k.keys.Roll, item, cas, roll.Life))
	}
}

// rollWritten handles the reply to a write of the list of instances. If another proxy has changed the
// list in between, it starts again with a read.
func (k *Keeper) rollWritten(a ask, answer []byte, now int64) {
	switch stored := bytes.HasPrefix(answer, []byte("HD")); {
	case !stored && k.roll.tries < roll.Tries:
		k.roll.tries++
		k.askRoll(a.server, now)
	case stored && k.roll.offBy != 0:
		k.roll.off++
	}
}
