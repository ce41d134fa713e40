package fleet

import (
	"fmt"
	"testing"

	"ringside/internal/testenv"
	"ringside/proxy/ablation"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// rolls restarts all instances, one after the other, with another server list. It returns how many keys are read through the
// restarted instances before the last one, of how many, and how many items the servers have at the end.
func rolls(t *testing.T, c scenario) (f *fleet, read, all, items int) {
	c.sidecars, c.apps, c.servers, c.cold, c.remember = 3, 1, 4, 60, true
	f = newFleet(c, 1, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	f.gone = 2
	f.edition++
	for i, s := range f.sidecars {
		s.die()
		f.run(f.now + 50*milli)
		s.start()
		if i < len(f.sidecars)-1 { // the keys move when the last one has the list. The first commands come before it knows the servers
			read, all = read+f.reads(i), all+len(f.values)
			f.each(i, func(a *app, k *fkey) *op { return a.store(k, "set") })
			f.run(f.now + 20*second)
			read, all = read+f.reads((i+1)%len(f.sidecars)), all+len(f.values)
		}
	}
	f.until(t, "the change has not ended", f.changed)
	return f, read, all, f.items()
}

// TestResizeRolling restarts all instances with another server list, one after the other. Each of them must serve by the list
// of its peers as soon as it has started, until all have the new list. Without the lists on the servers, it serves none, or old
// values.
func TestResizeRolling(t *testing.T) {
	for _, mode := range []table.ResizeMode{table.ResizeWarm, table.ResizeFlush} {
		for _, failover := range []table.Mode{table.Rehash, table.FailFast} {
			for _, strict := range []bool{false, true} {
				for _, usual := range []bool{false, true} {
					if usual && (mode == table.ResizeFlush || strict) {
						continue
					}
					c := scenario{mode: failover, strict: strict, resize: mode, usual: usual, exact: true}
					f, read, all, items := rolls(t, c)
					name := fmt.Sprintf("%v, %v, strict %t, usual %t", mode, failover, strict, usual)
					if f.broken != "" || len(f.stale) > 0 || read < all || mode == table.ResizeWarm && (items < len(f.values) || f.flushes > 0) {
						t.Errorf("%s: %d of %d keys are read, %d items are left, %d stale reads, %d flushes. %s", name, read, all, items, len(f.stale), f.flushes, f.broken)
					}
				}
			}
		}
	}
	for _, usual := range []bool{false, true} {
		f, read, all, _ := rolls(t, scenario{mode: table.Rehash, resize: table.ResizeWarm, usual: usual, loose: true, ablate: ablations{items: true}})
		if read == all && len(f.stale) == 0 {
			t.Errorf("usual %t: without the lists on the servers, nothing is wrong", usual)
		}
	}
	f, read, all, _ := rolls(t, scenario{mode: table.Rehash, resize: table.ResizeWarm, loose: true, ablate: ablations{Set: ablation.Set{Force: true}, items: true}})
	if read == all && len(f.stale) == 0 {
		t.Error("if an instance uses its own list, nothing is wrong")
	}
}

// TestResizeStarts restarts an instance in each stage of a change, with the former list, the new one or a third one. It must serve
// within a second.
func TestResizeStarts(t *testing.T) {
	for _, strict := range []bool{false, true} {
		if strict && !testenv.Full() {
			continue
		}
		for at := int64(1); at <= 21; at += 4 {
			for _, gone := range []int{-1, 2, 3} {
				f := filled(strict)
				f.rate = 4
				before, flushes := f.items(), f.flushes
				f.reload(func(l *layout) { l.gone = 2 })
				f.run(f.now + at*second)
				stage := f.stages()[0].Stage()
				f.sidecars[2].die()
				f.gone = gone
				f.after(50*milli, f.sidecars[2].start)
				f.run(f.now + second)
				name := fmt.Sprintf("strict %t, restart after %d s in stage %d without server %d", strict, at, stage, gone)
				if is := f.stages()[2]; is.Serves() == resize.Nothing {
					t.Errorf("%s: it serves no keys: %+v", name, is)
				}
				f.run(f.now + 10*second)
				f.gone = 2
				f.edition++
				f.sidecars[2].reload()
				f.until(t, name+": the change has not ended", f.changed)
				if f.flushes != flushes || f.items() < before || f.broken != "" {
					t.Errorf("%s: %d flushes, %d items of %d. %s", name, f.flushes-flushes, f.items(), before, f.broken)
				}
			}
		}
	}
}

// TestResizeStartsWithDeadServers restarts one instance with a list of mostly dead servers, in a pool with the default mode. The other instances must go on to serve by their own list, and that instance, too.
func TestResizeStartsWithDeadServers(t *testing.T) {
	f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, others: true, cold: 60, remember: true, exact: true, mode: table.Rehash, resize: table.ResizeWarm, usual: true, ablate: ablations{former: true}}, 1, false)
	f.quiet, f.gone = true, 1
	for _, n := range f.nodes[f.servers:] {
		n.die()
	}
	f.edition++
	for _, s := range f.sidecars {
		s.reload()
	}
	f.until(t, "the first change has not ended", f.changed)
	f.run(f.now + 30*second)
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	first := f.stages()[1]
	f.mixed = true
	f.edition++
	f.sidecars[0].die()
	f.after(50*milli, f.sidecars[0].start)
	for range 20 {
		f.run(f.now + 3*second)
		for i := range f.sidecars {
			if is := f.stages()[i]; is.List != first.List || is.N != first.N {
				t.Fatalf("%d ms: p%d is in %+v, and was in %+v", f.now/milli, i, is, first)
			}
		}
	}
	for i := range f.sidecars {
		if n := f.reads(i); n != len(f.values) || f.broken != "" || len(f.stale) > 0 {
			t.Errorf("p%d reads %d of %d keys, %d stale. %s", i, n, len(f.values), len(f.stale), f.broken)
		}
	}
}

