package resize

// This file runs the rules of Resize in every order of events, breadth first: one key, two lists, which
// give the key to the servers 0 and 1, and two instances. Instances are reloaded or restarted with
// either list, or with both, lose their leases, and read and write the key at any time. A read must not return a
// version that is older than the last one acknowledged before the read began. Each ablation leaves out one
// clause, and must break that.

import (
	"fmt"
	"hash/maphash"
	"testing"
	"time"

	"ringside/internal/testenv"
)

const (
	instances  = 2
	mostWrites = 2
)

// flight is a command in flight.
type flight struct {
	kind    uint8 // 0: none; 'r' and 'w'
	done    bool  // executed by the server
	server  uint8
	n       uint32 // the stage in which it began
	version uint8  // the version that it has stored or found
	floor   uint8  // the last version that was acknowledged when it began
}

type instance struct {
	Status
	cut   bool // it has no leases
	swept [2]uint32
	flight
}

type world struct {
	record State
	at     [instances]instance
	value  [2]uint8 // the version that each server has; 0: none
	next   uint8    // the last version: writes get one when a server executes them
	acked  uint8
	forced uint8 // how many more reloads, restarts and losses of leases there may be
}

type without struct {
	wait     bool // Clear ends at once
	sweep    bool // servers that gain keys are not flushed
	own      bool // an instance that does not know the list in force serves by its own
	unknown  bool // an instance that does not know the list in force flushes nothing
	notReply bool // a reply counts although the keys move meanwhile
}

// breadthFirst visits first and all states that follow it. next passes each state that follows w to add, with its event,
// and with what the event violates; empty: nothing. end returns what a state violates that only leads to itself.
// breadthFirst returns the number of states, and the events that lead to a violation.
func breadthFirst[W comparable](first W, next func(w W, add func(w W, what, broken string)), end func(w W) (broken string)) (states int, trace []string) {
	type step struct {
		from int
		what string
	}
	seed := maphash.MakeSeed()
	steps, seen := []step{{-1, ""}}, map[uint64]struct{}{}
	at := -1
	for level, following := []W{first}, []W(nil); len(level) > 0; level, following = following, level[:0] {
		for _, from := range level {
			at++
			bad, more := "", false
			next(from, func(w W, what, broken string) {
				if more = more || w != from; broken != "" && bad == "" {
					bad = what + ": " + broken
				}
				h := maphash.Comparable(seed, w)
				if _, ok := seen[h]; !ok {
					seen[h] = struct{}{}
					following, steps = append(following, w), append(steps, step{at, what})
				}
			})
			if !more && bad == "" {
				bad = end(from)
			}
			if bad != "" {
				trace = []string{bad}
				for i := at; i > 0; i = steps[i].from {
					trace = append([]string{steps[i].what}, trace...)
				}
				return len(steps), trace
			}
		}
	}
	return len(steps), nil
}

// finds checks that an exploration without a clause finds a violation.
func finds(t *testing.T, name string, states int, trace []string) {
	t.Helper()
	if trace == nil {
		t.Errorf("%s: nothing found in %d states", name, states)
		return
	}
	t.Logf("%s: %d steps in %d states: %q", name, len(trace), states, trace)
}

// explore returns the number of worlds, and the events that lead to a violation.
func explore(o without, forced uint8) (worlds int, trace []string) {
	first := world{record: First(1), forced: forced}
	for i := range first.at {
		first.at[i].Status = Status{State: First(1), Lists: Lists{Mine: 1, Wish: 1}}
	}
	return breadthFirst(first, func(w world, add func(w world, what, broken string)) {
		w.events(o, func(w world, what string, broken bool) {
			if broken {
				add(w, what, "an older value than before")
			} else {
				add(w, what, "")
			}
		})
	}, func(world) string { return "" })
}

