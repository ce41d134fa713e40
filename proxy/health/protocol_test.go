package health

// What the simulation is asked.

import (
	"flag"
	"testing"
)

// more searches longer: go test ./proxy/health -run Simulation -more 50
var more = flag.Int("more", 1, "how many times as many runs of the simulation")

var (
	everything = []string{"cut", "links", "hang", "kill", "lose", "garble", "restart"}
	outages    = []string{"cut", "hang"}
)

// TestSimulation runs pools through everything that can happen to them. That no
// number is lowered, that servers take only the way of the phases, that nobody
// reads from a server that is flushed, that nobody serves without leases and
// that all servers are IN again at the end is checked in every run.
func TestSimulation(t *testing.T) {
	strict, relaxed := Settings{Strict: true}, Settings{}
	for _, c := range []struct {
		name string
		scenario
		seeds int
		exact bool // no stale hit at all
	}{
		{"strict", scenario{proxies: 3, pool: 3, set: strict, faults: everything, count: 6}, 40, true},
		{"strict, five servers, faults overlap", scenario{proxies: 3, pool: 5, set: strict, faults: everything, count: 8, apart: 4 * sec}, 40, true},
		{"strict, gutter", scenario{proxies: 3, pool: 2, gutter: 2, set: strict, faults: everything, count: 6}, 20, true},
		{"strict, two servers", scenario{proxies: 2, pool: 2, set: strict, faults: []string{"cut", "hang", "kill", "lose", "restart"}, count: 6}, 20, true},
		{"strict, flush refused", scenario{proxies: 3, pool: 3, set: strict, faults: everything, count: 6, refuse: true}, 20, true},
		{"strict, warm", scenario{proxies: 3, pool: 3, set: Settings{Strict: true, OnRejoin: Warm}, faults: outages, count: 3}, 5, true},
		{"strict, as the ablations", scenario{proxies: 3, pool: 3, set: strict, faults: []string{"cut", "hang", "links"}, count: 4, targets: 1, pace: 5 * ms}, 8, true},
		{"relaxed", scenario{proxies: 3, pool: 3, set: relaxed, faults: everything, count: 6}, 20, false},
		{"relaxed, faults overlap", scenario{proxies: 3, pool: 4, set: relaxed, faults: everything, count: 8, apart: 4 * sec}, 20, false},
		{"relaxed, one proxy", scenario{proxies: 1, pool: 3, set: relaxed, faults: outages, count: 6}, 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			hits, stale, ejected, flushes := 0, 0, 0, 0
			for seed := range c.seeds * *more {
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

// TestAblations leaves out one part of the protocol after the other, and must
// see a stale hit each time: so each part is needed, and the simulation would
// see it missing.
func TestAblations(t *testing.T) {
	const seeds = 40
	for _, c := range []struct {
		name   string
		faults []string
		change func(*scenario)
	}{
		{"no wait at the ejection", []string{"links"}, func(s *scenario) { s.off.ejectWait = true }},
		{"no wait at the return", outages, func(s *scenario) { s.off.returnWait = true }},
		{"no flush", outages, func(s *scenario) { s.off.flush = true }},
		{"no dual writes", outages, func(s *scenario) { s.single = true }},
		{"WARM straight to IN", outages, func(s *scenario) { s.off.settle = true }},
		{"LEAVING straight to RETURN", outages, func(s *scenario) { s.off.out = true }},
		{"the same key for diverted data", outages, func(s *scenario) { s.sameKey = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range seeds {
				s := scenario{
					seed: uint64(seed), proxies: 3, pool: 3, set: Settings{Strict: true}, clients: true,
					faults: c.faults, count: 4, targets: 1, pace: 5 * ms,
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
