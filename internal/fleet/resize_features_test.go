package fleet

// This file changes the servers of routes with features while clients use them: counters, and values in the near
// cache. Guarded routes are herds.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// counting is what clients have been told about a counter.
type counting struct {
	acked uint64 // increments that were answered with a number
	doubt uint64 // increments that got an error, and may have been executed
}

// increment increments a counter.
func (a *app) increment() *op {
	k := a.f.counters[a.f.rand.IntN(counterKeys)]
	o := &op{kind: "increment", text: fmt.Appendf(nil, "incr %s 1\r\n", k.name), keys: []*fkey{k}}
	o.told = func(line string) {
		if _, err := strconv.Atoi(line); err == nil {
			k.counting.acked++
		} else {
			k.counting.doubt++
		}
	}
	return o
}

// isStable reports whether no instance changes its servers.
func (f *fleet) isStable() bool {
	return !slices.ContainsFunc(f.stages(), func(is resize.Status) bool {
		return is.Stage() != resize.Stable || is.List != is.Required() || is.Serves() != resize.All
	})
}

// awaitStable runs until the change of the servers has ended.
func (f *fleet) awaitStable(t *testing.T) {
	t.Helper()
	f.run(f.now + 2*second)
	for end := f.now + 200*second; !f.isStable(); f.run(f.now + 100*milli) {
		if f.now >= end || f.broken != "" {
			t.Fatalf("%s the change has not ended: %+v", f.broken, f.stages())
		}
	}
}

// counted returns what is wrong with the values of the counters, after the replies. Each counter is at one server. If
// servers were faulty, increments may be lost that Ringside reports as lost.
func (f *fleet) counted(faulty bool) (wrong string) {
	lost := uint64(0)
	for _, s := range f.sidecars {
		for _, n := range s.snapshot().Buffer.Lost {
			if faulty { // otherwise, a server has executed the increments that count as in doubt
				lost += n
			}
		}
	}
	for _, k := range f.counters {
		at, value, is := 0, "", k.counting
		for _, n := range f.nodes {
			if v := string(n.store.Line().Do([]byte("mg " + k.name + " v\r\n"))); v != "EN\r\n" {
				at++
				fmt.Sscanf(v, "VA %d\r\n%s", new(int), &value)
			}
		}
		if n, _ := strconv.ParseUint(value, 10, 64); at != 1 || n > is.acked+is.doubt || n+lost < is.acked {
			wrong = fmt.Sprintf("%s is %q on %d servers; %d increments were acknowledged, %d in doubt and %d lost", k.name, value, at, is.acked, is.doubt, lost)
		}
	}
	return wrong
}

// counts runs a fleet that counts while its servers leave and join, and returns what is wrong then.
func counts(t *testing.T, c scenario, seed uint64, buffer *table.Buffer, fault func(f *fleet)) string {
	c.mode, c.resize, c.rate, c.cold, c.engines, c.remember, c.asks = table.Rehash, table.ResizeWarm, 1, cmp.Or(c.cold, 1), 2, true, []ask{(*app).increment}
	c.feature = func(r *table.Route) { r.Buffer, r.Autocreate = buffer, &table.Autocreate{} }
	f := newFleet(c, seed, false)
	f.settle("at the start", 30*second)
	f.run(f.now + 2*second)
	lists := []int{2, -1, 0}
	if c.cold > 1 { // keys move for so long that they move back
		f.each(0, func(a *app, k *fkey) *op { return a.store(k, "set") })
		f.turn(1, func() {})
		f.run(f.now + 60*second)
		if f.awaitStable(t); f.turned == 0 {
			return "no change was reversed"
		}
		lists = nil
	}
	for _, gone := range lists {
		f.reload(func(l *layout) { l.gone = gone })
		if fault != nil {
			f.after(f.between(8*second, 14*second), func() { fault(f) })
		}
		f.awaitStable(t)
	}
	f.quiet = true
	f.run(f.now + 20*second)
	if f.broken == "" && f.asked-f.errors < 1000 {
		f.broken = "only errors"
	}
	return cmp.Or(f.broken, f.counted(fault != nil))
}

