package health

// Votes: how many proxies there are, and how many of them suspect a server.
//
// Twice in a lease, which all proxies of a pool agree on, every proxy adds one to a
// counter on each server that answers, and one to another counter there for each server
// that it suspects. So between two of its own additions the first grows by the number of
// proxies, and the other by the number of those that suspect the server. Counters are
// made by whoever finds none and end after a minute; nobody needs to be counted out, and
// no clock is compared.

import (
	"bytes"
	"fmt"
	"strconv"

	"ringside/proxy/health/tally"
)

const (
	// A server is taken out if more than this share of the proxies suspects it.
	ejectShare = 50 // percent
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
		k.send(ask{kind: askLive, server: i, about: i}, now, addLine(k.keys.live))
		for j := range k.servers {
			switch s := &k.servers[j]; {
			case j == i:
			case s.suspect:
				k.send(ask{kind: askVote, server: i, about: j}, now, addLine(k.keys.suspects[j]))
			case PhaseOf(s.n) == Out:
				k.send(ask{kind: askDoubt, server: i, about: j}, now, fmt.Appendf(nil, "mg %s v\r\n", k.keys.suspects[j]))
			}
		}
	}
}

// voteSoon lets the next vote be now, since a server has begun to refuse connections:
// what others think of that is wanted before the next vote is due. Votes go on from
// there in their rhythm. What counters have grown by in the piece of a rhythm before
// it is left out, or there would seem to be fewer proxies. It is done once in some
// votes at most, so that servers which come and go can't keep all from being counted.
func (k *Keeper) voteSoon(now int64) {
	if k.voteAt == 0 || now < k.hastyAt {
		return
	}
	k.voteAt = now
	k.hastyAt = now + 4*k.voteTime()
	for i := range k.servers {
		s := &k.servers[i]
		s.live.Forget()
		for j := range s.sus {
			s.sus[j].Forget()
		}
	}
}

// addLine adds one to a counter, or makes it with one, for a minute.
func addLine(key string) []byte { return fmt.Appendf(nil, "ma %s N60 J1 v\r\n", key) }

func (k *Keeper) counted(a ask, answer []byte, now int64) {
	t := &k.servers[a.server].live
	if a.kind != askLive {
		v := &k.servers[a.server]
		if v.sus == nil {
			v.sus = make([]tally.Tally, len(k.servers))
		}
		t = &v.sus[a.about]
	}
	if bytes.HasPrefix(answer, []byte("EN\r\n")) {
		t.SeeNone(k.voteTime(), now)
		return
	}
	value, _, ok := parseValue(answer)
	if !ok {
		return
	}
	if n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64); err == nil {
		t.See(n, k.voteTime(), now)
	}
}

// opinion is what proxies think of a server.
type opinion uint8

const (
	unheard  opinion = iota // some server answers, but hasn't counted yet
	unasked                 // no other server answers that could count
	reached                 // most proxies reach it
	rejected                // most proxies suspect it
)

// opinions adds up what the other servers have counted of server i.
func (k *Keeper) opinions(i int, now int64) opinion {
	var suspects, proxies uint64
	result := unasked
	for j := range k.servers {
		v := &k.servers[j]
		if j == i || v.suspect || v.noMeta || v.good == 0 {
			continue
		}
		if result == unasked {
			result = unheard
		}
		if v.sus == nil || !v.sus[i].Fresh(k.voteTime(), now) || !v.live.Fresh(k.voteTime(), now) {
			continue
		}
		suspects += v.sus[i].Rate()
		proxies += v.live.Rate()
		result = reached
	}
	if result == reached && suspects*100 > proxies*ejectShare {
		result = rejected
	}
	return result
}
