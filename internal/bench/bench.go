//go:build linux

// Package bench compares the cost and speed of memcached proxies.
//
// Each proxy has three real memcached servers. The proxy under test has a CPU of its own; the load
// and the servers share the other CPUs. Each scenario is measured in rounds. In a round every peer
// runs once, and each round starts with another peer, so that slow changes of the machine affect
// all peers alike. A run uses a fresh process of the peer and one load of package load: fill, warm
// up, measure. The report compares runs of the same round and gives the median, least and greatest
// ratio.
//
// CPU per request is the CPU time of the peer's process divided by the requests of the window. It
// includes the kernel's network work done in the name of the process. Kernels that account for
// interrupts separately leave out a part of that work; the report says what this kernel does.
//
// A run is disturbed if other processes or the hypervisor used more than a given share of its CPUs,
// or if the load's own timers were late. A disturbed run is repeated, up to a limit. The least
// disturbed run is kept, and the report counts both.
//
// The peers are:
//
//   - Ringside.
//   - nutcracker, with the same ketama ring over md5. The other peers are compared with it. It does
//     not support the meta protocol, so quiet batches are compared with memcached.
//   - haproxy in TCP mode. It cannot distribute keys, so it forwards each connection to one server.
//     This is the cost of forwarding alone.
//   - memcached's own proxy, with its own placement of keys.
//   - Plain memcached, without a proxy: the floor.
//   - "direct": clients without a proxy. They place the keys by the same ketama ring, and connect
//     to each of the three servers. The servers have the CPU that the proxy would use. A user pays
//     for the CPU time of the proxy and of the servers, so the report compares that sum.
//
// Besides the scenarios (Measure), the package measures curves on which one quantity grows, and
// marks jumps (Curves). FindWhere shows how the time of a scenario is spent. Outages shows the
// replies that clients get while one of three servers is down, and Tails those while one is slow
// for a part of its replies. RunSoak checks whether Ringside's memory grows while servers are
// killed and restarted.
package bench

// This file runs the whole measurement. It finds the versions of the programs, runs the scenarios
// and measures memory.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ringside/internal/bench/load"
)

// Config says what to measure, with which programs, and on which CPUs.
type Config struct {
	Command string // command line of ringbench; the report shows it
	Self    string // path of the ringbench binary, which is also the load generator
	Binaries
	NoFloor bool // do not run the scenarios on plain memcached, without a proxy

	Scenarios string        // letters of the scenarios to run
	Rounds    int           // how often each scenario is measured; in each round every peer runs once
	Window    time.Duration // length of the measured time of a run
	Warm      time.Duration // how long the load runs before the measured time begins
	Memory    bool          // also measure memory
	Tries     int           // maximum number of attempts of a run that other work on the machine disturbs
	Disturbed float64       // share of a CPU that other processes may use before a run counts as disturbed
	ProxyCPU  int           // number of the CPU on which the proxy under test runs; -1: the last CPU
	LoadCPUs  []int         // numbers of the CPUs for the load and the servers; empty: the first CPU
	Log       *slog.Logger
}

// serverCount is the number of memcached servers of each proxy.
const serverCount = 3

type bench struct {
	Config
	peers     []*Peer // available peers, in the order of the report
	starter   *Starter
	dir       string
	server    string // the version of memcached
	pool      Pool   // the memcached servers that the proxies use
	allCPUs   []int  // CPUs that this process may use
	proxyCPUs []int
	loops     int           // number of Ringside's loops
	timeout   time.Duration // request timeout of Ringside; 0: its default
	repeated  int           // number of disturbed runs that were repeated
}

// Measure runs the scenarios, and measures memory if the configuration says so. If a peer sends
// wrong replies, the other peers are measured all the same. The report then contains the error: see
// its method Failures.
func Measure(ctx context.Context, c Config) (*Report, error) {
	b, scenarios, r, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	for _, s := range scenarios {
		result, err := b.scenario(ctx, s)
		if err != nil {
			return nil, err
		}
		r.Scenarios = append(r.Scenarios, result)
	}
	if c.Memory {
		if r.Memory, err = b.memory(ctx); err != nil {
			return nil, err
		}
	}
	return b.finish(r), nil
}

// begin prepares the scenarios that the configuration requests, and starts their report.
func (c Config) begin(ctx context.Context) (b *bench, scenarios []scenario, r *Report, err error) {
	if scenarios, err = pickScenarios(c.Scenarios); err != nil {
		return nil, nil, nil, err
	}
	if b, err = c.open(ctx); err != nil {
		return nil, nil, nil, err
	}
	r = b.newReport()
	r.NameMissing()
	if r.Placement, err = b.comparePlacement(ctx); err != nil {
		b.close()
	}
	return b, scenarios, r, err
}

