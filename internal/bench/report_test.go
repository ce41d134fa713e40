//go:build linux

package bench

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, row := range []struct {
		values            []float64
		median, low, high float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{4, 1, 2}, 2, 1, 4},
		{[]float64{4, 1, 2, 3}, 2.5, 1, 4},
		{[]float64{6, 5, 4, 3, 2, 1}, 3.5, 1, 6},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5.5, 2, 9},
	} {
		if s := spreadOf(slices.Clone(row.values)); s != (spread{row.median, row.low, row.high}) {
			t.Errorf("%v: %+v", row.values, s)
		}
	}
	// Values from a table of order statistics for the median: n = 20 uses the 6th, 100 the 40th.
	if outside(5) != 0 || outside(20) != 6 || outside(100) != 40 {
		t.Errorf("n = 5: %d, n = 20: %d, n = 100: %d", outside(5), outside(20), outside(100))
	}
}

func TestRatiosCompareTheRunsOfARound(t *testing.T) {
	ours := &measured{runs: []run{{round: 1, cpu: 5}, {round: 3, cpu: 30}}}
	theirs := &measured{runs: []run{{round: 1, cpu: 10}, {round: 2, cpu: 1}, {round: 3, cpu: 20}}}
	if got := ours.ratio(theirs, func(x run) float64 { return x.cpu }); got != "1.00 (0.50–1.50)" {
		t.Error(got)
	}
	if got := ours.ratio(theirs, func(x run) float64 { return x.rate }); got != "–" {
		t.Errorf("to a base of 0: %s", got)
	}
	if got := ours.ratio(nil, run.total); got != "–" {
		t.Errorf("to nobody: %s", got)
	}
}

// testReport returns the report of one scenario with all kinds of peers.
func testReport() *Report {
	proxy := func(place) ([]string, error) { return nil, nil }
	b := &bench{Config: Config{Command: "ringbench run -rounds=1", Tries: 2, Calls: true, Log: slog.New(slog.DiscardHandler)}, version: "memcached 1.6.18", began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s := &result{scenario: scenario{id: "h", name: "paced"}}
	s.work.Rate = 200
	for _, x := range []struct {
		name         string
		cpu, servers float64
		failure      error
	}{{name: ringside, cpu: 10, servers: 5}, {name: "before", cpu: 8, servers: 5}, {name: nutcracker, cpu: 20, servers: 5}, {name: "broken", failure: errors.New("a\nb")}, {name: direct, servers: 30}} {
		p := &peer{name: x.name, version: x.name + " 1.0", configure: proxy}
		m := &measured{peer: p, failure: x.failure}
		if x.failure == nil {
			m.runs = []run{{cpu: x.cpu, servers: x.servers, rate: 100, p50: 10, p99: 20, disturbed: x.name == "before"}}
		}
		if x.name == direct {
			p.configure = nil
		} else if x.failure == nil {
			m.runs[0].calls = &calls{total: 2.5, names: []string{"read 1.5", "a|b 1"}}
		}
		b.peers, s.peers = append(b.peers, p), append(s.peers, m)
	}
	return b.report([]*result{s})
}

func TestReport(t *testing.T) {
	text := testReport().String()
	for _, want := range []string{
		"`ringbench run -rounds=1`, 2026-01-02, ", " memcached 1.6.18 behind; ringside 1.0; of 4 runs 1 were disturbed, the least disturbed of 2 tries each.\n\n**Failed:** scenario h: a b\n\n",
		"## Ringside compared with nutcracker\n\n| scenario |",
		"| h, paced | 0.50 (0.50–0.50) | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 0.50 (0.50–0.50) | 0.83 (0.83–0.83) |",
		"## Ringside compared with before\n", "| h, paced | 1.25 (1.25–1.25) |",
		"In scenario h, nutcracker did not keep the pace",
		"| h | direct | 0.00 | 30.00 | 30.00 | 100 | 10 | 20 | 0.00 | 0.00 | 0.00 | 0 |",
		"| h | broken | failed |  |",
		"| h | nutcracker | 20.00 | 0.0% | 100 | 0 | 2.50 | read 1.5, a\\|b 1 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

func TestFill(t *testing.T) {
	r := testReport()
	page := "# Page\n<!-- run: head -->\nold\n<!-- end -->\ntext\n<!-- run: ratios -->\n<!-- end -->\n<!-- other: ratios -->\nkept\n<!-- end -->\n"
	filled, err := r.Fill(page, "run")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Page\n<!-- run: head -->\n\n`ringbench run", "<!-- end -->\ntext\n<!-- run: ratios -->\n\n| scenario |", "\nkept\n<!-- end -->"} {
		if !strings.Contains(filled, want) {
			t.Errorf("the page lacks %q:\n%s", want, filled)
		}
	}
	if again, err := r.Fill(filled, "run"); again != filled || err != nil {
		t.Errorf("filled twice it differs: %v\n%s", err, again)
	}
	for _, wrong := range []string{"no place", "<!-- run: weather -->\n<!-- end -->"} {
		if _, err := r.Fill(wrong, "run"); err == nil {
			t.Errorf("%q is filled", wrong)
		}
	}
}
