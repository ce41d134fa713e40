package fleet

import (
	"testing"

	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// TestResizeProgress checks what two instances show about a move of keys that one of them does: the other one
// must show it, too, with the name of the first.
func TestResizeProgress(t *testing.T) {
	f := newFleet(scenario{sidecars: 2, apps: 1, servers: 3, mode: table.Rehash, resize: table.ResizeWarm, rate: 4, cold: 60, remember: true}, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	a := f.apps[0]
	for _, k := range f.values {
		a.todo = append(a.todo, func() *op { return a.store(k, "set") })
	}
	a.next()
	f.run(f.now + 2*second)
	f.reload(func(l *layout) { l.gone = 2 })

	moved := func() (n uint64) {
		for _, s := range f.sidecars {
			n += s.snapshot().Resize("main").Keys.Moved
		}
		return n
	}
	seen := [2]uint64{} // the most keys that the instance which moves them, and the other one, have shown
	for end := f.now + 120*second; f.now < end && f.broken == ""; f.run(f.now + 500*milli) {
		done := f.now > end-100*second
		for _, s := range f.sidecars {
			is := s.snapshot().Resize("main")
			if done = done && is.Stage() == resize.Stable && is.List == is.Wish; is.Stage() != resize.Move || is.Work.Server == "" {
				continue
			}
			if (is.Work.By == s.p.Name) != is.Ours || is.Work.By == "" || is.Work.Of != 3 || is.Work.Done > moved() || is.Work.Listed && is.Work.Done+is.Work.Left == 0 && is.Work.Server == "s2" {
				t.Errorf("p%d: %+v", s.id, is.Work)
			}
			i := 1
			if is.Ours {
				i = 0
			}
			seen[i] = max(seen[i], is.Work.Done)
		}
		if done {
			break
		}
	}
	if n := moved(); f.broken != "" || n < 10 || seen[0] < n-4 || seen[1] < n/2 {
		t.Errorf("%s %d keys have moved, and %d of them were shown", f.broken, n, seen)
	}
}
