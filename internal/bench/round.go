//go:build linux

package bench

// This file runs the rounds. In each round every peer runs in turn, with a fresh process. Disturbed
// runs are repeated.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

// scenario measures all rounds of the scenario s.
func (b *bench) scenario(ctx context.Context, s scenario) (*Result, error) {
	result := &Result{ID: s.ID, Name: s.Name, Base: s.Base, Work: s.Work}
	type entry struct {
		*Peer
		scenario
	}
	var entries []entry // entries of one round; the result of entries[i] is in result.Peers[i]
	enter := func(p *Peer, s scenario, behind string) {
		entries = append(entries, entry{p, s})
		result.Peers = append(result.Peers, &Measured{Peer: p.Name + behind})
	}
	for _, p := range b.peers {
		if s.fits(p) && (!b.NoFloor || p.Name != "memcached" || s.Base == p.Name) {
			usual := s
			if s.slow != nil {
				usual = s.calm()
				enter(p, s, OneSlow)
			}
			ways := []monitor{{}}
			if s.monitored {
				ways = monitors
			}
			for _, way := range ways {
				usual.monitor = way
				enter(p, usual, way.behind)
			}
		}
		if s.Work.Visit > 0 && p.Sockets {
			also := s
			also.socket = true
			enter(p, also, OverSocket)
		}
		for _, behind := range []string{inText, unguarded, notNear} {
			if s.Base == p.Name+behind {
				plain := s
				plain.Work.Binary, plain.routes = false, ""
				enter(p, plain, behind)
			}
		}
	}
	for round := range b.Rounds {
		for i := range entries {
			at := (i + round) % len(entries)
			e, measured := entries[at], result.Peers[at]
			if measured.Failure != "" {
				continue
			}
			run, err := b.undisturbed(ctx, e.Peer, e.scenario)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				b.Log.Error("failed", "scenario", s.ID, "peer", measured.Peer, "round", round+1, "error", err)
				measured.Failure = err.Error()
				continue
			}
			run.Round = round + 1
			measured.Runs = append(measured.Runs, run)
			b.Log.Info("ran", "scenario", s.ID, "round", round+1, "peer", measured.Peer, "cpu_us", fmt.Sprintf("%.2f", run.CPU),
				"rate", fmt.Sprintf("%.0f", run.Rate), "p50_us", fmt.Sprintf("%.0f", run.P50), "p99_us", fmt.Sprintf("%.0f", run.P99),
				"other", percent(run.Other), "steal", percent(run.Steal), "tries", run.Tries)
		}
	}
	result.Summarize()
	return result, nil
}

// undisturbed runs the scenario s on the peer p. It repeats a disturbed run, up to a configured
// number of attempts, and returns the least disturbed one.
func (b *bench) undisturbed(ctx context.Context, p *Peer, s scenario) (Run, error) {
	var best Run
	for try := 1; ; try++ {
		got, err := b.once(ctx, p, s, b.Window)
		if err != nil {
			return Run{}, err
		}
		run := b.figures(got)
		if try == 1 || badness(run.Disturbance) < badness(best.Disturbance) {
			best = run
		}
		best.Tries = try
		if !best.Disturbed || try >= b.Tries {
			return best, nil
		}
		b.repeated++
	}
}

func badness(d Disturbance) float64 { return d.Other + d.Steal + d.Late/1e6 }

