package fleet

// This file reloads a pool with mode gutter while its servers change.

import (
	"testing"

	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// TestResizeToGutter changes a pool to mode gutter, which excludes a coordinated change of servers, while keys move. No command may be
// lost, and the change must end.
func TestResizeToGutter(t *testing.T) {
	for _, stage := range []resize.Stage{resize.Pause, resize.Move, resize.Settle, resize.Cool} {
		f := newFleet(scenario{sidecars: 2, apps: 2, servers: 3, spare: 2, mode: table.Rehash, resize: table.ResizeWarm, rate: 5, cold: 60}, 1, false)
		f.quiet = true
		f.gone = 2
		f.edition++
		for _, s := range f.sidecars {
			s.reload()
		}
		f.settle("at the start", 30*second)
		f.until(t, "the first list is not in use", f.changed)
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		f.reload(func(l *layout) { l.gone = -1 })
		f.until(t, "the stage is not reached", func() bool {
			return f.all(func(is resize.Status) bool { return is.Stage() == stage })
		})
		f.scenario.mode, f.scenario.resize, f.scenario.gutter = table.Gutter, table.ResizePlain, 2
		f.reload(func(*layout) {})
		f.run(f.now + 100*second)
		if n := f.reads(0); n != len(f.values) || f.broken != "" {
			t.Errorf("stage %d: %d of %d keys are read. %s", stage, n, len(f.values), f.broken)
		}
	}
}