// open finds the peers with the given names, or all peers if there are no names. It also starts the
// memcached servers.
func (c Config) open(ctx context.Context, names ...string) (*bench, error) {
	b := &bench{Config: c, loops: 1, timeout: replyTimeout}
	if err := b.pickCPUs(); err != nil {
		return nil, err
	}
	var err error
	if b.peers, b.server, err = findPeers(c.Binaries, names); err != nil {
		return nil, err
	}
	if err := raiseDescriptors(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "ringbench"); err != nil {
		return nil, err
	}
	b.starter = newStarter(b.dir)
	if b.pool, err = b.startPool(ctx, serverCount, 1, b.LoadCPUs); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// startPool starts the given number of memcached processes, each with the given number of ports.
func (b *bench) startPool(ctx context.Context, processes, ports int, cpus []int) (Pool, error) {
	return b.starter.StartPool(ctx, b.Memcached, processes, ports, cpus)
}

func (b *bench) close() {
	b.pool.Stop()
	b.starter.Close()
	_ = os.RemoveAll(b.dir) // files that stay in the temporary directory do not change the results
}

// newReport returns a report that describes the machine, the programs and the settings. It has no
// results yet.
func (b *bench) newReport() *Report {
	r := &Report{
		Date: time.Now().UTC(), Command: b.Command,
		Machine: Machine{
			Kernel: load.Kernel(), CPU: load.Model(), CPUs: runtime.NumCPU(),
			ProxyCPU: b.ProxyCPU, LoadCPUs: b.LoadCPUs,
			Softirq: "unknown: this kernel's configuration cannot be read",
		},
		Settings: Settings{
			Rounds: b.Rounds, Window: b.Window, Warm: b.Warm, Tries: b.Tries, Disturbed: b.Disturbed,
			GOGC: "not set (100)", Servers: serverCount, Server: b.server,
		},
		Memory: []Memory{},
	}
	if apart, known := load.SoftirqApart(); apart {
		r.Machine.Softirq = "apart: CPU per request lacks the network's interrupts"
	} else if known {
		r.Machine.Softirq = "within the process that they interrupt"
	}
	if value := os.Getenv("GOGC"); value != "" {
		r.Settings.GOGC = value
	}
	for _, p := range b.peers {
		r.Programs = append(r.Programs, Program{Name: p.Name, Version: p.Version, Note: p.Note})
	}
	return r
}

// finish adds to the report r what is known only after all runs: the number of repeated runs and
// the total time.
func (b *bench) finish(r *Report) *Report {
	r.Repeated = b.repeated
	r.Seconds = time.Since(r.Date).Seconds()
	return r
}

// pickCPUs chooses the CPUs that the configuration does not name, and checks those that it names.
func (b *bench) pickCPUs() error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("which CPUs there are: %w", err)
	}
	var ids []int
	for id := range 1024 {
		if allowed.IsSet(id) {
			ids = append(ids, id)
		}
	}
	if len(ids) < 2 {
		return errors.New("one CPU is too few: the proxy needs one, the load and the servers another")
	}
	if b.ProxyCPU < 0 {
		b.ProxyCPU = ids[len(ids)-1]
	}
	if len(b.LoadCPUs) == 0 {
		b.LoadCPUs = []int{ids[0]}
	}
	for _, id := range append([]int{b.ProxyCPU}, b.LoadCPUs...) {
		if !slices.Contains(ids, id) {
			return fmt.Errorf("CPU %d may not be used here, only %v", id, ids)
		}
	}
	if slices.Contains(b.LoadCPUs, b.ProxyCPU) {
		return fmt.Errorf("CPU %d is for the proxy alone, the load cannot have it too", b.ProxyCPU)
	}
	b.allCPUs, b.proxyCPUs = ids, []int{b.ProxyCPU}
	return nil
}

// comparePlacement checks that Ringside, the load generator and nutcracker place keys on the same
// servers. It writes keys through nutcracker. It then reads them through Ringside, and directly
// from the servers that the load generator chooses. If the placement is equal, every key is found.
func (b *bench) comparePlacement(ctx context.Context) (string, error) {
	named := make(map[string]*Peer)
	for _, p := range b.peers {
		named[p.Name] = p
	}
	if named["ringside"] == nil {
		return "not compared: Ringside is not here", nil
	}
	s := scenario{ID: "placement", Name: "placement", Work: text(10, 1)}
	s.Work.Reads, s.Work.KeySize = 100, 24 // keys of this size are not written by other scenarios
	if _, err := b.once(ctx, named["nutcracker"], s, time.Second/5); err != nil {
		return "", err
	}
	s.filled = true
	_, err := b.once(ctx, named["ringside"], s, time.Second/5)
	if err == nil { // the load generator places keys itself, too, so it is checked in the same way
		_, err = b.load(ctx, nil, s, time.Second/5)
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil && strings.Contains(err.Error(), "a miss"):
		return fmt.Sprintf("different: what nutcracker wrote is not where it is looked for: %v", err), nil
	case err != nil:
		return fmt.Sprintf("not compared: %v", err), nil
	}
	return fmt.Sprintf("equal: Ringside finds the %d keys that nutcracker wrote, and so does the load that places keys itself", s.Work.Count), nil
}
