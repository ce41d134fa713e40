//go:build linux

package bench

// This part of the package contains the results of measurements: the data, their summaries, and their
// presentation as Markdown.

// The report as data: what was measured, on which machine, with which programs.

import (
	"slices"
	"time"

	"ringside/internal/bench/load"
)

// Direct is the name of the measurement without a proxy: the load generator sends its requests to
// the servers.
const Direct = "direct"

// OverSocket is the suffix of the name of a proxy that runs a scenario again, over a unix socket.
const OverSocket = ", unix socket"

// OneSlow is the suffix of the name of a proxy if the first of its servers delays some replies. For
// comparison, the proxy also runs without the suffix: then the same forwarder is in front of that
// server, but delays nothing.
const OneSlow = ", one slow"

// lateLimit is the delay of the load's timer from which a run counts as disturbed. The load shares
// a CPU with three servers, and without a disturbance it waits less than this for its turn.
const lateLimit = 25 * time.Millisecond

// rareCall is the number of calls per request below which a system call is not listed. Most calls
// for opening and closing connections are below it.
const rareCall = 0.001

// Report contains all results of a measurement.
type Report struct {
	Date      time.Time `json:"date"`
	Command   string    `json:"command"` // command line, without binaries and output files
	Seconds   float64   `json:"seconds"`
	Machine   Machine   `json:"machine"`
	Programs  []Program `json:"programs"`
	Settings  Settings  `json:"settings"`
	Placement string    `json:"placement"` // whether nutcracker and Ringside place keys equally
	Repeated  int       `json:"repeated"`  // disturbed runs that were repeated
	Scenarios []*Result `json:"scenarios"`
	Memory    []Memory  `json:"memory"`
	Curves    []*Curve  `json:"curves,omitempty"`
	Where     []*Where  `json:"where,omitempty"`
	Soak      *Soak     `json:"soak,omitempty"`
	Outages   []*Outage `json:"outages,omitempty"`
	Tails     []*Result `json:"tails,omitempty"`
	Tracer    string    `json:"tracer,omitempty"` // how system calls were counted, or why they were not
}

// Machine is the machine of the measurement.
type Machine struct {
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	ProxyCPU int    `json:"proxy_cpu"`
	LoadCPUs []int  `json:"load_cpus"`
	Softirq  string `json:"softirq"` // how the kernel accounts for interrupts
}

// Program is one of the compared programs. If it has no version, it did not take part, and the note
// says why.
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
	Base  string        `json:"base"` // the peer with which the others are compared
	Work  load.Workload `json:"work"`
	Peers []*Measured   `json:"peers"`
}

// Measured is the result of one peer in a scenario.
type Measured struct {
	Peer    string  `json:"peer"`
	Failure string  `json:"failure,omitempty"` // why the program has no further runs; empty: no failure
	CPU     Figure  `json:"cpu_us"`
	Total   Figure  `json:"total_us"`                  // CPU time per request, of the program and its servers
	Direct  *Spread `json:"total_to_direct,omitempty"` // Total as a ratio to that of direct
	Rate    Figure  `json:"rate"`
	P50     Figure  `json:"p50_us"`
	P99     Figure  `json:"p99_us"`
	P999    Figure  `json:"p999_us"`
	Runs    []Run   `json:"runs"`
}

// Figure is one quantity of one peer: the value, and the ratio in each round to the peer that the
// scenario compares with.
type Figure struct {
	Value Spread  `json:"value"`
	Ratio *Spread `json:"ratio,omitempty"`
}

// Spread summarizes the rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Interval contains the true median with 95 % confidence for any distribution, by order
	// statistics. It needs 6 rounds; nil: fewer.
	Interval *[2]float64 `json:"interval95,omitempty"`
}

// Run is one measurement of one peer.
type Run struct {
	Round    int         `json:"round"`
	CPU      float64     `json:"cpu_us"`      // of the peer, microseconds per request
	Servers  float64     `json:"servers_us"`  // CPU of its servers, microseconds per request
	CoreBusy float64     `json:"core_us"`     // busy time of the proxy's CPU, microseconds per request
	Switches float64     `json:"switches"`    // how often threads of the program went to sleep, per request
	Rate     float64     `json:"rate"`        // requests a second
	P50      float64     `json:"p50_us"`      //
	P99      float64     `json:"p99_us"`      //
	P999     float64     `json:"p999_us"`     //
	LoadCPU  float64     `json:"load_cpu_us"` // of the load, microseconds per request
	Requests int64       `json:"requests"`
	Apart    *load.Apart `json:"apart,omitempty"`    // latency of reads, by server of the key
	Good     []int64     `json:"good,omitempty"`     // only in scenarios with clients that read no replies: for each connection of the other clients, the replies without a miss or an error
	GivenUp  int         `json:"given_up,omitempty"` // requests without a reply at the end of the run
	Seconds  float64     `json:"seconds"`
	Tries    int         `json:"tries"` // how often the run was made before it was kept
	Disturbance
}

// total is the cost of a request in the peer and in its servers.
func (r Run) total() float64 { return r.CPU + r.Servers }

