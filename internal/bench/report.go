//go:build linux

package bench

// This part of the package contains the results of measurements: the data, their summaries, and their
// presentation as Markdown.

// This file defines the report as data: what was measured, on which machine, with which programs.

import (
	"slices"
	"time"

	"ringside/internal/bench/load"
)

// Direct is the name of the peer without a proxy: the load generator connects to the servers
// itself.
const Direct = "direct"

// OverSocket is the suffix of the name of a proxy in results that were measured over a unix socket.
const OverSocket = ", unix socket"

// OneSlow is the suffix of the name of a proxy in results with one slow server. A forwarder in
// front of the first server then delays some replies. In the results without the suffix, the same
// forwarder delays nothing.
const OneSlow = ", one slow"

// lateLimit is the delay of the load generator's timer from which a run counts as disturbed. The
// load generator shares a CPU with three servers. Without a disturbance, it waits for the CPU less
// than this time.
const lateLimit = 25 * time.Millisecond

// rareCall is the number of calls per request below which the report does not list a system call.
// Most calls that open and close connections are so rare.
const rareCall = 0.001

// Report contains all results of a measurement.
type Report struct {
	Date      time.Time `json:"date"`
	Command   string    `json:"command"` // command line of ringbench, without the names of binaries and output files
	Seconds   float64   `json:"seconds"`
	Machine   Machine   `json:"machine"`
	Programs  []Program `json:"programs"`
	Settings  Settings  `json:"settings"`
	Placement string    `json:"placement"` // whether nutcracker and Ringside place keys equally
	Repeated  int       `json:"repeated"`  // number of disturbed runs that were repeated
	Scenarios []*Result `json:"scenarios"`
	Memory    []Memory  `json:"memory"`
	Curves    []*Curve  `json:"curves,omitempty"`
	Where     []*Where  `json:"where,omitempty"`
	Soak      *Soak     `json:"soak,omitempty"`
	Outages   []*Outage `json:"outages,omitempty"`
	Tails     []*Result `json:"tails,omitempty"`
	Tracer    string    `json:"tracer,omitempty"` // how the system calls were counted, or why they were not counted
}

// Machine is the machine of the measurement.
type Machine struct {
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	ProxyCPU int    `json:"proxy_cpu"`
	LoadCPUs []int  `json:"load_cpus"`
	Softirq  string `json:"softirq"` // whether the kernel counts interrupt time separately from the time of processes
}

// Program is one of the compared programs. If its version is empty, the program was not measured,
// and its note says why.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Note    string `json:"note"`
}

// Settings are the settings of the measurement.
type Settings struct {
	Rounds    int           `json:"rounds"`
	Window    time.Duration `json:"window_ns"`
	Warm      time.Duration `json:"warm_ns"`
	Tries     int           `json:"tries"`
	Disturbed float64       `json:"disturbed"`
	GOGC      string        `json:"gogc"`
	Servers   int           `json:"servers"` // number of servers, unless the scenario says otherwise
	Server    string        `json:"server"`  // version of the servers
}

// Result is the result of a scenario.
type Result struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Base  string        `json:"base"` // name of the peer with which the other peers are compared
	Work  load.Workload `json:"work"`
	Peers []*Measured   `json:"peers"`
}

// Measured is the result of one peer in a scenario.
type Measured struct {
	Peer    string  `json:"peer"`
	Failure string  `json:"failure,omitempty"` // why this peer has no further runs; empty: no failure
	CPU     Figure  `json:"cpu_us"`
	Total   Figure  `json:"total_us"`                  // CPU time per request of the peer and its servers together, in microseconds
	Direct  *Spread `json:"total_to_direct,omitempty"` // ratio of the total CPU time per request to that of clients without a proxy; nil: not measured
	Rate    Figure  `json:"rate"`
	P50     Figure  `json:"p50_us"`
	P99     Figure  `json:"p99_us"`
	P999    Figure  `json:"p999_us"`
	Runs    []Run   `json:"runs"`
}

// Figure is one quantity of one peer: its value, and its ratio to the peer with which the scenario
// compares. There is one ratio for each round.
type Figure struct {
	Value Spread  `json:"value"`
	Ratio *Spread `json:"ratio,omitempty"`
}

// Spread summarizes one quantity over all rounds of a scenario.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Interval contains the true median with 95 % confidence, whatever the distribution is. It is
	// computed from order statistics. It is nil if there are fewer than 6 rounds.
	Interval *[2]float64 `json:"interval95,omitempty"`
}

