package replicate

// Commands of two or three proxies on one key at once, with every possible interruption:
// late commands, restarts, tombstones that expire early, proxies that stop. For each rule
// that is left out, an error must be found.

import (
	"fmt"
	"testing"

	"ringside/internal/testenv"
)

const (
	old   = 9 // the value before the scene
	fresh = 1 // the value that a client of the scene stores
)

// marking is a scene of clients at replicas A and B, both In.
type marking struct {
	name  string
	setup func(s *scene)
	wrong func(s *scene) string // reports a state that must never occur
}

// conditionally makes all commands conditional.
var conditionally bool

func command(c Command, value uint32) client {
	c.Conditional = c.Conditional || conditionally
	return client{rule: begin(Policy{ReadThrough: true}, c, states(In, In), 0), own: own{value: value}}
}

// returning returns a command that runs while the second replica rejoins.
func returning(c Command, value uint32) client {
	c.Conditional = c.Conditional || conditionally
	return client{rule: begin(Policy{ReadThrough: true}, c, states(In, Returning), 0), own: own{value: value}}
}

// spoiling returns an ms with I whose token is that of an older item, so it stores the item
// stale.
func spoiling(s *scene) client {
	c := command(Command{Op: Cas, If: true, Stale: true}, fresh)
	c.token = s.w.items[0].cas - 1
	return c
}

func mending1(to, from int) client { return client{rule: Mend(to, from, false, false)} }

func (s *scene) play(cs ...client) {
	for _, c := range cs {
		s.clients[s.n] = c
		s.n++
	}
}

// advance runs the first n asks of client i before anything else.
func (s *scene) advance(i, n int) {
	for ask := range n {
		var room [maxAsks]Ask
		s.clients[i].rule.Next(room[:0])
		s.tell(i, ask, s.w.run(&s.clients[i], ask))
	}
}

func (s *scene) has(m int, value uint32) bool {
	it := s.w.items[m]
	return it.has && !it.mark && !it.stale && it.value == value
}

// undeleted reports that an acknowledged delete is undone at some replica.
func undeleted(s *scene) string {
	for m := range 2 {
		if s.acked[0] && s.has(m, old) {
			return fmt.Sprintf("replica %d has what was deleted", m)
		}
	}
	return ""
}

// outlived reports a value that survived an acknowledged delete. In these scenes the value
// can be stored only if it replaces another value, so the delete must have run after the
// store.
func outlived(s *scene) string {
	for m := range 2 {
		if s.acked[1] && s.has(m, fresh) {
			return fmt.Sprintf("replica %d has what was stored before the delete", m)
		}
	}
	return ""
}

// nowhere reports that an acknowledged value is at no replica, though no client has stored
// or deleted anything since.
func nowhere(s *scene) string {
	if s.acked[0] && !s.has(0, fresh) && !s.has(1, fresh) {
		return "what was stored is nowhere"
	}
	return ""
}

// undoing returns a client that removes the first replica's value. So does a request sent
// after a late set, and a proxy that knows of a write that the replica has missed.
func undoing() client {
	return client{rule: begin(Policy{}, del, states(In, Out), 0)}
}

// strangers reports a get that returned a tombstone.
func strangers(s *scene) string {
	for i := range s.n {
		c := &s.clients[i]
		if c.rule.c.Op != Get || c.rule.class == mends {
			continue
		}
		if settled, ok := c.rule.Settled(); ok && settled.Verdict == Answered && settled.Answer >= 0 && c.rule.asks[settled.Answer].kind == Hit && c.read == 0 {
			return "a mark was shown"
		}
	}
	return ""
}

// twoLocks reports that two adds were granted, with no delete between them.
func twoLocks(s *scene) string {
	n := 0
	for i := range s.n {
		if s.acked[i] && s.clients[i].rule.c.Op == Add {
			n++
		}
	}
	if n > 1 {
		return "two clients hold the lock"
	}
	return ""
}

// tornAppend reports that an acknowledged append, or the value before it, is missing, or
// that an append is there twice, even for a moment.
func tornAppend(s *scene) string {
	for m := range 2 {
		it := s.w.items[m]
		if !it.has || it.mark {
			continue
		}
		var digits [10]int
		for v := it.value; v > 0; v /= 10 {
			digits[v%10]++
		}
		for d := 1; d < 9; d++ {
			if digits[d] > 1 {
				return fmt.Sprintf("replica %d has %d: twice", m, it.value)
			}
		}
		for i := range s.n {
			if c := &s.clients[i]; s.acked[i] && c.rule.c.Op == Append && (digits[c.value] == 0 || digits[old] == 0) {
				return fmt.Sprintf("replica %d has %d: not what was appended to %d", m, it.value, old)
			}
		}
	}
	return ""
}

