package resize

// This file runs the rules of mode warm in every order of events, breadth first: three instances and three lists.
// Instances are reloaded or restarted with any list. Three things must hold. No instance flushes servers while
// another one knows the lists by which keys are served, because values would be lost. A reload does not stop
// an instance from serving keys. All instances serve keys in the end. Each ablation leaves out one clause, and
// must break that.

import (
	"fmt"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// reloaded returns s after a reload with the given list: see table.Table.Hold.
func (s Status) reloaded(list uint32) Status {
	switch {
	case !s.Holds():
		s.Mine, s.Wish, s.Later = list, list, 0
	case s.Mine != s.Wish && (s.Stage() == Stable || s.Moves()):
		if s.Later = list; list == s.Wish {
			s.Later = 0
		}
	default:
		s.Wish = list
	}
	return s
}

// settled returns s after the loops use the list in force: see table.Table.Advance.
func (s Status) settled() Status {
	for s.Superseded() || s.Forgets() {
		s.Mine, s.Wish, s.Later = s.Wish, s.Required(), 0
	}
	return s
}

// dropped returns s after the loops have dropped the list Wish.
func (s Status) dropped() Status {
	s.Wish, s.Later, s.Drops = s.Later, 0, false
	return s.settled()
}

// learned returns s after the process has learned the lists that it lacks: see table.Table.Advance.
func (s Status) learned() Status {
	if s.Lacks() == nil {
		return s
	}
	own := s.Required()
	if s.Mine, s.Wish, s.Later = s.List, own, 0; s.Next != 0 && s.Next != own {
		s.Wish, s.Later = s.Next, own
	}
	return s
}

// The hashes of the lists. No list has the hash announcing.
const (
	informedFirst = announcing + 1
	informedLast  = announcing + 3
)

type peer struct {
	Status
	swept [2]uint32
	anew  bool // it was restarted, and has not known the lists since
}

type peers struct {
	record State
	at     [3]peer
	forced uint8 // how many more reloads and restarts there may be
}

type unless struct {
	informs bool // a vote does not say whether its instance knows the lists
	keeps   bool // a reload replaces the list Wish at once
	learns  bool // an instance that lacks lists learns them at once
	partly  bool // the same, but it learns only the list in force
}

// settle returns s after the loops use the list in force, or what the process has learned.
func (o unless) settle(s Status) Status {
	s = s.settled()
	if lacks := s.Lacks(); !o.learns || o.partly && (len(lacks) != 1 || lacks[0] != s.List) {
		return s
	}
	return s.learned()
}

// next passes each state that follows w to add, with its event. broken is not empty if the event is wrong.
func (w peers) next(o unless, add func(w peers, what, broken string)) {
	for i := range w.at {
		p := w.at[i]
		change := func(f func(w *peers, p *peer), what, broken string) {
			next := w
			f(&next, &next.at[i])
			if o.learns && next.at[i].N != 0 && next.at[i].Serves() == Nothing && broken == "" {
				broken = "it serves no keys, although it can know the lists"
			}
			next.at[i].anew = next.at[i].anew && (next.at[i].Serves() == Nothing || next.at[i].State != next.record || next.at[i].Lacks() != nil)
			if broken == "" && !next.at[i].anew && next.at[i].Serves() == Nothing {
				broken = "it serves no keys"
			}
			add(next, fmt.Sprintf("p%d %s", i, what), broken)
		}
		for list := uint32(informedFirst); list <= informedLast && w.forced > 0; list++ {
			if list != p.Required() && p.N != 0 {
				change(func(w *peers, p *peer) {
					w.forced--
					if o.keeps && p.Holds() && p.Stage() == Stable {
						p.Wish, p.Later = list, 0
					} else {
						p.Status = p.Status.reloaded(list)
					}
					p.anew = p.anew || !p.Holds() // it was outdated already
					p.Status = o.settle(p.Status)
				}, fmt.Sprint("is reloaded with list ", list), "")
			}
			change(func(w *peers, p *peer) {
				w.forced--
				*p = peer{Status: Status{Lists: Lists{Mine: list, Wish: list, Warm: true}}, anew: true}
			}, fmt.Sprint("restarts with list ", list), "")
			for from := uint32(informedFirst); from <= informedLast; from++ { // the setting warm_from: see table.Table.Begin
				if from != list {
					change(func(w *peers, p *peer) {
						w.forced--
						*p = peer{Status: Status{Lists: Lists{Mine: from, Wish: list, Warm: true}}, anew: true}
					}, fmt.Sprintf("restarts with list %d, and knows list %d", list, from), "")
				}
			}
		}
		if p.State != w.record {
			change(func(w *peers, p *peer) {
				p.State = Merge(p.State, w.record)
				p.Status = o.settle(p.Status)
			}, "reads the record", "")
		}
		if p.Lacks() != nil && !o.learns {
			change(func(w *peers, p *peer) { p.Status = p.Status.learned() }, "learns the lists of its peers", "")
		}
		agreed, all, informed := true, true, false
		for j, q := range w.at {
			if o.informs {
				agreed = agreed && q.Required() == p.Required()
			} else {
				agreed = agreed && p.Agrees(q.Vote())
			}
			all = all && (q.State == p.State || q.N == 0)
			informed = informed || j != i && q.N != 0 && q.Serves() != Nothing && q.State == w.record
		}
		agreed = agreed && (all || p.Stage() != Stable) // a stage after Stable begins some time later
		if p.Later != 0 && p.Stage() == Stable && all && p.State == w.record {
			change(func(w *peers, p *peer) { p.Status = p.Status.dropped() }, "drops a list", "")
		}
		r := Resize{Status: p.Status, swept: p.swept, wished: 1, Announce: i == 0}
		stepped := r.Step(int64(time.Hour), agreed, true, func(time.Duration) bool { return all }, time.Second)
		what, sweeps := r.Sweeps()
		switch {
		case stepped:
			change(func(w *peers, p *peer) {
				p.State = r.State
				w.record = Merge(w.record, r.State)
				p.Status = o.settle(p.Status)
			}, fmt.Sprint("begins stage ", r.N), "")
		case sweeps:
			broken := ""
			if o.learns && p.Serves() == Nothing {
				broken = "values are lost, although all instances can know the lists"
			}
			if informed && p.Mine == p.Wish { // it flushes all servers
				broken = "values are lost"
			}
			change(func(w *peers, p *peer) { p.swept = what }, "does the work", broken)
		}
	}
}

// exploreInformed returns the number of states, and the events that lead to a violation.
func exploreInformed(o unless, forced uint8) (states int, trace []string) {
	first := peers{record: First(informedFirst), forced: forced}
	for i := range first.at {
		first.at[i].Status = Status{State: first.record, Lists: Lists{Mine: informedFirst, Wish: informedFirst, Warm: true}}
	}
	return breadthFirst(first, func(w peers, add func(w peers, what, broken string)) { w.next(o, add) }, func(w peers) string {
		a := w.at
		for i := range a {
			if a[0].Required() == a[1].Required() && a[0].Required() == a[2].Required() && (a[i].Serves() != All || a[i].Mine != a[i].Required()) {
				return fmt.Sprintf("p%d serves no keys in the end: %+v", i, a[i].Status)
			}
		}
		return ""
	})
}

func TestExploreInformed(t *testing.T) {
	forced := uint8(4)
	if testenv.Full() {
		forced = 6
	}
	for _, o := range []unless{{}, {learns: true}} {
		states, trace := exploreInformed(o, forced)
		if trace != nil {
			t.Errorf("%+v, %d states: %q", o, states, trace)
		}
		t.Logf("%+v: %d states", o, states)
	}
	for _, c := range []struct {
		name string
		o    unless
	}{
		{"votes without knowledge", unless{informs: true}},
		{"a list is dropped at once", unless{keeps: true}},
		{"only the list in force is learned", unless{learns: true, partly: true}},
	} {
		states, trace := exploreInformed(c.o, 4)
		finds(t, c.name, states, trace)
	}
}