// Run is one measurement of one peer. The peer and its load run once for it.
type Run struct {
	Round    int         `json:"round"`
	CPU      float64     `json:"cpu_us"`      // CPU time of the peer, in microseconds per request
	Servers  float64     `json:"servers_us"`  // CPU time of the peer's servers, in microseconds per request
	CoreBusy float64     `json:"core_us"`     // time in which the proxy's CPU was busy, in microseconds per request
	Switches float64     `json:"switches"`    // how often threads of the peer went to sleep, per request
	Rate     float64     `json:"rate"`        // requests per second
	P50      float64     `json:"p50_us"`      //
	P99      float64     `json:"p99_us"`      //
	P999     float64     `json:"p999_us"`     //
	LoadCPU  float64     `json:"load_cpu_us"` // CPU time of the load generator, in microseconds per request
	Requests int64       `json:"requests"`
	Apart    *load.Apart `json:"apart,omitempty"`    // latency of the reads of one server's keys, and of all other reads; nil: not separated
	Good     []int64     `json:"good,omitempty"`     // for each connection of the load, the number of replies without a miss or an error; only if other clients read no replies
	GivenUp  int         `json:"given_up,omitempty"` // requests without a reply at the end of the run
	Seconds  float64     `json:"seconds"`
	Tries    int         `json:"tries"` // number of attempts of this run, of which the least disturbed is in the report
	Disturbance
}

// total is the CPU time of a request in the peer and in its servers together, in microseconds.
func (r Run) total() float64 { return r.CPU + r.Servers }

// Goods returns how many replies without a miss or an error arrived, on all connections together.
func (r *Run) Goods() (sum int64) {
	for _, n := range r.Good {
		sum += n
	}
	return sum
}

// Disturbance says how much other work the machine did during a run.
type Disturbance struct {
	Other     float64 `json:"other"`     // share of the measured CPUs that other processes used, 0 to 1
	Steal     float64 `json:"steal"`     // share of the measured CPUs that the hypervisor used for other machines, 0 to 1
	Late      float64 `json:"late_us"`   // greatest delay of the load generator's timer, in microseconds
	Disturbed bool    `json:"disturbed"` // one of the values is greater than the limit for it, so the run was repeated if possible
}

// Memory is the memory of one proxy under one load, in bytes.
type Memory struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Peer     string `json:"peer"`
	Anon     int64  `json:"anon"`      // anonymous resident memory (RssAnon) at the end of the measured time, in bytes
	AnonPeak int64  `json:"anon_peak"` // greatest anonymous resident memory (RssAnon) in the measured time, in bytes, sampled every 20 ms
	Peak     int64  `json:"peak"`      // greatest resident memory since the start, including files (VmHWM), in bytes
	Failure  string `json:"failure,omitempty"`
}

// Curve shows how cost grows with one quantity.
type Curve struct {
	ID   string   `json:"id"`
	Name string   `json:"name"`
	Note string   `json:"note,omitempty"` // what the reader of the curve must know
	X    string   `json:"x"`              // the quantity that varies
	Rows []*Point `json:"rows"`

	Growth string `json:"growth,omitempty"` // how much the cost may grow with X before a row counts as a cliff, in words
}

// Point is one row of a curve: the results at one value of the quantity that varies.
type Point struct {
	X      float64  `json:"x"`
	Label  string   `json:"label"`
	Cliffs []string `json:"cliffs,omitempty"` // peers and figures of this row that are much worse than in the row before, in words
	Result
}

// Where shows how CPU time is spent in one scenario.
type Where struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Work    load.Workload `json:"work"`
	Peers   []*Spent      `json:"peers"`
	Profile string        `json:"profile,omitempty"` // name of the file with the functions in which Ringside spends most time; empty: none
}

// Spent is what a request costs in one peer, and how the CPU time is spent.
type Spent struct {
	Peer       string  `json:"peer"`
	CPU        float64 `json:"cpu_us"`      // CPU time of the peer in microseconds per request
	Kernel     float64 `json:"kernel"`      // share of the CPU time that is spent in the kernel, 0 to 1; the kernel samples it at its ticks
	Rate       float64 `json:"rate"`        // requests per second
	Switches   float64 `json:"switches"`    // how often threads of the peer went to sleep, per request
	Other      float64 `json:"other"`       // share of the measured CPUs that other processes used, 0 to 1
	TracedRate float64 `json:"traced_rate"` // requests per second while system calls were counted
	Calls      []Calls `json:"calls"`       // system calls per request, the most frequent first; nil: they were not counted
	Loop       *Loop   `json:"loop,omitempty"`
	Failure    string  `json:"failure,omitempty"`
}

// Calls is the frequency of one system call, per request.
type Calls struct {
	Name string  `json:"name"`
	Each float64 `json:"each"`
}

// Loop has values of Ringside's own counters of its loops, divided by the number of requests.
type Loop struct {
	Wakeups float64 `json:"wakeups"`
	Reads   float64 `json:"reads"`
	Writes  float64 `json:"writes"`
}

