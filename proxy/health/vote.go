package health

// Votes: how many proxies there are, and how many of them suspect a server.
//
// Twice in a lease, which all proxies of a pool agree on, every proxy adds one to a
// counter on each server that answers, and one to another counter there for each server
// that it suspects. So between two of its own additions the first grows by the number of
// proxies, and the other by the number of those that suspect the server. Counters are
// made by whoever finds none and end after a minute; nobody needs to be counted out, and
// no clock is compared.
//
// That takes two additions. Whom a server refuses says so at once besides, in a counter
// that ends after refusedLife and to which nobody adds twice in that time. So what it says
// is how many proxies were refused of late, and a look at it is enough.

import (
	"time"

	"ringside/proxy/health/meta"
	"ringside/proxy/health/tally"
)

const (
	countLife    = 60                     // seconds that a counter lives
	refusedLife  = 3                      // seconds until memcached forgets a count of refusals; it may take one for less, never for more
	refusedPause = int64(4 * time.Second) // until a proxy that is refused says so again
)

// voteTime is the time between two additions of a proxy.
func (k *Keeper) voteTime() int64 { return int64(k.set.Lease) / 2 }

// vote counts this proxy, and its suspicions, and looks who else suspects the
// servers that are to come back.
func (k *Keeper) vote(now int64) {
	if k.voteAt == 0 {
		k.voteAt = now + k.jitter(k.voteTime()) // proxies that start together should not count together
	}
	if now < k.voteAt {
		return
	}
	k.voteAt += k.voteTime()
	if k.voteAt <= now {
		k.voteAt = now + k.voteTime()
	}
	for i := range k.servers {
		if v := &k.servers[i]; v.suspect || v.noMeta {
			continue
		}
		k.send(ask{kind: askLive, server: i, about: i}, now, meta.Add(k.keys.Live, countLife))
		for j := range k.servers {
			switch s := &k.servers[j]; {
			case j == i:
			case s.suspect:
				k.send(ask{kind: askVote, server: i, about: j}, now, meta.Add(k.keys.Suspects[j], countLife))
			case PhaseOf(s.n) == Out:
				k.send(ask{kind: askDoubt, server: i, about: j}, now, meta.Get(k.keys.Suspects[j]))
			}
		}
	}
}

// sayRefused tells the other servers that server i refuses this proxy.
func (k *Keeper) sayRefused(i int, now int64) {
	if s := &k.servers[i]; s.saidAt == 0 || now >= s.saidAt+refusedPause {
		s.saidAt = now
		k.askRefused(i, now, meta.Add(k.keys.Refused[i], refusedLife))
	}
}

// refuses says whether server i refuses this proxy, and who else is refused may decide
// something.
func (k *Keeper) refuses(i int, now int64) bool {
	s := &k.servers[i]
	return s.refused.since != 0 && k.present(i) && now < s.saidAt+refusedPause
}

func (k *Keeper) askRefused(i int, now int64, line []byte) {
	for j := range k.servers {
		if v := &k.servers[j]; j != i && !v.suspect && !v.noMeta {
			k.send(ask{kind: askRefused, server: j, about: i}, now, line)
		}
	}
}

func (k *Keeper) counted(a ask, answer []byte, now int64) {
	n, ok := meta.Count(answer)
	if !ok {
		return
	}
	v := &k.servers[a.server]
	t := &v.live
	switch {
	case a.kind == askRefused:
		if said := k.servers[a.about].refused.said; said != nil {
			said[a.server] = n // 0 if there is none
		}
		return
	case a.kind != askLive:
		if v.sus == nil {
			v.sus = make([]tally.Tally, len(k.servers))
		}
		t = &v.sus[a.about]
	}
	if meta.None(answer) {
		t.SeeNone(k.voteTime(), now)
	} else {
		t.See(n, k.voteTime(), now)
	}
}

// opinions adds up what the other servers have counted of server i.
func (k *Keeper) opinions(i int, now int64) tally.Opinion {
	var poll tally.Poll
	for j := range k.servers {
		v := &k.servers[j]
		if j == i || v.suspect || v.noMeta || v.good == 0 {
			continue
		}
		var suspects *tally.Tally
		if v.sus != nil {
			suspects = &v.sus[i]
		}
		var refused uint64
		if said := k.servers[i].refused.said; said != nil {
			refused = said[j]
		}
		poll.Count(&v.live, suspects, refused, k.voteTime(), now)
	}
	return poll.Opinion()
}
