package resize

// This file runs the announcement of a pause in every order of events, breadth first, with leases that end at a time: time passes
// in ticks. There are two instances and one view record. An instance may be of an older release, and may be started at any
// time. It reads and writes the record, and writes the key at the old owner, at any time while it has a lease. No such write may be executed after
// an instance has begun to move keys: it could follow a newer value at the new owner. Each ablation leaves out one clause,
// and must break that.
//
// A reload can require a further list in the announcement. The instances then take the announcement back while one of them may begin
// the pause.

import (
	"fmt"
	"testing"
	"time"

	"ringside/internal/testenv"
)

const further = 13 // hash of the list of a reload

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
	reloads  int8 // how many reloads with a further list there may be
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
	announceRecall             // an instance decides on its own to take the announcement back
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
	if w.record.Change() > First(0).Change() {
		for _, q := range w.at {
			if q.Stage() == Move {
				add(w, "the announcement is taken back", "an instance has begun to move keys")
			}
		}
		return
	}
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
		if w.reloads > 0 && p.N != 0 && !p.older {
			change("is reloaded with a further list", func(w *announced, p *announcer) {
				w.reloads--
				p.Status = p.Status.reloaded(further)
			})
		}
		if recalls := p.Unwanted() && w.agree(i); recalls && o == announceRecall {
			change("takes the announcement back", func(_ *announced, p *announcer) { p.State = p.Recalled() })
		} else if recalls && w.record == p.State {
			change("takes the announcement back in the record", func(w *announced, _ *announcer) { w.number, w.state, w.record = 0, 0, p.Recalled() })
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
			r := Resize{Status: p.Status, swept: [2]uint32{p.N, p.Wish}, wished: 1, Recalls: p.Unwanted()}
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

// agree reports whether all instances that have written the record lately have the same configuration as instance i.
func (w announced) agree(i int) bool {
	for _, q := range w.at {
		if (q.lease > 0 || q.pings) && !w.at[i].Agrees(q.Vote()) {
			return false
		}
	}
	return true
}

// exploreAnnounce returns the number of states, and the events that lead to a violation.
func exploreAnnounce(o unannounced, restarts, reloads int8, older bool) (states int, trace []string) {
	const list, next = 11, 12
	first := announced{record: First(list), number: longWait, state: longWait, restarts: restarts, reloads: reloads}
	if reloads > 0 {
		first.record = first.record.advanced(next, true, true)
	}
	for i := range first.at {
		first.at[i].Status = Status{State: first.record, Lists: Lists{Mine: list, Wish: next, Warm: true}}
		first.at[i].older = older && i == 1
		if reloads > 0 && i == 0 { // to save states, the other one is reloaded later
			first.at[i].Later = further
		}
	}
	return breadthFirst(first, func(w announced, add func(w announced, what, broken string)) { w.next(o, add) }, func(announced) string { return "" })
}

func TestExploreAnnounce(t *testing.T) {
	restarts := int8(1)
	if testenv.Full() {
		restarts = 2
	}
	for _, older := range []bool{false, true} {
		states, trace := exploreAnnounce(announceAll, restarts, 0, older)
		if trace != nil {
			t.Errorf("%d states: %q", states, trace)
		}
		t.Logf("%d states", states)
	}
	states, trace := exploreAnnounce(announceAll, restarts-1, 1, false)
	if trace != nil {
		t.Errorf("reloads, %d states: %q", states, trace)
	}
	t.Logf("reloads: %d states", states)
	for _, c := range []struct {
		name              string
		without           unannounced
		restarts, reloads int8
	}{
		{"leases are not short", announceLeases, 0, 0},
		{"the first lease is not short", announceFirst, 0, 0},
		{"no WAIT for the announcement", announceNumber, 0, 0},
		{"no WAIT for the pause", announceState, 0, 0},
		{"an older release serves keys", announceOlder, 1, 0},
		{"an instance takes the announcement back alone", announceRecall, 0, 1},
	} {
		states, trace := exploreAnnounce(c.without, c.restarts, c.reloads, false)
		finds(t, c.name, states, trace)
	}
}
