//go:build linux

// Package bench measures proxies side by side.
//
// Three real memcached servers stand behind every proxy. The proxy under test
// has one CPU for itself; the load and the servers share the others. For each
// scenario there are rounds; in each round every peer runs once, and each round
// begins with another peer, so that what drifts on the machine meets all alike.
// A run is a fresh process of the peer and one load of package load on it: fill,
// warm up, measure. Ratios compare the runs of one round and are summed up by
// their median, with the least and the greatest beside it.
//
// CPU per request is the process CPU clock of the peer over the requests of the
// window. The kernel's network work counts where it runs in the process's name;
// kernels that account interrupts apart leave part of it out, and the report
// says which kind this one is.
//
// A run is disturbed when other processes or the hypervisor took more than a
// share of the CPUs it used, or when the load's own clock rang late. It is
// repeated, a bounded number of times; the least disturbed stays, and the report
// counts both.
//
// The peers: Ringside; nutcracker with the same ketama ring over md5, which is
// what the others are compared with; haproxy in tcp mode, which cannot split
// keys and so forwards each connection to one server: the cost of forwarding
// alone; memcached's own proxy, with its own placement; and plain memcached, the
// load on it directly, as the floor; and nobody ("direct"): clients that place the keys
// by the same ketama and ask three servers themselves, which have the CPU of the proxy
// that is not there, each on connections of its own. What a user pays for a request is the CPU of the proxy and of
// the servers, and that is compared with theirs. Nutcracker cannot speak meta: quiet
// batches are compared with the floor.
//
// Besides the scenarios (Measure) there are curves, on which one quantity grows
// and a jump is marked (Curves); what the time of a scenario is spent on
// (FindWhere); what clients get while one of three servers is gone (Outages), or slow now
// and then (Tails); and a soak, which asks whether Ringside grows while servers die and come back (RunSoak).
package bench

// The whole measurement, from versions to memory.

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

	"ringside/internal/bench/peers"
	"ringside/internal/bench/proc"
	"ringside/internal/bench/report"
)

// Config says what to measure, with what, and where.
type Config struct {
	Command string // as the report shall say it
	Self    string // the ringbench binary, started as the load
	peers.Binaries
	NoFloor bool // leave the load directly on a server out

	Scenarios string        // the letters to run
	Rounds    int           // of every scenario
	Window    time.Duration // the measured time of a run
	Warm      time.Duration // the load before it
	Memory    bool          // measure memory too
	Tries     int           // how often a disturbed run is made in all
	Disturbed float64       // the share of a CPU that others may use
	ProxyCPU  int           // where the proxy under test runs; -1 picks the last
	LoadCPUs  []int         // where load and servers run; empty picks the first
	Log       *slog.Logger
}

// serverCount is how many memcached stand behind a proxy.
const serverCount = 3

type bench struct {
	Config
	peers     []*peers.Peer // that are here, in the order of the report
	starter   *peers.Starter
	dir       string
	server    string     // the version of memcached
	pool      peers.Pool // behind the proxies
	allCPUs   []int      // that may be used
	proxyCPUs []int
	loops     int           // of Ringside
	timeout   time.Duration // of Ringside's requests; 0 is its default
	repeated  int           // runs that were disturbed and made again
}

// Measure measures all of it. A peer whose replies are wrong does not stop the others: the
// report says so, and so does its Failures.
func Measure(ctx context.Context, c Config) (*report.Report, error) {
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

// begin opens what the scenarios that were asked for are run with, and begins their report.
func (c Config) begin(ctx context.Context) (b *bench, scenarios []scenario, r *report.Report, err error) {
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

// open finds the peers of these names, or all, and starts the servers.
func (c Config) open(ctx context.Context, names ...string) (*bench, error) {
	b := &bench{Config: c, loops: 1, timeout: peers.ReplyTimeout}
	if err := b.pickCPUs(); err != nil {
		return nil, err
	}
	var err error
	if b.peers, b.server, err = peers.FindPeers(c.Binaries, names); err != nil {
		return nil, err
	}
	if err := peers.RaiseDescriptors(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "ringbench"); err != nil {
		return nil, err
	}
	b.starter = peers.NewStarter(b.dir)
	if b.pool, err = b.startPool(ctx, serverCount, 1, b.LoadCPUs); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// startPool starts so many servers, each on so many ports.
func (b *bench) startPool(ctx context.Context, processes, ports int, cpus []int) (peers.Pool, error) {
	return b.starter.StartPool(ctx, b.Memcached, processes, ports, cpus)
}

func (b *bench) close() {
	b.pool.Stop()
	b.starter.Close()
	_ = os.RemoveAll(b.dir) // a leftover in the temporary directory spoils no result
}

// newReport says what is measured on, and with what.
func (b *bench) newReport() *report.Report {
	r := &report.Report{
		Date: time.Now().UTC(), Command: b.Command,
		Machine: report.Machine{
			Kernel: proc.Kernel(), CPU: proc.Model(), CPUs: runtime.NumCPU(),
			ProxyCPU: b.ProxyCPU, LoadCPUs: b.LoadCPUs,
			Softirq: "unknown: this kernel's configuration cannot be read",
		},
		Settings: report.Settings{
			Rounds: b.Rounds, Window: b.Window, Warm: b.Warm, Tries: b.Tries, Disturbed: b.Disturbed,
			GOGC: "not set (100)", Servers: serverCount, Server: b.server,
		},
		Memory: []report.Memory{},
	}
	if apart, known := proc.SoftirqApart(); apart {
		r.Machine.Softirq = "apart: CPU per request lacks the network's interrupts"
	} else if known {
		r.Machine.Softirq = "within the process that they interrupt"
	}
	if value := os.Getenv("GOGC"); value != "" {
		r.Settings.GOGC = value
	}
	for _, p := range b.peers {
		r.Programs = append(r.Programs, report.Program{Name: p.Name, Version: p.Version, Note: p.Note})
	}
	return r
}

// finish fills in what is known when all is measured.
func (b *bench) finish(r *report.Report) *report.Report {
	r.Repeated = b.repeated
	r.Seconds = time.Since(r.Date).Seconds()
	return r
}

// pickCPUs fills in what the configuration leaves open and checks the rest.
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

// comparePlacement fills through nutcracker and reads through Ringside, and then
// from the servers: with equal placement every key is found.
func (b *bench) comparePlacement(ctx context.Context) (string, error) {
	named := make(map[string]*peers.Peer)
	for _, p := range b.peers {
		named[p.Name] = p
	}
	if named["ringside"] == nil {
		return "not compared: Ringside is not here", nil
	}
	s := scenario{ID: "placement", Name: "placement", Work: text(10, 1)}
	s.Work.Reads, s.Work.KeySize = 100, 24 // keys that no other scenario writes
	if _, err := b.once(ctx, named["nutcracker"], s, time.Second/5); err != nil {
		return "", err
	}
	s.filled = true
	_, err := b.once(ctx, named["ringside"], s, time.Second/5)
	if err == nil { // and so does the load, which asks the servers
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
