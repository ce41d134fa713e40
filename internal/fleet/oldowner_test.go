package fleet

// This file lets an old owner of keys fail in each stage of a change of the servers.

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"ringside/proxy/health/divert"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// where returns the servers that have each key.
func (f *fleet) where() map[string]string {
	at := map[string]string{}
	for i, n := range f.nodes {
		if n.store == nil {
			continue
		}
		for _, k := range n.store.Keys() {
			if !divert.IsReserved([]byte(k)) {
				at[k] += fmt.Sprint(i)
			}
		}
	}
	return at
}

// ownerFails changes three servers to four, and most keys get another owner. The second server fails in a stage. It is an old owner of some keys
// and a new owner of others. If back is not negative, the change is taken back while keys move, after so many have left that server. ownerFails returns how
// many values are lost of those that only the second server had, and of all others.
func ownerFails(t *testing.T, c scenario, back int, stage func(is resize.Status) bool, fails func(f *fleet, n *node)) (own, others int) {
	t.Helper()
	c.sidecars, c.apps, c.servers, c.rate, c.resize, c.exact = 2, 1, 4, 2, table.ResizeWarm, c.strict
	f := stocked(t, c, 3, 1)
	first := f.where()
	f.reload(func(l *layout) { l.spared, l.reweighed = spared{}, true })
	if back >= 0 {
		f.until(t, "no key leaves the server", func() bool {
			left := 0
			for k, at := range f.where() {
				if first[k] == "1" && at != "1" {
					left++
				}
			}
			return left >= back && f.moves()
		})
		f.reload(func(l *layout) { l.spared, l.reweighed = without(3), false })
	}
	for end := f.now + 100*second; !f.all(stage); f.run(f.now + 20*milli) {
		if f.now > end {
			t.Fatalf("the stage is not reached: %+v", f.stages())
		}
	}
	at, began := f.where(), f.now
	fails(f, f.nodes[1])
	f.until(t, "the change has not ended", f.changed)
	f.run(max(f.now, began+100*second) + 20*second) // the server has returned
	keys := map[string]bool{}
	for k := range maps.Keys(at) {
		keys[k] = true
	}
	for _, k := range f.lost(keys) {
		if at[k] == "1" {
			own++
		} else {
			others++
		}
	}
	if f.broken != "" || len(f.stale) > 0 {
		t.Errorf("%q are stale. %s", f.stale, f.broken)
	}
	return own, others
}

// TestResizeOldOwner checks what is lost if an old owner fails in a stage: the values that are on it, if it is restarted or ejected. No other value is, if
// it returns within a minute, or if the change was taken back before it failed.
func TestResizeOldOwner(t *testing.T) {
	stages := []func(is resize.Status) bool{stagesOfMove["announced"], stagesOfMove["paused"], stagesOfMove["moves"], stagesOfMove["settles"],
		func(is resize.Status) bool { return is.Stage() == resize.Cool }}
	turns := []func(is resize.Status) bool{resize.Status.TakenBack}
	for _, stage := range []resize.Stage{resize.Pause, resize.Move, resize.Settle} {
		turns = append(turns, func(is resize.Status) bool { return is.Stage() == stage && is.Turned() })
	}
	faults := []struct {
		name  string
		keeps bool // no value is lost
		fails func(f *fleet, n *node)
	}{
		{"hangs shortly", true, func(f *fleet, n *node) { n.hang(f.now + 400*milli) }},
		{"hangs", false, func(f *fleet, n *node) { n.hang(f.now + 5*second) }},
		{"restarts", false, func(f *fleet, n *node) { n.die(); f.after(5*second, n.start) }},
		{"restarts late", false, func(f *fleet, n *node) { n.die(); f.after(90*second, n.start) }},
	}
	for i, fault := range faults {
		for j, stage := range slices.Concat(stages, turns) {
			back := -1
			switch {
			case j == len(stages):
				back = 0
			case j > len(stages):
				back = 4
			}
			if (i == 3) != (back == 0) || i < 3 && (i+j)%3 == 2 { // in other stages, values that should move to the server are lost after a minute
				continue
			}
			t.Run(fmt.Sprintf("%s, stage %d", fault.name, j), func(t *testing.T) {
				t.Parallel()
				if own, others := ownerFails(t, scenario{strict: (i+j)%2 == 0}, back, stage, fault.fails); others > 0 || (own == 0) != fault.keeps {
					t.Errorf("%d values of the server are lost, and %d others", own, others)
				}
			})
		}
	}
}