// unlock releases a lock that the second client waits for.
func unlock(s *scene) { both(s); s.play(command(del, 0), command(adding, fresh)) }

// taken reports that the waiter's lock is gone, though no command has deleted it since.
func taken(s *scene) string {
	for i := range s.n {
		if !s.clients[i].rule.IsDone() {
			return ""
		}
	}
	if s.acked[1] && !s.has(0, fresh) && !s.has(1, fresh) {
		return "the waiter's lock is gone"
	}
	return ""
}

// countLost reports a replica without the acknowledged incr or decr, even for a moment: it
// may be the only replica that is left.
func countLost(s *scene) string {
	for m := range 2 {
		it := s.w.items[m]
		if !it.has || it.mark {
			continue
		}
		if it.value > 5 && s.acked[1] || it.value < 5 && s.acked[0] || it.value != 5 && s.acked[0] && s.acked[1] {
			return fmt.Sprintf("replica %d has %d", m, it.value)
		}
	}
	return ""
}

func upAndDown(s *scene) {
	s.play(command(Command{Op: Incr}, 1), command(Command{Op: Incr}, 1<<32-1))
}

func both(s *scene) { s.w.put(0, old); s.w.put(1, old) }

var (
	del     = Command{Op: Delete}
	stale   = Command{Op: Delete, Stale: true}
	adding  = Command{Op: Add}
	append1 = Command{Op: Append}
)

