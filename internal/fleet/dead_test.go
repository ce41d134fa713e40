package fleet

// This file changes the servers of a pool while most of them are dead, hang, or can't be reached.

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// stocked returns a fleet that has started with the first of its servers, and has a value of each key.
func stocked(t *testing.T, c scenario, first int, seed uint64) *fleet {
	t.Helper()
	c.cold, c.mode = cmp.Or(c.cold, 60), table.Rehash
	f := newFleet(c, seed, false)
	f.quiet = true
	f.settle("at the start", 30*second)
	if first < c.servers {
		f.reload(func(l *layout) {
			for i := first; i < c.servers; i++ {
				l.spared[i] = true
			}
		})
		f.run(f.now + second)
		if c.resize != table.ResizePlain {
			f.until(t, "the first change has not ended", f.changed)
		}
		f.run(f.now + 30*second)
	}
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	return f
}

// only changes the list of one instance.
func (f *fleet) only(sidecar int, list spared) {
	f.spared = list
	f.edition++
	f.sidecars[sidecar].reload()
}

// mostDie ends two of the three servers in use for good when a change to a fourth one has reached a stage. The operator then removes
// the dead ones. mostDie returns the fleet when the change has ended, or after a time.
func mostDie(t *testing.T, c scenario, reach func(is resize.Status) bool, hangs bool, seed uint64) (f *fleet, ended bool) {
	t.Helper()
	c.sidecars, c.servers, c.rate, c.exact, c.resize = 3, 4, 1, true, table.ResizeWarm
	f = stocked(t, c, 3, seed)
	f.reload(func(l *layout) { l.spared = spared{} })
	f.until(t, "the change has not begun", func() bool { return f.all(reach) })
	for _, i := range []int{1, 2} {
		if hangs {
			f.nodes[i].hang(f.now + 1000*second)
		} else {
			f.nodes[i].die()
		}
	}
	f.busy(6*second, func() bool { return false })
	f.reload(func(l *layout) { l.spared = without(1, 2) })
	f.busy(300*second, f.changed)
	return f, f.changed()
}

// stagesOfMove are conditions for stages of a change.
var stagesOfMove = map[string]func(is resize.Status) bool{
	"announced": func(is resize.Status) bool { return is.Stage() == resize.Pause },
	"paused":    func(is resize.Status) bool { return is.Stage() == resize.Pause && !is.Announced },
	"moves":     func(is resize.Status) bool { return is.Stage() == resize.Move },
	"settles":   func(is resize.Status) bool { return is.Stage() == resize.Settle },
}

// TestResizeMostDie checks that a change of the servers ends in all stages although most of the former servers are dead, when the
// operator has removed them. No read may be old.
func TestResizeMostDie(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for _, hangs := range []bool{false, true} {
			for name, reach := range stagesOfMove {
				t.Run(fmt.Sprintf("strict %t, hang %t, %s", strict, hangs, name), func(t *testing.T) {
					t.Parallel()
					f, ended := mostDie(t, scenario{strict: strict}, reach, hangs, 1)
					if f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") }); !ended || f.broken != "" || len(f.stale) > 0 {
						t.Fatalf("ended: %t, %q are stale; %+v. %s", ended, f.stale, f.stages(), f.broken)
					}
					for i := range f.sidecars {
						if n := f.reads(i); n != len(f.values) {
							t.Errorf("p%d reads %d of %d keys", i, n, len(f.values))
						}
					}
				})
			}
		}
	}
	for _, hangs := range []bool{false, true} {
		if f, ended := mostDie(t, scenario{strict: true, ablate: ablations{Set: ablation.Set{Enough: true}}}, stagesOfMove["moves"], hangs, 1); ended {
			t.Errorf("hang %t: the change ends although half of the servers are not enough: %+v", hangs, f.stages())
		}
	}
}

// lives returns the keys that the given servers store.
func (f *fleet) lives(servers ...int) map[string]bool {
	keys := map[string]bool{}
	for _, i := range servers {
		for _, k := range f.nodes[i].store.Keys() {
			keys[k] = true
		}
	}
	return keys
}

