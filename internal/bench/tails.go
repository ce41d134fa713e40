//go:build linux

package bench

// Tails: what one server that is slow now and then does to the reads of its keys, and
// of the others'.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ringside/internal/bench/load"
	"ringside/internal/bench/slow"
)

// oneSlow is behind the name of a peer whose first server is slow now and then; without
// it that server is behind the same forwarder, which holds nothing back.
const oneSlow = ", one slow"

// Tails measures scenarios a and h, paced at so many requests a second, with the first
// of three servers as s says and with one that holds nothing back, in turns.
func Tails(ctx context.Context, c Config, s slow.Server, rate float64) (*Report, error) {
	b, err := c.open(ctx, "ringside", "nutcracker", direct)
	if err != nil {
		return nil, err
	}
	defer b.close()
	report := b.newReport()
	for _, id := range []string{"a", "h"} {
		picked, err := pickScenarios(id)
		if err != nil {
			return nil, err
		}
		usual := picked[0]
		if usual.Work.Rate > 0 {
			usual.Work.Rate, usual.Name = rate, fmt.Sprintf("50 connections, paced at %.0f a second", rate)
		}
		usual.Name += fmt.Sprintf("; of the answers of one of three servers %g %% come %v late", 100*s.Share, s.Delay)
		usual.Base, usual.slow = "nutcracker"+oneSlow, &s
		result, err := b.scenario(ctx, usual)
		if err != nil {
			return nil, err
		}
		report.Tails = append(report.Tails, result)
	}
	return b.finish(report), nil
}

// calm is the scenario with a first server that holds nothing back.
func (s scenario) calm() scenario {
	s.slow = new(slow.Server)
	return s
}

// tailTables says what one slow server did.
func (r *Report) tailTables(m *strings.Builder) {
	for _, s := range r.Tails {
		fmt.Fprintf(m, "## Tails, %s: %s\n\nµs, medians of the rounds. The same forwarder is before that server in the runs where nothing is late. Ratios are of runs of one round: median and its 95 %% interval (with fewer than 6 rounds the range).\n\n", s.ID, s.Name)
		if s.Work.Rate > 0 {
			for _, p := range s.Peers {
				if len(p.Runs) > 0 && p.Rate.Value.Median < 0.98*s.Work.Rate {
					fmt.Fprintf(m, "**%s did not keep the pace:** its latency is that of a growing queue.\n\n", p.Peer)
				}
			}
		}
		table(m, []string{"peer", "p99 of all, nothing late", "p99 of all", "to nutcracker", "reads of the other servers' keys, p99: nothing late", "one slow", "ratio", "p50: ratio", "reads of its keys, p50", "p99", "requests/s"}, func(row func(...string)) {
			for _, p := range s.Peers {
				name, ok := strings.CutSuffix(p.Peer, oneSlow)
				if !ok {
					continue
				}
				at := slices.IndexFunc(s.Peers, func(p *Measured) bool { return p.Peer == name })
				calm := s.Peers[at]
				if len(p.Runs) == 0 || len(calm.Runs) == 0 {
					row(name, "failed")
					continue
				}
				others, its := func(r Run) load.Latency { return r.Apart.Others }, func(r Run) load.Latency { return r.Apart.Its }
				p99 := func(r Run) float64 { return others(r).P99 }
				µs := func(m *Measured, of func(Run) float64) string { return fmt.Sprintf("%.0f", m.median(of)) }
				before := s.rounds(name)
				row(name, µs(calm, func(r Run) float64 { return r.P99 }), µs(p, func(r Run) float64 { return r.P99 }), p.P99.Ratio.known(),
					µs(calm, p99), µs(p, p99), p.to(before, p99).known(), p.to(before, func(r Run) float64 { return others(r).P50 }).known(),
					µs(p, func(r Run) float64 { return its(r).P50 }), µs(p, func(r Run) float64 { return its(r).P99 }), fmt.Sprintf("%.0f", p.Rate.Value.Median))
			}
		})
	}
}

// median is the median of one quantity over the runs.
func (m *Measured) median(of func(Run) float64) float64 {
	var values []float64
	for _, run := range m.Runs {
		values = append(values, of(run))
	}
	return spread(values).Median
}
