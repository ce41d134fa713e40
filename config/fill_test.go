package config

import (
	"testing"
	"time"

	"ringside/proxy/table"
)

// TestFillFrom checks that the source is not a pool of its own, and what a pool that fills is by default.
func TestFillFrom(t *testing.T) {
	f := parse(t, `listen: 127.0.0.1:1
pools:
  main: {distribution: ketama-points, servers: [10.0.0.1, 10.0.0.2, 10.0.0.3], fill_from: {pool: other, rate: 7}}
  other: {distribution: ketama, servers: [10.0.0.4, 10.0.0.5], timeouts: {request: 300ms}}
`)
	if len(f.Pools) != 1 || len(f.Routes) != 1 || f.Routes[0].Pool != "main" || !f.Pools[0].DenyFlush || f.Pools[0].Failover.Mode != table.FailFast {
		t.Fatalf("%+v and routes %+v", f.Pools, f.Routes)
	}
	built, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	fill := built.Pools[0].Fill
	if len(built.Pools) != 1 || fill == nil || fill.Rate != 7 || fill.Remember != 24*time.Hour || len(fill.From.Servers) != 2 || fill.From.Timeouts.Request != 300*time.Millisecond {
		t.Fatalf("%+v", fill)
	}
	f = parse(t, `listen: 127.0.0.1:1
pools:
  main: {distribution: ketama-points, servers: [10.0.0.1], fill_from: other}
  other: {distribution: ketama, servers: [10.0.0.4]}
`)
	if is := f.Pools[0].Fill; is.Pool != "other" || is.Rate != 5000 || is.Remember != 24*time.Hour {
		t.Errorf("fill_from: other is %+v", is)
	}
}
