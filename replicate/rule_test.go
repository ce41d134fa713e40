package replicate

// The table of the package doc, as asks; the order of reads; and allocations.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// play reports to every ask the outcome that tell returns. It returns all asks and the
// settlement, as text.
// begin returns the rule that Rule.Begin makes.
func begin(p Policy, c Command, replicas []Replica, spread uint64) (r Rule) {
	r.Begin(p, c, replicas, spread)
	return r
}

func play(r Rule, tell func(Ask) Outcome) string {
	var b strings.Builder
	var room [maxAsks]Ask
	asks := 0
	for !r.IsDone() {
		sent := r.Next(room[:0])
		if len(sent) == 0 {
			return b.String() + " stuck"
		}
		if asks > 0 {
			b.WriteString("; ")
		}
		for i, a := range sent {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s %d", stepNames[a.Step], a.Replica)
		}
		for _, a := range sent {
			r.HandleOutcome(a.Number, tell(a))
			asks++
		}
	}
	s, _ := r.Settled()
	switch {
	case s.Verdict == Answered && s.Answer >= 0:
		fmt.Fprintf(&b, " -> %s of %d", kindNames[r.asks[s.Answer].kind], r.asks[s.Answer].replica)
	default:
		fmt.Fprintf(&b, " -> %s", []string{"done", "done", "absent", "held", "refused", "unmet"}[s.Verdict])
		if s.Answer >= 0 {
			fmt.Fprintf(&b, " by a %s of %d", kindNames[r.asks[s.Answer].kind], r.asks[s.Answer].replica)
		}
	}
	for _, m := range []struct {
		name string
		mask Mask
	}{{"dirty", s.Dirty}, {"clean", s.Clean}, {"undo", s.Undo}, {"repair", s.Repair}, {"overwrite", s.Overwrite}} {
		if m.mask != 0 {
			fmt.Fprintf(&b, " %s %03b", m.name, m.mask)
		}
	}
	return strings.TrimSpace(b.String())
}

// good returns the replies of healthy servers with the key to c (for add, without the key).
func good(c Command) func(Ask) Outcome {
	return func(a Ask) Outcome { return outcomes(c, a.Step, true)[0] }
}

