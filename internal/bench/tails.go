//go:build linux

package bench

// Tails: what one server that is slow now and then does to the reads of its keys, and
// of the others'.

import (
	"context"
	"fmt"

	"ringside/internal/bench/report"
	"ringside/internal/bench/slow"
)

// tailConns are the connections of the paced load: so many that some are free when those
// that wait for the slow server are not. Else the others' reads would wait for them.
const tailConns = 500

// Tails measures scenarios a and h, paced at so many requests a second, with the first
// of three servers as s says and with one that holds nothing back, in turns.
func Tails(ctx context.Context, c Config, s slow.Server, rate float64) (*report.Report, error) {
	b, err := c.open(ctx, "ringside", "nutcracker", report.Direct)
	if err != nil {
		return nil, err
	}
	defer b.close()
	r := b.newReport()
	for _, id := range []string{"a", "h"} {
		picked, err := pickScenarios(id)
		if err != nil {
			return nil, err
		}
		usual := picked[0]
		if usual.Work.Rate > 0 {
			usual.Work.Conns, usual.Work.Rate = tailConns, rate
			usual.Name = fmt.Sprintf("%d connections, paced at %.0f a second", tailConns, rate)
		}
		usual.Name += fmt.Sprintf("; of the answers of one of three servers %g %% come %v late", 100*s.Share, s.Delay)
		usual.Base, usual.slow = "nutcracker"+report.OneSlow, &s
		result, err := b.scenario(ctx, usual)
		if err != nil {
			return nil, err
		}
		r.Tails = append(r.Tails, result)
	}
	return b.finish(r), nil
}
