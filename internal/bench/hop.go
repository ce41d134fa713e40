//go:build linux

package bench

// This file measures the time that a request needs longer through Ringside than without it.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringside/internal/bench/load"
)

// hopLoads returns the loads of Hops, from an idle to a busy machine. busy is the number of requests
// per second of the last one.
func hopLoads(busy float64) []scenario {
	gets := func(rate float64) func(*load.Workload) {
		return func(w *load.Workload) { w.Reads, w.Rate = 100, rate }
	}
	return []scenario{
		{id: "idle", name: "1 connection, 200 gets a second", work: work(1, 1, gets(200))},
		{id: "turns", name: "1 connection, one get after the other", work: work(1, 1, gets(0))},
		{id: "busy", name: fmt.Sprintf("50 connections, %.0f gets a second", busy), work: work(50, 1, gets(busy))},
	}
}

// Hops measures the latency of gets that clients send to the servers themselves, to Ringside over
// TCP, and to Ringside over a unix socket. Rate of the configuration is the rate of the busy load.
func Hops(ctx context.Context, c Config) (*Report, error) {
	c.Nutcracker, c.Also = "", nil
	b, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	proxy, servers := b.peers[0], b.peers[len(b.peers)-1]
	t := &Table{ID: "hops", Title: "One hop", Note: fmt.Sprintf("Latencies in µs, p50 and p99: medians of %d rounds. \"adds\" is the median of the differences to the direct clients in the same round.", b.Rounds),
		Header: []string{"load", "direct, TCP", "Ringside, TCP", "adds", "Ringside, unix socket", "adds"}}
	ways := []struct {
		*peer
		socket bool
	}{{servers, false}, {proxy, false}, {proxy, true}}
	for _, s := range hopLoads(c.Rate) {
		p50, p99 := make([][]float64, len(ways)), make([][]float64, len(ways))
		for range b.Rounds {
			for i, way := range ways {
				s.socket = way.socket
				x, err := b.undisturbed(ctx, way.peer, s)
				if err != nil {
					return nil, errors.Join(ctx.Err(), fmt.Errorf("%s, %s: %w", s.name, way.name, err))
				}
				p50[i], p99[i] = append(p50[i], x.p50), append(p99[i], x.p99)
				b.Log.Info("ran", "load", s.name, "peer", way.name, "unix_socket", way.socket, "p50_us", whole(x.p50), "p99_us", whole(x.p99), "other", percent(x.other))
			}
		}
		row := []string{s.name}
		for i := range ways {
			row = append(row, pair(p50[i], p99[i]))
			if i > 0 {
				row = append(row, pair(minus(p50[i], p50[0]), minus(p99[i], p99[0])))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	r := b.newReport()
	r.Tables = []*Table{t}
	return r, nil
}

// minus returns the differences between values of the same round.
func minus(values, base []float64) (all []float64) {
	for i := range values {
		all = append(all, values[i]-base[i])
	}
	return all
}

// pair formats the medians of p50 and p99.
func pair(p50, p99 []float64) string {
	return whole(spreadOf(slices.Clone(p50)).median) + ", " + whole(spreadOf(slices.Clone(p99)).median)
}
