//go:build linux

package report

// Cliffs: rows of a curve whose cost jumps.

import (
	"fmt"
	"math"
)

// Limits beyond which a row is a cliff, as factors to the row before it. Both
// allow for what this kind of machine makes of equal runs.
const (
	// cliffCost is for CPU per request, and for throughput downwards.
	cliffCost = 1.6
	// cliffTail is for p99 in terms of p50, which is known less well.
	cliffTail = 4
)

// CliffAgain is how often a row that looks like a cliff is measured again before
// it is called one.
const CliffAgain = 2

// Cliffs names the figures that are worse in row than in the one before it, and than the work
// explains: its x adds as much work as there is in a request without any where it is share, so
// cost may grow with 1 + x/share. 0: it may not grow.
func Cliffs(before, row *Point, share float64) []string {
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

// growth is the factor by which cost may grow from x to y for the work's sake.
func growth(x, y, share float64) float64 {
	if share == 0 {
		return 1
	}
	return max(1, (1+y/share)/(1+x/share))
}
