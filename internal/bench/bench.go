//go:build linux

// Package bench compares the cost and speed of Ringside with those of nutcracker (twemproxy), and
// of clients without a proxy.
//
// Each proxy has three real memcached servers. The proxy under test has a CPU of its own; the load
// and the servers share the other CPUs. Each scenario is measured in rounds. In a round every peer
// runs once, and each round starts with another peer, so that slow changes of the machine affect
// all peers alike. A run uses a fresh process of the peer and one load of package load: fill, warm
// up, measure. The report compares runs of the same round and gives the median ratio and its
// interval.
//
// CPU per request is the CPU time of the peer's process divided by the requests of the window. It
// includes the kernel's network work done in the name of the process.
//
// A run is disturbed if other processes or the hypervisor used more than a given share of its CPUs,
// or if the load's own timers were late. A disturbed run is repeated, up to a limit. The least
// disturbed run is kept, and the report counts those that stayed disturbed.
//
// The peers are:
//
//   - Ringside, and other variants of it: other builds, or other settings.
//   - nutcracker, with the same ketama ring over md5. Ringside is compared with it.
//   - "direct": clients without a proxy. They place the keys by the same ketama ring, and connect
//     to each of the three servers. The servers have the CPU that the proxy would use. A user pays
//     for the CPU time of the proxy and of the servers, so the report compares that sum.
//
// Measure measures scenarios, Outages the replies that clients get while one of three servers is
// down. Soak checks whether Ringside's memory grows while servers are killed and restarted. All of
// them return a Report.
package bench

// This file prepares a measurement: programs, CPUs, servers.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Config says what to measure, with which programs, and on which CPUs.
type Config struct {
	Command    string // command line of ringbench; the report shows it
	Self       string // path of the ringbench binary, which is also the load generator
	Ringside   string
	Nutcracker string // name or path of nutcracker; empty: nutcracker is not measured
	Memcached  string
	Also       []Variant // other variants of Ringside to measure

	Scenarios string        // letters of the scenarios to run
	Rate      float64       // requests per second of scenarios with a fixed rate; 0: their usual rate
	Rounds    int           // how often each scenario is measured; in each round every peer runs once
	Window    time.Duration // length of the measured time of a run
	Warm      time.Duration // how long the load runs before the measured time begins
	Tries     int           // maximum number of attempts of a run that other work on the machine disturbs
	Disturbed float64       // share of a CPU that other processes may use before a run counts as disturbed
	Calls     bool          // also count the system calls of each proxy, under a second load
	ProxyCPUs []int         // numbers of the CPUs on which the proxy under test runs; empty: the last CPU
	LoadCPUs  []int         // numbers of the CPUs for the load and the servers; empty: the first CPU
	Log       *slog.Logger
}

// Variant is another Ringside that is measured to see the effect of a change: another build, or
// other settings.
type Variant struct {
	Name   string
	Binary string
	More   string // additional text of its configuration file, such as "engine: {moderation: off}"; empty: none
}

// serverCount is the number of memcached servers of each proxy.
const serverCount = 3

// bench is a measurement that runs: its programs and its servers.
type bench struct {
	Config
	*starter
	peers   []*peer // in the order of the report
	version string  // the version of memcached
	servers []*process
	began   time.Time
}

// open finds the programs and starts the memcached servers. If the configuration is wrong, it
// returns an error before it starts a process.
func (c Config) open(ctx context.Context) (*bench, error) {
	b := &bench{Config: c, began: time.Now()}
	if err := b.pickCPUs(); err != nil {
		return nil, err
	}
	if err := b.findPeers(); err != nil {
		return nil, err
	}
	if err := raiseDescriptors(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ringbench")
	if err != nil {
		return nil, err
	}
	b.starter = newStarter(dir)
	if b.servers, err = b.startServers(ctx, b.LoadCPUs); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// close stops the servers, and all processes that still run.
func (b *bench) close() {
	stop(b.servers)
	b.starter.close()
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
	if len(b.ProxyCPUs) == 0 {
		b.ProxyCPUs = ids[len(ids)-1:]
	}
	if len(b.LoadCPUs) == 0 {
		b.LoadCPUs = ids[:1]
	}
	for _, id := range slices.Concat(b.ProxyCPUs, b.LoadCPUs) {
		if !slices.Contains(ids, id) {
			return fmt.Errorf("CPU %d may not be used here, only %v", id, ids)
		}
		if slices.Contains(b.LoadCPUs, id) && slices.Contains(b.ProxyCPUs, id) {
			return fmt.Errorf("CPU %d is for the proxy alone, the load cannot have it too", id)
		}
	}
	return nil
}