// once starts the peer, runs the scenario's load on it, and stops the peer. The first process in
// the result is the peer, and the others are its servers.
func (b *bench) once(ctx context.Context, p *Peer, s scenario, window time.Duration) (load.Result, error) {
	if p.Direct {
		own, err := b.aside(ctx)
		if err != nil {
			return load.Result{}, err
		}
		defer own.pool.Stop()
		b = own
	}
	if s.slow != nil {
		before, stop, err := b.slowed(ctx, *s.slow)
		if err != nil {
			return load.Result{}, err
		}
		defer stop()
		b = before
	}
	if p.Direct {
		result, err := b.load(ctx, nil, s, window)
		result.Processes = slices.Insert(result.Processes, 0, load.Process{}) // direct has no proxy process, so an entry with the cost 0 is inserted
		return result, err
	}
	target, err := b.start(ctx, p, s)
	if err != nil {
		return load.Result{}, err
	}
	defer target.Stop()
	if s.hoard {
		return b.besideHoard(ctx, target, s, window)
	}
	seen, err := target.LookedAt(ctx, s.asks)
	if err != nil {
		return load.Result{}, target.Blame(err)
	}
	result, err := b.load(ctx, target, s, window)
	err = errors.Join(err, seen())
	if err == nil && s.check != nil {
		err = s.check(result)
	}
	if err != nil {
		return result, target.Blame(err)
	}
	return result, nil
}

// besideHoard runs a scenario with additional clients that do not read their replies. These clients
// start when the keys of the load have been written. The result includes the cost of their start.
func (b *bench) besideHoard(ctx context.Context, target *child, s scenario, window time.Duration) (load.Result, error) {
	fill := s
	fill.Work.Reads, fill.Work.Rate, fill.Work.Lossy = 100, 0, false
	if result, err := b.load(ctx, target, fill, 10*time.Millisecond); err != nil {
		return result, target.Blame(err)
	}
	h, err := startHoard(ctx, netip.MustParseAddrPort(target.Addr()))
	if err != nil {
		return load.Result{}, target.Blame(err)
	}
	s.filled, s.cut = true, true
	cold := *b
	cold.Warm = 0
	result, err := cold.load(ctx, target, s, hoardTimes*window)
	if err = errors.Join(err, h.end()); err != nil {
		return result, target.Blame(err)
	}
	b.Log.Info("hoarded", "peer", target.Name, "came_back", h.back)
	return result, nil
}

// aside returns a copy of b with separate servers, which run on the CPU of the proxy. It is for the
// peer direct, which has no proxy. On the load's CPU, the servers would need fewer wakeups than
// behind a network or a proxy, and their cost would be too low.
func (b *bench) aside(ctx context.Context) (*bench, error) {
	own := *b
	var err error
	own.pool, err = b.startPool(ctx, serverCount, 1, b.proxyCPUs)
	return &own, err
}

// slowed returns a copy of b in which a forwarder in front of the first server delays replies as s
// says. stop ends the forwarder.
func (b *bench) slowed(ctx context.Context, s Server) (before *bench, stop func(), err error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, nil, err
	}
	c, err := b.starter.Spawn(ctx, "slow", b.Self, []string{"slow", "-listen", fmt.Sprintf("127.0.0.1:%d", ports[0]), "-to", b.pool.Addrs[0],
		"-share", fmt.Sprint(s.Share), "-delay", s.Delay.String()}, ports[0], b.LoadCPUs)
	if err != nil {
		return nil, nil, err
	}
	own := *b
	own.pool.Addrs = slices.Clone(b.pool.Addrs)
	own.pool.Addrs[0] = c.Addr()
	return &own, c.Stop, nil
}

