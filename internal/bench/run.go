//go:build linux

package bench

// This file runs the rounds of the scenarios. In each round every peer runs in turn, with a fresh
// process. Disturbed runs are repeated.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

// lateLimit is the delay of the load generator's timer from which a run counts as disturbed. The
// load generator shares a CPU with three servers. Without a disturbance, it waits for the CPU less
// than this time.
const lateLimit = 25 * time.Millisecond

// run is one measurement of one peer. The peer and its load run once for it. Times of CPUs are in
// microseconds per request.
type run struct {
	round int

	cpu          float64 // CPU time of the proxy; 0 for direct clients
	servers      float64 // CPU time of the servers
	loadCPU      float64 // CPU time of the load generator
	kernel       float64 // share of the proxy's CPU time that is spent in the kernel, 0 to 1; the kernel samples it at its ticks
	sleeps       float64 // how often threads of the proxy went to sleep, per request
	serverSleeps float64 // how often threads of the servers went to sleep, per request
	rate         float64 // requests per second
	p50, p99     float64 // latencies in microseconds
	memory       float64 // anonymous resident memory (RssAnon) of the proxy at the end, in megabytes
	proxy        load.Process

	other     float64 // share of the measured CPUs that other processes used, 0 to 1
	steal     float64 // share of the measured CPUs that the hypervisor used for other machines, 0 to 1
	late      float64 // greatest delay of the load generator's timer, in microseconds
	disturbed bool    // one of the three values is greater than the limit for it

	calls *calls // nil: system calls were not counted
}

// total is the CPU time of a request in the proxy and in its servers together.
func (r run) total() float64 { return r.cpu + r.servers }

// badness orders runs by how much other work disturbed them.
func (r run) badness() float64 { return r.other + r.steal + r.late/1e6 }

// measured has the runs of one peer in one scenario.
type measured struct {
	*peer
	failure error // why this peer has no further runs; nil: no failure
	runs    []run
}

// result has the runs of all peers in one scenario.
type result struct {
	scenario
	peers []*measured
}

// Measure runs the scenarios. If a peer sends wrong replies, the other peers are measured all the
// same, and the report contains the error.
func Measure(ctx context.Context, c Config) (*Report, error) {
	picked, err := pickScenarios(c.Scenarios, c.Rate)
	if err != nil {
		return nil, err
	}
	b, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var results []*result
	for _, s := range picked {
		r, err := b.scenario(ctx, s)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return b.report(results), nil
}

// scenario measures all rounds of the scenario s.
func (b *bench) scenario(ctx context.Context, s scenario) (*result, error) {
	r := &result{scenario: s}
	for _, p := range b.peers {
		if p.configure != nil || !s.replicas {
			r.peers = append(r.peers, &measured{peer: p})
		}
	}
	for round := range b.Rounds {
		for i := range r.peers {
			m := r.peers[(i+round)%len(r.peers)]
			if m.failure != nil {
				continue
			}
			x, err := b.undisturbed(ctx, m.peer, s)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				b.Log.Error("failed", "scenario", s.id, "peer", m.name, "round", round+1, "error", err)
				m.failure = err
				continue
			}
			x.round = round
			m.runs = append(m.runs, x)
			b.Log.Info("ran", "scenario", s.id, "round", round+1, "peer", m.name, "cpu_us", two(x.cpu), "rate", whole(x.rate),
				"p50_us", whole(x.p50), "p99_us", whole(x.p99), "other", percent(x.other), "steal", percent(x.steal))
		}
	}
	return r, nil
}

// undisturbed runs the scenario s on the peer p. It repeats a disturbed run, up to a configured
// number of attempts, and returns the least disturbed one.
func (b *bench) undisturbed(ctx context.Context, p *peer, s scenario) (best run, err error) {
	for try := 1; try <= b.Tries; try++ {
		x, err := b.once(ctx, p, s)
		if err != nil {
			return run{}, err
		}
		if try == 1 || x.badness() < best.badness() {
			best = x
		}
		if !best.disturbed {
			break
		}
	}
	return best, nil
}