// Soak is the result of a soak: a mixed load for a long time, while servers are killed.
type Soak struct {
	Length  time.Duration `json:"length_ns"`
	Leg     time.Duration `json:"leg_ns"`    // length of a leg: in each, all loads but one run once and one server is killed
	Outage  time.Duration `json:"outage_ns"` // how long the killed server is down
	Kills   int           `json:"kills"`
	Loads   []*Soaked     `json:"loads"`
	Samples []Sample      `json:"samples"`
	Growth  []Growth      `json:"growth"`
	Notes   []string      `json:"notes,omitempty"`
	Failed  []string      `json:"failed,omitempty"`
}

// Soaked is the result of one of the loads of a soak, over all runs of that load.
type Soaked struct {
	Name    string `json:"name"`
	Runs    int    `json:"runs"`
	Replies int64  `json:"replies"`
	Checked int64  `json:"checked_keys"` // number of keys that were found with the right value; every byte of the value was compared
	Misses  int64  `json:"misses"`
	Errors  int64  `json:"errors"` // number of SERVER_ERROR replies
}

// Sample is Ringside's resource usage at one time.
type Sample struct {
	At          time.Duration `json:"at_ns"`
	Rest        bool          `json:"rest"`           // the sample was taken between two legs of the soak, when only one steady load runs
	Anon        int64         `json:"anon"`           // anonymous resident memory (RssAnon) of Ringside, in bytes
	Heap        int64         `json:"heap,omitempty"` // live part of Go's heap, in bytes; measured only when most loads do not run
	Goroutines  int           `json:"goroutines"`
	Descriptors int           `json:"descriptors"`
	Clients     int           `json:"clients"`
}

// Growth compares an early and a late value of one of Ringside's resources during a soak. First and
// Last are medians of the first and the last third of the samples. The first quarter of all samples
// is left out, because buffers and pools fill in that time.
type Growth struct {
	What  string  `json:"what"`
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	Bound float64 `json:"bound"` // greatest allowed value of Last
}

// Outage is the result for clients while a server was down.
type Outage struct {
	How       string  `json:"how"` // how the server was removed
	Peer      string  `json:"peer"`
	Before    float64 `json:"before"`       // replies per second before the outage
	During    float64 `json:"during"`       // replies per second during the outage
	Worst     float64 `json:"worst_second"` // fewest replies in one second of the outage
	BelowHalf float64 `json:"below_half_s"` // longest time for which the reply rate was below half of the rate before the outage, in seconds
	Errors    int64   `json:"errors"`       // SERVER_ERROR replies and closed connections
}

// NameMissing adds to the report the peers that did not take part, with the reason.
func (r *Report) NameMissing() {
	here := make(map[string]bool)
	for _, p := range r.Programs {
		here[p.Name] = true
	}
	for _, p := range []Program{
		{Name: "ringside", Note: "left out: -ringside names no binary"},
		{Name: "haproxy", Note: "left out: -haproxy names no program that is here"},
		{Name: "memcached proxy", Note: "left out: MEMCACHED_PROXY names no binary"},
	} {
		if !here[p.Name] {
			r.Programs = append(r.Programs, p)
		}
	}
}

// results returns all results of the report: those of the scenarios, of the tails, and of the
// points of the curves.
func (r *Report) results() []*Result {
	all := slices.Concat(r.Scenarios, r.Tails)
	for _, c := range r.Curves {
		for _, row := range c.Rows {
			all = append(all, &row.Result)
		}
	}
	return all
}

// Failures lists the failures of peers, of the soak and of memory measurements. The report has all
// other results in spite of them.
func (r *Report) Failures() []string {
	var all []string
	look := func(where string, peers []*Measured) {
		for _, m := range peers {
			if m.Failure != "" {
				all = append(all, where+": "+m.Failure)
			}
		}
	}
	for _, s := range r.Scenarios {
		look("scenario "+s.ID, s.Peers)
	}
	for _, c := range r.Curves {
		for _, row := range c.Rows {
			look("curve "+row.ID, row.Peers)
		}
	}
	for _, s := range r.Tails {
		look("tails, "+s.ID, s.Peers)
	}
	for _, w := range r.Where {
		for _, p := range w.Peers {
			if p.Failure != "" {
				all = append(all, "where, "+w.ID+": "+p.Failure)
			}
		}
	}
	if r.Soak != nil {
		for _, failed := range r.Soak.Failed {
			all = append(all, "soak: "+failed)
		}
	}
	for _, m := range r.Memory {
		if m.Failure != "" {
			all = append(all, "memory, "+m.ID+": "+m.Failure)
		}
	}
	return all
}

// disturbed counts the runs that were still disturbed at their last attempt (kept), and all runs.
func (r *Report) disturbed() (kept, runs int) {
	for _, s := range r.results() {
		for _, m := range s.Peers {
			for _, run := range m.Runs {
				runs++
				if run.Disturbed {
					kept++
				}
			}
		}
	}
	return kept, runs
}
