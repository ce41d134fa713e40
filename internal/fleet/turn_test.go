package fleet

// This file reverses changes of the servers of a pool while keys move (package health/resize).

import (
	"fmt"
	"slices"
	"testing"

	"ringside/proxy/ablation"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// all reports whether a condition holds for the change of the servers on all instances.
func (f *fleet) all(is func(is resize.Status) bool) bool {
	return !slices.ContainsFunc(f.stages(), func(s resize.Status) bool { return !is(s) })
}

// TestResizeTurn gives all instances the list in force back, in a stage. The keys move back before they have
// all moved, twice. No key is missing at any time, and no server is flushed.
func TestResizeTurn(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, stage := range []resize.Stage{resize.Pause, resize.Move} {
			name := fmt.Sprintf("strict %t, stage %d", strict, stage)
			f := filled(strict)
			f.rate = 1
			flushes, none := f.flushes, 0
			read := func(when string) {
				for i := range f.sidecars {
					if n := f.reads(i); n != len(f.values) {
						t.Errorf("%s: %d keys of %d are read through p%d %s: %+v", name, n, len(f.values), i, when, f.stages())
					}
				}
			}
			read("before")
			f.reload(func(l *layout) { l.gone = 2 })
			for turn, gone := range []int{-1, 2} {
				reach := stage
				if turn > 0 {
					reach = resize.Move
				}
				var began uint32
				f.until(t, name+": it does not begin", func() bool {
					began = f.stages()[0].Change()
					return f.all(func(is resize.Status) bool { return is.Stage() == reach && is.Change() == began })
				})
				f.reload(func(l *layout) { l.gone = gone })
				at, paused := f.now, false
				f.until(t, name+": the keys do not move back", func() bool {
					if !paused && f.all(func(is resize.Status) bool { return is.Change() == began+1 && is.Serves() == resize.Turning }) {
						paused = true
						if n := f.reads(turn); n != len(f.values) {
							t.Errorf("%s: %d keys of %d are read in a turn: %+v", name, n, len(f.values), f.stages())
						}
					}
					if slices.ContainsFunc(f.stages(), func(is resize.Status) bool { return is.Serves() == resize.Nothing }) {
						none++
					}
					return f.all(func(is resize.Status) bool {
						return is.Stage() == resize.Move && is.Change() == began+1 && is.Reversed() == (turn == 0)
					})
				})
				if lasts := f.now - at; !paused && strict || lasts > 25*second {
					t.Errorf("%s: turn %d begins after %d s", name, turn, lasts/second)
				}
				read("in the other direction")
			}
			f.reload(func(l *layout) { l.gone = -1 })
			f.until(t, name+": it does not end", f.changed)
			read("at the end")
			if f.broken != "" || len(f.stale) > 0 || f.flushes != flushes || none > 0 || f.stages()[0].Mine != f.stages()[0].List {
				t.Errorf("%s: %s %q, %d flushes, %d times no list, %+v", name, f.broken, f.stale, f.flushes-flushes, none, f.stages())
			}
		}
	}
}

// TestResizeTurnWait counts through two instances when the first of them begins to move keys back. Without the WAIT in a turn, the
// other one still moves them to the new owner. So both count from the same number.
func TestResizeTurnWait(t *testing.T) {
	for _, off := range []bool{false, true} {
		f := newFleet(scenario{sidecars: 2, servers: 4, aimed: true, mode: table.Rehash, strict: true, resize: table.ResizeWarm, rate: 1, cold: 60,
			locks: true, asks: []ask{(*app).count}, pace: milli / 10, exact: true, ablate: ablations{Set: ablation.Set{Clear: off}}}, 1, false)
		f.quiet = true
		f.settle("at the start", 30*second)
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		f.reload(func(l *layout) { l.gone = 0 })
		f.until(t, "keys do not move", f.moves)
		f.reload(func(l *layout) { l.gone = -1 })
		back := func(is resize.Status) bool { return is.Serves() == resize.Moving && is.Reversed() }
		for end := f.now + 60*second; f.now < end && !slices.ContainsFunc(f.stages(), back); f.run(f.now + milli) {
		}
		turns := slices.ContainsFunc(f.stages(), func(is resize.Status) bool { return !back(is) })
		f.busy(second, func() bool { return false })
		if found := f.broken != ""; found != off || !turns || !f.all(back) && !off {
			t.Errorf("without the WAIT: %t: %q, %+v", off, f.broken, f.stages())
		}
	}
}