// markings are the scenes, the largest last, because smaller ones find most of the
// ablations.
var markings = []marking{
	{"delete, two repairs", func(s *scene) { both(s); s.play(command(del, 0), mending1(0, 1), mending1(1, 0)) }, undeleted},
	{"delete, a repair, late", func(s *scene) { both(s); s.play(command(del, 0), mending1(0, 1)); s.lates = 1 }, undeleted},
	{"delete, a repair, a proxy stops", func(s *scene) { both(s); s.play(command(del, 0), mending1(0, 1)); s.crashes = 1 }, undeleted},
	{"delete, a repair, a restart", func(s *scene) { both(s); s.play(command(del, 0), mending1(0, 1)); s.restarts = 1 }, undeleted},
	{"delete, a repair, a mark goes early", func(s *scene) { both(s); s.play(command(del, 0), mending1(0, 1)); s.expires = 1 }, undeleted},
	{"delete of what one has, a repair", func(s *scene) { s.w.put(1, old); s.play(command(del, 0), mending1(0, 1), mending1(0, 1)) }, undeleted},
	{"delete, replace, repair", func(s *scene) { both(s); s.play(command(del, 0), command(Command{Op: Replace}, fresh), mending1(0, 1)) }, undeleted},
	{"delete, incr, repair", func(s *scene) { both(s); s.play(command(del, 0), command(Command{Op: Incr}, 1), mending1(0, 1)) }, undeleted},
	{"stale delete, two repairs", func(s *scene) { both(s); s.play(command(stale, 0), mending1(0, 1), mending1(1, 0)) }, undeleted},
	{"stale delete, a repair, late", func(s *scene) { both(s); s.play(command(stale, 0), mending1(0, 1)); s.lates = 1 }, undeleted},
	{"stale delete, a repair, a restart", func(s *scene) { both(s); s.play(command(stale, 0), mending1(0, 1)); s.restarts = 1 }, undeleted},
	{"stale delete, a repair of the other, a restart", func(s *scene) { both(s); s.play(command(stale, 0), mending1(1, 0)); s.restarts = 1 }, undeleted},
	{"stale delete, a repair, a mark goes early", func(s *scene) { both(s); s.play(command(stale, 0), mending1(0, 1)); s.expires = 1 }, undeleted},
	{"stale delete of what one has, a repair", func(s *scene) { s.w.put(1, old); s.play(command(stale, 0), mending1(0, 1), mending1(0, 1)) }, undeleted},
	{"stale delete, a repair over what is there", func(s *scene) { both(s); s.play(command(stale, 0), client{rule: Mend(0, 1, true, false)}) }, undeleted},
	{"stale delete, repairs over what is there", func(s *scene) {
		both(s)
		s.play(command(stale, 0), client{rule: Mend(0, 1, true, true)}, client{rule: Mend(1, 0, true, true)})
	}, undeleted},
	{"stale delete by token, a repair over what is there", func(s *scene) {
		both(s)
		s.play(command(Command{Op: Delete, If: true, Stale: true}, 0), client{rule: Mend(0, 1, true, false)})
		s.clients[0].token = s.w.items[0].cas
	}, undeleted},
	{"stale delete, a repair over what is there, a restart", func(s *scene) {
		both(s)
		s.play(command(stale, 0), client{rule: Mend(0, 1, true, false)})
		s.restarts = 1
	}, undeleted},
	{"stale delete, a repair over what is there, a proxy stops", func(s *scene) {
		both(s)
		s.play(command(stale, 0), client{rule: Mend(0, 1, true, true)})
		s.crashes = 1
	}, undeleted},
	{"stale cas, two repairs", func(s *scene) { both(s); s.play(spoiling(s), mending1(0, 1), mending1(1, 0)) }, undeleted},
	{"stale cas, a repair, a mark goes early", func(s *scene) { both(s); s.play(spoiling(s), mending1(0, 1)); s.expires = 1 }, undeleted},
	{"stale cas, a repair over what is there, a restart", func(s *scene) {
		both(s)
		s.play(spoiling(s), client{rule: Mend(0, 1, true, false)})
		s.restarts = 1
	}, undeleted},
	{"stale cas, a repair over what is there, a proxy stops", func(s *scene) {
		both(s)
		s.play(spoiling(s), client{rule: Mend(0, 1, true, true)})
		s.crashes = 1
	}, undeleted},
	{"stale cas, repairs over what is there", func(s *scene) {
		both(s)
		s.play(spoiling(s), client{rule: Mend(0, 1, true, true)}, client{rule: Mend(1, 0, true, true)})
	}, undeleted},
	{"stale cas, where there is nothing but a mark", func(s *scene) { s.w.mark(0); s.play(spoiling(s)) }, func(s *scene) string {
		if s.acked[0] {
			return "stored in the place of nothing"
		}
		return ""
	}},
	{"delete, a repair over what is there", func(s *scene) { both(s); s.play(command(del, 0), client{rule: Mend(0, 1, true, false)}) }, undeleted},
	{"delete by token, a repair", func(s *scene) {
		both(s)
		s.play(command(Command{Op: Delete, If: true}, 0), mending1(0, 1), mending1(1, 0))
		s.clients[0].token = s.w.items[0].cas
	}, undeleted},
	{"delete, cas", func(s *scene) {
		both(s)
		s.play(command(Command{Op: Cas}, fresh), command(del, 0))
		s.clients[0].token = s.w.items[0].cas
	}, outlived},
	{"delete, replace", func(s *scene) { both(s); s.play(command(Command{Op: Replace}, fresh), command(del, 0)) }, outlived},
	{"replace, the authority loses it and is repaired", func(s *scene) {
		both(s)
		s.play(command(Command{Op: Replace}, fresh), undoing(), mending1(0, 1))
	}, nowhere},
	{"cas, the authority loses it and is repaired", func(s *scene) {
		both(s)
		s.play(command(Command{Op: Cas}, fresh), undoing(), mending1(0, 1))
		s.clients[0].token = s.w.items[0].cas
	}, nowhere},
	{"two adds, a repair", func(s *scene) { s.play(command(adding, 1), command(adding, 2), mending1(0, 1)) }, twoLocks},
	{"two adds, late", func(s *scene) { s.play(command(adding, 1), command(adding, 2)); s.lates = 1 }, twoLocks},
	{"two adds, a proxy stops", func(s *scene) { s.play(command(adding, 1), command(adding, 2)); s.crashes = 1 }, twoLocks},
	{"add onto one copy, a repair", func(s *scene) { s.w.put(1, old); s.play(command(adding, 1), command(adding, 2), mending1(0, 1)) }, func(s *scene) string {
		if s.acked[0] || s.acked[1] {
			return "an add is granted though one replica has the key"
		}
		return ""
	}},
	{"unlock, two waiters", func(s *scene) { both(s); s.play(command(del, 0), command(adding, 1), command(adding, 2)) }, func(s *scene) string {
		return undeleted(s) + twoLocks(s)
	}},
	{"unlock, a waiter, a touch", func(s *scene) { unlock(s); s.play(command(Command{Op: Touch}, 0)) }, taken},
	{"unlock, a waiter, a repair", func(s *scene) { unlock(s); s.play(mending1(0, 1)) }, taken},
	{"unlock, a waiter, a repair of the other", func(s *scene) { unlock(s); s.play(mending1(1, 0)) }, taken},
	{"unlock, a waiter, a restart", func(s *scene) { unlock(s); s.restarts = 1 }, taken},
	{"unlock, a waiter, a mark goes early", func(s *scene) { unlock(s); s.expires = 1 }, taken},
	{"unlock, a waiter, a restart, a proxy stops", func(s *scene) { unlock(s); s.restarts, s.crashes = 1, 1 }, taken},
	{"unlock, a waiter, a replica returns", func(s *scene) { both(s); s.play(returning(del, 0), returning(adding, fresh)) }, taken},
	{"unlock that has left its marks, a waiter, a replica returns, a mark goes early", func(s *scene) {
		both(s)
		s.play(returning(del, 0), returning(adding, fresh))
		s.advance(0, 4)
		s.expires = 1
	}, taken},
	{"up and down", func(s *scene) { s.w.put(0, 5); s.w.put(1, 5); upAndDown(s) }, countLost},
	{"up and down, one has missed an up", func(s *scene) { s.w.put(0, 5); s.w.put(1, 4); upAndDown(s) }, countLost},
	{"up and down, one has missed a down", func(s *scene) { s.w.put(0, 5); s.w.put(1, 6); upAndDown(s) }, countLost},
	{"up and down, one copy", func(s *scene) { s.w.put(0, 5); upAndDown(s) }, countLost},
	{"up, down and up", func(s *scene) {
		s.w.put(0, 5)
		s.w.put(1, 5)
		upAndDown(s)
		s.play(command(Command{Op: Incr}, 1))
	}, func(s *scene) string { // the third may count or not
		it := s.w.items[1]
		if it.value < 5 && s.acked[0] || it.value > 6 && s.acked[1] || it.value < 6 && s.acked[0] && s.acked[2] || it.value < 5 && s.acked[2] {
			return fmt.Sprintf("the follower has %d", it.value)
		}
		return ""
	}},
	{"up and down, a repair", func(s *scene) { s.w.put(0, 5); s.w.put(1, 5); upAndDown(s); s.play(mending1(1, 0)) }, countLost},
	{"append onto one copy, a repair", func(s *scene) { s.w.put(1, old); s.play(command(append1, 1), mending1(0, 1)) }, tornAppend},
	{"append, the other copy is repaired", func(s *scene) { s.w.put(0, old); s.play(command(append1, 1), mending1(1, 0)) }, tornAppend},
	{"two appends, a repair", func(s *scene) { s.w.put(0, old); s.play(command(append1, 1), command(append1, 2), mending1(1, 0)) }, tornAppend},
	{"append, restart", func(s *scene) { both(s); s.play(command(append1, 1), mending1(0, 1)); s.restarts = 1 }, tornAppend},
	{"append onto an orphan mark", func(s *scene) { s.w.mark(0); s.w.put(1, old); s.play(command(append1, 1), command(append1, 2)) }, tornAppend},
	{"append onto an orphan mark, alone", func(s *scene) { s.w.mark(0); s.w.put(1, old); s.play(command(append1, 1)) }, func(s *scene) string {
		if s.clients[0].rule.IsDone() && !s.acked[0] {
			return "not appended to what one replica has"
		}
		return ""
	}},
	{"append, where there is nothing but a mark", func(s *scene) { s.w.mark(0); s.play(command(append1, 1)) }, func(s *scene) string {
		if s.acked[0] {
			return "appended to nothing"
		}
		return ""
	}},
	{"add, touch, get", func(s *scene) {
		s.play(command(adding, 1), command(Command{Op: Touch}, 0), command(Command{Op: Get}, 0))
	}, func(s *scene) string {
		add, get := &s.clients[0].rule, &s.clients[2]
		said, ok := add.Settled()
		refused := ok && (said.Verdict == Absent || said.Verdict == Answered && !s.acked[0])
		if read, ok := get.rule.Settled(); ok && refused && read.Verdict == Answered && get.rule.asks[read.Answer].kind == Hit {
			return "a get shows what was then not added"
		}
		return ""
	}},
	{"get, a repair", func(s *scene) { s.w.put(1, old); s.play(command(Command{Op: Get}, 0), mending1(0, 1), command(del, 0)) }, strangers},
	{"delete, append, repair", func(s *scene) { both(s); s.play(command(del, 0), command(append1, 1), mending1(0, 1)) }, undeleted},
	{"set, two repairs", func(s *scene) {
		both(s)
		s.play(command(Command{Op: Set}, fresh), mending1(0, 1), mending1(1, 0))
	}, undeleted},
	{"set of a new key, two repairs", func(s *scene) {
		s.play(command(Command{Op: Set}, fresh), mending1(0, 1), mending1(1, 0))
	}, nowhere},
	{"set of what one has, a repair, a restart", func(s *scene) {
		s.w.put(1, old)
		s.play(command(Command{Op: Set}, fresh), mending1(0, 1))
		s.restarts = 1
	}, nowhere},
	{"a repair over what all have, and is about to expire", func(s *scene) {
		s.w.brief = true
		both(s)
		s.play(client{rule: Mend(0, 1, true, false)}, client{rule: Mend(1, 0, true, true)})
	}, func(s *scene) string {
		if !s.has(0, old) || !s.has(1, old) {
			return "a replica has lost what all have"
		}
		return ""
	}},
	{"replace by what is about to expire", func(s *scene) {
		s.w.brief = true
		both(s)
		s.play(command(Command{Op: Replace}, fresh))
	}, func(s *scene) string {
		if s.clients[0].rule.IsDone() && !(s.acked[0] && s.has(0, fresh) && s.has(1, fresh)) {
			return "not stored"
		}
		return ""
	}},
	{"delete, touch, repair", func(s *scene) { both(s); s.play(command(del, 0), command(Command{Op: Touch}, 0), mending1(0, 1)) }, undeleted},
}