// TestResizeCounters counts while servers leave and join, with and without autocreate and buffer. No increment that was
// acknowledged may be lost, and none may count twice.
func TestResizeCounters(t *testing.T) {
	buffer := &table.Buffer{Every: 200 * time.Millisecond, Keep: 5 * time.Second, Keys: 100}
	for _, c := range []struct {
		name     string
		sidecars int
		strict   bool
		buffer   *table.Buffer
		fault    func(f *fleet)
		again    uint64 // a seed that has failed before
	}{
		{"autocreate", 2, true, nil, nil, 0},
		{"autocreate, three instances", 3, false, nil, nil, 0},
		{"buffer", 2, false, buffer, nil, 0},
		{"buffer, strict, three instances", 3, true, buffer, nil, 2},
		{"autocreate, a server hangs", 2, true, nil, func(f *fleet) { f.hangFor(1, 200*milli, 300*milli) }, 0},
		{"buffer, a server hangs", 2, true, buffer, func(f *fleet) { f.hangFor(1, 200*milli, 300*milli) }, 0},
		{"autocreate, an instance restarts", 3, true, nil, func(f *fleet) {
			f.sidecars[2].die()
			f.after(50*milli, f.sidecars[2].start)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from, to := seedRange(t)
			if c.again > 0 && !hurried() && to > from+1 {
				to = max(to, c.again+1)
			}
			for seed := from; seed < to; seed++ {
				if wrong := counts(t, scenario{sidecars: c.sidecars, servers: 3, strict: c.strict}, seed, c.buffer, c.fault); wrong != "" {
					t.Errorf("seed %d: %s", seed, wrong)
				}
			}
		})
	}
}

// TestTurnCounters is TestResizeCounters for changes that are reversed.
func TestTurnCounters(t *testing.T) {
	from, to := seedRange(t)
	for seed := from; seed < to; seed++ {
		for _, buffer := range []*table.Buffer{nil, {Every: 200 * time.Millisecond, Keep: 5 * time.Second, Keys: 100}} {
			if wrong := counts(t, scenario{sidecars: 3, servers: 3, strict: seed%2 == 0, cold: 80}, seed, buffer, nil); wrong != "" {
				t.Errorf("seed %d, buffer %v: %s", seed, buffer, wrong)
			}
		}
	}
}

// TestResizeCountersAblation begins each stage before all instances know the one before, and must see a wrong count.
func TestResizeCountersAblation(t *testing.T) {
	for seed := range uint64(20) {
		if wrong := counts(t, scenario{sidecars: 2, servers: 3, strict: true, ablate: ablations{Set: ablation.Set{Clear: true}}}, seed, nil, nil); wrong != "" {
			t.Logf("seed %d: %s", seed, wrong)
			return
		}
	}
	t.Error("nothing is seen")
}

// TestResizeTags invalidates tags while a server joins, with consistency strict. When all instances have been reloaded, each
// invalidation must succeed, also when the change ends, because all servers that may have values are asked. No client reads a value that
// was invalidated.
func TestResizeTags(t *testing.T) {
	from, to := seedRange(t)
	for seed := from; seed < to; seed++ {
		for _, sidecars := range []int{2, 3} {
			failed, all, lastly := 0, 0, ""
			h := movedTags
			c := scenario{sidecars: sidecars, servers: 4, mode: table.Rehash, strict: true, resize: table.ResizeWarm, rate: 1, cold: 40, exact: true, herd: &h, faults: []string{"resize"}}
			begun := int64(0)
			c.asks = slices.Concat(wanting, []ask{func(a *app) *op {
				o := a.invalidate()
				began := a.f.now
				o.told = func(line string) {
					if begun == 0 || began < begun {
						return
					}
					if all++; line != "DELETED" {
						failed, lastly = failed+1, line
					}
				}
				return o
			}})
			f := newFleet(c, seed, false)
			f.settle("at the start", 30*second)
			f.reload(func(l *layout) { l.gone = 2 })
			f.run(f.now + 90*second)
			f.nodes[2].store.Line().Do([]byte("flush_all\r\n")) // a new server is empty: its former view record is of another list
			f.reload(func(l *layout) { l.gone = -1 })
			f.run(f.now + second)
			begun = f.now
			f.run(f.now + 60*second)
			for i, is := range f.stages() {
				if is.Serves() != resize.All || is.List != is.Required() {
					t.Errorf("seed %d: the change has not ended on p%d: %+v", seed, i, is)
				}
			}
			switch {
			case f.broken != "" || len(f.stale) > 0:
				t.Errorf("seed %d: %s %q", seed, f.broken, f.stale)
			case all < 50:
				t.Errorf("seed %d: only %d invalidations: %+v", seed, all, f.stages())
			case failed > 0:
				t.Errorf("seed %d: %d of %d invalidations fail: %s", seed, failed, all, lastly)
			}
		}
	}
}