// TestResizeTurnLate gives all instances the list in force back when the change can't be reversed any more. The change ends, and then
// the keys move back without a further reload.
func TestResizeTurnLate(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, stage := range []resize.Stage{resize.Settle, resize.Cool} {
			f := filled(strict)
			first, flushes, ended := f.stages()[0].List, f.flushes, false
			f.reload(func(l *layout) { l.gone = 2 })
			f.until(t, "it does not begin", func() bool {
				return f.all(func(is resize.Status) bool { return is.Stage() == stage })
			})
			for _, s := range f.sidecars {
				if pool := s.p.Table().Pools[0]; s.p.Ends(pool) != (stage == resize.Cool) {
					t.Errorf("stage %d: the change ends in any case: %t", stage, s.p.Ends(pool))
				}
			}
			f.reload(func(l *layout) { l.gone = -1 })
			f.until(t, "it does not end", func() bool {
				ended = ended || f.all(func(is resize.Status) bool { return is.Stage() == resize.Stable && is.List != first })
				return f.changed()
			})
			if n := f.reads(0); !ended || n != len(f.values) || f.stages()[0].List != first || f.flushes != flushes || f.broken != "" || len(f.stale) > 0 {
				t.Errorf("strict %t, stage %d: ended before: %t, %d keys of %d are read, %d flushes, %+v. %s %q", strict, stage, ended, n, len(f.values), f.flushes-flushes, f.stages(), f.broken, f.stale)
			}
		}
	}
}

// TestResizeLatest gives all instances several further lists while keys move. Only the last one follows.
func TestResizeLatest(t *testing.T) {
	for _, strict := range []bool{false, true} {
		f := filled(strict)
		f.rate = 1
		f.reload(func(l *layout) { l.gone = 2 })
		f.until(t, "keys do not move", f.moves)
		began := f.stages()[0].N
		for _, gone := range []int{1, 0, 3} {
			f.reload(func(l *layout) { l.gone = gone })
			f.run(f.now + 2*second)
		}
		if !f.moves() || f.stages()[0].N != began {
			t.Fatalf("strict %t: keys do not move any more: %+v", strict, f.stages())
		}
		lists := map[uint32]bool{}
		f.until(t, "it does not end", func() bool {
			for _, is := range f.stages() {
				lists[is.List], lists[is.Next] = true, true
			}
			return f.changed()
		})
		if n := f.reads(1); len(lists) != 4 || n != len(f.values) || f.flushes > 0 || f.broken != "" { // 0, and those of the two changes
			t.Errorf("strict %t: lists %v, %d keys of %d are read, %d flushes, %+v. %s", strict, lists, n, len(f.values), f.flushes, f.stages(), f.broken)
		}
	}
}

// TestResizeTurnStarts restarts an instance after a change was reversed. Then a server fails while the keys move back. The
// instances must use the same substitute servers.
func TestResizeTurnStarts(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for out := range 4 {
			f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, mode: table.Rehash, strict: strict, resize: table.ResizeWarm, rate: 1, cold: 600, remember: true, exact: true}, 1, false)
			f.quiet = true
			f.settle("at the start", 30*second)
			f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
			f.reload(func(l *layout) { l.gone = 3 })
			f.until(t, "the keys do not move", func() bool {
				return f.all(func(is resize.Status) bool { return is.Serves() == resize.Moving })
			})
			f.run(f.now + 100*second)
			f.reload(func(l *layout) { l.gone = -1 })
			f.until(t, "the keys do not move back", func() bool {
				return f.all(func(is resize.Status) bool { return is.Serves() == resize.Moving && is.Reversed() })
			})
			f.sidecars[2].die()
			f.run(f.now + 50*milli)
			f.sidecars[2].start()
			f.run(f.now + second)
			if stages := f.stages(); stages[2].Stage() != resize.Move || stages[2].Strays() {
				t.Fatalf("strict %t: the keys do not move, or the instance uses other servers than its peers: %+v", strict, stages)
			}
			f.nodes[out].die()
			f.run(f.now + 10*second)
			served := 0
			for i := range f.sidecars {
				f.each(i, func(a *app, k *fkey) *op { return a.store(k, "set") })
				served += f.reads((i + 1) % len(f.sidecars))
			}
			if len(f.stale) > 0 || f.broken != "" || served < 2*len(f.values) {
				t.Errorf("strict %t, without server %d: %d stale reads, %d of %d keys are read, %+v. %s", strict, out, len(f.stale), served, 3*len(f.values), f.stages(), f.broken)
			}
		}
	}
}

// TestResizeModesDiffer restarts an instance with mode flush while keys move with mode warm. Then a server fails. The instance must
// serve what it can, and have the new servers at the end.
func TestResizeModesDiffer(t *testing.T) {
	for out := range 3 {
		f := newFleet(scenario{sidecars: 3, apps: 1, servers: 4, mode: table.Rehash, resize: table.ResizeWarm, cold: 60, remember: true, exact: true}, 1, false)
		f.quiet = true
		f.settle("at the start", 30*second)
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		f.reload(func(l *layout) { l.gone = 3 })
		f.until(t, "the keys do not move", func() bool {
			return f.all(func(is resize.Status) bool { return is.Serves() == resize.Moving })
		})
		f.resize = table.ResizeFlush
		f.sidecars[2].die()
		f.run(f.now + 50*milli)
		f.sidecars[2].start()
		f.nodes[out].die()
		f.run(f.now + 3*second)
		cool := false
		f.until(t, "the change does not end", func() bool {
			cool = cool || f.stages()[2].Stage() == resize.Cool
			f.reads(2)
			return f.changed()
		})
		if f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") }); !cool || len(f.stale) > 0 || f.broken != "" || f.reads(2) < len(f.values) {
			t.Errorf("without server %d: %d stale reads, %+v. %s", out, len(f.stale), f.stages(), f.broken)
		}
	}
}
