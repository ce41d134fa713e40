package health

// The scenarios of the simulation.

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"ringside/internal/testenv"
)

// more multiplies the number of runs: go test ./proxy/health -run Simulation -more 50
var more = flag.Int("more", 1, "how many times as many runs of the simulation")

var (
	everything = []string{"cut", "links", "hang", "kill", "lose", "garble", "restart", "alone"}
	outages    = []string{"cut", "hang"}
)

// TestSimulation runs pools through all kinds of faults. Every run checks that no
// number decreases and that servers change phases only in the allowed order. It also
// checks that no proxy reads from a server that is being flushed or without leases, and
// that all servers are IN at the end.
func TestSimulation(t *testing.T) {
	strict, relaxed := Settings{Strict: true}, Settings{}
	for _, c := range []struct {
		name string
		scenario
		seeds int
		exact bool // no stale hit is allowed
	}{
		{"strict", scenario{proxies: 3, pool: 3, set: strict, faults: everything, count: 6}, 20, true},
		{"strict, five servers, faults overlap", scenario{proxies: 3, pool: 5, set: strict, faults: everything, count: 8, apart: 4 * sec}, 20, true},
		{"strict, gutter", scenario{proxies: 3, pool: 2, gutter: 2, set: strict, faults: everything, count: 6}, 10, true},
		{"strict, two servers", scenario{proxies: 2, pool: 2, set: strict, faults: []string{"cut", "hang", "kill", "lose", "restart"}, count: 6}, 10, true},
		{"strict, flush refused", scenario{proxies: 3, pool: 3, set: strict, faults: everything, count: 6, refuse: true}, 10, true},
		{"strict, warm", scenario{proxies: 3, pool: 3, set: Settings{Strict: true, OnRejoin: Warm}, faults: outages, count: 2, long: true}, 3, true},
		{"strict, as the ablations", scenario{proxies: 3, pool: 3, set: strict, faults: []string{"cut", "hang", "links"}, count: 4, targets: 1, long: true, pace: 5 * ms}, 4, true},
		{"relaxed", scenario{proxies: 3, pool: 3, set: relaxed, faults: everything, count: 6}, 10, false},
		{"relaxed, faults overlap", scenario{proxies: 3, pool: 4, set: relaxed, faults: everything, count: 8, apart: 4 * sec}, 10, false},
		{"relaxed, one proxy", scenario{proxies: 1, pool: 3, set: relaxed, faults: outages, count: 6}, 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			hits, stale, ejected, flushes := 0, 0, 0, 0
			seeds := c.seeds * *more
			switch {
			case testing.Short():
				seeds = (seeds + 9) / 10
			case !testenv.Full():
				seeds = (seeds + 2) / 3
			}
			for seed := range seeds {
				s := c.scenario
				s.seed, s.clients = uint64(seed), true
				w := simulate(t, s)
				if c.exact && len(w.stale) > 0 {
					w.fail("stale: %v", w.stale[0])
				}
				hits += w.hits
				stale += len(w.stale)
				ejected += w.ejected
				flushes += w.flushes
			}
			t.Logf("%d hits, %d stale, %d ejections, %d flushes", hits, stale, ejected, flushes)
			if ejected == 0 {
				t.Error("nothing was ever ejected: the run shows nothing")
			}
		})
	}
}

// TestAblations disables one part of the protocol at a time, and must see a stale hit
// each time. So each part is needed, and the simulation detects that it is missing.
func TestAblations(t *testing.T) {
	const seeds = 60
	for _, c := range []struct {
		name   string
		faults []string
		change func(*scenario)
	}{
		{"no wait at the ejection", []string{"links"}, func(s *scenario) { s.off.EjectWait = true }},
		{"no wait at the return", outages, func(s *scenario) { s.off.ReturnWait = true }},
		{"no flush", outages, func(s *scenario) { s.off.Flush = true }},
		{"no dual writes", outages, func(s *scenario) { s.single = true }},
		{"WARM straight to IN", outages, func(s *scenario) { s.off.Settle = true }},
		{"LEAVING straight to RETURN", []string{"links"}, func(s *scenario) { s.off.Out = true }},
		{"the same key for diverted data", outages, func(s *scenario) { s.sameKey = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name != "no flush" && c.name != "no dual writes" {
				return // the other ablations only show at late seeds
			}
			for seed := range seeds {
				s := scenario{
					seed: uint64(seed), proxies: 3, pool: 3, set: Settings{Strict: true}, clients: true,
					faults: c.faults, count: 4, targets: 1, long: true, pace: 5 * ms,
				}
				c.change(&s)
				if w := simulate(t, s); len(w.stale) > 0 {
					t.Logf("seed %d: %s", seed, w.stale[0])
					return
				}
			}
			t.Errorf("not seen in %d runs", seeds)
		})
	}
}

// TestPartition divides the proxies into two groups that reach different servers. With
// Strict the proxy in the smaller group stops serving in time. Without Strict it
// returns stale data.
func TestPartition(t *testing.T) {
	for _, strict := range []bool{true, false} {
		w := newWorld(t, scenario{proxies: 3, pool: 3, set: Settings{Strict: strict}, clients: true})
		w.settle(20 * sec)
		w.cut[0][1], w.cut[0][2] = true, true // p0 reaches only server 0
		w.cut[1][0], w.cut[2][0] = true, true // the others do not reach it
		w.run(w.now + 20*sec)
		if got := PhaseOf(w.proxies[1].k.Verdict(0).N); got != Out {
			t.Errorf("strict %t: server 0 is %v for most", strict, got)
		}
		if stale := len(w.stale) > 0; stale == strict {
			t.Errorf("strict %t: %d stale hits", strict, len(w.stale))
		}
		w.cut = [][]bool{make([]bool, 3), make([]bool, 3), make([]bool, 3)}
		w.settle(60 * sec)
	}
}

// TestSameInputsSameOutputs runs one seed twice.
func TestSameInputsSameOutputs(t *testing.T) {
	run := func() []string {
		var lines []string
		s := scenario{seed: 7, proxies: 3, pool: 3, set: Settings{Strict: true}, faults: everything, count: 3}
		w := newWorld(t, s)
		w.asked = func(p *proxy, r Request) {
			lines = append(lines, fmt.Sprintf("%d p%d %+v %q", w.now, p.id, r, r.Line))
		}
		w.settle(20 * sec)
		for range 3 {
			w.fault()
			w.run(w.trouble)
			w.settle(120 * sec)
		}
		return lines
	}
	a, b := run(), run()
	if len(a) < 100 || !slices.Equal(a, b) {
		t.Errorf("%d and %d requests, or they differ", len(a), len(b))
	}
}
