package resize

// This file runs changes of mode warm, and their reversal, in every order of events, breadth first: one key, two lists,
// which give the key to the servers 0 and 1, and two instances. Both have begun to move the key, and have then got the
// first list back. They are reloaded, restarted, or lose their leases, and read and write the key at any time. A read must
// not return a version that is older than the last one acknowledged before it began. A value is lost only by a
// write that fails, or if no instance knows both lists. A read in a turn finds the value at either server. Each ablation
// leaves out one clause, and must break that.
//
// In a further run, both have got a third list instead. Only one of them knows that a new server is out, and reverses the change.
//
// The commands are those of package replicate without placeholders: its tests explore what happens between
// the requests of several commands.

import (
	"fmt"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// turnCommand is a command in flight: its next request, and the one after that.
type turnCommand struct {
	kind    uint8    // 0: none; 'r' and 'w'
	servers [2]uint8 // plus 1, in the order of the requests; 0: none
	began   uint32   // the stage in which the command began
	issued  State    // that of the instance when the request was sent: an announcement has the number of the stage that follows
	first   uint8    // the last version that was acknowledged when it began
	still   bool     // all instances were in the stage Pause when it began
	emptied bool     // it has emptied the old owner
}

type turner struct {
	Status
	cut   bool // it has no leases
	swept [2]uint32
	turnCommand
}

type turnWorld struct {
	record State
	at     [2]turner
	value  [3]uint8 // the version that each server has; 0: none
	next   uint8    // the last version
	acked  uint8
	doubt  bool  // the value may be lost
	forced uint8 // how many more reloads, restarts and losses of leases there may be
}

// turnWithout is a clause to leave out.
type turnWithout uint8

const (
	noClause    turnWithout = iota
	turnWait                // the stage Pause ends at once
	turnPause               // commands do not wait in a turn
	turnReads               // a turn is served like any other stage Pause
	turnUnknown             // instance 1 has a release without turns: this must not break anything but reads, which may miss
)

const turnWrites = 3

// withoutTurns changes the state of an instance of a release without turns: it forgets the list that is not in force
// any more, and does not recognize a turn.
func (p *turner) withoutTurns() {
	for p.Reversed() {
		p.Mine, p.Wish, p.Later = p.Wish, p.Required(), 0
		p.Status = p.Status.settled()
	}
	p.Turns = false
}

// begin returns the command that p begins; its kind is 0 if the command can't begin now.
func (w turnWorld) begin(o turnWithout, p *turner, kind uint8) (c turnCommand) {
	c = turnCommand{kind: kind, began: p.N, issued: p.State, first: w.acked}
	old, owner := uint8(p.List), uint8(p.Next) // the number of a list is that of its server plus 1
	s := p.Serves()
	if s == Turning && o == turnReads {
		s = Paused
	}
	switch {
	case s == All, s == Paused && kind == 'r':
		c.servers[0] = old
	case s == Turning && (kind == 'r' || o == turnPause), s == Moving && kind == 'r':
		c.servers = [2]uint8{owner, old}
		if kind == 'w' {
			c.servers = [2]uint8{old, owner}
		}
	case kind == 'w' && (s == Moving || s == Settling):
		c.servers = [2]uint8{old, owner}
	case s == Settling, s == Cooling:
		c.servers[0] = owner
	default:
		return turnCommand{}
	}
	c.still = p.Stage() == Pause && w.at[0].State == w.at[1].State
	return c
}

// run executes the request of p's command, and sends the next one or ends the command. broken is not empty if the
// reply is wrong.
func (w *turnWorld) run(o turnWithout, p *turner) (what, broken string) {
	c := p.turnCommand
	server := c.servers[0] - 1
	found, last := w.value[server], c.servers[1] == 0
	switch {
	case c.kind == 'r':
	case last:
		w.next++
		found, w.value[server] = w.next, w.next
	default:
		w.value[server] = 0
		p.emptied = true
	}
	what = fmt.Sprintf("gets version %d from server %d", found, server)
	goesOn := !p.cut && p.Compatible(c.began)
	if c.kind == 'r' && found != 0 {
		last = true
	}
	if !last && goesOn {
		p.servers, p.issued = [2]uint8{c.servers[1]}, p.State
		return what, ""
	}
	switch {
	case c.kind == 'w' && !goesOn:
		if last && w.value[server] == found {
			w.value[server] = 0
		}
		w.doubt = w.doubt || p.emptied || last
	case c.kind == 'w':
		w.acked = max(w.acked, found)
	case !goesOn:
	case found != 0 && found < c.first:
		broken = "an older value than before"
	case o == turnUnknown:
	case found < c.first && !w.doubt && (p.Stage() == Stable || c.still && w.at[0].N == w.at[1].N) && !w.at[0].emptied && !w.at[1].emptied:
		broken = "the value is missing"
	}
	p.turnCommand = turnCommand{}
	return what, broken
}

func (w turnWorld) events(o turnWithout, add func(w turnWorld, what, broken string)) {
	for i := range w.at {
		p := w.at[i]
		change := func(what string, f func(w *turnWorld, p *turner)) {
			next := w
			f(&next, &next.at[i])
			if o == turnUnknown {
				next.at[1].withoutTurns()
			}
			add(next, fmt.Sprintf("p%d %s", i, what), "")
		}
		for list := uint32(1); list <= 2 && w.forced > 0; list++ {
			if list != p.Required() && p.N != 0 {
				change(fmt.Sprint("is reloaded with list ", list), func(w *turnWorld, p *turner) { w.forced, p.Status = w.forced-1, p.reloaded(list) })
			}
			if p.kind != 0 {
				continue
			}
			for from := uint32(1); from <= 2; from++ { // the other list: the setting warm_from
				change(fmt.Sprintf("restarts with list %d, and knows list %d", list, from), func(w *turnWorld, p *turner) {
					w.forced--
					*p = turner{Status: Status{Lists: Lists{Mine: from, Wish: list, Warm: true}}}
				})
			}
		}
		if p.State != w.record || p.cut {
			change("reads the record", func(w *turnWorld, p *turner) {
				r := Resize{Status: p.Status}
				r.Read(w.record, 1)
				p.Status, p.cut = r.Status.settled(), false
			})
		}
		if w.forced > 0 && !p.cut {
			change("loses its leases", func(w *turnWorld, p *turner) { p.cut, w.forced = true, w.forced-1 })
		}
		w.advance(o, i, change)
		if p.kind != 0 {
			next := w
			what, broken := next.run(o, &next.at[i])
			add(next, fmt.Sprintf("p%d %s", i, what), broken)
			continue
		}
		for _, kind := range []uint8{'r', 'w'} {
			if c := w.begin(o, &p, kind); c.kind != 0 && !p.cut && (kind == 'r' || w.next < turnWrites) {
				change(fmt.Sprintf("begins %c at servers %d", kind, c.servers), func(_ *turnWorld, p *turner) { p.turnCommand = c })
			}
		}
	}
}

// advance lets instance i take the step that is due.
func (w turnWorld) advance(o turnWithout, i int, change func(string, func(w *turnWorld, p *turner))) {
	p := w.at[i]
	agreed, all := true, true
	for _, q := range w.at {
		agreed = agreed && p.Agrees(q.Vote())
		all = all && (q.cut || q.State == p.State || q.N == 0) && (q.kind == 0 || q.issued == p.State)
	}
	if all && p.Later != 0 && p.Stage() == Stable {
		change("drops a list", func(_ *turnWorld, p *turner) { p.Status = p.Status.dropped() })
		return
	}
	r := Resize{Status: p.Status, swept: p.swept, wished: 1, Announce: i == 0 && p.Wish != 3} // announce_test.go explores commands in an announcement
	r.Retreats = i == 0 && p.Replaced()
	if o == turnUnknown && i == 1 && p.Stage() != Stable {
		r.Later = 0
	}
	stepped := r.Step(int64(time.Hour), agreed && !p.cut, true, func(time.Duration) bool { return (all || o == turnWait && p.Stage() == Pause) && !p.cut }, time.Second)
	what, sweeps := r.Sweeps()
	old, owner := p.List-1, p.Next-1
	switch {
	case stepped:
		change(fmt.Sprintf("begins stage %d of change %d, from list %d to list %d", r.Stage(), r.Change(), r.List, r.Next), func(w *turnWorld, p *turner) {
			w.record = Merge(w.record, r.State)
			r.Later, r.Retreats = p.Later, false
			p.Status = r.Status.settled()
		})
	case !sweeps:
	case p.Serves() == Nothing:
		change("flushes all servers", func(w *turnWorld, p *turner) { p.swept, w.value, w.doubt = what, [3]uint8{}, true })
	case p.Stage() == Stable:
		change("sweeps the server that gains the key", func(w *turnWorld, p *turner) { p.swept, w.value[p.Wish-1] = what, 0 })
	case w.value[old] == 0:
		change("finds nothing at the old owner", func(_ *turnWorld, p *turner) { p.swept = what })
	default:
		change("removes the key from the old owner", func(w *turnWorld, p *turner) {
			if p.Stage() == Move && w.value[owner] == 0 {
				w.value[owner] = w.value[old]
			}
			w.value[old] = 0
		})
	}
}

// exploreTurn returns the number of states, and the events that lead to a violation. later is the list that both instances have got.
func exploreTurn(o turnWithout, forced uint8, later uint32) (states int, trace []string) {
	first := turnWorld{record: State{N: 2*uint32(stages) + uint32(Move), List: 1, Next: 2}, value: [3]uint8{1}, next: 1, acked: 1, forced: forced}
	for i := range first.at {
		first.at[i].Status = Status{State: first.record, Lists: Lists{Mine: 1, Wish: 2, Later: later, Warm: true}}
	}
	return breadthFirst(first, func(w turnWorld, add func(w turnWorld, what, broken string)) { w.events(o, add) }, func(turnWorld) string { return "" })
}

func TestExploreTurn(t *testing.T) {
	for o, forced := range map[turnWithout]uint8{noClause: 1, turnUnknown: 0} {
		if testenv.Full() {
			forced++
		}
		states, trace := exploreTurn(o, forced, 1)
		if trace != nil {
			t.Errorf("%d states: %q", states, trace)
		}
		t.Logf("%d states", states)
	}
	states, trace := exploreTurn(noClause, 0, 3)
	if trace != nil {
		t.Errorf("a third list: %d states: %q", states, trace)
	}
	t.Logf("a third list: %d states", states)
	for _, c := range []struct {
		name    string
		without turnWithout
	}{
		{"no WAIT in a turn", turnWait},
		{"commands do not wait in a turn", turnPause},
		{"reads in a turn ask one server", turnReads},
	} {
		states, trace := exploreTurn(c.without, 0, 1)
		finds(t, c.name, states, trace)
	}
}