// lostOfLiving changes four servers to two of them and two new ones. Some servers die or hang for good when the change has reached a stage. All
// instances then get a file without these. lostOfLiving returns how many values that were on other servers at that time are lost.
func lostOfLiving(t *testing.T, c scenario, reach func(is resize.Status) bool, hangs bool, dead ...int) (f *fleet, lost []string) {
	t.Helper()
	c.sidecars, c.apps, c.servers, c.rate, c.resize = 2, 1, 6, 4, table.ResizeWarm
	f = stocked(t, c, 4, 1)
	f.reload(func(l *layout) { l.spared, l.reweighed = without(0, 1), true })
	f.until(t, "the change has not begun", func() bool { return f.all(reach) })
	live := f.lives(slices.DeleteFunc([]int{0, 1, 2, 3, 4, 5}, func(i int) bool { return slices.Contains(dead, i) })...)
	for _, i := range dead {
		if hangs {
			f.nodes[i].hang(f.now + 10_000*second)
		} else {
			f.nodes[i].die()
		}
	}
	f.run(f.now + 6*second)
	for i, s := range f.sidecars {
		if is := s.snapshot().Resize("main"); is.Announced && is.Waiting() == "" {
			t.Errorf("p%d does not say what the announcement waits for", i)
		}
	}
	f.reload(func(l *layout) { l.spared, l.reweighed = without(append(dead, 0, 1)...), false })
	f.until(t, "the change has not ended", f.changed)
	return f, f.lost(live)
}

// lost reads the given keys, and returns those that miss.
func (f *fleet) lost(keys map[string]bool) (lost []string) {
	for _, k := range f.values {
		hits := f.hits
		a := f.apps[0]
		a.todo = append(a.todo, func() *op { return a.getOf(k) })
		a.next()
		if f.run(f.now + second); f.hits == hits && keys[k.name] {
			lost = append(lost, k.name)
		}
	}
	return lost
}

// TestResizeRecalled checks that no value of a live server is lost if two former servers and a new one die while keys are about to move, and all
// instances then get a file without them. This includes values that would have moved to the dead new server.
func TestResizeRecalled(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for _, hangs := range []bool{false, true} {
			if hangs && !strict { // an announcement is too short to notice that servers hang
				continue
			}
			t.Run(fmt.Sprintf("strict %t, hang %t", strict, hangs), func(t *testing.T) {
				t.Parallel()
				f, lost := lostOfLiving(t, scenario{strict: strict}, stagesOfMove["announced"], hangs, 0, 1, 4)
				if len(lost) > 0 || f.broken != "" {
					t.Errorf("%q are lost. %+v %s", lost, f.stages(), f.broken)
				}
				if _, lost := lostOfLiving(t, scenario{strict: strict, loose: true, ablate: ablations{Set: ablation.Set{Recall: true}}}, stagesOfMove["announced"], hangs, 0, 1, 4); len(lost) == 0 {
					t.Error("nothing is lost although the announcement is not taken back")
				}
			})
		}
	}
}

// TestResizeRetreats checks that no value of a live server is lost if a new server dies while keys move to it, and all instances then get a file
// without it. This includes values that would have moved to the dead server.
func TestResizeRetreats(t *testing.T) {
	for _, strict := range []bool{true, false} {
		t.Run(fmt.Sprintf("strict %t", strict), func(t *testing.T) {
			t.Parallel()
			f, lost := lostOfLiving(t, scenario{strict: strict}, stagesOfMove["moves"], false, 4)
			if len(lost) > 0 || f.broken != "" {
				t.Errorf("%q are lost. %+v %s", lost, f.stages(), f.broken)
			}
			if _, lost := lostOfLiving(t, scenario{strict: strict, loose: true, ablate: ablations{Set: ablation.Set{Retreat: true}}}, stagesOfMove["moves"], false, 4); len(lost) == 0 {
				t.Error("nothing is lost although the change is not reversed")
			}
		})
	}
}