// TestResizeRollingFaults restarts all instances with a list that lacks a server, which is dead already, or hangs, or has restarted
// empty. Each instance must serve the keys of the other servers at once, and the change must end.
func TestResizeRollingFaults(t *testing.T) {
	for _, mode := range []table.Mode{table.Rehash, table.FailFast} {
		for what, fails := range map[string]func(n *node){
			"dead":      (*node).die,
			"hangs":     func(n *node) { n.hang(1000 * second) },
			"restarted": func(n *node) { n.die(); n.start() },
		} {
			f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, cold: 60, mode: mode, resize: table.ResizeWarm, usual: mode == table.Rehash, exact: true}, 1, false)
			f.quiet = true
			f.settle("at the start", 30*second)
			f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
			fails(f.nodes[2])
			f.gone = 2
			f.edition++
			for i, s := range f.sidecars {
				s.restart(50 * milli)
				f.run(f.now + second)
				if n := f.reads(i); n < len(f.values)/2 {
					t.Errorf("%v, %s: p%d reads %d of %d keys; %+v", mode, what, i, n, len(f.values), f.stages()[i])
				}
				f.run(f.now + 10*second)
			}
			f.until(t, fmt.Sprintf("%v, %s: the change has not ended", mode, what), f.changed)
			if f.broken != "" || len(f.stale) > 0 {
				t.Errorf("%v, %s: %d stale reads. %s", mode, what, len(f.stale), f.broken)
			}
		}
	}
}

// TestResizeDefaultHang lets most servers hang just before keys of a pool with the default mode move. Their values must not be lost:
// after a short hang, they move. After a minute, the new list is in force without them.
func TestResizeDefaultHang(t *testing.T) {
	for _, hang := range []int64{6 * second, 100 * second} {
		f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, cold: 60, remember: true, loose: true, mode: table.Rehash, resize: table.ResizeWarm, usual: true}, 1, false)
		f.quiet = true
		f.settle("at the start", 30*second)
		f.reload(func(l *layout) { l.gone = 3 })
		f.until(t, "the first change has not ended", f.changed)
		f.run(f.now + 30*second)
		first, moved := f.stages()[0].List, false
		f.reload(func(l *layout) { l.gone = -1 })
		f.run(f.now + 2*second)
		for i := range 2 {
			f.hangFor(i, hang, hang)
		}
		for end := f.now + 150*second; f.now < end; f.run(f.now + 100*milli) {
			moved = moved || f.moves()
		}
		if is := f.stages()[0]; is.List == first || moved != (hang < 60*second) {
			t.Errorf("a hang of %d s: keys have moved: %t; %+v", hang/second, moved, is)
		}
	}
}

