package resize

// This file runs the announcement of a pause in every order of events, breadth first, with leases that end at a time: time passes
// in ticks. There are two instances and one view record. An instance may be of an older release, and may be started at any
// time. It reads and writes the record, and writes the key at the old owner, at any time while it has a lease. No such write may be executed after
// an instance has begun to move keys: it could follow a newer value at the new owner. Each ablation leaves out one clause,
// and must break that.

import (
	"fmt"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// Durations in ticks.
const (
	longLease  = 3
	shortLease = 1
	oneRequest = 1
)

// A WAIT is the duration of a lease and of a request.
const (
	longWait  = longLease + oneRequest
	shortWait = shortLease + oneRequest
)

type announcer struct {
	Status
	older bool  // it has a release without announcements
	lease int8  // ticks until its lease ends; 0: it has none
	pings bool  // a ping is in flight
	sent  int8  // ticks since then
	read  State // the state that it has read
	write int8  // 1 plus the ticks since the write in flight was sent; 0: there is none
}

type announced struct {
	record   State
	number   int8 // for how many ticks the record has had the number
	state    int8 // for how many ticks it has had the state
	at       [2]announcer
	moving   bool // an instance has moved keys
	restarts int8
}

// unannounced is a clause to leave out.
type unannounced uint8

const (
	announceAll    unannounced = iota
	announceLeases             // leases are not short in an announcement
	announceFirst              // the lease of the ping that has read an announcement is not short
	announceNumber             // the announcement need not be known for a WAIT
	announceState              // the pause need not be known for a short WAIT
	announceOlder              // an older release serves keys in an announcement
)

// knows is the state s as instance p reads it.
func (o unannounced) knows(p *announcer, s State) State {
	if p.older && o != announceOlder {
		s.Next, _ = s.Written()
		s.Announced = false
	}
	return s
}

// lease returns the duration of the lease of a ping that p sends now.
func (o unannounced) lease(p *announcer) int8 {
	if p.Short() && !p.older && o != announceLeases {
		return shortLease
	}
	return longLease
}

func (w announced) next(o unannounced, add func(w announced, what, broken string)) {
	tick := w
	tick.number, tick.state = min(w.number+1, longWait), min(w.state+1, longWait)
	for i := range tick.at {
		p := &tick.at[i]
		p.lease = max(p.lease-1, 0)
		if p.sent++; !p.pings || p.sent > oneRequest {
			p.pings, p.sent, p.read = false, 0, State{}
		}
		if p.write != 0 {
			if p.write++; p.write > oneRequest+1 {
				p.write = 0
			}
		}
	}
	add(tick, "a tick", "")
	for i := range w.at {
		p := w.at[i]
		change := func(what string, f func(w *announced, p *announcer)) {
			next := w
			f(&next, &next.at[i])
			for _, q := range next.at {
				next.moving = next.moving || q.Stage() == Move && q.lease > 0
			}
			add(next, fmt.Sprintf("p%d %s", i, what), "")
		}
		if w.restarts > 0 {
			for _, older := range []bool{false, true} {
				change(fmt.Sprintf("starts, older: %t", older), func(w *announced, p *announcer) {
					w.restarts--
					*p = announcer{Status: Status{Lists: p.Lists}, older: older}
				})
			}
		}
		if !p.pings {
			change("sends a ping", func(w *announced, p *announcer) { p.pings, p.read = true, w.record })
		} else {
			change("gets its answer", func(_ *announced, p *announcer) {
				lease := o.lease(p)
				r := Resize{Status: p.Status}
				r.Read(o.knows(p, p.read), 1)
				if p.Status = r.Status; o != announceFirst {
					lease = o.lease(p)
				}
				p.lease = max(p.lease, lease-p.sent)
				p.pings, p.sent, p.read = false, 0, State{}
			})
		}
		if m := Merge(w.record, p.State); m != w.record && p.N != 0 {
			change("writes the record", func(w *announced, _ *announcer) {
				if w.state = 0; m.N != w.record.N {
					w.number = 0
				}
				w.record = m
			})
		}
		if p.N != 0 && p.Stage() < Move && o.knows(&p, w.record) == p.State {
			r := Resize{Status: p.Status, swept: [2]uint32{First(0).N, p.Wish}, wished: 1}
			for _, r.Announce = range []bool{false, true} {
				if p.older && r.Announce {
					continue
				}
				r := r
				known := func(time.Duration) bool {
					number, state := r.Known(longWait, shortWait)
					if p.older {
						number, state = 0, longWait
					}
					return (w.number >= int8(number) || o == announceNumber) && (w.state >= int8(state) || o == announceState)
				}
				if r.Step(int64(time.Hour), true, true, known, time.Second) {
					change(fmt.Sprintf("begins stage %d, announced: %t", r.Stage(), r.Announced), func(_ *announced, p *announcer) { p.Status = r.Status })
				}
			}
		}
		switch {
		case p.write != 0:
			next, broken := w, ""
			if next.at[i].write = 0; w.moving {
				broken = "the old owner gets a value after keys have begun to move"
			}
			add(next, fmt.Sprintf("p%d gets its write executed", i), broken)
		case p.lease > 0 && p.Serves() == All:
			change("begins to write", func(_ *announced, p *announcer) { p.write = 1 })
		}
	}
}

// exploreAnnounce returns the number of states, and the events that lead to a violation.
func exploreAnnounce(o unannounced, restarts int8, older bool) (states int, trace []string) {
	const list, next = 11, 12
	first := announced{record: First(list), number: longWait, state: longWait, restarts: restarts}
	for i := range first.at {
		first.at[i].Status = Status{State: First(list), Lists: Lists{Mine: list, Wish: next, Warm: true}}
		first.at[i].older = older && i == 1
	}
	return breadthFirst(first, func(w announced, add func(w announced, what, broken string)) { w.next(o, add) }, func(announced) string { return "" })
}

func TestExploreAnnounce(t *testing.T) {
	restarts := int8(1)
	if testenv.Full() {
		restarts = 2
	}
	for _, older := range []bool{false, true} {
		states, trace := exploreAnnounce(announceAll, restarts, older)
		if trace != nil {
			t.Errorf("%d states: %q", states, trace)
		}
		t.Logf("%d states", states)
	}
	for _, c := range []struct {
		name     string
		without  unannounced
		restarts int8
	}{
		{"leases are not short", announceLeases, 0},
		{"the first lease is not short", announceFirst, 0},
		{"no WAIT for the announcement", announceNumber, 0},
		{"no WAIT for the pause", announceState, 0},
		{"an older release serves keys", announceOlder, 1},
	} {
		states, trace := exploreAnnounce(c.without, c.restarts, false)
		finds(t, c.name, states, trace)
	}
}
