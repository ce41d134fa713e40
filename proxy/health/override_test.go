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