func TestWhatGoesWhere(t *testing.T) {
	three := states(In, In, In)
	for _, test := range []struct {
		c        Command
		replicas []Replica
		want     string
	}{
		{Command{Op: Get}, three, "forward 0 -> hit of 0"},
		{Command{Op: Gets}, three, "forward 0 -> hit of 0"},
		{Command{Op: Gat}, three, "forward 0; extend 1, extend 2 -> hit of 0"},
		{Command{Op: Get, Win: true, Vivify: true}, three, "forward 0 -> hit of 0"},
		{Command{Op: Set}, three, "forward 0, forward 1, forward 2 -> stored of 0"},
		{Command{Op: Add}, three, "claim 0; claim 1; claim 2; store 0; store 1, store 2 -> stored of 0"},
		{Command{Op: Replace}, three, "look 0; store 0; look 1, look 2; fetch 0; fill 1, fill 2; check 0 -> stored of 0"},
		{Command{Op: Append}, three, "forward 0, check 0, preview 1, preview 2; join 1, join 2 -> stored of 0"},
		{Command{Op: Cas}, three, "forward 0; look 1, look 2; fetch 0; fill 1, fill 2; check 0 -> stored of 0"},
		{Command{Op: Cas, If: true, Stale: true}, three, "look 0; look 1, bury 1, look 2, bury 2; forward 0; remark 1, remark 2; drop 1, drop 2 -> stored of 0"},
		{Command{Op: Incr}, three, "forward 0, preview 1, preview 2; fetch 0; fill 1, fill 2 -> number of 0"},
		{Command{Op: Touch}, three, "forward 0, look 0; extend 1, extend 2 -> touched of 0"},
		{Command{Op: Delete}, three, "look 0, bury 0, look 1, bury 1, look 2, bury 2; remark 0, remark 1, remark 2; drop 0, drop 1, drop 2 -> done"},
		{Command{Op: Delete, If: true}, three, "remark 0; look 1, bury 1, look 2, bury 2; remark 0, remark 1, remark 2; drop 0, drop 1, drop 2 -> done"},
		{Command{Op: Delete, Stale: true}, three, "look 0; look 1, bury 1, look 2, bury 2; store 0; remark 1, remark 2; drop 1, drop 2 -> done"},
		{Command{Op: Delete, If: true, Stale: true}, three, "forward 0; look 0; look 1, bury 1, look 2, bury 2; store 0; remark 1, remark 2; drop 1, drop 2 -> done"},
		{Command{Op: Delete, Conditional: true}, three, "look 0, look 1, look 2; remark 0, remark 1, remark 2; remark 0, remark 1, remark 2; drop 0, drop 1, drop 2 -> done"},
		{Command{Op: Set, Conditional: true}, three, "look 0, look 1, look 2; store 0, store 1, store 2 -> stored of 0"},
		{Command{Op: Set, Conditional: true}, states(Dirty, Out, Returning), "look 0, look 2; store 0, store 2 -> stored of 0 clean 001"},
		{Command{Op: Debug}, three, "look 0, forward 0 -> hit of 0"},
		{Command{Op: Flush}, three, "forward 0, forward 1, forward 2 -> ok of 0"},

		{Command{Op: Delete}, states(In, Out), "look 0, bury 0; remark 0; drop 0 -> done"},
		{Command{Op: Set}, states(Out, In, Returning), "forward 1, forward 2 -> stored of 1"},
		{Command{Op: Set}, states(In, Suspect), "-> held"},
		{Command{Op: Set}, states(Out, Out), "-> refused"},
		{Command{Op: Set}, states(Dirty, In), "forward 0, forward 1 -> stored of 0 clean 001"},
		{Command{Op: Add}, states(Warming, In, Returning), "claim 1; claim 0; claim 2, look 2; store 1; store 0, store 2 -> stored of 1"},
		{Command{Op: Incr}, states(Settling, In), "-> held"},
		{Command{Op: Incr}, states(Warming, In), "forward 1, preview 0; fetch 1; fill 0 -> number of 1"},
		{Command{Op: Incr}, states(Dirty, In), "look 0; fetch 1; fill 0; check 1; forward 0, preview 1; fetch 0; fill 1 -> number of 0 clean 001"},
		{Command{Op: Incr}, states(Dirty, Out), "remove 0; forward 0 -> number of 0 clean 001"},
		{Command{Op: Incr}, states(Dirty, Suspect), "-> held"},
		{Command{Op: Incr, Vivify: true}, states(Warming, Warming), "fetch 0; forward 0, preview 1; fetch 0; fill 1 -> number of 0"},
		{Command{Op: Gat}, states(Suspect, In), "forward 1 -> hit of 1"},
		{Command{Op: Get}, states(Suspect, Warming, In), "forward 2 -> hit of 2"},
		{Command{Op: Get}, states(Dirty, Out), "-> absent"},
		{Command{Op: Get}, states(Dirty, Suspect), "-> refused"},
		{Command{Op: Get}, states(Returning, Out), "-> refused"},
	} {
		if got := play(begin(Policy{}, test.c, test.replicas, 0), good(test.c)); got != test.want {
			t.Errorf("%+v %v:\n got %s\nwant %s", test.c, test.replicas, got, test.want)
		}
	}
}

// With one replica every command behaves as with one server: the request is sent unchanged,
// and the client gets the reply. A delete could mistake a tombstone for a value, so it
// looks first, as with more replicas.
func TestOneMemberIsOneServer(t *testing.T) {
	for _, c := range commands() {
		for _, p := range policies(c) {
			for _, replicas := range [][]Replica{states(In), states(Out, In), states(In, Out), states(Warming), states(Out, Warming, Out)} {
				for _, o := range outcomes(c, Forward, false) {
					if o.Kind == Marked || c.Conditional || !c.If && (c.Op == Replace || c.Op == Add || c.Op == Delete) { // these look first, or claim
						continue
					}
					r := begin(p, c, replicas, 3)
					main := -1
					for told := 0; !r.IsDone(); {
						for _, ask := range r.Next(nil) {
							switch {
							case ask.Step == Look || ask.Step == Check:
								r.HandleOutcome(told, Outcome{Kind: Hit})
							case ask.Step == Forward && (main < 0 || o.Kind == ClientError):
								main = told
								r.HandleOutcome(told, o)
							default:
								t.Fatalf("%+v %v %s: asks more: %v", c, replicas, kindNames[o.Kind], ask)
							}
							told++
						}
					}
					s, _ := r.Settled()
					if o.Kind.failed() || c.Op == Flush && o.Kind != OK {
						continue
					}
					if s.Answer != main || s.Verdict != Answered && o.Kind != ServerError {
						t.Errorf("%+v %v %s: settled %+v", c, replicas, kindNames[o.Kind], s)
					}
				}
			}
		}
	}
}