// TestResizeCutOff loads another list in one of the instances only, and cuts it off from some servers in use. Nothing may move, no
// server may be ejected, and no value may be lost: most instances reach all servers.
func TestResizeCutOff(t *testing.T) {
	const warm = table.ResizeWarm
	for _, c := range []scenario{{sidecars: 2, resize: warm}, {sidecars: 2, resize: warm, strict: true}, {sidecars: 3, resize: warm, usual: true}, {sidecars: 3, resize: warm}, {sidecars: 2}} {
		for cut := 1; cut <= 3; cut++ {
			plain := c.resize == table.ResizePlain
			c.apps, c.servers, c.cold, c.remember, c.loose, c.mode = 1, 4, 60, true, true, table.Rehash
			f := newFleet(c, 1, false)
			f.quiet = true
			f.settle("at the start", 30*second)
			f.reload(func(l *layout) { l.gone = 3 })
			if !plain {
				f.until(t, "the first change has not ended", f.changed)
			}
			f.run(f.now + 30*second)
			f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
			first, moved, last := f.stages()[0].List, false, c.sidecars-1
			f.layout.gone = -1
			f.edition++
			f.sidecars[last].reload()
			f.run(f.now + 4*second)
			for _, p := range f.paths[last][:cut] {
				p.cutOff()
			}
			for end := f.now + 100*second; f.now < end; f.run(f.now + 100*milli) {
				moved = moved || f.stages()[last].Stage() != resize.Stable
			}
			for _, p := range f.paths[last][:cut] {
				p.heal()
			}
			f.run(f.now + 60*second)
			if read, all := f.reads(0), len(f.values); moved || f.stages()[0].List != first || read < all || f.broken != "" {
				t.Errorf("%d instances, strict %t, usual %t, plain %t, %d servers cut off: keys have moved: %t; %d of %d keys are read; %d flushes; %s",
					c.sidecars, c.strict, c.usual, plain, cut, moved, read, all, f.flushes, f.broken)
			}
		}
	}
}

// TestResizeCutOffReplaced loads a list of other servers in one instance only, and cuts it off from all servers in use for longer than
// servers need to count as dead. It has seen that the others have another list, so it must not use its own.
func TestResizeCutOffReplaced(t *testing.T) {
	for _, usual := range []bool{false, true} {
		for _, strict := range []bool{false, true} {
			f := newFleet(scenario{sidecars: 3, apps: 1, servers: 3, others: true, cold: 60, remember: true, loose: true, mode: table.Rehash, strict: strict, resize: table.ResizeWarm, usual: usual}, 1, false)
			f.quiet = true
			f.settle("at the start", 30*second)
			f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
			first, moved := f.stages()[0].List, false
			f.layout.replaced = true
			f.edition++
			f.sidecars[2].reload()
			f.run(f.now + 4*second)
			for _, p := range f.paths[2][:3] {
				p.cutOff()
			}
			for end := f.now + 100*second; f.now < end; f.run(f.now + 100*milli) {
				moved = moved || f.stages()[2].Stage() != resize.Stable || f.stages()[2].List != first
			}
			for _, p := range f.paths[2][:3] {
				p.heal()
			}
			f.run(f.now + 60*second)
			if read, all := f.reads(0), len(f.values); moved || f.stages()[0].List != first || read < all || f.broken != "" {
				t.Errorf("usual %t, strict %t: keys have moved: %t; %d of %d keys are read; %d flushes; %s", usual, strict, moved, read, all, f.flushes, f.broken)
			}
		}
	}
}
