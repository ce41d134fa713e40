package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/health/resize"
	"ringside/proxy/stats"
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

// filled returns a fleet of three instances whose servers have a value of each key.
func filled(strict bool) *fleet {
	f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, mode: table.Rehash, strict: strict, resize: table.ResizeWarm, cold: 60, remember: true}, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	a := f.apps[0]
	for _, k := range f.values {
		a.todo = append(a.todo, func() *op { return a.store(k, "set") })
	}
	a.next()
	f.run(f.now + 2*second)
	return f
}

// stages returns the state of the change of the servers on each instance. It costs much less than snapshots.
func (f *fleet) stages() []resize.Status {
	list := make([]resize.Status, len(f.sidecars))
	for i, s := range f.sidecars {
		for _, d := range s.drivers {
			for _, w := range d.e.Keepers.Agents {
				if is, _, _, _ := w.Keeper.Resize(d.e.Now); w.Pool == "main" && is.Mine != 0 {
					list[i] = is
				}
			}
		}
	}
	return list
}

// items returns how many keys of clients the servers have.
func (f *fleet) items() int {
	keys := map[string]bool{}
	for _, n := range f.nodes {
		if n.store == nil { // it is dead
			continue
		}
		for _, k := range n.store.Keys() {
			if !divert.IsReserved([]byte(k)) {
				keys[k] = true
			}
		}
	}
	return len(keys)
}

// TestResizeRestart restarts an instance during a change. It does not know the list in force any more, but its peers do:
// no value is lost.
func TestResizeRestart(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, at := range []int64{1, 6, 10, 12, 20} {
			f := filled(strict)
			before, flushes := f.items(), f.flushes
			f.reload(func(l *layout) { l.gone = 2 })
			f.run(f.now + at*second)
			f.sidecars[2].die()
			f.after(50*milli, f.sidecars[2].start)
			f.run(f.now + second)
			ended := func() bool {
				for _, is := range f.stages() {
					if is.Stage() != resize.Stable || is.List != is.Wish || is.Serves() != resize.All {
						return false
					}
				}
				return true
			}
			for end := f.now + 200*second; f.now < end && !ended(); {
				f.run(f.now + second)
			}
			if !ended() || f.flushes != flushes || f.items() < before {
				t.Errorf("strict %t, restart after %d s: %d flushes, %d items of %d; %+v", strict, at, f.flushes-flushes, f.items(), before, f.stages())
			}
		}
	}
}

// TestResizeUsual starts instances with another list than that of their peers in a pool whose mode is the default. They serve at
// once, nothing is flushed, and the list is in force in the end, whether another instance knows the former list or not.
func TestResizeUsual(t *testing.T) {
	for restarts := range 4 {
		f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, mode: table.Rehash, resize: table.ResizeWarm, usual: true, cold: 60, remember: true, serves: true}, 1, false)
		f.quiet = true
		f.settle("at the start", 30*second)
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		flushes := f.flushes
		f.gone = 2
		f.edition++
		for i, s := range f.sidecars {
			if i >= restarts {
				f.run(f.now + 20*second)
				s.reload()
				continue
			}
			s.restart(50 * milli)
			f.run(f.now + 5*second)
			if is := f.stages()[i]; is.Serves() != resize.All && !is.UsesOwn() || i == 0 && is.List == is.Wish {
				t.Errorf("%d restarts: p%d is in %+v", restarts, i, is)
			}
			if n := f.reads(i); n < 40 {
				t.Errorf("%d restarts: %d keys are read through an instance that was started with another list", restarts, n)
			}
		}
		f.until(t, "the change has not ended", f.changed)
		if n := f.reads(0); f.broken != "" || f.flushes != flushes || n < 40 {
			t.Errorf("%d restarts: %d flushes, %d keys are read. %s", restarts, f.flushes-flushes, n, f.broken)
		}
	}
}

