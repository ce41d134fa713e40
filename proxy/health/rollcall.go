package health

// The roll call: which proxies serve the pool. Package roll has what is said and where.

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health/meta"
	"ringside/proxy/health/roll"
)

// rollCall is what this proxy says of itself and has heard of others.
type rollCall struct {
	roll.Call
	self  roll.Entry // ID 0: nobody has said who it is, so it says nothing
	at    int64      // when the next round is due
	heard bool       // in this round somebody has answered
	tries int
	apart string // one who keeps copies at other servers, as was told last
}

// introduce says what this proxy is. What is new is told at once.
func (k *Keeper) introduce(self roll.Entry, now int64) {
	if k.roll.self != self {
		k.roll.self, k.roll.at = self, now
		k.next = min(k.next, now)
	}
}

// Roll is what is known of the proxies that serve the pool.
type Roll struct {
	Self   roll.Entry   // ID 0: it is not called
	Others []roll.Entry // that are not gone, by name
	All    int          // how many proxies there are, by the item or by the votes
	Bad    int          // items and entries that could not be read, so far
	Where  bool         // a server has the item, or can have it
}

// Roll says what is known by now.
func (k *Keeper) Roll() Roll {
	r := Roll{Self: k.describe(), Others: k.roll.Here(), Bad: k.roll.Bad, Where: len(k.homes()) > 0}
	r.All = 1 + len(r.Others)
	if r.All >= roll.Most { // the others are a sample
		for i := range k.servers {
			r.All = max(r.All, int(k.servers[i].live.Rate()))
		}
	}
	return r
}

// describe is what this proxy says of itself now, with the servers that it suspects, and that lack copies.
func (k *Keeper) describe() (e roll.Entry) {
	e = k.roll.self
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

// homes are the servers that have the item: the same for all whose lists have them.
func (k *Keeper) homes() (list []int) {
	for i := range k.servers {
		if s := &k.servers[i]; k.group(i) == 0 && k.present(i) && !s.suspect && !s.noMeta && s.good > 0 {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b int) int {
		return cmp.Compare(roll.Place(k.members[a].Name), roll.Place(k.members[b].Name))
	})
	return list[:min(roll.Homes, len(list))]
}

// callRoll begins a round when it is due.
func (k *Keeper) callRoll(now int64) {
	r := &k.roll
	if r.self.ID == 0 || now < r.at {
		return
	}
	homes := k.homes()
	if len(homes) == 0 {
		r.at = now + int64(k.set.Ping)
		return
	}
	if r.heard { // else it is this proxy that is silent
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
	k.send(ask{kind: askRoll, server: i, about: i}, now, meta.Get(k.keys.Roll))
}

// rolled takes up the item of a server, and writes it with what this proxy knows.
func (k *Keeper) rolled(a ask, answer []byte, now int64) {
	value, cas, ok := meta.Value(answer)
	switch {
	case ok:
		k.roll.Hear(value, k.roll.self.ID)
	case !meta.None(answer):
		return
	}
	k.roll.heard = true
	if apart := k.roll.Apart(k.roll.self.Copies); (apart == "") != (k.roll.apart == "") {
		if k.roll.apart = apart; apart != "" {
			k.event(-1, "alike", "apart", apart+" keeps copies at other servers than this Ringside")
		} else {
			k.event(-1, "apart", "alike", "all Ringsides keep copies at the same servers")
		}
	}
	self := k.describe()
	self.Round = uint64(now / int64(time.Second))
	if item, ok := k.roll.Item(self, k.random.Uint64()); ok {
		k.send(ask{kind: askRollWrite, server: a.server, about: a.server}, now, meta.Put(k.keys.Roll, item, cas, roll.Life))
	}
}

// rollWritten reads again where somebody was faster.
func (k *Keeper) rollWritten(a ask, answer []byte, now int64) {
	if k.roll.tries < roll.Tries && !bytes.HasPrefix(answer, []byte("HD")) {
		k.roll.tries++
		k.askRoll(a.server, now)
	}
}