// TestResizeOutBefore removes a server that is out. Values on its substitute servers must not be read when keys move.
func TestResizeOutBefore(t *testing.T) {
	f := stocked(t, scenario{sidecars: 3, servers: 4, cold: 5, asks: pruning, pace: 2 * milli, strict: true, resize: table.ResizeWarm, exact: true}, 4, 1)
	f.nodes[2].die()
	f.busy(10*second, func() bool { return false })
	f.reload(func(l *layout) { l.spared = without(2) })
	f.busy(second, func() bool { return false })
	if f.busy(100*second, f.changed); !f.changed() || f.broken != "" || len(f.stale) > 0 {
		t.Errorf("%q are stale; %+v %s", f.stale, f.stages(), f.broken)
	}
	stale := false
	for seed := uint64(1); seed <= 5 && !stale; seed++ {
		f, _ := mostDie(t, scenario{strict: true, ablate: ablations{Set: ablation.Set{Substitute: true}}}, stagesOfMove["announced"], false, seed)
		stale = f.broken != "" || len(f.stale) > 0
	}
	if !stale {
		t.Error("no read is old although values on substitute servers are read")
	}
}

// mostHang lets servers hang for 12 s when a change of most servers has reached a stage. It returns how many keys are read at the end.
func mostHang(t *testing.T, c scenario, stage resize.Stage, servers []int) (f *fleet, read int) {
	t.Helper()
	c.sidecars, c.apps, c.servers, c.rate, c.resize = 2, 1, 6, 1, table.ResizeWarm
	f = stocked(t, c, 3, 1)
	f.reload(func(l *layout) { l.spared = without(0, 1) })
	f.until(t, "the change has not begun", func() bool {
		return f.all(func(is resize.Status) bool { return is.Stage() == stage })
	})
	for _, i := range servers {
		f.nodes[i].hang(f.now + 12*second)
	}
	f.run(f.now + 20*second)
	f.until(t, "the change has not ended", f.changed)
	return f, f.reads(0)
}

// TestResizeMostHang lets most of the former or of the new servers hang for 12 s while keys move. They must not be ejected, because
// they have their values when they go on.
func TestResizeMostHang(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for _, stage := range []resize.Stage{resize.Pause, resize.Move, resize.Settle} {
			for name, servers := range map[string][]int{"two old": {0, 1}, "all old": {0, 1, 2}, "most new": {3, 4, 5}} {
				t.Run(fmt.Sprintf("strict %t, stage %d, %s", strict, stage, name), func(t *testing.T) {
					if f, n := mostHang(t, scenario{strict: strict}, stage, servers); n < len(f.values) || f.flushes > 0 || f.broken != "" {
						t.Errorf("%d of %d keys are read, %d flushes. %s", n, len(f.values), f.flushes, f.broken)
					}
				})
			}
		}
		if f, n := mostHang(t, scenario{strict: strict, loose: true, ablate: ablations{Set: ablation.Set{Hang: true}}}, resize.Move, []int{0, 1}); n == len(f.values) {
			t.Errorf("strict %t: nothing is lost although the servers of both lists count together", strict)
		}
	}
}

// attack loads other lists in some instances, and cuts one of these off from servers in use, again and again. The others, or all but one,
// do not have the lists. Nothing may be lost, because no server fails.
func attack(t *testing.T, c scenario, seed uint64) *fleet {
	t.Helper()
	c.sidecars, c.apps, c.servers, c.remember, c.loose, c.resize = 3, 1, 6, true, true, table.ResizeWarm
	f := stocked(t, c, 3, seed)
	lists := []spared{{}, without(0, 1, 2), without(0, 1), without(3, 4, 5), without(0, 1, 2, 5)}
	cutter := 1 + f.rand.IntN(2)
	for range 2 + f.rand.IntN(3) {
		if i := f.rand.IntN(3); i > 0 {
			f.only(i, lists[f.rand.IntN(len(lists))])
		}
		f.run(f.now + f.upTo(10*second))
		for j := range 3 {
			if p := f.paths[cutter][j]; !f.one(4) {
				p.cutOff()
			}
		}
		f.run(f.now + f.between(second, 100*second))
		if f.one(3) {
			f.only(cutter, lists[f.rand.IntN(len(lists))])
			f.run(f.now + f.between(second, 100*second))
		}
		for _, p := range f.paths[cutter][:3] {
			p.heal()
		}
		f.run(f.now + f.upTo(20*second))
	}
	f.run(f.now + 60*second)
	return f
}

