package fleet

// This file checks how long writes of keys that move wait.

import (
	"slices"
	"testing"

	"ringside/proxy/ablation"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// TestResizePause changes the servers. The pause, in which writes of keys that move wait, is short because it was announced.
// If an instance has an older release, the pause is not announced: that instance would serve no key meanwhile.
func TestResizePause(t *testing.T) {
	for _, c := range []struct {
		strict, older bool
		most          int64
	}{
		{false, false, 300 * milli}, // 0.75 pings of 250 ms, and two pings that are four times as fast
		{true, false, 1000 * milli}, // a lease of 500 ms and a request of 200 ms, with a tenth and 100 ms, and two such pings
		{false, true, 700 * milli},
		{true, true, 1600 * milli},
	} {
		f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, mode: table.Rehash, strict: c.strict, resize: table.ResizeWarm, older: c.older, cold: 60, remember: true}, 1, false)
		f.quiet = true
		f.settle("at the start", 30*second)
		f.run(f.now + 7*second) // until all instances have read the list of instances
		f.reload(func(l *layout) { l.gone = 2 })
		some := func(is func(s resize.Status) bool) bool { return slices.ContainsFunc(f.stages(), is) }
		none, announced, from, to := 0, false, int64(0), int64(0)
		for end := f.now + 60*second; f.now < end && to == 0 && f.broken == ""; f.run(f.now + 10*milli) {
			announced = announced || some(func(s resize.Status) bool { return s.Announced })
			if some(func(s resize.Status) bool { return s.Serves() == resize.Nothing }) {
				none++
			}
			switch pauses := some(func(s resize.Status) bool { return s.Serves() == resize.Paused }); {
			case from == 0 && pauses:
				from = f.now
			case from != 0 && !pauses:
				to = f.now
			}
		}
		if lasts := to - from; lasts <= 0 || lasts > c.most || announced == c.older || none > 0 || f.broken != "" {
			t.Errorf("%+v: writes waited for %d ms, announced: %t, %d times no list. %s", c, lasts/milli, announced, none, f.broken)
		} else {
			t.Logf("%+v: writes waited for %d ms", c, lasts/milli)
		}
	}
}

// stopsInPause changes the servers of a strict fleet. When an instance lets writes wait, another one stops that does not know it
// yet, and a client of it sets a key. When keys move, a client of the first one sets the same key, so that the old server does not
// have it any more. Then the other one goes on, with the leases that it had before. stopsInPause reports whether the old server
// gets its value.
func stopsInPause(seed uint64, off ablation.Set) (late bool) {
	f := newFleet(scenario{sidecars: 2, apps: 1, servers: 3, mode: table.Rehash, strict: true, resize: table.ResizeWarm, cold: 5, ablate: ablations{Set: off}}, seed, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	k := f.values[0]
	old := int(hash([]byte(k.name)) % 3)
	f.reload(func(l *layout) { l.gone = old })
	find := func(what resize.Service) int {
		return slices.IndexFunc(f.sidecars, func(s *sidecar) bool {
			for _, w := range s.p.Agents() {
				return w.View.Resize().Serves() == what
			}
			return false
		})
	}
	wait := func(is func() bool) {
		for end := f.now + 60*second; f.now < end && !is(); f.run(f.now + milli/4) {
		}
	}
	set := func(i int) {
		a := f.apps[i]
		a.todo = append(a.todo, func() *op { return a.store(k, "set") })
		a.next()
	}
	f.run(f.now + 3*second)
	wait(func() bool { return find(resize.Paused) >= 0 })
	first := find(resize.Paused)
	f.sidecars[1-first].pause()
	set(1 - first)
	wait(func() bool { return find(resize.Moving) >= 0 })
	acked := k.acked
	set(first)
	wait(func() bool { return k.acked != acked })
	for _, p := range f.paths[1-first] { // it does not read at once that keys move
		p.slow = 20 * milli
	}
	f.sidecars[1-first].resume()
	for end := f.now + 100*milli; f.now < end; f.run(f.now + milli/4) {
		late = late || slices.Contains(f.nodes[old].store.Keys(), k.name)
	}
	return late
}

// TestResizeStop stops an instance in a pause. With a rule of the pause left out, it writes to the old server when keys move.
func TestResizeStop(t *testing.T) {
	for name, off := range map[string]ablation.Set{"": {}, "leases are not short": {Short: true}, "a pause that was not announced is short": {Begun: true}} {
		late := false
		for seed := uint64(0); seed < 3 && !late; seed++ {
			late = stopsInPause(seed, off)
		}
		if late != (name != "") {
			t.Errorf("%q: the old server gets a value: %t", name, late)
		}
	}
}

// TestResizeReloadInAnnouncement restarts an instance with the list in force while a pause is announced. As soon as it has read the
// record, it is reloaded with a third list. It must go on to serve, although it does not know the next list yet.
func TestResizeReloadInAnnouncement(t *testing.T) {
	f := filled(true)
	f.rate = 4
	f.run(f.now + 7*second) // until all instances have read the list of instances
	before, flushes := f.items(), f.flushes
	f.reload(func(l *layout) { l.gone = 2 })
	announced := func(is resize.Status) bool { return is.Announced }
	f.every(20*milli, t, "no pause is announced", func() bool { return f.all(announced) })
	last := f.sidecars[2]
	last.die()
	f.gone = -1
	f.after(10*milli, last.start)
	f.run(f.now + 10*milli)
	f.every(milli/4, t, "it does not read the record", func() bool { return f.stages()[2].Announced })
	f.gone = 3
	f.edition++
	last.reload()
	none := 0
	f.every(milli/4, t, "keys do not move", func() bool {
		if f.stages()[2].Serves() == resize.Nothing {
			none++
		}
		return f.all(func(is resize.Status) bool { return is.Stage() == resize.Move })
	})
	if none > 0 {
		t.Errorf("it serves no keys for %d quarters of a millisecond", none)
	}
	f.gone = 2
	f.edition++
	last.reload()
	f.until(t, "the change has not ended", f.changed)
	if f.flushes != flushes || f.items() < before || f.broken != "" {
		t.Errorf("%d flushes, %d items of %d. %s", f.flushes-flushes, f.items(), before, f.broken)
	}
}

// every runs f until a condition holds, which it checks after each step.
func (f *fleet) every(step int64, t *testing.T, not string, holds func() bool) {
	t.Helper()
	for end := f.now + 60*second; !holds(); f.run(f.now + step) {
		if f.now >= end || f.broken != "" {
			t.Fatalf("%s: %+v %s", not, f.stages(), f.broken)
		}
	}
}
