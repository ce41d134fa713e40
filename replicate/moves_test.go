package replicate

// Commands of several proxies on a key that leaves a former holder, with copies from there
// and every possible interruption. Replicas 0 and 1 are the key's, and replica 0 was before,
// too. Replica 2 is the former holder.

import (
	"fmt"
	"testing"
)

// errand is what a client does around its rule. A command that changes the key first moves
// it off its former holder. A get does that after a miss, and then reads again.
type errand struct {
	moves bool // the rule is now that of the move; when it is over, the command `then` begins
	reads bool // a get that has not moved the key yet
	then  Op
	moved bool // the command has begun, and its result counts
}

func move() Rule { return Move(1<<0|1<<1, 0, 2, false) }

func holdersOf(op Op) Rule {
	return begin(Policy{ReadThrough: true}, Command{Op: op, Conditional: conditionally}, states(Filling, Filling), 0)
}

// behindMove returns a command that begins when the key has left its former holder.
func behindMove(op Op, value uint32) client {
	return client{rule: move(), own: own{value: value, errand: errand{moves: true, then: op}}}
}

// goOn begins the next step when the client's rule is over.
func (c *client) goOn() {
	said, _ := c.rule.Settled()
	switch {
	case !c.rule.IsDone():
	case c.moves && said.Verdict == Answered && c.then != NumOps:
		c.rule, c.moves, c.moved = holdersOf(c.then), false, true
	case c.reads && !(said.Verdict == Answered && c.rule.asks[said.Answer].kind == Hit):
		c.rule, c.reads, c.moves, c.then = move(), false, true, Get
	}
}

// remains reports a replica that still has what was replaced or deleted.
func remains(s *scene) string {
	for m := range s.w.items {
		if s.acked[0] && s.has(m, old) {
			return fmt.Sprintf("replica %d has what was there before", m)
		}
	}
	return ""
}

// missed reports a get that missed although no command deleted anything.
func missed(s *scene) string {
	for i := range s.n {
		c := &s.clients[i]
		if said, ok := c.rule.Settled(); ok && c.moved && c.then == Get && (said.Verdict == Absent || said.Verdict == Answered && c.rule.asks[said.Answer].kind == Miss) {
			return "a get misses what is there"
		}
	}
	return ""
}

func gone(s *scene) string {
	for m := range s.w.items {
		if s.w.items[m].has && !s.w.items[m].mark {
			return ""
		}
	}
	return "nobody has it any more"
}

func granted(s *scene) string {
	if s.acked[0] || s.acked[1] {
		return "an add is granted though the former holder has the key"
	}
	return ""
}

func TestMoves(t *testing.T) { exploreMoves(t) }

// Like TestMoves, with conditional sets and deletes.
func TestMovesOfConditionalCommands(t *testing.T) {
	conditionally = true
	defer func() { conditionally = false }()
	exploreMoves(t)
}

