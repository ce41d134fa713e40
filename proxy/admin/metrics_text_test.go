package admin

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/live"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// A bucket of Prometheus must count the same as the engine's buckets up to the same bound.
func TestBuckets(t *testing.T) {
	var h stats.Histogram
	for _, ns := range []int64{0, 16_383, 16_384, 40_000, 1e6, 8_589_934_591, 8_589_934_592, 60e9} {
		h.Observe(ns)
	}
	out := newOutput()
	out.histogram(requestDuration, &h, "get")
	text := string(out.appendTo(nil))
	for bound, want := range map[string]string{"1.6384e-05": "2", "3.2768e-05": "3", "6.5536e-05": "4", "0.001048576": "5", "8.589934592": "6", "+Inf": "8"} {
		if line := "\nringside_request_duration_seconds_bucket{command=\"get\",le=\"" + bound + "\"} " + want + "\n"; !strings.Contains(text, line) {
			t.Errorf("there is no line %q:\n%s", line, text)
		}
	}
	for _, line := range []string{"\nringside_request_duration_seconds_count{command=\"get\"} 8\n", "\n# TYPE ringside_request_duration_seconds histogram\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("there is no line %q:\n%s", line, text)
		}
	}
}

// Labels must be sorted by name, whatever their values. A metric without labels has no braces.
func TestLabels(t *testing.T) {
	out := newOutput()
	out.count(routeKeys, 1<<60, "l\\", "a\"b\nc", "p", "hit")
	out.set(hotLooks, 2.5)
	out.figures((&stats.InvalidationCounts{}).Figures())
	text := string(out.appendTo(nil))
	for _, line := range []string{
		`ringside_route_keys_total{listener="l\\",pool="p",result="hit",route="a\"b\nc"} 1152921504606846976`,
		`ringside_hot_key_one_in 2.5`,
		`ringside_tags_invalidation_seconds_bucket{le="+Inf"} 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("there is no line %q:\n%s", line, text)
		}
	}
	if out.set(poolServer, 1, "p", "\xff", "a", "1"); out.wrong == nil || !strings.Contains(out.wrong.Error(), "UTF-8") {
		t.Errorf("a label that is not UTF-8: %v", out.wrong)
	}
}

// Where keys move, an order is shown for the keeper's server, otherwise for the process.
func TestOrdersOfMembers(t *testing.T) {
	a, b := table.Target{Name: "a", Network: "tcp", Address: "10.0.0.1:11211", Weight: 1}, table.Target{Name: "b", Network: "tcp", Address: "10.0.0.2:11211", Weight: 1}
	out := newOutput()
	out.pools(proxy.NewProxy(&table.Table{}, "1", slog.New(slog.DiscardHandler)), []*table.Pool{{Name: "main", Servers: []table.Target{a, b}}},
		[]stats.PhaseSnapshot{{Pool: "main", Target: a, Override: health.Drain}, {Pool: "main", Target: b}})
	const want = `ringside_server_override{address="10.0.0.1:11211",order="drain",pool="main",server="a"} 1` + "\n"
	if text := string(out.appendTo(nil)); !strings.Contains(text, want) || strings.Count(text, "\nringside_server_override{") != 1 {
		t.Errorf("lacks %s or has more:\n%s", want, text)
	}
}

// The metrics of 200 servers must stay below 1 MB, with the numbers after a month at 20,000
// requests per second each.
func TestSizeOfManyServers(t *testing.T) {
	const count, bytes = 50_000_000_000, 50_000_000_000_000
	out := newOutput()
	pool := &table.Pool{Name: "main"}
	of := &stats.Snapshot{}
	for i := range 200 {
		s := &stats.ServerSnapshot{Target: table.Target{Name: fmt.Sprintf("cache%03d", i), Network: "tcp", Address: fmt.Sprintf("10.0.100.%d:11211", i), Weight: 1},
			Known: true, Version: "1.6.18", Conns: 1}
		s.Requests, s.BytesIn, s.BytesOut = count, bytes, bytes
		s.Failed, s.TimedOut, s.Dials, s.Refused, s.WentDown = count/1e6, count/1e6, count/1e6, count/1e6, count/1e6
		for b := range s.Latency.Buckets {
			s.Latency.Buckets[b] = count / uint64(len(s.Latency.Buckets))
		}
		s.Latency.Sum = count * 100_000
		out.figures(s.Figures(), s.Target.Name, live.Address(s.Target))
		pool.Servers = append(pool.Servers, s.Target)
		of.Phases = append(of.Phases, stats.PhaseSnapshot{Pool: "main", Target: s.Target, Lease: 1_234_567_890})
		for _, to := range []string{"suspect", "up", "LEAVING", "OUT", "RETURN", "WARM", "SETTLE", "IN"} {
			if i >= 20 {
				break // enough servers have been out
			}
			of.Events = append(of.Events, stats.PhaseEvents{Pool: "main", Server: s.Target.Name, To: to, Count: 1})
		}
	}
	out.failover(of)
	out.pools(proxy.NewProxy(&table.Table{}, "1", slog.New(slog.DiscardHandler)), []*table.Pool{pool}, of.Phases)
	const rest = 40_000 // of metrics that are not per server
	if size := rest + len(out.appendTo(nil)); size >= 1_000_000 {
		t.Errorf("%d bytes", size)
	}
}
