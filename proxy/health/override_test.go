package health

// Tests of an operator's overrides: drain, down, restore.

import (
	"testing"
)

func (w *world) give(p, server int, o Override) error {
	var err error
	w.input(w.proxies[p], func() { err = w.proxies[p].k.Override(server, o, w.now) })
	return err
}

func TestDrainAndRestore(t *testing.T) {
	for _, strict := range []bool{true, false} {
		w := whole(t, 3, 3, Settings{Strict: strict})
		if err := w.give(1, 2, Drain); err != nil {
			t.Fatal(err)
		}
		if v := w.proxies[1].k.Verdict(2); PhaseOf(v.N) != Leaving || v.Suspect || v.Override != Drain {
			t.Errorf("%+v", v)
		}
		w.until(2, Out)
		w.stays(2, Out, 30*sec) // even if a proxy starts later
		w.start(w.proxies[0])
		w.run(w.now + sec)
		w.stays(2, Out, 30*sec)
		if v := w.proxies[0].k.Verdict(2); v.Override != Drain {
			t.Errorf("a new proxy: %+v", v)
		}
		if err := w.give(0, 2, Restore); err != nil {
			t.Fatal(err)
		}
		w.until(2, In)
		if w.flushes != 1 {
			t.Errorf("%d flushes", w.flushes)
		}
	}
}

func TestDown(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	if err := w.give(0, 0, Down); err != nil {
		t.Fatal(err)
	}
	if v := w.proxies[0].k.Verdict(0); !v.Suspect || PhaseOf(v.N) != Leaving || v.Override != Down {
		t.Errorf("%+v", v)
	}
	w.until(0, Out)
	w.stays(0, Out, 20*sec)
	if err := w.give(1, 0, Restore); err != nil {
		t.Fatal(err)
	}
	w.run(w.now + 20*sec)
	if v := w.proxies[0].k.Verdict(0); v.Suspect || PhaseOf(v.N) != In {
		t.Errorf("restored at another proxy: %+v", v)
	}
}

func TestOrdersThatCannotBe(t *testing.T) {
	w := whole(t, 1, 2, Settings{})
	if err := w.give(0, 0, Drain); err != nil {
		t.Fatal(err)
	}
	w.until(0, Out)
	if err := w.give(0, 1, Drain); err != errAlone {
		t.Errorf("the last server is drained: %v", err)
	}
	if err := w.give(0, 1, Down); err != errAlone || !w.proxies[0].k.Verdict(1).Suspect {
		t.Errorf("the last server: %v", err)
	}
	w.run(w.now + 10*sec)
	if !w.proxies[0].k.Verdict(1).Suspect {
		t.Error("good pings have ended what an operator wanted")
	}
	if err := w.give(0, 1, Restore); err != nil {
		t.Fatal(err)
	}
	w.run(w.now + 10*sec)
	if w.proxies[0].k.Verdict(1).Suspect {
		t.Error("restored, and still suspect")
	}
	few := whole(t, 1, 3, Settings{Strict: true})
	few.cut[0][1] = true
	few.run(few.now + 5*sec)
	if err := few.give(0, 0, Drain); err != errFew {
		t.Errorf("a proxy that reaches too few: %v", err)
	}
}

// TestEnding checks that a server that will end soon leaves while it still replies, whichever proxies know
// it, and rejoins when it is there again. It leaves only once, and not if no other server could take over.
func TestEnding(t *testing.T) {
	for knowing := 1; knowing <= 3; knowing++ {
		w := whole(t, 3, 3, Settings{})
		end := func(server int, is bool) {
			for _, p := range w.proxies[:knowing] {
				w.input(p, func() { p.k.Ending(server, is, w.now) })
			}
		}
		end(2, true)
		w.until(2, Out)
		if knowing == 3 {
			w.stays(2, Out, 30*sec)
			if step := w.proxies[0].k.Verdict(2).Step; step != "stays out until it ends, and is there again" {
				t.Error(step)
			}
		} else {
			w.until(2, In) // by the proxies that do not know it
			w.stays(2, In, 10*sec)
		}
		w.cutAll(2, true) // it has ended
		w.run(w.now + 10*sec)
		if w.phase(0, 2) != Out {
			t.Errorf("after its end it is %v", w.phase(0, 2))
		}
		w.cutAll(2, false) // another process has its name
		end(2, false)
		w.until(2, In)
		w.stays(2, In, 10*sec)
		for _, p := range w.proxies[:knowing] {
			w.input(p, func() { p.k.Ending(0, true, w.now); p.k.Ending(1, true, w.now); p.k.Ending(2, true, w.now) })
		}
		w.run(w.now + 10*sec)
		in := 0
		for i := range 3 {
			if w.phase(0, i) == In {
				in++
			}
		}
		if in == 0 {
			t.Error("no server is left")
		}
	}
}

// TestEndingAndRestore checks that an operator can bring back a server that its source says is ending.
func TestEndingAndRestore(t *testing.T) {
	w := whole(t, 1, 3, Settings{})
	w.input(w.proxies[0], func() { w.proxies[0].k.Ending(1, true, w.now) })
	w.until(1, Out)
	if err := w.give(0, 1, Restore); err != nil {
		t.Fatal(err)
	}
	w.until(1, In)
	w.stays(1, In, 10*sec)
}