// once starts the peer, runs the scenario's load on it, and stops the peer.
func (b *bench) once(ctx context.Context, p *peer, s scenario) (run, error) {
	if p.configure == nil {
		// The servers run on the CPU of the proxy. On the load's CPU, they would need fewer wakeups
		// than behind a network or a proxy, and their cost would be too low.
		servers, err := b.startServers(ctx, b.ProxyCPUs)
		if err != nil {
			return run{}, err
		}
		defer stop(servers)
		got, err := b.load(ctx, nil, servers, s, b.Window)
		got.Processes = slices.Insert(got.Processes, 0, load.Process{}) // there is no proxy process, so an entry with the cost 0 is inserted
		return b.figures(got), err
	}
	target, err := b.startPeer(ctx, p, s, true)
	if err != nil {
		return run{}, err
	}
	defer target.stop()
	got, err := b.load(ctx, target, b.servers, s, b.Window)
	if err != nil {
		return run{}, target.blame(err)
	}
	x := b.figures(got)
	if b.Calls {
		s.filled = true
		x.calls, err = b.count(ctx, target, s)
	}
	return x, target.blame(err)
}

// load runs ringbench's load on the load's CPUs. The load connects to target, or directly to the
// servers if target is nil. In the result, the target is the first process, and the servers follow.
// The words `before` are a program that starts the load, with its arguments; usually there is none.
func (b *bench) load(ctx context.Context, target *process, servers []*process, s scenario, window time.Duration, before ...string) (load.Result, error) {
	w := s.work
	var pids []string
	to := []string{"-servers", strings.Join(addrs(servers), ",")}
	if target != nil {
		pids = append(pids, strconv.Itoa(target.Process.Pid))
		to = []string{"-addr", target.addr()}
		if target.socket != "" {
			to = []string{"-addr", "unix:" + target.socket}
		}
	}
	for _, server := range servers {
		pids = append(pids, strconv.Itoa(server.Process.Pid))
	}
	// The limit is the measured time, plus ample time for what happens before and after it.
	ctx, cancel := context.WithTimeout(ctx, window+b.Warm+2*time.Minute)
	defer cancel()
	args := slices.Concat(before, []string{b.Self, "load", "-watch", strings.Join(pids, ","),
		"-conns", strconv.Itoa(w.Conns), "-depth", strconv.Itoa(w.Depth), "-keys", strconv.Itoa(w.Keys),
		"-value", strconv.Itoa(w.Value), "-keysize", strconv.Itoa(w.KeySize), "-count", strconv.Itoa(w.Count), "-reads", strconv.Itoa(w.Reads),
		"-rate", fmt.Sprint(w.Rate), "-visit", strconv.Itoa(w.Visit), fmt.Sprintf("-nofill=%t", s.filled), fmt.Sprintf("-lossy=%t", w.Lossy),
		"-warm", b.Warm.String(), "-duration", window.String(), "-timeout", replyTimeout.String()}, to)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var result load.Result
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := b.start(cmd, b.LoadCPUs); err != nil {
		return result, fmt.Errorf("start the load: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		if text := strings.TrimSpace(complaint.String()); text != "" {
			err = errors.New(strings.TrimPrefix(text, "ringbench: "))
		}
		return result, err
	}
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return result, fmt.Errorf("the load's result: %w", err)
	}
	return result, nil
}

// figures converts the result of a load to a run, and decides whether the run was disturbed.
func (b *bench) figures(r load.Result) run {
	if len(r.Processes) == 0 || len(r.Cores) == 0 {
		return run{}
	}
	requests := float64(max(1, r.Requests))
	each := func(d time.Duration) float64 { return float64(d) / 1e3 / requests }
	proxy, ours := r.Processes[0], r.CPU
	x := run{cpu: each(proxy.CPU), loadCPU: each(r.CPU), kernel: float64(proxy.Kernel) / float64(max(1, proxy.CPU)), sleeps: float64(proxy.Sleeps) / requests,
		rate: r.Rate, p50: r.P50, p99: r.P99, memory: float64(proxy.Memory) / 1e6, proxy: proxy, late: r.Late}
	for i, p := range r.Processes {
		ours += p.CPU
		if i > 0 {
			x.servers += each(p.CPU)
			x.serverSleeps += float64(p.Sleeps) / requests
		}
	}
	var busy, steal, wall time.Duration
	for _, core := range r.Cores {
		if slices.Contains(b.ProxyCPUs, core.ID) || slices.Contains(b.LoadCPUs, core.ID) {
			busy += core.Busy()
			steal += core.Steal
			wall += core.Wall
		}
	}
	x.other, x.steal = max(0, float64(busy-ours)/float64(wall)), float64(steal)/float64(wall)
	x.disturbed = x.other > b.Disturbed || x.steal > b.Disturbed/2 || x.late > float64(lateLimit.Microseconds())
	return x
}
