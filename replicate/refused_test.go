package replicate

// The authority refuses the value of one proxy while another proxy writes the key.

import "testing"

// refusedThen are the commands of the other proxy.
var refusedThen = []struct {
	name  string
	then  Command
	empty bool // the key does not exist before
}{
	{"a set", Command{Op: Set, Conditional: true}, false},
	{"a set of a new key", Command{Op: Set, Conditional: true}, true},
	{"an add", Command{Op: Add}, true},
}

// refuse explores a set that the authority may refuse, and the command i of another proxy.
func refuse(t *testing.T, i int, ablate ablation) (what string, visited int) {
	r := refusedThen[i]
	s := scene{}
	if !r.empty {
		both(&s)
	}
	s.play(command(Command{Op: Set, Conditional: true}, fresh), command(r.then, newer))
	s.clients[0].ablate = ablate
	s.refusals = 1
	x := newChecker(t)
	x.quiet = true
	x.limit = manyStates(50000)
	lost := func(s *scene) string {
		settled, _ := s.clients[0].rule.Settled()
		refused := s.refusals == 0 && settled.Verdict == Answered
		switch {
		case refused && s.acked[1] && !s.has(0, newer):
			return "the authority has lost what was stored"
		case refused && s.clients[0].rule.IsDone() && s.clients[1].rule.IsDone() && (s.w.items[0].mark || s.w.items[1].mark):
			return "a tombstone is left"
		}
		return ""
	}
	x.always = lost
	x.end = func(s *scene) string {
		switch settled, _ := s.clients[0].rule.Settled(); {
		case s.refusals > 0 || settled.Verdict != Answered:
		case r.then.Op == Set && (s.has(0, fresh) || s.has(1, fresh)): // an add that meets the value at the follower may copy it to the authority, which here does not refuse the copy
			return "what was refused is there"
		case s.acked[1] && !s.has(1, newer):
			return "the follower has lost what was stored"
		}
		return ""
	}
	x.run(r.name, s)
	return x.what, x.visited
}

// TestARefusedSetRemovesOnlyItsOwn checks that a set that the authority refuses leaves no tombstone,
// and removes nothing that another proxy has stored.
func TestARefusedSetRemovesOnlyItsOwn(t *testing.T) {
	for i, r := range refusedThen {
		what, n := refuse(t, i, 0)
		if what != "" {
			t.Errorf("%s: %s", r.name, what)
		}
		t.Logf("%s: %d states", r.name, n)
	}
}

// A refused set that removes by key, and not by cas, and one that leaves its tombstones.
func TestARefusedSetAblations(t *testing.T) {
	for a, name := range map[ablation]string{byKey: "the cas", leaves: "a removal"} {
		found := ""
		for i := range refusedThen {
			if what, _ := refuse(t, i, a); what != "" && found == "" {
				found = refusedThen[i].name + ": " + what
			}
		}
		if found == "" {
			t.Errorf("without %s: nothing is found", name)
		} else {
			t.Logf("without %s: %s", name, found)
		}
	}
}