// load runs ringbench's load on the load's CPUs. The load connects to target, or directly to the
// servers if target is nil. The result includes the CPU time of the target and of the servers.
func (b *bench) load(ctx context.Context, target *child, s scenario, window time.Duration) (load.Result, error) {
	w := s.Work
	var pids, to []string
	if target != nil {
		pids = append(pids, strconv.Itoa(target.PID()))
		if target.Socket != "" {
			to = append(to, "-addr", "unix:"+target.Socket)
		} else {
			to = append(to, "-addr", target.Addr())
		}
	}
	if target == nil || s.slow != nil {
		to = append(to, "-servers", strings.Join(b.pool.Addrs, ","))
	}
	if s.slow != nil {
		to = append(to, "-apart", b.pool.Addrs[0])
	}
	for _, server := range b.pool.Processes {
		if server.Alive() {
			pids = append(pids, strconv.Itoa(server.PID()))
		}
	}
	// The limit is the measured time, plus ample time for what happens before and after it.
	ctx, cancel := context.WithTimeout(ctx, window+b.Warm+2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.Self, append([]string{"load", "-watch", strings.Join(pids, ","),
		"-conns", strconv.Itoa(w.Conns), "-depth", strconv.Itoa(w.Depth), "-keys", strconv.Itoa(w.Keys), "-quiet", strconv.Itoa(w.Quiet),
		"-value", strconv.Itoa(w.Value), "-keysize", strconv.Itoa(w.KeySize), "-count", strconv.Itoa(w.Count), "-reads", strconv.Itoa(w.Reads),
		"-rate", fmt.Sprint(w.Rate), "-visit", strconv.Itoa(w.Visit), fmt.Sprintf("-binary=%t", w.Binary), fmt.Sprintf("-sliding=%t", w.Sliding), fmt.Sprintf("-idle=%t", w.Idle), fmt.Sprintf("-nofill=%t", s.filled), fmt.Sprintf("-lossy=%t", w.Lossy), fmt.Sprintf("-cut=%t", s.cut),
		"-warm", b.Warm.String(), "-duration", window.String(), "-timeout", replyTimeout.String()}, to...)...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := b.starter.Start(cmd, b.LoadCPUs); err != nil {
		return load.Result{}, fmt.Errorf("start the load: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		if text := strings.TrimSpace(complaint.String()); text != "" {
			return load.Result{}, errors.New(strings.TrimPrefix(text, "ringbench: "))
		}
		return load.Result{}, fmt.Errorf("the load ended: %w", err)
	}
	var result load.Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return load.Result{}, fmt.Errorf("the load's result: %w", err)
	}
	return result, nil
}

// figures converts the result of a load to a Run, and decides whether the run was disturbed.
func (b *bench) figures(r load.Result) Run {
	each := func(d time.Duration) float64 {
		if r.Requests == 0 {
			return 0
		}
		return float64(d) / 1e3 / float64(r.Requests)
	}
	run := Run{
		CPU:      each(r.Processes[0].CPU),
		Switches: float64(r.Processes[0].Switches) / float64(max(1, r.Requests)),
		Rate:     r.Rate,
		P50:      r.Latency.P50,
		P99:      r.Latency.P99,
		P999:     r.Latency.P999,
		LoadCPU:  each(r.CPU),
		Requests: r.Requests,
		Apart:    r.Apart,
		Good:     r.Good,
		GivenUp:  r.GivenUp,
		Seconds:  r.Seconds,
	}
	for _, p := range r.Processes[1:] {
		run.Servers += each(p.CPU)
	}
	if r.Good != nil {
		run.Rate = float64(run.Goods()) / r.Seconds
	}
	ours := r.CPU
	for _, p := range r.Processes {
		ours += p.CPU
	}
	var busy, steal, wall time.Duration
	for _, core := range r.Cores {
		if slices.Contains(b.proxyCPUs, core.ID) {
			run.CoreBusy += each(core.Busy())
		} else if !slices.Contains(b.LoadCPUs, core.ID) {
			continue
		}
		busy += core.Busy()
		steal += core.Steal
		wall += core.Wall
	}
	run.Other = max(0, float64(busy-ours)/float64(wall))
	run.Steal = float64(steal) / float64(wall)
	run.Late = r.Late
	run.Disturbed = run.Other > b.Disturbed || run.Steal > b.Disturbed/2 || run.Late > float64(lateLimit.Microseconds())
	return run
}

// start starts the peer p on the CPUs of the proxy, with the servers of the pool. It waits until
// the peer listens.
func (b *bench) start(ctx context.Context, p *Peer, s scenario) (*child, error) {
	at := Place{Servers: b.pool.Addrs, Loops: b.loops, Timeout: b.timeout, Routes: s.routes, AdminMore: s.admin}
	return b.starter.StartPeer(ctx, p, at, s.socket, b.proxyCPUs)
}
