package health

// This file implements votes: it counts the proxies, and the proxies that suspect a server.
//
// Twice per lease, a period that all proxies of a pool share, every proxy adds one to a counter on
// each server that replies. It also adds one to another counter there for each server that it
// suspects. Between two additions of one proxy, the first counter grows by the number of proxies.
// The other grows by the number of proxies that suspect the server. A proxy that finds no counter
// creates it, and counters expire after a minute. So a proxy that stops need not report it, and no
// clocks are compared.
//
// This needs two additions by each proxy. For refused connections there is a faster way: a proxy
// that a server refuses also adds one to a third counter at once. That counter expires after
// refusedLife, and no proxy adds to it twice in that time. So its value is the number of proxies
// that were refused recently, and one read is enough.

import (
	"fmt"
	"time"

	"ringside/proxy/wire"
)

const (
	countLife    = 60                     // TTL of the counters of proxies and of suspicions, in seconds
	refusedLife  = 3                      // TTL of the counter of proxies that a server refuses, in seconds; memcached may expire it up to one second early, but never late
	refusedPause = int64(4 * time.Second) // minimum time between two increments of the counter of refused proxies by one proxy; longer than refusedLife
)

// voteTime returns the interval at which each proxy increments the counters of votes.
func (k *Keeper) voteTime() int64 { return int64(k.set.Lease) / 2 }

// vote increments, on each server that replies, the counter of proxies and the counters of the
// servers that this proxy suspects. It also reads how many proxies suspect the servers that are OUT.
func (k *Keeper) vote(now int64) {
	if k.voteAt == 0 {
		k.voteAt = now + k.jitter(k.voteTime()) // proxies that started together should not vote together
	}
	if now < k.voteAt {
		return
	}
	k.voteAt += k.voteTime()
	if k.voteAt <= now {
		k.voteAt = now + k.voteTime()
	}
	for i := range k.servers {
		if v := &k.servers[i]; v.suspect || v.lacks != "" || v.unverified {
			continue
		}
		k.send(ask{kind: askLive, server: i, about: i}, now, metaAdd(k.keys.Live, countLife))
		for j := range k.servers {
			switch s := &k.servers[j]; {
			case j == i:
			case s.suspect:
				k.send(ask{kind: askVote, server: i, about: j}, now, metaAdd(k.keys.Suspects[j], countLife))
			case PhaseOf(s.n) == Out:
				k.send(ask{kind: askDoubt, server: i, about: j}, now, MetaGet(k.keys.Suspects[j]))
			}
		}
	}
}

// sayRefused increments, on the other servers, the counter of each server that refuses connections of
// this proxy. Servers that do not reply are left out, so the number of requests stays small if most
// servers of a large pool fail together. If no server replies yet, a later step tries again.
func (k *Keeper) sayRefused(now int64) {
	for i := range k.servers {
		s := &k.servers[i]
		if s.refused.since > s.saidAt && k.ejects(i) && (s.saidAt == 0 || now >= s.saidAt+refusedPause) && k.askRefused(i, now, metaAdd(k.keys.Refused[i], refusedLife)) {
			s.saidAt = now
		}
	}
}

// refuses reports whether server i refuses connections of this proxy, is not LEAVING or OUT, and this
// proxy has published the refusal less than refusedPause ago. The votes of other refused proxies may
// then decide that the server is ejected.
func (k *Keeper) refuses(i int, now int64) bool {
	s := &k.servers[i]
	return s.refused.since != 0 && k.present(i) && now < s.saidAt+refusedPause
}

// askRefused sends line, a request about server i, to the other servers that reply. It reports whether
// there are any.
func (k *Keeper) askRefused(i int, now int64, line []byte) (asked bool) {
	for j := range k.servers {
		if v := &k.servers[j]; j != i && v.good > 0 && !v.suspect && v.lacks == "" {
			k.send(ask{kind: askRefused, server: j, about: i}, now, line)
			asked = true
		}
	}
	return asked
}

func (k *Keeper) counted(a ask, answer []byte, now int64) {
	n, ok := metaCount(answer)
	v := &k.servers[a.server]
	if !ok {
		k.discard(a, answer, now)
		return
	}
	t := &v.live
	switch {
	case a.kind == askRefused:
		if said := k.servers[a.about].refused.said; said != nil {
			said[a.server] = n // n is 0 if the counter does not exist
		}
		return
	case a.kind != askLive:
		if v.sus == nil {
			v.sus = make([]tally, len(k.servers))
		}
		t = &v.sus[a.about]
	}
	if IsMetaMiss(answer) {
		t.SeeNone(k.voteTime(), now)
	} else {
		t.See(n, k.voteTime(), now)
	}
}

// discard removes an item that has the key of a counter of votes but is not a number. With this item,
// no votes could be counted on the server. The next vote creates the counter again. answer shows
// such an item in two ways: memcached rejects the increment, or returns a value that is not a number.
func (k *Keeper) discard(a ask, answer []byte, now int64) {
	if _, _, read := MetaValue(answer); !read && !wire.NotNumber(answer) {
		return
	}
	key := k.keys.Live
	switch a.kind {
	case askVote, askDoubt:
		key = k.keys.Suspects[a.about]
	case askRefused:
		key = k.keys.Refused[a.about]
	}
	k.event(a.server, "counter", "trouble", "the counter "+key+" was not a number, so it is removed")
	k.send(ask{kind: askDiscard, server: a.server, about: a.about}, now, fmt.Appendf(nil, "md %s\r\n", key))
}

// countVotes returns the result of the vote about server i, from the counters on all other servers. Proxies with
// another server list do not vote on a server that their list lacks. So servers on which at most half as many
// proxies vote as on another one do not count, nor does a server that is not in use yet.
func (k *Keeper) countVotes(i int, now int64) voteResult {
	var poll voteCount
	var most uint64
	votes := func(j int) bool {
		v := &k.servers[j]
		return j != i && !v.suspect && v.lacks == "" && v.good != 0 && !k.waiting(j)
	}
	for j := range k.servers {
		if votes(j) && k.servers[j].live.Fresh(k.voteTime(), now) {
			most = max(most, k.servers[j].live.Rate())
		}
	}
	for j := range k.servers {
		v := &k.servers[j]
		if !votes(j) || v.live.Fresh(k.voteTime(), now) && 2*v.live.Rate() <= most {
			continue
		}
		var suspects *tally
		if v.sus != nil {
			suspects = &v.sus[i]
		}
		var refused uint64
		if said := k.servers[i].refused.said; said != nil {
			refused = said[j]
		}
		poll.Count(&v.live, suspects, refused, k.voteTime(), now)
	}
	return poll.Result()
}