// TestResizeAttack checks that an instance that is cut off from servers in use does not change the list, whatever happens to its own list
// meanwhile.
func TestResizeAttack(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed++ {
		for _, usual := range []bool{false, true} {
			strict := seed%2 == 0
			t.Run(fmt.Sprintf("strict %t, usual %t, seed %d", strict, usual, seed), func(t *testing.T) {
				t.Parallel()
				f := attack(t, scenario{strict: strict, usual: usual}, seed)
				first := f.stages()[0]
				if n := f.reads(0); n != len(f.values) || first.List != first.Mine || slices.ContainsFunc(f.stages(), func(is resize.Status) bool { return is.List != first.List }) || f.broken != "" {
					t.Errorf("%d of %d keys are read, %d flushes; %+v. %s", n, len(f.values), f.flushes, f.stages(), f.broken)
				}
			})
		}
	}
}

// TestResizeOpposedReload gives an instance another list while it is cut off from all servers in use. The others had its former list when it
// last reached these servers. So it must not change the list, also if the first of its new lists was another one.
func TestResizeOpposedReload(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, lists := range [][]spared{{{}}, {without(0, 1, 2), without(0, 1, 2, 5)}} {
			f := stocked(t, scenario{sidecars: 3, apps: 1, servers: 6, remember: true, loose: true, strict: strict, usual: true, resize: table.ResizeWarm}, 3, 1)
			first := f.stages()[0].List
			f.run(f.now + 10*second)
			for _, p := range f.paths[2][:3] {
				p.cutOff()
			}
			for _, list := range lists {
				f.run(f.now + 20*second)
				f.only(2, list)
			}
			f.run(f.now + 250*second)
			moved := f.stages()[2].List != first
			for _, p := range f.paths[2][:3] {
				p.heal()
			}
			f.run(f.now + 60*second)
			if n := f.reads(0); moved || n != len(f.values) || f.stages()[0].List != first {
				t.Errorf("strict %t: it changes the list: %t; %d of %d keys are read, %d flushes; %+v", strict, moved, n, len(f.values), f.flushes, f.stages())
			}
		}
	}
}

// TestResizeAccepted lets all servers in use hang for good while only one of the instances has the new list. All others are then reloaded, too.
// No instance can know that, until an operator says so.
func TestResizeAccepted(t *testing.T) {
	f := stocked(t, scenario{sidecars: 3, apps: 1, servers: 6, remember: true, loose: true, usual: true, resize: table.ResizeWarm}, 3, 1)
	first := f.stages()[0].List
	f.only(2, without(0, 1, 2))
	f.run(f.now + 15*second)
	for i, s := range f.sidecars {
		if pools := s.p.CutOff(); len(pools) > 0 {
			t.Errorf("p%d waits for an operator although all servers answer", i)
		}
	}
	for _, n := range f.nodes[:3] {
		n.hang(f.now + 10_000*second)
	}
	f.run(f.now + 20*second)
	f.only(0, f.spared)
	f.only(1, f.spared)
	f.run(f.now + 200*second)
	for i, is := range f.stages() {
		if is.List != first {
			t.Errorf("p%d has changed the list: %+v", i, is)
		}
	}
	for i, s := range f.sidecars {
		pools := s.p.CutOff()
		if len(pools) != 1 {
			t.Errorf("p%d does not wait for an operator", i)
		}
		s.p.DeclareDead(pools)
		for _, d := range s.drivers {
			d.input(func() {})
		}
	}
	f.until(t, "the new servers are not in use", f.changed)
	f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
	if n := f.reads(1); n != len(f.values) || f.broken != "" {
		t.Errorf("%d of %d keys are read. %s", n, len(f.values), f.broken)
	}
}

// TestResizeStartedAgain ends half of the servers while keys move, and starts one of them again, empty. The change must end, although no
// server was removed.
func TestResizeStartedAgain(t *testing.T) {
	f := stocked(t, scenario{sidecars: 3, servers: 4, rate: 1, strict: true, exact: true, resize: table.ResizeWarm}, 3, 1)
	f.reload(func(l *layout) { l.spared = spared{} })
	f.until(t, "keys do not move", f.moves)
	f.nodes[1].die()
	f.nodes[2].die()
	if f.busy(100*second, f.changed); f.changed() {
		t.Error("the change ends although half of the servers are dead")
	}
	f.nodes[1].start()
	if f.busy(200*second, f.changed); !f.changed() || f.broken != "" || len(f.stale) > 0 {
		t.Errorf("%q are stale; %+v. %s", f.stale, f.stages(), f.broken)
	}
}

