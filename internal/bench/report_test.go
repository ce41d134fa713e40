//go:build linux

package bench

import (
	"slices"
	"strings"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, row := range []struct {
		values           []float64
		median, min, max float64
		low, high        float64 // 0: no interval
	}{
		{[]float64{3}, 3, 3, 3, 0, 0},
		{[]float64{4, 1, 2}, 2, 1, 4, 0, 0},
		{[]float64{4, 1, 2, 3}, 2.5, 1, 4, 0, 0},
		{[]float64{1, 2, 3, 4, 5}, 3, 1, 5, 0, 0},
		{[]float64{6, 5, 4, 3, 2, 1}, 3.5, 1, 6, 1, 6},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5.5, 1, 10, 2, 9},
	} {
		s := spreadOf(slices.Clone(row.values))
		var low, high float64
		if s.Interval != nil {
			low, high = s.Interval[0], s.Interval[1]
		}
		if s.Median != row.median || s.Min != row.min || s.Max != row.max || low != row.low || high != row.high {
			t.Errorf("%v: %+v, interval %v to %v", row.values, s, low, high)
		}
	}
	// Values from a table of order statistics for the median: n = 20 uses the 6th, 100 the 40th.
	if outside(20) != 6 || outside(100) != 40 {
		t.Errorf("n = 20: %d, n = 100: %d", outside(20), outside(100))
	}
}

func TestRatiosCompareTheRunsOfARound(t *testing.T) {
	r := &Result{Base: "nutcracker", Peers: []*Measured{
		{Peer: "ringside", Runs: []Run{{Round: 1, CPU: 5}, {Round: 3, CPU: 30}}},
		{Peer: "nutcracker", Runs: []Run{{Round: 1, CPU: 10}, {Round: 2, CPU: 1}, {Round: 3, CPU: 20}}},
		{Peer: "haproxy", Failure: "gone"},
	}}
	r.Summarize()
	if got := r.Peers[0].CPU; got.Ratio.Min != 0.5 || got.Ratio.Max != 1.5 || got.Ratio.Median != 1 || got.Value.Median != 17.5 {
		t.Errorf("ringside %+v, ratio %+v", got.Value, got.Ratio)
	}
	if r.Peers[1].CPU.Ratio.Median != 1 || r.Peers[0].Rate.Ratio != nil {
		t.Errorf("to itself %v; to a base of 0 %v", r.Peers[1].CPU.Ratio, r.Peers[0].Rate.Ratio)
	}
}

func TestBesideThoseWhoReadNothing(t *testing.T) {
	some := Run{Round: 1, Rate: 42, P99: 250e3, Requests: 845, Good: []int64{400, 300, 140}, GivenUp: 3, Seconds: 20}
	none := Run{Round: 1, P99: 20e6, Good: []int64{0, 0, 0}, GivenUp: 3, Seconds: 20}
	r := &Result{ID: "k", Base: "nutcracker", Peers: []*Measured{{Peer: "ringside", Runs: []Run{some}}, {Peer: "nutcracker", Runs: []Run{none}}}}
	r.Summarize()
	var text strings.Builder
	r.markdown(&text)
	for _, want := range []string{
		"ringside, round 1: 840 good answers of 848 that were due in 20 s (by client: 400, 300, 140), 5 others; p99 250.0 ms, with the 3 that waited when it ended.",
		"nutcracker, round 1: nobody got an answer in 20 s",
		"| ringside | 0.00 | – | 42 | – |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
}

func TestCliffs(t *testing.T) {
	row := func(x, cpu, rate, p50, p99 float64) *Point {
		p := &Point{X: x, Result: Result{Peers: []*Measured{{Peer: "ringside", Runs: []Run{{CPU: cpu, Rate: rate, P50: p50, P99: p99}}}}}}
		p.Summarize()
		return p
	}
	const flat, growing = 0, 1
	before := row(10, 10, 1000, 50, 100)
	for name, c := range map[string]struct {
		share float64
		row   *Point
		says  string
	}{
		"flat":                    {flat, row(100, 11, 900, 55, 150), ""},
		"cheaper":                 {flat, row(100, 2, 9000, 5, 10), ""},
		"dear":                    {flat, row(100, 17, 1000, 50, 100), "ringside CPU × 1.7"},
		"slow":                    {flat, row(100, 10, 500, 50, 100), "ringside throughput × 2.0"},
		"a long tail":             {flat, row(100, 10, 1000, 50, 600), "ringside p99 × 6.0"},
		"more work":               {growing, row(100, 90, 110, 500, 900), ""},
		"more than the work":      {growing, row(100, 160, 110, 500, 900), "ringside CPU × 16.0"},
		"work that grew not much": {growing, row(11, 18, 1000, 50, 100), "ringside CPU × 1.8"},
	} {
		if got := strings.Join(cliffs(before, c.row, c.share), ", "); got != c.says {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
	if got := cliffs(before, &Point{Result: Result{Peers: []*Measured{{Failure: "gone"}}}}, flat); got != nil {
		t.Errorf("a failed row is a cliff: %q", got)
	}
}

func TestLaterRunsJoin(t *testing.T) {
	r := &Result{Base: "nutcracker", Peers: []*Measured{{Peer: "ringside", Runs: []Run{{Round: 1, CPU: 1}}}, {Peer: "nutcracker", Runs: []Run{{Round: 1, CPU: 2}}}}}
	r.Add(&Result{Peers: []*Measured{{Peer: "ringside", Runs: []Run{{Round: 1, CPU: 9}}}, {Peer: "nutcracker", Runs: []Run{{Round: 1, CPU: 3}}}}})
	if got := r.Peers[0].CPU; got.Value.Median != 5 || got.Ratio.Min != 0.5 || got.Ratio.Max != 3 {
		t.Errorf("%+v, ratio %+v", got.Value, got.Ratio)
	}
}
