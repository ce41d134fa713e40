//go:build linux

package bench

// This file measures the memory of each proxy, with a fresh process for each load.

import (
	"context"
	"fmt"
)

func (b *bench) memory(ctx context.Context) ([]Memory, error) {
	var all []Memory
	for _, s := range memoryScenarios() {
		for _, p := range b.peers {
			if !p.Proxy {
				continue
			}
			m := Memory{ID: s.ID, Name: s.Name, Peer: p.Name}
			got, err := b.once(ctx, p, s, b.Window)
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil:
				b.Log.Error("failed", "memory", s.ID, "peer", p.Name, "error", err)
				m.Failure = err.Error()
			default:
				held := got.Processes[0]
				m.Anon, m.AnonPeak, m.Peak = held.Memory.Anon, held.AnonPeak, held.Memory.Peak
				b.Log.Info("held", "memory", s.ID, "peer", p.Name, "anon", megabytes(m.Anon), "peak", megabytes(m.Peak))
			}
			all = append(all, m)
		}
	}
	return all, nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