// TestResizeToPlain reloads while keys move. The file requires mode plain and a third list, or the former one again. The instances must change to
// that list together, too, and all values must move.
func TestResizeToPlain(t *testing.T) {
	for _, list := range []spared{without(3), without(3, 4)} {
		f := stocked(t, scenario{sidecars: 2, apps: 2, servers: 5, rate: 1, strict: true, exact: true, resize: table.ResizeWarm}, 3, 1)
		f.reload(func(l *layout) { l.spared = without(4) })
		f.until(t, "keys do not move", f.moves)
		f.scenario.resize = table.ResizePlain
		f.only(0, list)
		f.run(f.now + 3*second)
		f.only(1, list)
		f.until(t, "the change has not ended", func() bool {
			for _, s := range f.sidecars {
				if p := s.p.Table().Pools[0]; p.Next != nil || p.Resize != table.ResizePlain {
					return false
				}
			}
			return true
		})
		if n := f.reads(1); n != len(f.values) || f.broken != "" || len(f.stale) > 0 {
			t.Errorf("without %v: %d of %d keys are read; %q are stale. %s", list, n, len(f.values), f.stale, f.broken)
		}
	}
}

// TestResizeReturn checks that a change is not made without a move when the first of two servers answers again. Both have hung for more than a
// minute, and a third one is dead. The values of both would be lost.
func TestResizeReturn(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, ablated := range []bool{false, true} {
			f := stocked(t, scenario{sidecars: 2, apps: 1, servers: 4, strict: strict, loose: true, usual: true, resize: table.ResizeWarm, ablate: ablations{Set: ablation.Set{Returns: ablated}}}, 3, 1)
			live := f.lives(0, 1)
			f.nodes[2].die()
			f.run(f.now + 4*second)
			f.reload(func(l *layout) { l.spared = without() })
			f.run(f.now + 20*second)
			f.nodes[0].hang(f.now + 70*second)
			f.nodes[1].hang(f.now + 77*second)
			f.run(f.now + 100*second)
			f.reload(func(l *layout) { l.spared = without(2) })
			f.until(t, "the change has not ended", f.changed)
			if lost := f.lost(live); (len(lost) > 0) != ablated || f.broken != "" {
				t.Errorf("strict %t, ablated %t: %d of %d values are lost. %s", strict, ablated, len(lost), len(live), f.broken)
			}
		}
	}
}

// TestResizeReturnOfAll lets all servers in use hang for more than a minute while a pause is announced, or keys move. The first of them answers some time
// before the others. These must not be ejected then: their values would be lost.
func TestResizeReturnOfAll(t *testing.T) {
	for _, stage := range []string{"announced", "moves"} {
		for _, ablated := range []bool{false, true} {
			f := stocked(t, scenario{sidecars: 2, apps: 1, servers: 4, rate: 1, loose: true, usual: true, resize: table.ResizeWarm, ablate: ablations{Set: ablation.Set{Returns: ablated}}}, 3, 1)
			live := f.lives(0, 1, 2)
			f.reload(func(l *layout) { l.spared = without() })
			f.until(t, "the change has not begun", func() bool { return f.all(stagesOfMove[stage]) })
			f.nodes[0].hang(f.now + 80*second)
			f.nodes[1].hang(f.now + 86*second)
			f.nodes[2].hang(f.now + 93*second) // when the second server has answered, fewer than half are silent
			f.run(f.now + 100*second)
			f.until(t, "the change has not ended", f.changed)
			if lost := f.lost(live); (len(lost) > 0) != ablated || f.broken != "" {
				t.Errorf("%s, ablated %t: %d of %d values are lost. %s", stage, ablated, len(lost), len(live), f.broken)
			}
		}
	}
}

