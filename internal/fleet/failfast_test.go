package fleet

// This file tests changes of the servers of pools that eject no server otherwise (mode fail_fast).

import (
	"slices"
	"testing"

	"ringside/proxy/ablation"
	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// firmly returns a fleet of instances in mode fail_fast whose servers have a value of each key. Keys move slowly.
func firmly(sidecars int, c scenario) *fleet {
	c.sidecars, c.apps, c.servers, c.mode, c.resize, c.rate, c.cold, c.exact = sidecars, 1, 4, table.FailFast, table.ResizeWarm, 1, 60, true
	f := newFleet(c, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	return f
}

// each lets a client send a request on each key, one after the other.
func (f *fleet) each(sidecar int, ask func(a *app, k *fkey) *op) {
	a := f.apps[sidecar*f.scenario.apps]
	for _, k := range f.values {
		a.todo = append(a.todo, func() *op { return ask(a, k) })
	}
	a.next()
	for end := f.now + 100*second; f.now < end && (len(a.todo) > 0 || a.op != nil); {
		f.run(f.now + 100*milli)
	}
}

// reads returns how many of the keys a client reads.
func (f *fleet) reads(sidecar int) int {
	before := f.hits
	f.each(sidecar, (*app).getOf)
	return f.hits - before
}

// until runs until a condition holds.
func (f *fleet) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	f.run(f.now + second)
	for end := f.now + 300*second; !is(); f.run(f.now + 100*milli) {
		if f.now >= end || f.broken != "" {
			t.Fatalf("%s: %+v %s", what, f.stages(), f.broken)
		}
	}
}

// changed reports whether the change of the servers has ended on all instances.
func (f *fleet) changed() bool {
	return !slices.ContainsFunc(f.stages(), func(is resize.Status) bool {
		return is.Stage() != resize.Stable || is.List != is.Required() || is.Serves() != resize.All
	})
}

// moves reports whether keys move on all instances.
func (f *fleet) moves() bool {
	return !slices.ContainsFunc(f.stages(), func(is resize.Status) bool { return is.Stage() != resize.Move })
}

// phase returns the phase of a server, as the first instance knows it.
func (f *fleet) phase(i int) health.Phase { return f.sidecars[0].members[i].Phase }

// TestFailFastStays lets servers fail in mode fail_fast while no change of the servers is due. Nothing must happen to
// them: their keys fail, and are back with their server.
func TestFailFastStays(t *testing.T) {
	for _, strict := range []bool{false, true} {
		f := firmly(2, scenario{strict: strict})
		all := len(f.values)
		lost := 0
		for _, k := range f.values {
			if hash([]byte(k.name))%4 == 1 {
				lost++
			}
		}
		f.sidecars[0].order("main", f.nodes[1], health.Drain)
		f.run(f.now + 10*second)
		if one, other := f.reads(0), f.reads(1); one != all-lost || other != all {
			t.Errorf("strict %t: an instance that has drained a server reads %d keys of %d, and the other one %d", strict, one, all, other)
		}
		f.sidecars[0].order("main", f.nodes[1], health.Restore)
		f.run(f.now + second)
		if n := f.reads(0); n != all {
			t.Errorf("strict %t: %d keys of %d are read after a restore", strict, n, all)
		}
		f.nodes[1].hang(f.now + 100*second)
		f.run(f.now + 70*second)
		if n := f.reads(1); n != all-lost {
			t.Errorf("strict %t: %d keys of %d are read while a server with %d of them hangs", strict, n, all, lost)
		}
		f.run(f.now + 40*second)
		if n := f.reads(0); n != all {
			t.Errorf("strict %t: %d keys of %d are read after the hang", strict, n, all)
		}
		f.nodes[1].die()
		f.run(f.now + 70*second)
		f.nodes[1].start()
		f.settle("after a restart", 10*second)
		if n := f.reads(1); n != all-lost {
			t.Errorf("strict %t: %d keys of %d are read after a restart of a server with %d of them", strict, n, all, lost)
		}
		if f.broken != "" || f.flushes > 0 || f.ejected > 0 {
			t.Errorf("strict %t: %d flushes, %d ejections. %s", strict, f.flushes, f.ejected, f.broken)
		}
	}
}

// TestFailFastDeadServer ends the process of a server for good. Before a change of the servers, the change must wait for
// it. While keys move, the change must end without it, after a time. If the next list lacks the server, nothing waits.
func TestFailFastDeadServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		f := firmly(2, scenario{strict: strict})
		f.nodes[2].die()
		f.run(f.now + 10*second)
		f.reload(reweigh)
		f.run(f.now + 100*second)
		for _, s := range f.sidecars {
			if is := s.snapshot().Resize("main"); is.Stage() != resize.Stable || is.List == is.Wish || is.Waits != "server s2 is down: connection refused" {
				t.Errorf("strict %t: p%d does not wait: %+v", strict, s.id, is)
			}
		}
		if n := f.reads(0); n < 40 {
			t.Errorf("strict %t: %d keys are read while the change waits for a server", strict, n)
		}
		began := f.now
		f.reload(func(l *layout) { l.gone = 2 })
		f.until(t, "the dead server is not removed", f.changed)
		if lasts := f.now - began; lasts > 90*second {
			t.Errorf("strict %t: it lasts %d s until a dead server is removed", strict, lasts/second)
		}
		if n := f.reads(1); n < 40 {
			t.Errorf("strict %t: %d keys are read after the removal of a server", strict, n)
		}
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		f.reload(reweigh)
		f.until(t, "keys do not move", f.moves)
		f.nodes[1].die()
		f.until(t, "the change has not ended without a server", f.changed)
		if got := f.phase(1); got != health.Out {
			t.Errorf("strict %t: a dead server is %v", strict, got)
		}
		f.run(f.now + 60*second)
		if n := f.reads(1); n < 20 {
			t.Errorf("strict %t: %d keys are read while a server is dead", strict, n)
		}
		f.nodes[1].start()
		f.until(t, "the server is not back", func() bool { return f.phase(1) == health.In })
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		if n := f.reads(1); n != len(f.values) || f.broken != "" {
			t.Errorf("strict %t: %d keys of %d are read at the end. %s", strict, n, len(f.values), f.broken)
		}
	}
}