func exploreMoves(t *testing.T) {
	former := func(s *scene) { s.w.put(2, old) }
	two := func(s *scene) { s.w.put(0, old); s.w.put(2, old) }
	fill := func(from int) client { return mending1(1, from) }
	reader := client{rule: holdersOf(Get), own: own{errand: errand{reads: true}}}
	alone := client{rule: move(), own: own{errand: errand{moves: true, then: NumOps}}}
	believes := client{rule: holdersOf(Get), own: own{errand: errand{then: Get, moved: true}}}
	at := func(op Op, value uint32) client { return client{rule: holdersOf(op), own: own{value: value}} }
	for _, scene1 := range []struct {
		marking
		found bool // one rule is left out, so an error must be found
	}{
		{marking{"delete, a fill", func(s *scene) { former(s); s.play(behindMove(Delete, 0), fill(2)) }, remains}, false},
		{marking{"delete, two fills", func(s *scene) { two(s); s.play(behindMove(Delete, 0), fill(2), fill(0)) }, remains}, false},
		{marking{"delete, a fill, late", func(s *scene) { two(s); s.play(behindMove(Delete, 0), fill(2)); s.lates = 1 }, remains}, false},
		{marking{"delete, a fill, a proxy stops", func(s *scene) { two(s); s.play(behindMove(Delete, 0), fill(2)); s.crashes = 1 }, remains}, false},
		{marking{"delete, a move, a restart", func(s *scene) { two(s); s.play(behindMove(Delete, 0), alone); s.restarts = 1 }, remains}, false},
		{marking{"delete, a move, a fault", func(s *scene) { two(s); s.play(behindMove(Delete, 0), alone); s.faults = 1 }, remains}, false},
		{marking{"set, a fill, a move", func(s *scene) { two(s); s.play(behindMove(Set, fresh), fill(2), alone) }, remains}, false},
		{marking{"set, a fill, late", func(s *scene) { former(s); s.play(behindMove(Set, fresh), fill(2)); s.lates = 1 }, func(s *scene) string {
			if !s.clients[1].rule.IsDone() || s.late[0].pending || s.late[1].pending {
				return ""
			}
			return remains(s)
		}}, false},
		{marking{"two moves", func(s *scene) { former(s); s.play(alone, alone, fill(2)) }, gone}, false},
		{marking{"two moves, a proxy stops", func(s *scene) { former(s); s.play(alone, alone); s.crashes = 1 }, gone}, false},
		{marking{"get, a move", func(s *scene) { former(s); s.play(alone, reader) }, missed}, false},
		{marking{"get, a move, a fill", func(s *scene) { former(s); s.play(alone, reader, fill(2)) }, missed}, false},
		{marking{"two adds, it is there", func(s *scene) { former(s); s.play(behindMove(Add, 1), behindMove(Add, 2)) }, granted}, false},
		{marking{"two adds, it is there, a fill", func(s *scene) { former(s); s.play(behindMove(Add, 1), behindMove(Add, 2), fill(2)) }, granted}, false},
		{marking{"two adds", func(s *scene) { s.play(behindMove(Add, 1), behindMove(Add, 2), alone) }, twoLocks}, false},
		{marking{"unlock, a waiter, a fill", func(s *scene) { two(s); s.play(behindMove(Delete, 0), behindMove(Add, fresh), fill(2)) }, taken}, false},
		{marking{"two appends", func(s *scene) { former(s); s.play(behindMove(Append, 1), behindMove(Append, 2)) }, tornAppend}, false},
		{marking{"an append, fills", func(s *scene) { former(s); s.play(behindMove(Append, 1), fill(2), alone) }, tornAppend}, false},
		{marking{"two appends, one holder has it", func(s *scene) { two(s); s.play(behindMove(Append, 1), behindMove(Append, 2)) }, tornAppend}, false},

		{marking{"no move before a delete", func(s *scene) { former(s); s.play(at(Delete, 0), fill(2)) }, remains}, true},
		{marking{"no move before a set", func(s *scene) { two(s); s.play(at(Set, fresh)) }, remains}, true},
		{marking{"no move before an add", func(s *scene) { former(s); s.play(at(Add, 1)) }, granted}, true},
		{marking{"the first miss is believed", func(s *scene) { former(s); s.play(believes) }, missed}, true},
		{marking{"no move before an append", func(s *scene) { former(s); s.play(at(Append, 1)) }, func(s *scene) string {
			if said, ok := s.clients[0].rule.Settled(); ok && said.Verdict != Unmet && !s.acked[0] {
				return "an append is told that there is nothing"
			}
			return ""
		}}, true},
	} {
		x := newChecker(t)
		x.quiet, x.limit = true, manyStates(200000)
		x.always = scene1.wrong
		x.end = func(s *scene) string { return scene1.wrong(s) }
		var s scene
		scene1.setup(&s)
		x.run(scene1.name, s)
		if (x.what != "") != scene1.found {
			t.Errorf("%s: %q", scene1.name, x.what)
		}
		t.Logf("%s: %d states", scene1.name, x.visited)
	}
}