// A rule with replicas that are Out equals the rule without them.
func TestOutIsSkipped(t *testing.T) {
	wide := func(m Mask) Mask { return m&1<<1 | m&2<<2 } // replicas 0 and 1 are 1 and 3 there
	for _, c := range commands() {
		for _, p := range policies(c) {
			forStates(2, func(replicas []Replica) {
				for pick := range 5 {
					a := begin(p, c, replicas, 2)
					b := begin(p, c, []Replica{{State: Out}, replicas[0], {State: Out}, replicas[1], {State: Out}}, 2)
					for told := 0; !a.IsDone(); told++ {
						as, bs := a.Next(nil), b.Next(nil)
						if len(as) != len(bs) {
							t.Fatalf("%+v %+v %v: %v but with replicas out %v", p, c, replicas, as, bs)
						}
						for i := range as {
							if as[i].Replica = 2*as[i].Replica + 1; as[i] != bs[i] {
								t.Fatalf("%+v %+v %v: %v but with replicas out %v", p, c, replicas, as, bs)
							}
						}
						all := outcomes(c, a.asks[told].step, false)
						o := all[(pick+told*3)%len(all)]
						a.HandleOutcome(told, o)
						b.HandleOutcome(told, o)
					}
					sa, _ := a.Settled()
					sb, ok := b.Settled()
					sa.Dirty, sa.Clean, sa.Undo, sa.Repair, sa.Overwrite = wide(sa.Dirty), wide(sa.Clean), wide(sa.Undo), wide(sa.Repair), wide(sa.Overwrite)
					if sa.Source >= 0 {
						sa.Source = 2*sa.Source + 1
					}
					if !ok || sa != sb {
						t.Fatalf("%+v %+v %v: %+v but with replicas out %+v", p, c, replicas, sa, sb)
					}
				}
			})
		}
	}
}

// A replica that is Gone is skipped like one that is Out, but after a write it is dirty.
func TestGoneMissesWrites(t *testing.T) {
	for _, c := range commands() {
		for _, p := range policies(c) {
			out, gone := begin(p, c, states(In, Out, In), 2), begin(p, c, states(In, Gone, In), 2)
			if c.Op == Flush {
				if s, ok := gone.Settled(); !ok || s.Verdict != Held {
					t.Errorf("a flush_all that misses a replica is %v", s)
				}
				continue
			}
			for told := 0; !out.IsDone(); told++ {
				as, bs := out.Next(nil), gone.Next(nil)
				if !slices.Equal(as, bs) {
					t.Fatalf("%+v %+v: %v with a replica that is out, %v with one that is gone", p, c, as, bs)
				}
				all := outcomes(c, out.asks[told].step, false)
				out.HandleOutcome(told, all[0])
				gone.HandleOutcome(told, all[0])
			}
			want, _ := out.Settled()
			got, ok := gone.Settled()
			if out.stored != 0 && out.class != reads && out.behind() != 0 {
				want.Dirty |= 1 << 1
			}
			if !ok || got != want {
				t.Errorf("%+v %+v: %+v, want %+v", p, c, got, want)
			}
		}
	}
}

