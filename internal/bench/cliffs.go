//go:build linux

package bench

// This file finds cliffs: rows of a curve at which the cost is much higher than in the row before.

import (
	"fmt"
	"math"
)

// Limits of a cliff. A row of a curve is a cliff if one of its figures is more than this many times
// the figure of the row before. Differences between equal runs are smaller than both limits.
const (
	// cliffCost applies to CPU per request, and to the reciprocal of throughput.
	cliffCost = 1.6
	// cliffTail applies to p99 divided by p50, which is measured less precisely.
	cliffTail = 4
)

// cliffAgain is how often a row that looks like a cliff is measured again before the report calls
// it one.
const cliffAgain = 2

// cliffs names the figures of row that are worse than in the row before by more than the additional
// work explains. The cost of a request may grow with 1 + x/share, where x is the X of a row. At x =
// share, the part of the cost that grows with x equals the fixed part. If share is 0, cost may not
// grow.
func cliffs(before, row *Point, share float64) []string {
	var found []string
	allowed := growth(before.X, row.X, share)
	for i, m := range row.Peers {
		was := before.Peers[i]
		if len(m.Runs) == 0 || len(was.Runs) == 0 {
			continue
		}
		for _, f := range []struct {
			name      string
			got, most float64
		}{
			{"CPU", m.CPU.Value.Median / was.CPU.Value.Median, cliffCost * allowed},
			{"throughput", was.Rate.Value.Median / m.Rate.Value.Median, cliffCost * allowed},
			{"p99", tailOf(m) / tailOf(was), cliffTail},
		} {
			if f.got > f.most && !math.IsNaN(f.got) {
				found = append(found, fmt.Sprintf("%s %s × %.1f", m.Peer, f.name, f.got))
			}
		}
	}
	return found
}

func tailOf(m *Measured) float64 { return m.P99.Value.Median / m.P50.Value.Median }

// growth returns the factor by which the cost per request may grow between two rows of a curve. x
// and y are the X of the earlier and of the later row. The allowed cost is proportional to 1 +
// x/share. If share is 0, cost may not grow.
func growth(x, y, share float64) float64 {
	if share == 0 {
		return 1
	}
	return max(1, (1+y/share)/(1+x/share))
}
