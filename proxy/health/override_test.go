package health

// Tests of an operator's overrides: drain, down, restore.

import (
	"math/rand/v2"
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

// TestLastOrder sends orders to proxies that do not know the earlier ones: they have just started, a reload has just
// replaced their keeper, or another proxy received the earlier order a moment before. The last order must be in force.
func TestLastOrder(t *testing.T) {
	restart := func(w *world, p *proxy) { w.start(p) }
	reload := func(w *world, p *proxy) {
		before := p.k
		w.start(p)
		w.input(p, func() { p.k.TakeOrders(before, w.now) })
	}
	events := []func(w *world, p *proxy){nil, restart, reload}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := whole(t, 3, 3, Settings{Strict: seed%2 == 0})
		last := Restore
		for range 8 {
			p := w.proxies[r.IntN(len(w.proxies))]
			if event := events[r.IntN(len(events))]; event != nil {
				event(w, p)
			}
			if last = Override(r.IntN(int(overrideKinds))); w.give(p.id, 1, last) != nil { // a proxy that has just started has no leases
				last = Restore
				if err := w.give(p.id, 1, last); err != nil {
					t.Fatal(err)
				}
			}
			if r.IntN(2) == 0 {
				reload(w, p)
			}
			w.run(w.now + 30*ms + r.Int64N(sec))
			if r.IntN(3) == 0 {
				w.run(w.now + 20*sec)
			}
		}
		w.run(w.now + 40*sec)
		for i, p := range w.proxies {
			if v := p.k.Verdict(1); v.Override != last || last == Restore && PhaseOf(v.N) != In {
				t.Errorf("seed %d, proxy %d: the last order was %v, and the server is %v with the order %v", seed, i, last, PhaseOf(v.N), v.Override)
			}
		}
	}
}

// TestLaterOrder checks that an order ends a pending one of another proxy.
func TestLaterOrder(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	w.cut[0][1], w.cut[0][2] = true, true // the order is not stored on most servers
	if err := w.give(0, 0, Restore); err != nil {
		t.Fatal(err)
	}
	w.run(w.now + 5*sec)
	if err := w.give(1, 0, Drain); err != nil {
		t.Fatal(err)
	}
	w.run(w.now + 5*sec)
	w.cut[0][1], w.cut[0][2] = false, false
	w.run(w.now + 5*sec)
	for i, p := range w.proxies {
		if v := p.k.Verdict(0); v.Override != Drain {
			t.Errorf("proxy %d: %v", i, v.Override)
		}
	}
}