// hangs lets a server hang for more than a minute while keys move from it and to it, and clients change all keys. It
// returns the keys that are read at the end.
func hangs(t *testing.T, c scenario) (f *fleet, read int) {
	f = firmly(2, c)
	f.reload(reweigh)
	f.until(t, "keys do not move", f.moves)
	f.nodes[0].hang(f.now + 80*second)
	f.until(t, "the server is not ejected", func() bool { return f.phase(0) == health.Out })
	f.each(0, (*app).removeOf)
	f.each(1, func(a *app, k *fkey) *op { return a.store(k, "set") })
	f.each(0, (*app).removeOf)
	f.until(t, "the server is not back", func() bool { return f.phase(0) == health.In })
	if !f.moves() && c.ablate.any() {
		t.Fatalf("keys do not move any more: %+v", f.stages())
	}
	read = f.reads(0) + f.reads(1)
	f.until(t, "the change has not ended", f.changed)
	read += f.reads(1)
	f.reload(reweigh)
	f.until(t, "the change back has not ended", f.changed)
	return f, read + f.reads(0)
}

// TestFailFastLongHang checks that a server that hangs while keys move does not bring old values back.
func TestFailFastLongHang(t *testing.T) {
	for _, strict := range []bool{false, true} {
		f, read := hangs(t, scenario{strict: strict})
		if f.broken != "" || len(f.stale) > 0 || f.flushes == 0 {
			t.Errorf("strict %t: %d flushes. %s %s", strict, f.flushes, f.broken, f.stale)
		}
		t.Logf("%d keys were read", read)
	}
	if f, _ := hangs(t, scenario{ablate: ablations{Set: ablation.Set{Flush: true}}}); len(f.stale) == 0 {
		t.Error("no old value is read although the server is not flushed")
	}
}