// TestResizeMostDead ends most servers for good, and then replaces all. With the default mode, the new list must be in use at
// once, because the old servers can't take part.
func TestResizeMostDead(t *testing.T) {
	f := newFleet(scenario{sidecars: 2, apps: 1, servers: 3, others: true, mode: table.Rehash, resize: table.ResizeWarm, usual: true, ablate: ablations{former: true}}, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	for _, n := range f.nodes[:4] { // also one of the new servers
		n.die()
	}
	f.run(f.now + 20*second)
	f.reload(func(l *layout) { l.replaced = true })
	f.until(t, "the new servers are not in use", f.changed)
	f.until(t, "the dead server is not ejected", func() bool { return f.phase(0) == health.Out })
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	if n := f.reads(1); n != len(f.values) {
		t.Errorf("%d keys of %d are read", n, len(f.values))
	}
}

// TestResizeTakenBack gives an instance its former list back when another one just begins to move keys.
func TestResizeTakenBack(t *testing.T) {
	f := filled(true)
	f.reload(func(l *layout) { l.gone = 2 })
	begun := func() int {
		n := 0
		for _, is := range f.stages() {
			if is.Stage() != resize.Stable {
				n++
			}
		}
		return n
	}
	for end := f.now + 60*second; f.now < end && begun() == 0; f.run(f.now + milli) {
	}
	at := slices.IndexFunc(f.stages(), func(is resize.Status) bool { return is.Stage() == resize.Stable })
	if at < 0 {
		t.Fatalf("%+v", f.stages())
	}
	f.gone = -1
	f.edition++
	f.sidecars[at].reload()
	for end := f.now + 200*second; f.now < end; f.run(f.now + 100*milli) {
		if is := f.stages()[at]; is.Serves() == resize.Nothing {
			t.Fatalf("p%d serves nothing: %+v", at, f.stages())
		}
	}
	for _, s := range f.sidecars {
		s.reload()
	}
	f.run(f.now + 100*second)
	for i, is := range f.stages() {
		if is.Serves() != resize.All || is.List != is.Wish {
			t.Errorf("p%d at the end: %+v", i, is)
		}
	}
}

// TestResizeDeadServer ends the process of a server for good while keys move to it. The change must end, so that a
// list without the server can follow.
func TestResizeDeadServer(t *testing.T) {
	f := filled(false)
	list := func(gone int) {
		f.reload(func(l *layout) { l.gone = gone })
	}
	ended := func() bool {
		return !slices.ContainsFunc(f.stages(), func(is resize.Status) bool {
			return is.Stage() != resize.Stable || is.List != is.Required() || is.Serves() != resize.All
		})
	}
	until := func(what string, is func() bool) {
		t.Helper()
		f.run(f.now + second)
		for end := f.now + 300*second; !is(); f.run(f.now + 100*milli) {
			if f.now >= end {
				t.Fatalf("%s: %+v", what, f.stages())
			}
		}
	}
	list(2)
	until("the server is not removed", ended)
	f.rate = 1
	list(-1)
	until("keys do not move to it", func() bool { return f.stages()[0].Stage() == resize.Move })
	f.nodes[2].die()
	none := 0 // how often no key was shown as left while keys could not move
	until("the change has not ended without it", func() bool {
		for _, s := range f.sidecars {
			if is := s.snapshot().Resize("main"); is.Ours && strings.HasSuffix(is.Work.Why, "is out") && is.Work.Listed && is.Work.Left == 0 {
				none++
			}
		}
		return ended()
	})
	if none > 0 {
		t.Errorf("no keys are left while keys can't move, %d times", none)
	}
	list(2)
	until("it is not removed again", ended)
	if n := f.items(); n < 40 {
		t.Errorf("%d keys are left", n)
	}
}

// TestResizeDeadOwner ends the process of an old server while its keys move. The keys that are left are lost, and
// counted so.
func TestResizeDeadOwner(t *testing.T) {
	f := filled(false)
	f.rate = 1
	f.reload(func(l *layout) { l.gone = 2 })
	work := func() (is stats.ResizeWork, keys stats.ResizeKeys) {
		for _, s := range f.sidecars {
			r := s.snapshot().Resize("main")
			keys.Moved, keys.Rejected = keys.Moved+r.Keys.Moved, keys.Rejected+r.Keys.Rejected
			if r.Ours && r.Stage() == resize.Move && r.Work.Server == "s2" && r.Work.Listed {
				is = r.Work
			}
		}
		return is, keys
	}
	var before stats.ResizeWork
	for end := f.now + 60*second; f.now < end && before.Done < 2; f.run(f.now + 100*milli) {
		before, _ = work()
	}
	f.nodes[2].die()
	for end := f.now + 200*second; f.now < end; f.run(f.now + second) {
		if is := f.stages()[0]; is.Stage() == resize.Stable {
			break
		}
	}
	if _, keys := work(); before.Left < 3 || keys.Rejected+2 < before.Left || keys.Rejected > before.Left || keys.Moved+keys.Rejected < before.Done+before.Left-2 {
		t.Errorf("%d keys moved, and %d are lost; before the server died: %+v", keys.Moved, keys.Rejected, before)
	}
}

// TestResizeOutLog removes a server that is out. The log must not say that keys are lost, because none was listed.
func TestResizeOutLog(t *testing.T) {
	f := newFleet(scenario{sidecars: 2, apps: 1, servers: 4, mode: table.Rehash, resize: table.ResizeWarm, remember: true}, 1, true)
	f.quiet = true
	f.settle("at the start", 30*second)
	f.nodes[2].die()
	f.until(t, "the server is not out", func() bool { return f.phase(2) == health.Out })
	f.reload(func(l *layout) { l.gone = 2 })
	f.until(t, "the change has not ended", f.changed)
	says := func(text string) bool {
		return slices.ContainsFunc(f.trace, func(l traceLine) bool { return strings.Contains(l.text, text) })
	}
	if says("keys are lost") || !says("but not from servers that are out") {
		t.Error("the log does not say that only the server that is out had further keys")
	}
}

// TestResizeRejectedFlush changes servers in mode flush while a server that gains keys rejects flush_all. The others keep
// their values if the server is new. They lose them once if it is not.
func TestResizeRejectedFlush(t *testing.T) {
	f := newFleet(scenario{sidecars: 2, servers: 4, mode: table.Rehash, resize: table.ResizeFlush}, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	change := func(what string, node int, most int, change func(l *layout)) {
		t.Helper()
		ended := func() bool {
			return !slices.ContainsFunc(f.stages(), func(is resize.Status) bool { return is.Serves() != resize.All || is.List != is.Required() })
		}
		before := f.flushes
		if node >= 0 {
			f.nodes[node].denies = true
		}
		f.reload(change)
		f.run(f.now + 200*second)
		if n := f.flushes - before; n > most || node >= 0 && ended() {
			t.Errorf("%s: %d flushes in 200 s, ended: %t", what, n, ended())
		}
		if node >= 0 {
			f.nodes[node].denies = false
			f.run(f.now + 30*second)
		}
		if !ended() || f.broken != "" {
			t.Errorf("%s: it does not end: %+v %s", what, f.stages(), f.broken)
		}
	}
	change("a server is removed", -1, 6, func(l *layout) { l.gone = 3 })
	change("a new server rejects it", 3, 0, func(l *layout) { l.gone = -1 })
	change("an old server rejects it", 1, 6, reweigh)
}

// TestResizeWaitsForInstance reloads one of two instances. It says that the change waits for the other one, until that
// is reloaded, too.
func TestResizeWaitsForInstance(t *testing.T) {
	for _, mode := range []table.ResizeMode{table.ResizeFlush, table.ResizeWarm} {
		f := newFleet(scenario{sidecars: 2, servers: 4, mode: table.Rehash, resize: mode, remember: true}, 1, false)
		f.quiet = true
		f.settle("at the start", 30*second)
		f.run(f.now + 10*second)
		waits := func(i int) string { return f.sidecars[i].snapshot().Resize("main").Waiting() }
		f.gone = 2
		f.edition++
		f.sidecars[0].reload()
		for end := f.now + 4*second; f.now < end; f.run(f.now + 100*milli) {
			if why := waits(0); why != "" {
				t.Fatalf("%v: it waits just after the reload: %s", mode, why)
			}
		}
		f.run(f.now + 10*second)
		for end := f.now + 60*second; f.now < end; f.run(f.now + 100*milli) {
			if why, want := waits(0), "instance "+f.sidecars[1].p.Name+" has another configuration"; why != want || waits(1) != "" {
				t.Fatalf("%v: it waits because %q, want %q; the other instance: %q", mode, why, want, waits(1))
			}
		}
		f.sidecars[1].reload()
		f.run(f.now + 6*second)
		for end := f.now + 40*second; f.now < end; f.run(f.now + 100*milli) {
			if why := waits(0) + waits(1); why != "" {
				t.Fatalf("%v: it waits although both are reloaded: %s", mode, why)
			}
		}
		for i, is := range f.stages() {
			if is.List != is.Required() || is.Serves() != resize.All || f.broken != "" {
				t.Errorf("%v: p%d: %+v %s", mode, i, is, f.broken)
			}
		}
	}
}

// TestResizeGutter gives a pool mode gutter while its keys move, and then ejects a server. Keys that move must find the
// gutter by both lists.
func TestResizeGutter(t *testing.T) {
	for _, dead := range []int{0, 1, 2} {
		f := newFleet(scenario{sidecars: 2, apps: 1, servers: 3, gutter: 1, mode: table.Rehash, resize: table.ResizeWarm, rate: 1, remember: true}, 1, false)
		f.quiet = true
		f.settle("at the start", 30*second)
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		f.reload(reweigh)
		f.until(t, "keys do not move", func() bool { return f.stages()[0].Stage() == resize.Move })
		f.mode, f.resize = table.Gutter, table.ResizePlain
		f.reload(func(*layout) {})
		f.run(f.now + second)
		f.nodes[dead].die()
		f.until(t, "the server is not ejected", func() bool { return f.phase(dead) == health.Out })
		for range 5 {
			f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
			f.reads(1)
			f.run(f.now + 4*second)
		}
		if f.broken != "" {
			t.Errorf("s%d is dead: %s", dead, f.broken)
		}
	}
}

// TestResizeAgrees gives all instances the same list, one of them after a third list. It needs some time until it can vote for that. The
// others must not say meanwhile that an instance has another list. While it has another one, they say so.
func TestResizeAgrees(t *testing.T) {
	says := func(f *fleet, not int) (said string) {
		for i, s := range f.sidecars {
			for _, d := range s.drivers {
				for _, w := range d.e.Keepers.Agents {
					_, _, why, _ := w.Keeper.Resize(d.e.Now)
					if i != not && (strings.Contains(why, "another server list") || strings.Contains(why, "another configuration")) {
						said = fmt.Sprintf("p%d: %s", i, why)
					}
				}
			}
		}
		return said
	}
	for _, strict := range []bool{false, true} {
		for _, pause := range []int64{0, second, 2 * second, 3 * second, 12 * second} {
			f := filled(strict)
			before := f.stages()[0].Required()
			third := func() {
				f.gone = 1
				f.edition++
				f.sidecars[0].reload()
			}
			same := func() { f.reload(func(l *layout) { l.gone = 2 }) }
			if pause == 0 {
				third()
				f.run(f.now + 2*second)
				same()
			} else {
				same()
				f.until(t, "not all instances are reloaded", func() bool {
					return f.all(func(is resize.Status) bool { return is.Required() != before })
				})
				third()
				if end := f.now + pause; pause > 10*second {
					f.until(t, "no instance says that another one has another list", func() bool { return says(f, 0) != "" })
				} else {
					f.run(end)
				}
				f.gone = 2
				f.edition++
				f.sidecars[0].reload()
			}
			f.until(t, "not all instances have the same list", func() bool {
				wish := f.stages()[0].Required()
				return wish != before && f.all(func(is resize.Status) bool { return is.Required() == wish })
			})
			last := f.now
			if says(f, -1) != "" { // then it is said for a while
				f.run(f.now + 4*second)
			}
			f.until(t, "the change does not begin", func() bool {
				if is := says(f, -1); is != "" {
					t.Fatalf("strict %t, the last reload %d s later: %s, %d ms after it", strict, pause/second, is, (f.now-last)/milli)
				}
				return f.moves()
			})
		}
	}
}
