package proxy

// The fleets that are tried, and what each is promised.

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"ringside/proxy/health"
	"ringside/replicate"
)

// traceLines is how much of the trace of a run that fails is shown.
var traceLines = flag.Int("tracelines", 150, "lines of the trace of a simulation of failover that fails")

// fleetSeeds are the seeds of each case; RINGSIDE_SEEDS in the environment makes
// them more.
func fleetSeeds(t *testing.T, few int) int {
	s := os.Getenv("RINGSIDE_SEEDS")
	if s == "" {
		return few
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("RINGSIDE_SEEDS is %q: it must be how many seeds each case gets", s)
	}
	return n
}

var anything = []string{"cut", "links", "hang", "kill", "lose", "flush", "restart", "slow", "pause"}

// lasting is all that leaves a copy of everything.
var lasting = []string{"cut", "links", "hang", "kill", "lose", "restart", "slow", "pause"}

var (
	twice  = replicate.Policy{Copies: 2, Apart: replicate.Servers, ReadThrough: true, RepairRate: 1000}
	spread = replicate.Policy{Copies: 2, Apart: replicate.Servers, Read: replicate.Spread, ReadThrough: true, RepairRate: 1000}
)

// TestFailover plays fleets through everything that can happen to them.
func TestFailover(t *testing.T) {
	for _, c := range []fleetCase{
		{name: "fail_fast", sidecars: 2, servers: 3, mode: FailFast, faults: []string{"cut", "links", "hang", "kill", "restart", "slow", "pause"}, count: 6, exact: true},
		{name: "fail_fast, faults overlap", sidecars: 3, servers: 2, mode: FailFast, faults: []string{"cut", "links", "kill", "restart", "slow", "pause"}, count: 8, apart: 2 * second, exact: true},
		{name: "strict", sidecars: 2, servers: 3, mode: Rehash, strict: true, faults: anything, count: 4, exact: true},
		{name: "strict, three proxies of two engines", sidecars: 3, engines: 2, servers: 3, mode: Rehash, strict: true, faults: anything, count: 4, exact: true},
		{name: "strict, five servers, faults overlap", sidecars: 2, servers: 5, mode: Rehash, strict: true, faults: []string{"cut", "links", "kill", "lose", "restart", "slow", "pause"}, count: 6, apart: 2 * second, exact: true},
		{name: "strict, two servers", sidecars: 2, servers: 2, mode: Rehash, strict: true, faults: anything, count: 4, exact: true},
		{name: "strict, warm", sidecars: 2, servers: 3, mode: Rehash, strict: true, rejoin: health.Warm, faults: anything, count: 4, exact: true},
		{name: "strict, gutter", sidecars: 2, servers: 2, gutter: 2, mode: Gutter, strict: true, faults: anything, count: 4, exact: true},
		{name: "strict, rebuilt ring", sidecars: 2, servers: 4, mode: Rehash, strict: true, rebuilt: true, faults: anything, count: 4, exact: true},
		{name: "relaxed, one proxy", sidecars: 1, servers: 3, mode: Rehash, faults: []string{"cut", "hang", "kill", "lose", "slow", "pause"}, count: 4, exact: true},
		{name: "relaxed, one proxy of three engines", sidecars: 1, engines: 3, servers: 3, mode: Rehash, faults: []string{"cut", "hang", "kill", "lose", "slow", "pause"}, count: 4, exact: true},
		{name: "relaxed, one proxy, gutter, warm", sidecars: 1, servers: 2, gutter: 1, mode: Gutter, rejoin: health.Warm, faults: []string{"cut", "hang", "kill", "lose", "slow", "pause"}, count: 4, exact: true},
		{name: "relaxed", sidecars: 2, servers: 3, mode: Rehash, faults: anything, count: 4},
		{name: "copies, strict", sidecars: 2, servers: 3, mode: FailFast, strict: true, copies: twice, faults: lasting, count: 4, exact: true, locks: true},
		{name: "copies, strict, spread, proxies of two engines", sidecars: 2, engines: 2, servers: 3, mode: FailFast, strict: true, copies: spread, faults: lasting, count: 4, exact: true, locks: true},
		{name: "copies, strict, flushed", sidecars: 2, servers: 3, mode: FailFast, strict: true, copies: twice, faults: anything, count: 4, exact: true},
		{name: "copies, strict, two servers", sidecars: 2, servers: 2, mode: FailFast, strict: true, copies: twice, faults: lasting, count: 4, exact: true, locks: true},
		{name: "copies, relaxed, one proxy", sidecars: 1, servers: 3, mode: FailFast, copies: twice, faults: []string{"cut", "hang", "kill", "lose", "slow", "pause"}, count: 4, exact: true},
		{name: "copies, relaxed", sidecars: 2, servers: 3, mode: FailFast, copies: twice, faults: anything, count: 4, loose: true},
	} {
		t.Run(c.name, func(t *testing.T) { playFleet(t, c, fleetSeeds(t, 20)) })
	}
}

// TestFailoverAblations leaves out one part of the protocol after the other, and
// must see a stale hit each time: so the simulation would see it missing.
func TestFailoverAblations(t *testing.T) {
	const seeds = 60
	fleet := fleetCase{sidecars: 3, servers: 3, mode: Rehash, strict: true, aimed: true, count: 4, pace: 4 * milli}
	for _, c := range []struct {
		name   string
		leave  ablations
		change func(c *fleetCase)
	}{
		{"no wait at the ejection", ablations{Ablation: health.Ablation{EjectWait: true}}, func(c *fleetCase) { c.faults = []string{"links"} }},
		{"no wait at the return", ablations{Ablation: health.Ablation{ReturnWait: true}}, nil},
		{"no flush", ablations{Ablation: health.Ablation{Flush: true}}, nil},
		{"no dual writes", ablations{dual: true}, nil},
		{"WARM straight to IN", ablations{Ablation: health.Ablation{Settle: true}}, func(c *fleetCase) { c.cold, c.prunes = 1000, true }},
		{"LEAVING straight to RETURN", ablations{Ablation: health.Ablation{Out: true}}, func(c *fleetCase) { c.faults = []string{"links"} }},
		{"no undo behind late sets", ablations{undo: true}, func(c *fleetCase) {
			c.sidecars, c.apps, c.faults, c.brief, c.count = 6, 1, []string{"hang"}, true, 8
		}},
		{"the same key for diverted data", ablations{sameKey: true}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				one := fleet
				one.ablate, one.faults = c.leave, []string{"cut", "hang"}
				if c.change != nil {
					c.change(&one)
				}
				f := simulateFleet(one, seed, false)
				if f.broken != "" { // without SETTLE a client may see the stub of a backfill
					t.Logf("seed %d: %s", seed, f.broken)
					return
				}
				if len(f.stale) > 0 {
					t.Logf("seed %d: %s", seed, f.stale[0])
					return
				}
			}
			t.Errorf("not seen in %d runs", seeds)
		})
	}
}
