package fleet

// This file changes the servers of a pool while one of them is out. Instances must not use different substitute servers
// for a key of that server.

import (
	"testing"

	"ringside/proxy/ablation"
	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// busy lets all clients send requests until a condition holds, for at most a time.
func (f *fleet) busy(limit int64, until func() bool) {
	f.quiet = false
	for _, a := range f.apps {
		a.next()
	}
	for end := f.now + limit; f.now < end && f.broken == "" && !until(); {
		f.run(f.now + 100*milli)
	}
	f.quiet = true
	f.run(f.now + second)
}

// outAtTheEnd removes a server while another one is out. All keys stay on that one, and have another substitute server by the
// next list. It returns when the change is about to end. The last instance, whose packets are
// slow, learns of that later than the others.
func outAtTheEnd(t *testing.T, slow int64, c scenario) *fleet {
	c.sidecars, c.servers, c.aimed, c.mode, c.strict, c.resize, c.cold, c.exact = 3, 4, true, table.Rehash, true, table.ResizeWarm, 5, true
	f := newFleet(c, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	f.reload(func(l *layout) { l.gone = 1 })
	f.until(t, "keys have not moved", func() bool {
		return f.all(func(is resize.Status) bool { return is.Stage() >= resize.Settle })
	})
	f.nodes[0].die()
	for _, p := range f.paths[2] {
		p.slow = slow
	}
	f.until(t, "the change does not end", func() bool { return f.stages()[0].Stage() == resize.Cool })
	f.run(f.now + 10*second)
	return f
}

// busyAtTheEnd lets clients use the keys while the change ends.
func busyAtTheEnd(t *testing.T, off ablation.Set) *fleet {
	f := outAtTheEnd(t, 40*milli, scenario{engines: 2, asks: pruning, pace: 2 * milli, ablate: ablations{Set: off}})
	f.busy(100*second, f.changed)
	return f
}

// writesAtTheEnd sends writes through the last instance while the others use the new list already. They wait there. The keys then have
// values of these others, which are older.
func writesAtTheEnd(t *testing.T, off ablation.Set) *fleet {
	f := outAtTheEnd(t, 25*milli, scenario{apps: 1, ablate: ablations{Set: off}})
	for end := f.now + 100*second; f.now < end && f.stages()[0].Stage() != resize.Stable; f.run(f.now + milli) {
	}
	k := f.values[0]
	for _, i := range []int{0, 2} {
		a := f.apps[i]
		a.todo = append(a.todo, func() *op { return a.store(k, "set") })
		a.next()
		f.run(f.now + 5*milli)
	}
	if is := f.stages()[2]; is.Stage() != resize.Cool {
		t.Fatalf("the last instance does not learn of the end later: %+v", is)
	}
	f.until(t, "the change does not end", f.changed)
	f.apps[1].todo = append(f.apps[1].todo, func() *op { return f.apps[1].getOf(k) })
	f.apps[1].next()
	f.run(f.now + second)
	return f
}

// outWhileOneStrays suspends an instance while a change ends, until the change back has begun. Then a server fails whose keys have
// another substitute server by the other list.
func outWhileOneStrays(t *testing.T, off ablation.Set) *fleet {
	f := newFleet(scenario{sidecars: 3, servers: 4, mode: table.Rehash, strict: true, resize: table.ResizeWarm, rate: 1, cold: 200,
		asks: pruning, pace: 4 * milli, exact: true, ablate: ablations{Set: off}}, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	others := func(in resize.Stage) bool {
		is := f.stages()
		return is[0].Stage() == in && is[1].Stage() == in
	}
	f.reload(func(l *layout) { l.gone = 3 })
	f.until(t, "keys do not move", f.moves)
	f.sidecars[2].pause()
	f.until(t, "the change does not end", func() bool { return others(resize.Stable) })
	f.gone = -1
	f.edition++
	f.sidecars[0].reload()
	f.sidecars[1].reload()
	f.until(t, "the change back does not begin", func() bool { return others(resize.Move) })
	f.sidecars[2].resume()
	f.run(f.now + 2*second)
	if is := f.stages()[2]; !is.Strays() {
		t.Fatalf("the instance finds servers by the same list as its peers: %+v", is)
	}
	f.nodes[2].die()
	f.until(t, "the server is not ejected", func() bool { return f.phase(2) == health.Out })
	f.busy(10*second, func() bool { return false })
	return f
}

// TestResizeSubstitutes checks that no read is old, and that reads are without the rule (routing.BoundPool.Diverges).
func TestResizeSubstitutes(t *testing.T) {
	for name, run := range map[string]func(*testing.T, ablation.Set) *fleet{"busy at the end": busyAtTheEnd, "writes at the end": writesAtTheEnd, "one instance strays": outWhileOneStrays} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, off := range []bool{false, true} {
				f := run(t, ablation.Set{Substitute: off})
				if wrong := f.broken != "" || len(f.stale) > 0; wrong != off || f.hits == 0 {
					t.Errorf("without the rule: %t: %d hits, %d stale reads. %s", off, f.hits, len(f.stale), f.broken)
				}
			}
		})
	}
}