// events passes each world that follows w to add, with the event that leads to it. broken means that the
// event is a wrong reply.
func (w world) events(o without, add func(w world, what string, broken bool)) {
	for i := range w.at {
		p := w.at[i]
		say := func(format string, args ...any) string { return fmt.Sprintf("p%d ", i) + fmt.Sprintf(format, args...) }
		change := func(f func(w *world, p *instance)) world {
			next := w
			f(&next, &next.at[i])
			return next
		}
		for list := uint32(1); list <= 2 && w.forced > 0; list++ {
			if list != p.Required() && p.N != 0 {
				add(change(func(w *world, p *instance) { w.forced, p.Status = w.forced-1, p.reloaded(list) }), say("is reloaded with list %d", list), false)
				if !p.Holds() { // the setting warm_from: see table.Table.Begin
					add(change(func(w *world, p *instance) {
						w.forced--
						p.Lists, p.Drops = Lists{Mine: 3 - list, Wish: list, Warm: p.Warm}, false
					}), say("is reloaded with list %d, and learns the other one", list), false)
				}
			}
			if p.kind == 0 {
				add(change(func(w *world, p *instance) {
					w.forced--
					*p = instance{Status: Status{Lists: Lists{Mine: list, Wish: list}}}
				}), say("restarts with list %d", list), false)
				add(change(func(w *world, p *instance) { // the same
					w.forced--
					*p = instance{Status: Status{Lists: Lists{Mine: 3 - list, Wish: list}}}
				}), say("restarts with list %d, and knows the other one", list), false)
			}
		}
		add(change(func(w *world, p *instance) {
			p.State = Merge(p.State, w.record)
			p.Status, p.cut = p.Status.settled(), false
		}), say("reads the record"), false)
		if p.Lacks() != nil {
			add(change(func(w *world, p *instance) { p.Status = p.Status.learned() }), say("learns the lists of its peers"), false)
		}
		if w.forced > 0 && !p.cut {
			add(change(func(w *world, p *instance) { p.cut, w.forced = true, w.forced-1 }), say("loses its leases"), false)
		}
		w.advance(o, i, say, add)
		serves := p.Serves() == All || o.own && p.Serves() == Nothing && p.N != 0
		owner := uint8(p.Mine - 1)
		switch {
		case p.kind == 0 && serves:
			add(change(func(w *world, p *instance) {
				p.flight = flight{kind: 'r', server: owner, n: p.N, floor: w.acked}
			}), say("begins to read at server %d", owner), false)
			if w.next < mostWrites {
				add(change(func(w *world, p *instance) {
					p.flight = flight{kind: 'w', server: owner, n: p.N}
				}), say("begins to write at server %d", owner), false)
			}
		case p.kind != 0 && !p.done:
			add(change(func(w *world, p *instance) {
				if p.done = true; p.kind == 'w' {
					w.next++
					p.version, w.value[p.server] = w.next, w.next
				} else {
					p.version = w.value[p.server]
				}
			}), say("gets its command executed at server %d", p.server), false)
		case p.done:
			sure := !p.cut && (serves && owner == p.server || o.notReply)
			broken := sure && p.kind == 'r' && p.version != 0 && p.version < p.floor
			add(change(func(w *world, p *instance) {
				if p.kind == 'w' && sure {
					w.acked = max(w.acked, p.version)
				} else if p.kind == 'w' && w.value[p.server] == p.version { // it is undone
					w.value[p.server] = 0
				}
				p.flight = flight{}
			}), say("replies with version %d (sure: %t, floor %d)", p.version, sure, p.floor), broken)
		}
	}
}

// advance lets instance i take the step that is due.
func (w world) advance(o without, i int, say func(string, ...any) string, add func(world, string, bool)) {
	p := &w.at[i] // w is a copy
	agreed, all := true, true
	for _, q := range w.at {
		agreed = agreed && p.Agrees(q.Vote())
		all = all && (q.cut || q.State == p.State || q.N == 0) && (q.kind == 0 || q.n == p.N)
	}
	if p.Drops = all && p.Later != 0 && p.Stage() == Stable; p.Drops { // the others know its vote, and have begun nothing
		next := w
		next.at[i].Status = p.Status.dropped()
		add(next, say("drops a list"), false)
		p.Drops = false
	}
	r := Resize{Status: p.Status, swept: p.swept, wished: 1}
	stepped := r.Step(int64(time.Hour), agreed && !p.cut, true, func(time.Duration) bool { return (all || o.wait) && !p.cut }, time.Second)
	change, sweeps := r.Sweeps()
	switch {
	case stepped:
		p.State = r.State
		w.record = Merge(w.record, r.State)
		p.Status = p.Status.settled()
		add(w, say("begins stage %d", p.N), false)
	case sweeps:
		if p.swept = change; !o.sweep && p.List == p.Mine {
			w.value[p.Wish-1] = 0
		} else if !o.sweep && !o.unknown {
			w.value = [2]uint8{}
		}
		add(w, say("flushes the servers that gain keys"), false)
	}
}

func TestExplore(t *testing.T) {
	forced := uint8(2)
	if testenv.Full() {
		forced = 4
	}
	worlds, trace := explore(without{}, forced)
	if trace != nil {
		t.Errorf("%d worlds: %q", worlds, trace)
	}
	t.Logf("%d worlds", worlds)
	for _, c := range []struct {
		name   string
		o      without
		forced uint8
	}{
		{"no WAIT", without{wait: true}, 2},
		{"its own list after a start", without{own: true}, 2},
		{"a reply after keys moved", without{notReply: true}, 3},
		{"no flush", without{sweep: true}, 4},
		{"no flush if the list is unknown", without{unknown: true}, 4},
	} {
		if c.forced > 2 && !testenv.Full() {
			continue
		}
		worlds, trace := explore(c.o, c.forced)
		finds(t, c.name, worlds, trace)
	}
}
