package fleet

import (
	"strings"
	"testing"

	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// TestWarmFrom restarts two instances one after the other with a file that has only other servers than before,
// and names the former ones in warm_from. All values must be on the new servers at the end, and none on the
// former ones, also if an instance is restarted while keys move.
func TestWarmFrom(t *testing.T) {
	misnamed := newFleet(scenario{sidecars: 2, apps: 1, servers: 2, others: true, mode: table.Rehash, resize: table.ResizeWarm, formerName: "main"}, 1, false)
	misnamed.quiet = true
	misnamed.settle("at the start", 30*second)
	misnamed.reload(func(l *layout) { l.replaced = true })
	misnamed.run(misnamed.now + 60*second)
	why := ""
	for _, s := range misnamed.sidecars {
		is := s.snapshot().Resize("main")
		if why += is.Work.Why; is.Stage() != resize.Stable || is.List == is.Wish || is.Serves() != resize.All {
			t.Errorf("p%d does not wait, although instances may use the former servers by another pool name: %+v", s.id, is)
		}
	}
	if !strings.Contains(why, "has the view record of a pool main") {
		t.Errorf("it waits because %q", why)
	}

	wrong := newFleet(scenario{sidecars: 2, apps: 1, servers: 2, others: true, mode: table.Rehash, strict: true, resize: table.ResizeWarm, wrongFormer: true}, 1, false)
	wrong.quiet = true
	wrong.settle("at the start", 30*second)
	wrong.replaced = true
	wrong.edition++
	for _, s := range wrong.sidecars {
		s.die()
		wrong.run(wrong.now + 50*milli)
		s.start()
	}
	wrong.run(wrong.now + 5*second)
	if is := wrong.sidecars[0].snapshot().Resize("main"); is.Serves() != resize.Nothing {
		t.Errorf("an instance that does not know the list in force is in %+v", is)
	}
	wrong.settle("with another former list than the one in force", settleLimit)
	wrong.run(wrong.now + 30*second)
	for _, s := range wrong.sidecars {
		if is := s.snapshot().Resize("main"); is.Serves() != resize.All || is.List != is.Wish {
			t.Errorf("p%d never serves, because no instance knows the list in force: %+v", s.id, is)
		}
	}

	f := newFleet(scenario{sidecars: 2, apps: 1, servers: 2, others: true, mode: table.Rehash, strict: true, resize: table.ResizeWarm, rate: 10, cold: 60}, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	a := f.apps[1]
	for _, k := range f.values {
		a.todo = append(a.todo, func() *op { return a.store(k, "set") })
	}
	a.next()
	f.run(f.now + 2*second)
	restart := func(s *sidecar) {
		s.die()
		f.run(f.now + 50*milli)
		s.start()
	}
	keys := func(nodes []*node) (n int) {
		for _, node := range nodes {
			for _, k := range f.values {
				for _, key := range node.store.Keys() {
					if key == k.name {
						n++
					}
				}
			}
		}
		return n
	}
	stage := func(s *sidecar) resize.Status { return s.snapshot().Resize("main").Status }
	reach := func(s *sidecar, what resize.Stage) {
		for end := f.now + 100*second; f.now < end && f.broken == "" && stage(s).Stage() != what; {
			f.run(f.now + 200*milli)
		}
		if got := stage(s); got.Stage() != what {
			t.Fatalf("%s p%d is in %+v, not in %d", f.broken, s.id, got, what)
		}
	}
	before := keys(f.nodes[:2])
	f.replaced = true
	f.edition++
	restart(f.sidecars[0])
	f.run(f.now + 30*second)
	if n := keys(f.nodes[2:]); n > 0 || stage(f.sidecars[0]).Serves() != resize.All {
		t.Fatalf("%d keys have moved before all instances have the new file, and p0 is in %+v", n, stage(f.sidecars[0]))
	}
	f.sidecars[1].reload()
	reach(f.sidecars[0], resize.Move)
	restart(f.sidecars[0])
	f.run(f.now + 3*second)
	if is := stage(f.sidecars[0]); is.Serves() != resize.Moving {
		t.Errorf("an instance that starts while keys move is in %+v", is)
	}
	reach(f.sidecars[0], resize.Cool)
	reach(f.sidecars[0], resize.Stable)
	reach(f.sidecars[1], resize.Stable)
	if from, to := keys(f.nodes[:2]), keys(f.nodes[2:]); before < 60 || from != 0 || to != before {
		t.Errorf("%d keys: at the end, the former servers have %d of them, and the new ones %d", before, from, to)
	}
	for _, n := range f.nodes[:2] {
		n.die()
	}
	restart(f.sidecars[1]) // it begins with the former list, and learns that the new one is in force
	f.run(f.now + 5*second)
	f.settle("after a restart", 5*second)
	if is := stage(f.sidecars[1]); is.Serves() != resize.All || is.List != is.Wish || is.Mine != is.Wish {
		t.Errorf("after a restart, p1 is in %+v", is)
	}
}
