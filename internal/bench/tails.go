//go:build linux

package bench

// This file measures tails: how one server with some slow replies affects reads of its own keys and
// of other keys.

import (
	"context"
	"fmt"
)

// tailConns is the number of connections of a load with a fixed rate. It is so large that some
// connections are free while others wait for the slow server. Otherwise reads from the other
// servers would wait, too.
const tailConns = 500

// Tails measures scenarios a (single keys) and h (multi-gets) at the given rate, in requests a
// second. In alternate runs, the first of three servers has the delays of s or no delays.
func Tails(ctx context.Context, c Config, s Server, rate float64) (*Report, error) {
	b, err := c.open(ctx, "ringside", "nutcracker", Direct)
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
		usual.Base, usual.slow = "nutcracker"+OneSlow, &s
		result, err := b.scenario(ctx, usual)
		if err != nil {
			return nil, err
		}
		r.Tails = append(r.Tails, result)
	}
	return b.finish(r), nil
}