// explore visits every interleaving of m and returns the first error.
func (m *marking) explore(t *testing.T, without ablation, limit int) (what string, visited int) {
	x := newChecker(t)
	x.quiet, x.limit = true, limit
	x.always = m.wrong
	x.end = func(s *scene) string { return m.wrong(s) + tornAppend(s) }
	var s scene
	m.setup(&s)
	for i := range s.n {
		s.clients[i].ablate = without
	}
	x.run(m.name, s)
	return x.what, x.visited
}

func TestMarks(t *testing.T) { exploreMarkings(t, func(m *marking) bool { return true }) }

// Like TestMarks, with conditional sets and deletes.
func TestMarksOfConditionalCommands(t *testing.T) {
	conditionally = true
	defer func() { conditionally = false }()
	exploreMarkings(t, func(m *marking) bool {
		var s scene
		m.setup(&s)
		for i := range s.n {
			if s.clients[i].rule.conditional() {
				return true
			}
		}
		return false
	})
}

func exploreMarkings(t *testing.T, which func(m *marking) bool) {
	for _, m := range markings {
		if !which(&m) {
			continue
		}
		usual := 50000
		if testenv.Full() {
			usual = 200000
		}
		what, n := m.explore(t, everything, manyStates(usual))
		if what != "" {
			t.Errorf("%s: %s", m.name, what)
		}
		t.Logf("%s: %d states", m.name, n)
	}
}

