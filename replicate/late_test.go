package replicate

// A proxy that the network cuts off from all replicas: its requests arrive late, after
// another proxy has stored a newer value.

import "testing"

const newer = 2 // the value that the other proxy stores

// isolated adds a command at both replicas whose asks may run late, and another proxy's
// command after it.
func isolated(s *scene, late, then Command) {
	s.play(command(late, fresh), command(then, newer))
	s.clients[1].waits = true
	s.lates = 2
}

// lates are commands that may arrive late, each with the command that must win over it.
var lates = []struct {
	name       string
	late, then Command
	empty      bool // the key does not exist before
}{
	{"a late set, a newer set", Command{Op: Set}, Command{Op: Set}, false},
	{"a late set of a new key, a newer set", Command{Op: Set}, Command{Op: Set}, true},
	{"a late delete, a newer set", Command{Op: Delete}, Command{Op: Set}, false},
	{"a late set, a newer delete", Command{Op: Set}, Command{Op: Delete}, false},
	{"a late set of a new key, a newer delete", Command{Op: Set}, Command{Op: Delete}, true},
	{"a late add, a newer set", Command{Op: Add}, Command{Op: Set}, true},
	{"a late replace, a newer set", Command{Op: Replace}, Command{Op: Set}, false},
	{"a late append, a newer set", Command{Op: Append}, Command{Op: Set}, false},
	{"a late touch, a newer set", Command{Op: Touch}, Command{Op: Set}, false},
}

// overtaken reports that a replica does not have what was acknowledged after a command
// without a reply. A late append to it is allowed.
func overtaken(s *scene) string {
	if !s.acked[1] {
		return ""
	}
	for m := range 2 {
		it := s.w.items[m]
		if s.clients[1].rule.c.Op == Delete {
			if s.has(m, fresh) || s.has(m, old) {
				return "what was deleted is there"
			}
		} else if !it.has || it.mark || it.value != newer && it.value != newer*10+fresh {
			return "what was stored is gone"
		}
	}
	return ""
}

// missing is like overtaken, but one replica with the value is enough.
func missing(s *scene) string {
	if s.acked[1] && s.clients[1].rule.c.Op == Set && !s.has(0, newer) && !s.has(1, newer) {
		return "what was stored is nowhere"
	}
	return ""
}

func exploreLate(t *testing.T, i int, conditional bool, b behind, wrong func(*scene) string) (what string, visited int) {
	l := lates[i]
	x := newChecker(t)
	x.quiet = true
	x.always, x.end = wrong, wrong
	s := scene{behind: b}
	if !l.empty {
		both(&s)
	}
	l.late.Conditional, l.then.Conditional = conditional, conditional
	isolated(&s, l.late, l.then)
	x.run(l.name, s)
	return x.what, x.visited
}

// TestLateWritesLoseNothingNewer shows that late conditional commands lose no newer value.
func TestLateWritesLoseNothingNewer(t *testing.T) {
	for i, l := range lates {
		what, n := exploreLate(t, i, true, nothing, overtaken)
		if what != "" {
			t.Errorf("%s: %s", l.name, what)
		}
		t.Logf("%s: %d states", l.name, n)
	}
}

// Other rules lose a newer set at all replicas.
func TestLateWritesAblations(t *testing.T) {
	for _, rule := range []struct {
		name string
		b    behind
		i    int
	}{
		{"a set without a condition, and a mark behind it", aMark, 0},
		{"a set without a condition, and a mark behind it that is bound to its value", boundMark, 0},
		{"a delete without a condition", nothing, 2},
	} {
		what, n := exploreLate(t, rule.i, false, rule.b, missing)
		if what == "" {
			t.Errorf("%s: nothing is found in %d states", rule.name, n)
		} else {
			t.Logf("%s, after %d states: %s", rule.name, n, what)
		}
	}
}