// Goods returns the number of good replies on all connections.
func (r *Run) Goods() (sum int64) {
	for _, n := range r.Good {
		sum += n
	}
	return sum
}

// Disturbance says how much other work the machine did during a run.
type Disturbance struct {
	Other     float64 `json:"other"`     // share of its CPUs used by other processes
	Steal     float64 `json:"steal"`     // share used by the hypervisor
	Late      float64 `json:"late_us"`   // greatest delay of the load's timer
	Disturbed bool    `json:"disturbed"` // beyond the limits of the settings
}

// Memory is the memory of one proxy under one load, in bytes.
type Memory struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Peer     string `json:"peer"`
	Anon     int64  `json:"anon"`      // RssAnon at the end of the window
	AnonPeak int64  `json:"anon_peak"` // greatest RssAnon in the window, sampled every 20 ms
	Peak     int64  `json:"peak"`      // VmHWM: peak resident memory, including files
	Failure  string `json:"failure,omitempty"`
}

// Curve shows how cost grows with one quantity.
type Curve struct {
	ID   string   `json:"id"`
	Name string   `json:"name"`
	Note string   `json:"note,omitempty"` // what the reader must know
	X    string   `json:"x"`              // the quantity that varies
	Rows []*Point `json:"rows"`

	Growth string `json:"growth,omitempty"` // how much cost may grow with X without being a cliff
}

// Point is one row of a curve: the result at one X.
type Point struct {
	X      float64  `json:"x"`
	Label  string   `json:"label"`
	Cliffs []string `json:"cliffs,omitempty"` // programs and figures that are much worse than in the row before: see cliffs.go
	Result
}

// Where shows how CPU time is spent in one scenario.
type Where struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Work    load.Workload `json:"work"`
	Peers   []*Spent      `json:"peers"`
	Profile string        `json:"profile,omitempty"` // file with Ringside's top functions
}

// Spent is the cost of a request in one peer.
type Spent struct {
	Peer       string  `json:"peer"`
	CPU        float64 `json:"cpu_us"`      // microseconds per request
	Kernel     float64 `json:"kernel"`      // share of the CPU time in the kernel, sampled at its ticks
	Rate       float64 `json:"rate"`        // requests a second
	Switches   float64 `json:"switches"`    // how often it went to sleep, per request
	Other      float64 `json:"other"`       // share of the CPUs used by other processes
	TracedRate float64 `json:"traced_rate"` // requests a second while system calls were counted
	Calls      []Calls `json:"calls"`       // most frequent first; nil: not counted
	Loop       *Loop   `json:"loop,omitempty"`
	Failure    string  `json:"failure,omitempty"`
}

// Calls is how often a system call was made, per request.
type Calls struct {
	Name string  `json:"name"`
	Each float64 `json:"each"`
}

// Loop is Ringside's own counters, per request.
type Loop struct {
	Wakeups float64 `json:"wakeups"`
	Reads   float64 `json:"reads"`
	Writes  float64 `json:"writes"`
}

// Soak is the result of a soak.
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

// Soaked is the result of one load of the mix, over all its runs.
type Soaked struct {
	Name    string `json:"name"`
	Runs    int    `json:"runs"`
	Replies int64  `json:"replies"`
	Checked int64  `json:"checked_keys"` // keys found with every byte of the value right
	Misses  int64  `json:"misses"`
	Errors  int64  `json:"errors"` // SERVER_ERROR replies
}

// Sample is Ringside's resource usage at one time.
type Sample struct {
	At          time.Duration `json:"at_ns"`
	Rest        bool          `json:"rest"`           // between two legs, when only the steady load runs
	Anon        int64         `json:"anon"`           // RssAnon, bytes
	Heap        int64         `json:"heap,omitempty"` // live part of Go's heap, in bytes; only at rest
	Goroutines  int           `json:"goroutines"`
	Descriptors int           `json:"descriptors"`
	Clients     int           `json:"clients"`
}

// Growth compares the medians of the first and the last third of the samples. It ignores a first
// quarter of the samples, in which pools fill.
type Growth struct {
	What  string  `json:"what"`
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	Bound float64 `json:"bound"` // limit of Last
}

// Outage is the result for clients while a server was down.
type Outage struct {
	How       string  `json:"how"` // how the server was removed
	Peer      string  `json:"peer"`
	Before    float64 `json:"before"`       // replies per second before the outage
	During    float64 `json:"during"`       // replies per second during the outage
	Worst     float64 `json:"worst_second"` // fewest replies in one second of the outage
	BelowHalf float64 `json:"below_half_s"` // longest time below half of Before, in seconds
	Errors    int64   `json:"errors"`       // SERVER_ERROR replies and closed connections
}

// NameMissing adds the peers that did not take part, with the reason.
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

// results returns the results of the scenarios, of the tails and of all points of the curves.
func (r *Report) results() []*Result {
	all := slices.Concat(r.Scenarios, r.Tails)
	for _, c := range r.Curves {
		for _, row := range c.Rows {
			all = append(all, &row.Result)
		}
	}
	return all
}

// Failures lists the failures of peers, of the soak and of memory measurements. They did not stop
// the rest.
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

// disturbed counts the runs that were still disturbed at their last try, and all runs.
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
