//go:build linux

package bench

// This file summarizes the runs: medians and ranges of values and of their ratios.

import (
	"math"
	"slices"
)

// Summarize computes the figures of all peers of a result from their runs.
func (r *Result) Summarize() {
	base, directly := r.rounds(r.Base), r.rounds(Direct)
	for _, m := range r.Peers {
		if len(m.Runs) == 0 {
			continue
		}
		figure := func(of func(Run) float64) Figure {
			var values []float64
			for _, run := range m.Runs {
				values = append(values, of(run))
			}
			return Figure{Value: spreadOf(values), Ratio: m.to(base, of)}
		}
		m.Direct = m.to(directly, Run.total)
		m.CPU = figure(func(r Run) float64 { return r.CPU })
		m.Total = figure(Run.total)
		m.Rate = figure(func(r Run) float64 { return r.Rate })
		m.P50 = figure(func(r Run) float64 { return r.P50 })
		m.P99 = figure(func(r Run) float64 { return r.P99 })
		m.P999 = figure(func(r Run) float64 { return r.P999 })
	}
}

// of returns the result of the peer with the given name; nil if that peer did not take part.
func (r *Result) of(peer string) *Measured {
	for _, m := range r.Peers {
		if m.Peer == peer {
			return m
		}
	}
	return nil
}

// rounds returns the runs of the peer with the given name, by number of the round.
func (r *Result) rounds(peer string) map[int]Run {
	runs := make(map[int]Run)
	for _, m := range r.Peers {
		if m.Peer == peer {
			for _, run := range m.Runs {
				runs[run.Round] = run
			}
		}
	}
	return runs
}

// to summarizes the ratios between the quantity `of` in the runs of m and the same quantity in
// others. It compares the runs of equal rounds, and skips a round if one of the two values is 0.
// Example: the peer direct has no proxy, so the CPU time of its proxy is 0.
func (m *Measured) to(others map[int]Run, of func(Run) float64) *Spread {
	var ratios []float64
	for _, run := range m.Runs {
		if b, ok := others[run.Round]; ok && of(b) > 0 && of(run) > 0 {
			ratios = append(ratios, of(run)/of(b))
		}
	}
	if len(ratios) == 0 {
		return nil
	}
	s := spreadOf(ratios)
	return &s
}

// mean returns the mean of one quantity over all runs of the peer.
func (m *Measured) mean(of func(Run) float64) float64 {
	sum := 0.0
	for _, run := range m.Runs {
		sum += of(run)
	}
	return sum / float64(max(1, len(m.Runs)))
}

// median returns the median of one quantity over all runs of the peer.
func (m *Measured) median(of func(Run) float64) float64 {
	var values []float64
	for _, run := range m.Runs {
		values = append(values, of(run))
	}
	return spreadOf(values).Median
}

// spreadOf returns the median and the range of values. It sorts the slice in place.
func spreadOf(values []float64) Spread {
	slices.Sort(values)
	n := len(values)
	s := Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
	if k := outside(n); k > 0 {
		s.Interval = &[2]float64{values[k-1], values[n-k]}
	}
	return s
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

// Add appends to r the runs of a later measurement of the same scenario.
func (r *Result) Add(later *Result) {
	rounds := 0
	for _, m := range r.Peers {
		for _, run := range m.Runs {
			rounds = max(rounds, run.Round)
		}
	}
	for i, m := range later.Peers {
		for _, run := range m.Runs {
			run.Round += rounds
			r.Peers[i].Runs = append(r.Peers[i].Runs, run)
		}
		if m.Failure != "" {
			r.Peers[i].Failure = m.Failure
		}
	}
	r.Summarize()
}
