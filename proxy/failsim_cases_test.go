package proxy

// The fleets that are tried, and what each is promised.

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"ringside/proxy/health"
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

var (
	anything = []string{"cut", "links", "hang", "kill", "lose", "restart", "slow", "pause"}
	outages  = []string{"cut", "hang", "kill"}
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
	} {
		t.Run(c.name, func(t *testing.T) { playFleet(t, c, fleetSeeds(t, 20)) })
	}
}
