package replicate

// The requests to replicas that differ or fail, reply by reply.

import (
	"fmt"
	"strings"
	"testing"
)

// Replicas that differ from the primary.
func TestWhatDiffers(t *testing.T) {
	two := states(In, In)
	through := Policy{ReadThrough: true}
	say := func(answers string) func(Ask) Outcome {
		words := strings.Split(answers, ", ")
		i := -1
		return func(Ask) Outcome {
			i++
			word, value, _ := strings.Cut(words[i], "=")
			for k, name := range kindNames {
				if name == word {
					o := Outcome{Kind: Kind(k)}
					fmt.Sscan(value, &o.Value)
					return o
				}
			}
			panic(words[i])
		}
	}
	for _, test := range []struct {
		p       Policy
		c       Op
		answers string
		want    string
	}{
		{Policy{}, Get, "miss", "forward 0 -> miss of 0"},
		{through, Get, "miss, hit", "forward 0; forward 1 -> hit of 1 repair 001"},
		{Policy{}, Get, "unsent, miss", "forward 0; forward 1 -> miss of 1"},
		{through, Get, "miss, in doubt", "forward 0; forward 1 -> unmet"},
		{Policy{}, Get, "unsent, server error", "forward 0; forward 1 -> unmet by a server error of 1"},
		{Policy{}, Set, "stored, in doubt", "forward 0, forward 1 -> unmet dirty 010 undo 010 repair 010"},
		{Policy{}, Set, "unsent, stored", "forward 0, forward 1 -> unmet dirty 001 repair 001"},
		{Policy{}, Set, "unsent, unsent", "forward 0, forward 1 -> unmet"},
		{Policy{}, Set, "stored, server error, deleted", "forward 0, forward 1; remove 1 -> unmet by a server error of 1 repair 010"},
		{Policy{}, Set, "server error, stored, deleted", "forward 0, forward 1; remove 1 -> server error of 0 repair 010"},
		{Policy{Ack: AckOne}, Set, "stored, unsent", "forward 0, forward 1 -> stored of 0 dirty 010 repair 010"},
		{Policy{}, Get, "marked, hit", "forward 0; forward 1 -> hit of 1"},
		{Policy{}, Get, "marked, miss", "forward 0; forward 1 -> miss of 1"},
		{Policy{}, Get, "marked, marked", "forward 0; forward 1 -> absent"},
		{Policy{}, Get, "marked, unsent", "forward 0; forward 1 -> unmet"},
		{Policy{}, Delete, "miss, stored, hit, stored, stored, stored, deleted, deleted", "look 0, bury 0, look 1, bury 1; remark 0, remark 1; drop 0, drop 1 -> done"},
		{Policy{}, Delete, "hit, stored, hit, stored, stored, stored, exists, in doubt", "look 0, bury 0, look 1, bury 1; remark 0, remark 1; drop 0, drop 1 -> done"},
		{Policy{}, Delete, "marked, stored, miss, stored, stored, exists, miss, stored, miss, stored, stored, stored, deleted, deleted",
			"look 0, bury 0, look 1, bury 1; remark 0, remark 1; look 0, bury 0, look 1, bury 1; remark 0, remark 1; drop 0, drop 1 -> absent"},
		{Policy{}, Delete, "hit, stored, hit, stored, stored, not found, hit, stored, hit, stored, stored, not found, hit, stored, hit, stored, stored, not found, deleted",
			"look 0, bury 0, look 1, bury 1; remark 0, remark 1; look 0, bury 0, look 1, bury 1; remark 0, remark 1; look 0, bury 0, look 1, bury 1; remark 0, remark 1; drop 0 -> unmet dirty 010 repair 010"},
		{Policy{}, Delete, "hit, stored, hit, stored, stored, in doubt, deleted", "look 0, bury 0, look 1, bury 1; remark 0, remark 1; drop 0 -> unmet dirty 010 repair 010"},
		{Policy{}, Delete, "hit, stored, hit, in doubt, deleted", "look 0, bury 0, look 1, bury 1; drop 0 -> unmet dirty 010 repair 010"},
		{Policy{}, Add, "not stored", "claim 0 -> not stored of 0"},
		{Policy{}, Add, "stored, not stored, hit, stored", "claim 0; claim 1; fetch 1; fill 0 -> not stored of 1"},
		{Policy{}, Add, "stored, not stored, marked, deleted", "claim 0; claim 1; fetch 1; drop 0 -> not stored of 1 repair 001"},
		{Policy{}, Add, "stored, in doubt, deleted", "claim 0; claim 1; drop 0 -> unmet"},
		{Policy{}, Add, "stored, stored, stored, exists", "claim 0; claim 1; store 0; store 1 -> stored of 0 repair 010"},
		{Policy{}, Add, "stored, stored, exists, deleted", "claim 0; claim 1; store 0; drop 1 -> absent"},
		{Policy{}, Add, "stored, stored, stored, in doubt, deleted", "claim 0; claim 1; store 0; store 1; drop 0 -> unmet repair 010 overwrite 010"},
		{Policy{}, Append, "stored, hit=3, hit=3, stored", "forward 0, check 0, preview 1; join 1 -> stored of 0"},
		{Policy{}, Append, "stored, hit=3, hit=4, hit=3, stored", "forward 0, check 0, preview 1; preview 1; join 1 -> stored of 0"},
		{Policy{}, Append, "stored, hit=3, hit=4, hit=4, hit=4, hit, stored, hit", "forward 0, check 0, preview 1; preview 1; look 1; fetch 0; fill 1; check 0 -> stored of 0"},
		{Policy{}, Append, "stored, hit=3, hit=3, exists, hit, hit, stored, hit", "forward 0, check 0, preview 1; join 1; look 1; fetch 0; fill 1; check 0 -> stored of 0"},
		{Policy{}, Append, "stored, marked=1, hit=5, stored, hit=4, not stored, marked, ok, marked, hit, stored, stored, hit=5, hit=5, stored",
			"forward 0, check 0, preview 1; remark 0; fetch 1; claim 0; look 0; wait 0; look 0; fetch 1; fill 0; forward 0, check 0, preview 1; join 1 -> stored of 0"},
		{Policy{}, Append, "stored, exists=3, hit=3", "forward 0, check 0, preview 1 -> unmet repair 010 overwrite 010"},
		{Policy{}, Append, "stored, marked=1, miss, stored, miss", "forward 0, check 0, preview 1; remark 0; fetch 1 -> absent"},
		{Policy{}, Append, "stored, hit=3, hit=3, in doubt", "forward 0, check 0, preview 1; join 1 -> unmet repair 010 overwrite 010"},
		{Policy{}, Incr, "client error, hit=0, miss, miss", "forward 0, preview 1; look 0; fetch 1 -> absent"},
		{Policy{}, Incr, "client error, hit=0, hit, number=5, hit=5, hit=5, in doubt", "forward 0, preview 1; look 0; forward 0, preview 1; fetch 0; fill 1 -> unmet repair 010 overwrite 010"},
		{Policy{}, Incr, "client error, hit=0, in doubt", "forward 0, preview 1; look 0 -> unmet"},
		{Policy{}, Incr, "client error, hit=0, unsent", "forward 0, preview 1; look 0 -> unmet"},
		{Policy{}, Incr, "client error, hit=0, hit, client error, hit=0, miss, miss", "forward 0, preview 1; look 0; forward 0, preview 1; look 0; fetch 1 -> absent"},
		{Policy{}, Incr, "client error, hit=0, hit, client error, hit=0, hit, client error, hit=0, hit, client error, hit=0, hit", "forward 0, preview 1; look 0; forward 0, preview 1; look 0; forward 0, preview 1; look 0; forward 0, preview 1; look 0 -> client error of 0"},
		{Policy{}, Replace, "marked, miss", "look 0; fetch 1 -> absent"},
		{Policy{}, Replace, "hit, exists, hit, stored, hit, hit=1, stored, hit", "look 0; store 0; look 0; store 0; look 1; fetch 0; fill 1; check 0 -> stored of 0"},
		{Policy{}, Incr, "client error, hit, hit, client error, hit, hit, number=7, hit=7, hit=7, stored", "forward 0, preview 1; look 0; forward 0, preview 1; look 0; forward 0, preview 1; fetch 0; fill 1 -> number of 0"},
		{Policy{}, Incr, "client error, miss, marked, miss", "forward 0, preview 1; look 0; fetch 1 -> absent"},
		{Policy{}, Touch, "touched, marked, stored, miss", "forward 0, look 0; remark 0; fetch 1 -> absent"},
		{Policy{}, Incr, "number=7, hit=3, hit=3, hit=8, hit=2, hit=8, stored, hit", "forward 0, preview 1; preview 1; fetch 0, fetch 1; fetch 0; fill 1; check 0 -> number of 0"},
		{Policy{}, Incr, "number=7, hit=3, hit=3, hit=8, hit=8, stored", "forward 0, preview 1; preview 1; fetch 0, fetch 1; fill 1 -> number of 0"},
		{Policy{}, Incr, "number=7, hit=7, hit=7, exists, hit=8, hit=8, exists, hit=9, hit=8, hit=9, stored, hit",
			"forward 0, preview 1; fetch 0; fill 1; fetch 0, fetch 1; fill 1; fetch 0, fetch 1; fetch 0; fill 1; check 0 -> number of 0"},
		// The primary's new number shows that another proxy's count ran at the follower
		// before.
		{Policy{}, Incr, "number=7, hit=7, hit=6, hit=6, hit=7, hit=6, stored, hit",
			"forward 0, preview 1; fetch 0; fetch 0, fetch 1; fetch 0; fill 1; check 0 -> number of 0"},
		{Policy{}, Incr, "number=7, hit=6, hit=7, miss, miss, hit=7, miss", "forward 0, preview 1; preview 1; fetch 0; fetch 0, fetch 1; fetch 0 -> unmet repair 010"},
		{Policy{}, Incr, "number=7, hit=7, in doubt, in doubt, hit=7, in doubt", "forward 0, preview 1; fetch 0; fetch 0, fetch 1; fetch 0 -> unmet repair 010 overwrite 010"},
		{Policy{}, Incr, "in doubt, hit=7", "forward 0, preview 1 -> unmet repair 010 overwrite 010"},
		{Policy{}, Incr, "not found, miss", "forward 0, preview 1 -> not found of 0"},
		{through, Incr, "not found, miss, miss", "forward 0, preview 1; fetch 1 -> not found of 0"},
		{through, Incr, "not found, miss, in doubt", "forward 0, preview 1; fetch 1 -> unmet"},
		{through, Append, "not stored, miss, miss, unsent", "forward 0, check 0, preview 1; fetch 1 -> unmet"},
		{through, Append, "not stored, miss, hit, hit, stored, hit, exists, not stored, miss, hit, hit, stored, hit, stored, stored, hit, hit, stored",
			"forward 0, check 0, preview 1; fetch 1; claim 0; fetch 1; fill 0; forward 0, check 0, preview 1; fetch 1; claim 0; fetch 1; fill 0; forward 0, check 0, preview 1; join 1 -> stored of 0"},
		{through, Gets, "unsent, miss", "forward 0; forward 1 -> unmet"},
		{through, Replace, "miss, unsent", "look 0; fetch 1 -> unmet"},
		{through, Incr, "not found, hit=8, hit, stored, hit, stored, number=8, hit=8, hit=8, stored", "forward 0, preview 1; fetch 1; claim 0; fetch 1; fill 0; forward 0, preview 1; fetch 0; fill 1 -> number of 0"},
		{through, Gets, "miss, hit, stored, hit, stored, hit", "forward 0; fetch 1; claim 0; fetch 1; fill 0; forward 0 -> hit of 0"},
		{Policy{}, Gets, "unsent, hit", "forward 0; forward 1 -> hit of 1"},
		{Policy{}, Cas, "exists", "forward 0 -> exists of 0"},
		{Policy{}, Append, "stored, hit=3, hit=4, hit=4, hit=4, hit, stored, in doubt", "forward 0, check 0, preview 1; preview 1; look 1; fetch 0; fill 1; check 0 -> unmet repair 010 overwrite 010"},
		{Policy{}, Append, "stored, hit=3, hit=4, hit=4, hit=4, hit, server error, deleted", "forward 0, check 0, preview 1; preview 1; look 1; fetch 0; fill 1; drop 1 -> unmet repair 010"},
		{Policy{}, Append, "stored, hit=3, hit=4, hit=4, hit=4, hit, exists, hit=4, hit, exists, hit=4, hit, exists", "forward 0, check 0, preview 1; preview 1; look 1; fetch 0; fill 1; look 1; fetch 0; fill 1; look 1; fetch 0; fill 1 -> unmet repair 010 overwrite 010"},
		{through, Incr, "not found, miss, hit, stored, miss, deleted", "forward 0, preview 1; fetch 1; claim 0; fetch 1; drop 0 -> not found of 0"},
		{Policy{}, Gat, "hit, not found, stored, hit, stored", "forward 0; extend 1; claim 1; fetch 0; fill 1 -> hit of 0"},
		{Policy{}, Gat, "hit, unsent", "forward 0; extend 1 -> hit of 0 repair 010"},
	} {
		if got := play(begin(test.p, Command{Op: test.c}, two, 0), say(test.answers)); got != test.want {
			t.Errorf("%d %s:\n got %s\nwant %s", test.c, test.answers, got, test.want)
		}
	}
	for _, test := range []struct {
		c        Command
		replicas []Replica
		answers  string
		want     string
	}{
		// All that differ get a copy if one has another number.
		{Command{Op: Incr}, states(In, In, In), "number=7, hit=3, hit=3, hit=3, hit=3, hit=8, hit=8, hit=5, hit=8, stored, stored, hit", "forward 0, preview 1, preview 2; preview 1, preview 2; fetch 0, fetch 1, fetch 2; fetch 0; fill 1, fill 2; check 0 -> number of 0"},
		// A complete source is asked first, and an incomplete one only if there is no
		// other.
		{Command{Op: Incr}, states(Dirty, Warming, In), "hit, hit, stored, hit, number=7, hit=7, hit=7, hit=7, stored, stored", "look 0; fetch 2; fill 0; check 2; forward 0, preview 1, preview 2; fetch 0; fill 1, fill 2 -> number of 0 clean 001"},
		{Command{Op: Gets}, states(Dirty, Warming), "hit, hit, stored, hit, hit", "look 0; fetch 1; fill 0; check 1; forward 0 -> hit of 0 clean 001"},
		// A stale replica that has the copy is clean.
		{Command{Op: Append}, states(In, Dirty), "stored, hit=3, hit, hit, stored, hit", "forward 0, check 0; look 1; fetch 0; fill 1; check 0 -> stored of 0 clean 010"},
		// A read doesn't need the primary that could not be repaired.
		{Command{Op: Gets}, states(Dirty, In), "server error, hit", "look 0; forward 1 -> hit of 1"},
		// The right to fill is not granted while a command is in progress, nor twice.
		{Command{Op: Get, Win: true}, states(In, In), "marked", "forward 0 -> absent"},
		{Command{Op: Get, Win: true}, states(In, In), "in doubt", "forward 0 -> unmet"},
		{Command{Op: Get, Win: true}, states(In, In), "unsent, hit", "forward 0; forward 1 -> hit of 1"},
		// An incomplete primary can't decide that there is no key while another may have
		// it.
		{Command{Op: Gets}, states(Filling, Suspect), "miss", "forward 0 -> unmet"},
	} {
		if got := play(begin(Policy{}, test.c, test.replicas, 0), say(test.answers)); got != test.want {
			t.Errorf("%+v %v %s:\n got %s\nwant %s", test.c, test.replicas, test.answers, got, test.want)
		}
	}
	// A tombstone that a stopped proxy left on the only replica in use does not count as a
	// value.
	if got := play(begin(Policy{}, Command{Op: Delete}, states(In, Out), 0), say("marked, stored, stored, deleted")); got != "look 0, bury 0; remark 0; drop 0 -> absent" {
		t.Errorf("delete of a mark: %s", got)
	}
	// If a delete has left a stale item, a replica that missed it has a wrong value.
	if got := play(begin(Policy{}, Command{Op: Delete, Stale: true}, two, 0), say("hit, hit, unsent")); got != "look 0; look 1, bury 1 -> unmet dirty 010 repair 010" {
		t.Errorf("md I that one has missed: %s", got)
	}
	// Another proxy may have written to the replica that this one knows to be dirty.
	if got := play(begin(through, Command{Op: Get}, states(Dirty, Out), 0), say("")); got != "-> refused" {
		t.Errorf("get of a dirty replica alone: %s", got)
	}
	if got := play(begin(through, Command{Op: Get}, states(Dirty, Warming), 0), say("miss")); got != "forward 1 -> unmet" {
		t.Errorf("get of a dirty replica and one that is not filled: %s", got)
	}
	for _, test := range []struct {
		c       Op
		answers string
		want    string
	}{
		{Gets, "miss", "forward 0 -> unmet"},
		{Gat, "miss", "forward 0 -> unmet"},
		{Incr, "not found", "forward 0 -> unmet"},
		{Append, "not stored, miss", "forward 0, check 0 -> unmet"},
		{Replace, "miss", "look 0 -> unmet"},
		{Cas, "not found", "forward 0 -> unmet"},
		{Add, "", "-> unmet"},
	} {
		if got := play(begin(through, Command{Op: test.c}, states(Filling, Dirty), 0), say(test.answers)); got != test.want {
			t.Errorf("%d of one that is not filled and a dirty replica:\n got %s\nwant %s", test.c, got, test.want)
		}
	}
	if got := play(begin(through, Command{Op: Incr}, states(Dirty, Filling), 0), say("hit, miss")); got != "look 0; fetch 1 -> unmet" {
		t.Errorf("incr at a dirty replica, and one that is not filled: %s", got)
	}
	// An item that expires soon exists, so the command is sent to the primary.
	for _, first := range []string{"hit", "expiring", "stale"} {
		if got := play(begin(through, Command{Op: Incr, Vivify: true}, states(In, Out, Warming), 0), say(first+", server error, miss")); got != "fetch 0; forward 0, preview 2 -> server error of 0" {
			t.Errorf("ma N of an item that is there (%s): %s", first, got)
		}
	}
	// A replica that can't be asked and may have the key prevents a miss.
	for _, test := range []struct {
		p       Policy
		c       Op
		answers string
		want    string
	}{
		{through, Get, "miss", "forward 0 -> unmet"},
		{through, Gets, "miss", "forward 0 -> unmet"},
		{Policy{}, Get, "miss", "forward 0 -> miss of 0"},
		{through, Incr, "", "-> held"},
		{through, Set, "", "-> held"},
	} {
		if got := play(begin(test.p, Command{Op: test.c}, states(In, Suspect), 0), say(test.answers)); got != test.want {
			t.Errorf("%d %s, one is suspect:\n got %s\nwant %s", test.c, test.answers, got, test.want)
		}
	}
	for _, test := range []struct {
		overwrite bool
		answers   string
		want      string
	}{
		{false, "not stored, hit", "claim 1; look 1 -> done clean 010"},
		{false, "not stored, marked", "claim 1; look 1 -> unmet"},
		{false, "stored, hit, stored", "claim 1; fetch 0; fill 1 -> done clean 010"},
		{false, "stored, marked, deleted", "claim 1; fetch 0; drop 1 -> unmet clean 010"},
		{true, "hit, hit, stored, hit", "look 1; fetch 0; fill 1; check 0 -> done clean 010"},
		{true, "hit, hit, stored, exists, hit, hit, stored, hit", "look 1; fetch 0; fill 1; check 0; look 1; fetch 0; fill 1; check 0 -> done clean 010"},
		{true, "miss, stored, hit, stored", "look 1; claim 1; fetch 0; fill 1 -> done clean 010"},
		{true, "marked, hit, stored", "look 1; fetch 0; fill 1 -> done clean 010"},
		{true, "hit, miss, deleted", "look 1; fetch 0; drop 1 -> done clean 010"},
		{true, "hit, expiring, stored, hit", "look 1; fetch 0; fill 1; check 0 -> done clean 010"},
		{true, "miss, stored, expiring, deleted", "look 1; claim 1; fetch 0; drop 1 -> done clean 010"},
		{false, "stored, expiring, deleted", "claim 1; fetch 0; drop 1 -> done clean 010"},
		{true, "hit, stale, deleted", "look 1; fetch 0; drop 1 -> done clean 010"},
		{true, "hit, marked", "look 1; fetch 0 -> unmet"},
		{true, "hit, unsent", "look 1; fetch 0 -> unmet"},
		{false, "stored, unsent, deleted", "claim 1; fetch 0; drop 1 -> unmet clean 010"},
		{true, "hit, hit, in doubt", "look 1; fetch 0; fill 1 -> unmet dirty 010"},
	} {
		if got := play(Mend(1, 0, test.overwrite, false), say(test.answers)); got != test.want {
			t.Errorf("mend %v %s:\n got %s\nwant %s", test.overwrite, test.answers, got, test.want)
		}
	}
}