func TestWhoIsReadFirst(t *testing.T) {
	replicas := states(In, In, Warming, In)
	replicas[1].Near = true
	filling := states(In, Filling, In, Settling)
	filling[0].State = Out
	order := func(p Policy, spread uint64) string {
		replicas := replicas
		if spread == 9 {
			replicas = filling
		}
		got := play(begin(p, Command{}, replicas, spread), func(Ask) Outcome { return Outcome{Kind: Miss} })
		got, _, _ = strings.Cut(got, " ->")
		return strings.ReplaceAll(got, "forward ", "")
	}
	for _, test := range []struct {
		read   Read
		spread uint64
		want   string
	}{
		{First, 7, "0; 1; 3; 2"},
		{First, 9, "1; 2; 3"},
		{Nearest, 7, "1; 0; 3; 2"},
		{Spread, 0, "0; 1; 3; 2"},
		{Spread, 1, "1; 3; 0; 2"},
		{Spread, 5, "3; 0; 1; 2"},
		{Fastest, 5, "0, 1, 3, 2"},
	} {
		if got := order(Policy{Read: test.read}, test.spread); got != test.want {
			t.Errorf("read %d, spread %d: asked %s, not %s", test.read, test.spread, got, test.want)
		}
	}
}

// A set is acknowledged as soon as the policy allows. A replica that fails later is still
// reported.
func TestEarlyAcknowledgement(t *testing.T) {
	r := begin(Policy{Ack: AckQuorum}, Command{Op: Set}, states(In, In, In), 0)
	r.Next(nil)
	r.HandleOutcome(2, Outcome{Kind: Stored})
	if _, ok := r.Settled(); ok {
		t.Fatal("acknowledged without the authority")
	}
	r.HandleOutcome(0, Outcome{Kind: Stored})
	if s, ok := r.Settled(); !ok || s.Verdict != Answered || s.Answer != 0 || r.IsDone() {
		t.Fatalf("with two of three: %+v %v", s, ok)
	}
	r.HandleOutcome(1, Outcome{Kind: InDoubt})
	if s, _ := r.Settled(); s.Verdict != Answered || s.Dirty != 2 || s.Undo != 2 || s.Repair != 2 || s.Source != 0 || !r.IsDone() {
		t.Fatalf("after the third failed: %+v", s)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	replicas := states(In, In)
	room := make([]Ask, 0, maxAsks)
	for _, c := range commands() {
		tell := outcomes(c, Forward, true)[0]
		n := testing.AllocsPerRun(100, func() {
			r := begin(Policy{ReadThrough: true}, c, replicas, 1)
			told := 0
			for !r.IsDone() {
				for _, a := range r.Next(room[:0]) {
					o := tell
					switch a.Step {
					case Fetch, Look, Check:
						o = Outcome{Kind: Hit}
					case Fill, Join, Claim, PlaceTombstone, Store, RefreshTombstone:
						o = Outcome{Kind: Stored}
					case Wait:
						o = Outcome{Kind: OK}
					case Extend:
						o = Outcome{Kind: Touched}
					case Remove, Drop:
						o = Outcome{Kind: Deleted}
					}
					r.HandleOutcome(told, o)
					told++
				}
				r.Settled()
			}
		})
		if n != 0 {
			t.Errorf("%+v: %v allocations", c, n)
		}
	}
}

// A tombstone refuses an add also at a replica that is not read; a value there does not.
func TestAnAddAsksWhoIsNotRead(t *testing.T) {
	for _, test := range []struct {
		answers []Kind
		want    string
	}{
		{[]Kind{Stored, NotStored, Marked, Deleted}, "claim 0; claim 1, look 1; drop 0 -> not stored of 1"},
		{[]Kind{Stored, NotStored, Hit, Stored, Stored}, "claim 0; claim 1, look 1; store 0; store 1 -> stored of 0"},
		{[]Kind{Stored, NotStored, Miss, Deleted}, "claim 0; claim 1, look 1; drop 0 -> unmet"},
	} {
		i := -1
		got := play(begin(Policy{}, Command{Op: Add}, states(In, Returning), 0), func(Ask) Outcome {
			i++
			return Outcome{Kind: test.answers[i]}
		})
		if got != test.want {
			t.Errorf("%v:\n got %s\nwant %s", test.answers, got, test.want)
		}
	}
}

// TestAppendThatGetsTooLarge: memcached replies to an append that would make the item too
// large as if there were no such key.
func TestAppendThatGetsTooLarge(t *testing.T) {
	got := play(begin(Policy{ReadThrough: true}, Command{Op: Append}, states(In, In), 0), func(a Ask) Outcome {
		switch a.Step {
		case Look, Fetch:
			return Outcome{Kind: Hit}
		}
		return Outcome{Kind: NotStored}
	})
	if !strings.HasSuffix(got, "-> not stored of 0") {
		t.Error(got)
	}
}

// TestAMarkAndAStaleMember: a tombstone has replaced what made the other replica stale, so
// that replica may have the last copy. With ReadThrough the read is not a miss.
func TestAMarkAndAStaleMember(t *testing.T) {
	for _, test := range []struct {
		policy   Policy
		replicas []Replica
		answers  []Kind
		want     string
	}{
		{Policy{ReadThrough: true}, states(Dirty, In), []Kind{Marked}, "forward 1 -> unmet"},
		{Policy{ReadThrough: true}, states(Dirty, In), []Kind{Miss}, "forward 1 -> miss of 1 repair 001"},
		{Policy{ReadThrough: true}, states(In, In), []Kind{Marked, Marked}, "forward 0; forward 1 -> absent"},
		{Policy{ReadThrough: true}, states(Dirty, In, In), []Kind{Marked, Miss}, "forward 1; forward 2 -> unmet"},
		{Policy{}, states(Dirty, In), []Kind{Marked}, "forward 1 -> absent"},
	} {
		i := -1
		got := play(begin(test.policy, Command{Op: Get}, test.replicas, 0), func(Ask) Outcome {
			i++
			return Outcome{Kind: test.answers[i]}
		})
		if got != test.want {
			t.Errorf("%v %v:\n got %s\nwant %s", test.replicas, test.answers, got, test.want)
		}
	}
}

// TestWhatOnlyAStaleMemberHas: if no other replica is filled, the stale value may be another
// proxy's, written since. So it is not removed for a command that would then find nothing.
// A client that deletes it is not told that there was nothing.
func TestWhatOnlyAStaleMemberHas(t *testing.T) {
	through, dropped := Policy{ReadThrough: true}, "look 0, bury 0; remark 0; drop 0 "
	for _, test := range []struct {
		policy Policy
		op     Op
		second State
		want   string
	}{
		{through, Incr, Out, "-> unmet"},
		{through, Append, Out, "-> unmet"},
		{Policy{}, Incr, Out, "remove 0; forward 0 -> number of 0 clean 001"},
		{through, Delete, Out, dropped + "-> unmet clean 001"},
		{Policy{}, Delete, Out, dropped + "-> absent clean 001"},
	} {
		got := play(begin(test.policy, Command{Op: test.op}, states(Dirty, test.second), 0), good(Command{Op: test.op}))
		if got != test.want {
			t.Errorf("%v, second %v:\n got %s\nwant %s", test.op, test.second, got, test.want)
		}
	}
}

// TestAnAppendThatIsCopiedLate: if the copy to a follower that differs took long, the
// primary may have lost what was appended, and have restored the old value from a follower.
func TestAnAppendThatIsCopiedLate(t *testing.T) {
	for late, want := range map[Step]string{
		NumSteps: "look 1; fetch 0; fill 1; check 0 -> stored of 0",
		Look:     "look 1; fetch 0; fill 1; check 0; check 0 -> unmet",
		Fetch:    "look 1; fetch 0; fill 1; check 0; check 0 -> unmet",
		Fill:     "look 1; fetch 0; fill 1; check 0; check 0 -> unmet",
		Check:    "look 1; fetch 0; fill 1; check 0; check 0 -> unmet",
	} {
		c := Command{Op: Append}
		main, checks := 0, 0
		got := play(begin(Policy{}, c, states(In, In), 0), func(a Ask) Outcome {
			o := good(c)(a)
			o.Late = a.Step == late
			switch {
			case a.Step == Forward:
				main = a.Number
			case a.Step == Preview:
				o.Value += 7 // the follower lacks what another proxy has appended
			case a.Step == Check && a.Guard == main:
				if checks++; checks > 1 { // the first Check is the look that follows the append
					o.Kind = Exists
				}
			}
			return o
		})
		if !strings.Contains(got, want) {
			t.Errorf("late %v:\n got %s\nwant …%s", late, got, want)
		}
	}
}

// TestContinue checks the requests of an add that goes on in other states of its replicas.
func TestContinue(t *testing.T) {
	stored := func(a Ask) Outcome {
		if a.Step == Look { // at a replica that is not read, the look finds the claim before it
			return Outcome{Kind: Marked}
		}
		return Outcome{Kind: Stored}
	}
	for _, test := range []struct {
		before, now []Replica
		outcomes    []Kind // of the asks after Continue
		want        string
	}{
		{states(In, In), states(Out, In), []Kind{Hit}, "check 1 -> stored of 1"},
		{states(Out, In), states(Returning, In), []Kind{Stored, Marked, Hit, Stored}, "claim 0, look 0; check 1; store 0 -> stored of 1"},
		{states(Out, In), states(Returning, In), []Kind{NotStored, Hit, Hit, Stored}, "claim 0, look 0; check 1; store 0 -> stored of 1"},
		{states(Out, In), states(Returning, In), []Kind{NotStored, Marked, Hit}, "claim 0, look 0; check 1 -> stored of 1 repair 001"},
		{states(In, Returning), states(In, Warming), []Kind{NotStored, Hit}, "claim 1; check 0 -> stored of 0 repair 010"},
		{states(In, Returning), states(In, Warming), []Kind{Stored, Hit, Exists}, "claim 1; check 0; store 1 -> stored of 0 repair 010"},
		{states(In, Returning), states(In, Warming), []Kind{Stored, Miss, Deleted}, "claim 1; check 0; drop 1 -> unmet repair 010"},
		{states(In, Returning), states(In, Warming), []Kind{Stored, Hit, InDoubt}, "claim 1; check 0; store 1 -> unmet repair 010 overwrite 010"},
		{states(In, Returning), states(In, Warming), []Kind{Stored, Hit, Unsent, Deleted}, "claim 1; check 0; store 1; drop 1 -> unmet repair 010"},
		{states(In, Returning), states(In, Warming), []Kind{InDoubt}, "claim 1 -> unmet repair 010"},
		{states(In, In), states(Leaving, In), nil, "held"},
		{states(In, In), states(In, Suspect), nil, "held"},
		{states(In, In), states(Dirty, In), nil, "held"},
		{states(In, Out), states(Out, In), nil, "unmet"},
		{states(In, Out), states(Out, Out), nil, "unmet"},
	} {
		r := begin(Policy{ReadThrough: true}, Command{Op: Add}, test.before, 0)
		play2(&r, stored)
		before := r
		got := map[Verdict]string{Held: "held", Unmet: "unmet"}[r.Continue(Policy{}, test.now)]
		if got != "" && r != before {
			t.Errorf("%v, %v: the rule has changed", test.before, test.now)
		} else if got == "" {
			i := -1
			got = play(r, func(Ask) Outcome { i++; return Outcome{Kind: test.outcomes[i]} })
		}
		if got != test.want {
			t.Errorf("%v, %v, %v:\n got %s\nwant %s", test.before, test.now, test.outcomes, got, test.want)
		}
	}
	set := begin(Policy{}, Command{Op: Set}, states(In, In), 0)
	play2(&set, stored)
	refused := begin(Policy{}, Command{Op: Add}, states(In, In), 0)
	play2(&refused, func(Ask) Outcome { return Outcome{Kind: NotStored} })
	if a, b := set.Continue(Policy{}, states(In, In)), refused.Continue(Policy{}, states(In, In)); a != Unmet || b != Unmet {
		t.Errorf("a set goes on: %v; an add that was rejected: %v", a, b)
	}
}

// play2 runs r to its end.
func play2(r *Rule, tell func(Ask) Outcome) {
	var room [maxAsks]Ask
	for !r.IsDone() {
		for _, a := range r.Next(room[:0]) {
			r.HandleOutcome(a.Number, tell(a))
		}
	}
}