// manyStates returns the most states to visit in a scene: usual, which all but the largest
// four scenes stay below. It returns 0, no limit, in a soak. With -short it returns 5,000
// at most, which is enough for each ablation.
func manyStates(usual int) int {
	switch {
	case everyVector():
		return 0
	case testing.Short():
		return min(usual, 5000)
	}
	return usual
}

// For each rule that is left out, some scene finds an error.
func TestMarksAblations(t *testing.T) {
	for a, name := range map[ablation]string{
		oneRound: "a delete that doesn't begin again", onlyLooks: "fresh marks in the place of those that stand", noMarks: "deletes without marks", onlyValues: "marks only where something is",
		shown: "marks are shown", ownLook: "nobody looks behind an append", unguarded: "a look at followers", alike: "what the authority has come to since a count",
		unasked: "an add asks those who are not read", cleans: "who meets a mark removes it", unbound: "copies that depend on the cas of the look", unsure: "the authority's process", tooBrief: "a copy of what is about to expire",
	} {
		found := ""
		for _, m := range markings {
			if what, n := m.explore(t, a, manyStates(20000)); what != "" {
				found = fmt.Sprintf("%s, after %d states: %s", m.name, n, what)
				break
			}
		}
		if found == "" {
			t.Errorf("without %s: nothing is found", name)
		} else {
			t.Logf("without %s: %s", name, found)
		}
	}
}
