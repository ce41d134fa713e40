//go:build linux

package bench

import (
	"slices"
	"testing"
)

// TestOutageJudge checks the figures that judge computes from the time line of an outage.
func TestOutageJudge(t *testing.T) {
	steady := slices.Repeat([]int64{10}, 20)
	for _, c := range []struct {
		name             string
		during           []int64
		worst, belowHalf float64
	}{
		{"nothing happens", steady, 100, 0},
		{"half is not below half", slices.Repeat([]int64{5}, 20), 50, 0},
		{"twice low", slices.Concat(steady, []int64{0, 4, 0}, steady, []int64{0, 0}, steady), 74, 0.3},
		{"for good", slices.Concat(steady, slices.Repeat([]int64{0}, 15)), 0, 1.5},
	} {
		o := judge(slices.Concat(steady, c.during), len(steady), max(len(steady), len(c.during)))
		if o.before != 100 || o.worst != c.worst || o.belowHalf < c.belowHalf-0.01 || o.belowHalf > c.belowHalf+0.01 {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}