// takeLocks runs clients that take locks while a server dies and is then removed, and a new one joins. The dead server owns none of the locks' keys.
// takeLocks returns the first violation; empty: there is none.
func takeLocks(t *testing.T, c scenario, seed uint64) string {
	t.Helper()
	c.sidecars, c.apps, c.servers, c.rate, c.resize = 3, 2, 5, 10, table.ResizeWarm
	c.locks, c.asks, c.pace, c.exact = true, []ask{(*app).take}, 3*milli, true
	f := stocked(t, c, 4, seed)
	first := around{n: 5, gone: -1, spared: without(4)}
	onDead := func(key string) bool { return first.At(nil, hash([]byte(key)), 0) == 2 }
	f.locked = nil
	for i := 0; len(f.locked) < lockKeys; i++ {
		if k := (&fkey{name: fmt.Sprintf("l%d", i)}); !onDead(k.name) {
			f.locked = append(f.locked, k)
		}
	}
	f.busy(second, func() bool { return false })
	f.nodes[2].die()
	f.busy(20*second, func() bool { return false })
	if f.broken != "" {
		t.Errorf("seed %d: before the change: %s", seed, f.broken)
	}
	f.reload(func(l *layout) { l.spared = without(2) })
	f.busy(second, func() bool { return false })
	f.busy(200*second, f.changed)
	switch {
	case f.broken == "" && !f.changed():
		t.Errorf("seed %d: the change has not ended: %+v", seed, f.stages())
	case onDead(f.culprit): // a failed command has renamed the lock
		return ""
	}
	return f.broken
}

// TestResizeLocks checks that no lock is granted twice when a dead server is removed. Locks with keys of the dead server are on substitute servers,
// and are lost when the keys move.
func TestResizeLocks(t *testing.T) {
	for _, strict := range []bool{true, false} {
		t.Run(fmt.Sprintf("strict %t", strict), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 3; seed++ {
				if broken := takeLocks(t, scenario{strict: strict}, seed); broken != "" {
					t.Errorf("seed %d: %s", seed, broken)
				}
			}
		})
	}
}

// TestHangWhileListsDiffer lets the only server hang that the lists of two instances share, in mode plain. Each instance sees only its own
// votes on its other servers. They must be enough: otherwise the keys of the server fail while the lists differ.
func TestHangWhileListsDiffer(t *testing.T) {
	f := stocked(t, scenario{sidecars: 2, apps: 1, servers: 5, loose: true, resize: table.ResizePlain}, 3, 1)
	f.only(1, without(0, 1))
	f.run(f.now + 15*second)
	f.nodes[2].hang(f.now + 1000*second)
	f.run(f.now + 5*second) // a reload puts the ejection after more than the usual 600 ms
	for i, s := range f.sidecars {
		is := s.snapshot().Phase("main", table.Target{Name: f.nodes[2].name})
		if is == nil || is.Phase != health.Out {
			t.Errorf("p%d does not eject the server: %+v", i, is)
		}
	}
}

// TestResizeSaysWhyItWaits makes former servers hang while keys move. While no key moves, each instance must say why.
func TestResizeSaysWhyItWaits(t *testing.T) {
	from, to := seedRange(t)
	for seed := from; seed < to; seed++ {
		for silent := 1; silent <= 3; silent++ {
			f := stocked(t, scenario{sidecars: 3, servers: 4, rate: 1, exact: true, resize: table.ResizeWarm, strict: seed%2 == 0, eject: 40 * time.Second}, 3, seed)
			f.reload(func(l *layout) { l.spared = spared{} })
			f.until(t, "keys do not move", func() bool { return f.all(stagesOfMove["moves"]) })
			f.run(f.now + f.between(0, 6*second))
			for i := range silent {
				f.nodes[i].hang(f.now + 34*second)
			}
			began, done, moved := f.now, uint64(0), f.now
			for f.run(began + 2*second); f.now < began+33*second; f.run(f.now + 500*milli) {
				for _, s := range f.sidecars {
					if n := s.snapshot().Resize("main").Work.Done; n > done {
						done, moved = n, f.now
					}
				}
				for _, s := range f.sidecars {
					is := s.snapshot().Resize("main")
					if is.Stage() == resize.Move && is.Waiting() == "" && f.now >= moved+14*second { // a listing without an answer ends after 10 s
						t.Fatalf("seed %d: %d servers are silent, and p%d does not say why it waits, after %.1f s: %+v", seed, silent, s.id, float64(f.now-began)/1e9, is.Work)
					}
				}
			}
			if f.run(f.now + 60*second); f.broken != "" {
				t.Fatal(f.broken)
			}
		}
	}
}
