//go:build linux

package bench

// This file summarizes the runs in tables: medians of values and of their ratios.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

// spread is the median of one quantity over all rounds of a scenario, and the interval that
// contains the true median with 95 % confidence, whatever the distribution is. The interval is
// computed from order statistics. With fewer than 6 rounds it is the range of the values.
type spread struct{ median, low, high float64 }

// spreadOf returns the spread of values. It sorts the slice in place.
func spreadOf(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	k := max(1, outside(n))
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[k-1], values[n-k]}
}

// outside returns the greatest k with this property: the true median lies between the k-th smallest
// and the k-th largest of n values with 95 % confidence. It returns 0 if no k has this property. A
// value is below the true median with probability 1/2.
func outside(n int) int {
	tail, term := 0.0, math.Pow(0.5, float64(n)) // term: the probability that exactly k values are below the median
	for k := 0; ; k++ {
		tail += term
		if 2*tail > 0.05 {
			return k
		}
		term *= float64(n-k) / float64(k+1)
	}
}

// quantity returns one quantity of a run.
type quantity func(run) float64

// ratio formats the ratios between a quantity in the runs of m and the same quantity in the runs of
// base: the median and, in brackets, its interval. It compares runs of equal rounds.
func (m *measured) ratio(base *measured, of quantity) string {
	var ratios []float64
	for _, x := range m.runs {
		i := -1
		if base != nil {
			i = slices.IndexFunc(base.runs, func(y run) bool { return y.round == x.round })
		}
		if i >= 0 && of(base.runs[i]) > 0 {
			ratios = append(ratios, of(x)/of(base.runs[i]))
		}
	}
	if len(ratios) == 0 {
		return "–"
	}
	s := spreadOf(ratios)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.low, s.high)
}

// median returns the median of one quantity over all runs of the peer.
func (m *measured) median(of quantity) float64 {
	var values []float64
	for _, x := range m.runs {
		values = append(values, of(x))
	}
	return spreadOf(values).median
}

// of returns the runs of the peer with the given name; nil if it has no runs.
func (r *result) of(name string) *measured {
	for _, m := range r.peers {
		if m.name == name && len(m.runs) > 0 {
			return m
		}
	}
	return nil
}

// report returns the report of the scenarios.
func (b *bench) report(results []*result) *Report {
	r := b.newReport()
	runs, disturbed := 0, 0
	for _, s := range results {
		for _, m := range s.peers {
			for _, x := range m.runs {
				runs++
				if x.disturbed {
					disturbed++
				}
			}
			if m.failure != nil {
				r.Failures = append(r.Failures, fmt.Sprintf("scenario %s: %v", s.id, m.failure))
			}
		}
	}
	r.Head += fmt.Sprintf("; of %d runs %d were disturbed, the least disturbed of %d tries each", runs, disturbed, b.Tries)
	var bases []string // what Ringside is compared with
	for _, p := range b.peers {
		if p.name == nutcracker || p.name != ringside && p.configure != nil {
			bases = append(bases, p.name)
		}
	}
	for _, base := range slices.Backward(bases) {
		r.Tables = append(r.Tables, compared(results, base))
	}
	r.Tables = append(r.Tables, values(results))
	if b.Calls {
		r.Tables = append(r.Tables, counted(results))
	}
	return r
}

// compared returns a table with one row for each scenario. A row compares the cost of Ringside with
// that of the peer `base`, and the total cost of both with that of direct clients.
func compared(results []*result, base string) *Table {
	t := &Table{ID: "ratios", Title: "Ringside compared with " + base,
		Header: []string{"scenario", "CPU of Ringside, to " + base, "requests/s", "p50", "p99", "CPU of Ringside and servers, to asking directly", "of " + base + " and servers"}}
	if base != nutcracker {
		t.ID += " " + base
	}
	for _, r := range results {
		ours, theirs, directly := r.of(ringside), r.of(base), r.of(direct)
		if ours == nil || theirs == nil {
			continue
		}
		row := []string{r.id + ", " + r.name}
		for _, of := range []quantity{
			func(x run) float64 { return x.cpu },
			func(x run) float64 { return x.rate },
			func(x run) float64 { return x.p50 },
			func(x run) float64 { return x.p99 },
		} {
			row = append(row, ours.ratio(theirs, of))
		}
		t.Rows = append(t.Rows, append(row, ours.ratio(directly, run.total), theirs.ratio(directly, run.total)))
	}
	return t
}

