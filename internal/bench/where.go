//go:build linux

package bench

// This file measures where CPU time is spent: in the kernel or in user mode, in which system calls,
// in which functions.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// WhereTo says how Ringside is profiled, and where the profiles are stored.
type WhereTo struct {
	Profiles string        // directory for the profiles; empty: no profiles are taken
	Time     time.Duration // length of a profile, in whole seconds
}

// FindWhere measures for every scenario and peer where the CPU time is spent. One process of each
// peer serves several loads. The first load writes the keys. The second one is measured, and
// Ringside's counters are read before and after it. During the third one, system calls are counted.
// A fourth one, for Ringside only, is profiled.
func FindWhere(ctx context.Context, c Config, to WhereTo) (*Report, error) {
	if to.Profiles != "" {
		if err := os.MkdirAll(to.Profiles, 0o777); err != nil {
			return nil, err
		}
	}
	b, scenarios, r, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var how *Tracer
	how, r.Tracer = b.starter.FindTracer(b.LoadCPUs)
	for _, s := range scenarios {
		w := &Where{ID: s.ID, Name: s.Name, Work: s.Work}
		for _, p := range b.peers {
			if !s.fits(p) || p.Direct {
				continue
			}
			spent, err := b.spent(ctx, p, s, how, to, w)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				b.Log.Error("failed", "scenario", s.ID, "peer", p.Name, "error", err)
				spent.Failure = err.Error()
			}
			w.Peers = append(w.Peers, spent)
		}
		r.Where = append(r.Where, w)
	}
	return b.finish(r), nil
}

// spent measures one peer in one scenario. If it returns an error, it also returns the values that
// were measured before the error.
func (b *bench) spent(ctx context.Context, p *Peer, s scenario, how *Tracer, to WhereTo, w *Where) (*Spent, error) {
	out := &Spent{Peer: p.Name}
	target, err := b.start(ctx, p, s)
	if err != nil {
		return out, err
	}
	defer target.Stop()
	if _, err := b.load(ctx, target, s, 10*time.Millisecond); err != nil {
		return out, target.Blame(err)
	}
	s.filled = true
	ringside := p.Name == "ringside"
	var before, after Metrics
	if ringside {
		if before, err = readMetrics(ctx, target); err != nil {
			return out, err
		}
	}
	got, err := b.load(ctx, target, s, b.Window)
	if err != nil {
		return out, target.Blame(err)
	}
	run := b.figures(got)
	out.CPU, out.Rate, out.Switches, out.Other = run.CPU, run.Rate, run.Switches, run.Other
	if used := got.Processes[0]; used.User+used.Kernel > 0 {
		out.Kernel = float64(used.Kernel) / float64(used.User+used.Kernel)
	}
	if ringside {
		if after, err = readMetrics(ctx, target); err != nil {
			return out, err
		}
		each := func(name string) float64 { return (after.Sum(name) - before.Sum(name)) / float64(got.Replies) }
		out.Loop = &Loop{Wakeups: each("ringside_loop_wakeups_total"), Reads: each("ringside_loop_reads_total"), Writes: each("ringside_loop_writes_total")}
	}
	if how != nil {
		counts, err := how.Trace(target.PID(), func() error {
			got, err = b.load(ctx, target, s, b.Window)
			return err
		})
		if err != nil {
			return out, target.Blame(err)
		}
		out.TracedRate, out.Calls = got.Rate, perRequest(counts, got.Replies)
	}
	b.Log.Info("spent", "scenario", s.ID, "peer", p.Name, "cpu_us", fmt.Sprintf("%.2f", out.CPU), "kernel", percent(out.Kernel), "other", percent(run.Other))
	if ringside && to.Profiles != "" {
		w.Profile, err = b.profile(ctx, target, s, to)
	}
	return out, err
}

// perRequest divides the counts of system calls by the number of requests. It omits system calls
// that are rare.
func perRequest(counts map[string]int64, requests int64) []Calls {
	calls := []Calls{}
	for name, n := range counts {
		if each := float64(n) / float64(requests); each >= rareCall {
			calls = append(calls, Calls{Name: name, Each: each})
		}
	}
	slices.SortFunc(calls, func(x, y Calls) int { return cmp.Or(cmp.Compare(y.Each, x.Each), cmp.Compare(x.Name, y.Name)) })
	return calls
}

// profile runs the scenario's load on Ringside and takes a CPU profile. It returns the name of a
// file with the functions that use most time.
func (b *bench) profile(ctx context.Context, target *child, s scenario, to WhereTo) (string, error) {
	raw := filepath.Join(to.Profiles, "where-"+s.ID+".pprof")
	taken := make(chan error, 1)
	seconds := max(1, int(to.Time.Seconds()))
	go func() {
		time.Sleep(b.Warm) // waits until the clients are connected and the first requests are done
		body, err := fetch(ctx, target, "/debug/pprof/profile?seconds="+strconv.Itoa(seconds))
		if err == nil {
			err = os.WriteFile(raw, body, 0o666)
		}
		taken <- err
	}()
	_, err := b.load(ctx, target, s, time.Duration(seconds)*time.Second+b.Warm)
	if err != nil {
		err = target.Blame(err)
	}
	if err := errors.Join(err, <-taken); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=20", raw).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s is there, but not its top functions: go tool pprof: %w: %s", raw, err, out)
	}
	top := filepath.Join(to.Profiles, "where-"+s.ID+".txt")
	return top, os.WriteFile(top, out, 0o666)
}
