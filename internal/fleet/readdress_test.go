package fleet

// This file tests changes of the servers in which a server keeps its name and gets another address.

import (
	"fmt"
	"testing"

	"ringside/proxy/ablation"
	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// readdressed returns a fleet whose keys move to another address of the first server. from means that the file has the former
// list in warm_from, so an instance that starts knows both lists.
func readdressed(t *testing.T, strict, from bool, off ablations) *fleet {
	f := newFleet(scenario{ablate: off, sidecars: 3, apps: 1, servers: 3, spare: 2, mode: table.Rehash, strict: strict, resize: table.ResizeWarm, rate: 1, cold: 60, exact: true}, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	f.reload(func(l *layout) {
		if l.at = 1; from {
			l.from = 1
		}
	})
	f.until(t, "keys do not move", f.moves)
	return f
}

// TestReaddress ends the process of one of two servers with the same name while keys move from one to the other. The
// other one must not count as failed. At the end, the server that stays must not be flushed, for any instance.
func TestReaddress(t *testing.T) {
	const former, newcomer = 0, 3 // nodes
	for _, c := range []struct {
		dies    int // node; -1: none
		restart int64
		from    bool
		third   bool // the list changes again meanwhile: the server gets a third address, or its former one
	}{{dies: -1}, {dies: former}, {dies: newcomer}, {dies: -1, restart: 1}, {dies: former, restart: 1}, {dies: former, restart: 10}, {dies: newcomer, restart: 1},
		{dies: former, restart: 1, from: true}, {dies: newcomer, restart: 1, from: true},
		{dies: -1, third: true}, {dies: former, third: true}, {dies: newcomer, third: true}} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v, strict %t", c, strict), func(t *testing.T) {
				f := readdressed(t, strict, c.from, ablations{})
				if c.dies >= 0 {
					f.nodes[c.dies].die()
				}
				if c.restart > 0 {
					f.run(f.now + c.restart*second)
					f.sidecars[2].die()
					f.after(50*milli, f.sidecars[2].start)
				}
				f.run(f.now + 15*second)
				if is := f.stages()[2]; c.from && is.Serves() == resize.Nothing {
					t.Errorf("an instance that was restarted is in %+v", is)
				}
				f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
				if n := f.reads(1); c.dies != newcomer && n != len(f.values) {
					t.Errorf("%d keys of %d are read while keys move: %+v", n, len(f.values), f.stages())
				}
				if c.third {
					to := 2
					if c.dies != former {
						to = 0
					}
					f.reload(func(l *layout) { l.at = to })
					f.run(f.now + 2*second)
				}
				f.rate = 5000
				f.until(t, "the change has not ended", func() bool { return f.changed() && !f.running(2) })
				if c.dies == newcomer && !c.third {
					f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
					f.nodes[newcomer].start()
				}
				f.until(t, "the server is not in", func() bool {
					for _, s := range f.sidecars {
						if s.snapshot().Phases[0].Phase != health.In {
							return false
						}
					}
					return true
				})
				if c.dies != newcomer && f.flushes > 0 {
					t.Errorf("%d flushes", f.flushes)
				}
				for i := range f.sidecars {
					if n := f.reads(i); c.dies != newcomer && n != len(f.values) {
						t.Errorf("p%d reads %d keys of %d", i, n, len(f.values))
					}
				}
				f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
				if n := f.reads(1); n != len(f.values) || f.broken != "" || len(f.stale) > 0 {
					t.Errorf("%d keys of %d are read at the end. %s %s", n, len(f.values), f.broken, f.stale)
				}
			})
		}
	}
}

// running reports whether an instance is in the middle of a change of the servers.
func (f *fleet) running(sidecar int) bool {
	is := f.stages()[sidecar]
	return is.Stage() != resize.Stable || is.List != is.Wish || is.Serves() != resize.All
}

// TestReaddressAblation checks that the test above would notice if both servers had one entry in the view record.
func TestReaddressAblation(t *testing.T) {
	f := readdressed(t, false, false, ablations{Set: ablation.Set{Names: true}})
	f.nodes[0].die()
	f.run(f.now + 15*second)
	if now := f.sidecars[0].snapshot().Phases; now[0].Phase == health.In || now[3].Phase == health.In {
		t.Errorf("one of the two is in: %v and %v", now[0].Phase, now[3].Phase)
	}
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	if n := f.reads(1); n == len(f.values) {
		t.Error("all keys are read")
	}
}