// values returns a table with the values of every peer in every scenario.
func values(results []*result) *Table {
	t := &Table{ID: "values", Title: "Values", Note: "CPU in µs per request, latencies in µs; medians of the rounds. Sleeps of the proxy and of its servers are per request. Memory is RssAnon of the proxy in MB. " +
		"The latency of a paced load counts from when a request was due.",
		Header: []string{"scenario", "peer", "CPU", "CPU of servers", "both", "requests/s", "p50", "p99", "sleeps", "sleeps of servers", "CPU of the load", "memory"}}
	for _, r := range results {
		for _, m := range r.peers {
			if len(m.runs) == 0 {
				t.Rows = append(t.Rows, []string{r.id, m.name, "failed"})
				continue
			}
			row := []string{r.id, m.name}
			for _, c := range []struct {
				format func(float64) string
				of     quantity
			}{
				{two, func(x run) float64 { return x.cpu }},
				{two, func(x run) float64 { return x.servers }},
				{two, run.total},
				{whole, func(x run) float64 { return x.rate }},
				{whole, func(x run) float64 { return x.p50 }},
				{whole, func(x run) float64 { return x.p99 }},
				{two, func(x run) float64 { return x.sleeps }},
				{two, func(x run) float64 { return x.serverSleeps }},
				{two, func(x run) float64 { return x.loadCPU }},
				{whole, func(x run) float64 { return x.memory }},
			} {
				row = append(row, c.format(m.median(c.of)))
			}
			t.Rows = append(t.Rows, row)
			if m.median(func(x run) float64 { return x.rate }) < 0.98*r.work.Rate {
				t.Note += fmt.Sprintf(" In scenario %s, %s did not keep the pace: its latency is that of a growing queue.", r.id, m.name)
			}
		}
	}
	return t
}

// counted returns a table with the system calls of the proxies, from the last round.
func counted(results []*result) *Table {
	t := &Table{ID: "calls", Title: "System calls", Note: "Per request, under a second load, with its connects and closes (perf stat on the kernel's tracepoints). Calls rarer than 0.001 a request are left out. " +
		"The kernel's share of the CPU time is sampled at its timer ticks. Bytes per read and write are those of the measured load.",
		Header: []string{"scenario", "peer", "CPU µs/request", "in the kernel", "requests/s", "while counting", "system calls", "by name", "its loop: wakeups, reads, writes", "bytes per read", "per write"}}
	for _, r := range results {
		for _, m := range r.peers {
			if len(m.runs) == 0 || m.runs[len(m.runs)-1].calls == nil {
				continue
			}
			x := m.runs[len(m.runs)-1]
			c, p := x.calls, x.proxy
			t.Rows = append(t.Rows, []string{r.id, m.name, two(x.cpu), percent(x.kernel), whole(x.rate), whole(c.rate), two(c.total), strings.Join(c.names, ", "), c.loop,
				whole(float64(p.ReadBytes) / float64(max(1, p.Reads))), whole(float64(p.WriteBytes) / float64(max(1, p.Writes)))})
		}
	}
	return t
}

func two(f float64) string   { return fmt.Sprintf("%.2f", f) }
func whole(f float64) string { return fmt.Sprintf("%.0f", f) }

// percent formats a share as a percentage.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// newReport returns a report that describes the machine and the programs. It has no results yet.
func (b *bench) newReport() *Report {
	kernel, model, cpus := load.Machine()
	return &Report{Head: fmt.Sprintf("`%s`, %s, %s, %d CPUs, Linux %s, %s behind; %s", b.Command, b.began.UTC().Format(time.DateOnly), model, cpus, kernel, b.version, b.peers[0].version)}
}
