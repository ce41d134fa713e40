//go:build linux

// Package report is what measurements have shown: data, their sums, and pages for people.
package report

// The report as data: what was measured, on what, with what. Who measures fills it in.

import (
	"slices"
	"time"

	"ringside/internal/bench/load"
)

// Direct is the name of the peer that is none: the load asks the servers itself.
const Direct = "direct"

// OverSocket is behind the name of a peer that runs a scenario once more, asked over a
// unix socket.
const OverSocket = ", unix socket"

// OneSlow is behind the name of a peer whose first server is slow now and then; without
// it that server is behind the same forwarder, which holds nothing back.
const OneSlow = ", one slow"

// LateLimit is more than the load's turn on a CPU that it shares with three
// servers makes it wait.
const LateLimit = 25 * time.Millisecond

// RareCall is where a system call is no longer listed: a thousandth of one a
// request. What a connection costs when it comes and goes is mostly below it.
const RareCall = 0.001

// Report is all of a measurement.
type Report struct {
	Date      time.Time `json:"date"`
	Command   string    `json:"command"` // what was asked for, without where the report goes
	Seconds   float64   `json:"seconds"`
	Machine   Machine   `json:"machine"`
	Programs  []Program `json:"programs"`
	Settings  Settings  `json:"settings"`
	Placement string    `json:"placement"` // whether nutcracker's and Ringside's are equal
	Repeated  int       `json:"repeated"`  // runs that were disturbed and made again
	Scenarios []*Result `json:"scenarios"`
	Memory    []Memory  `json:"memory"`
	Curves    []*Curve  `json:"curves,omitempty"`
	Where     []*Where  `json:"where,omitempty"`
	Soak      *Soak     `json:"soak,omitempty"`
	Outages   []*Outage `json:"outages,omitempty"`
	Tails     []*Result `json:"tails,omitempty"`
	Tracer    string    `json:"tracer,omitempty"` // how system calls were counted, or why not
}

// Machine is what the measurement ran on.
type Machine struct {
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	ProxyCPU int    `json:"proxy_cpu"`
	LoadCPUs []int  `json:"load_cpus"`
	Softirq  string `json:"softirq"` // how interrupts are accounted
}

// Program is one peer; without a version it was left out, and the note says why.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Note    string `json:"note"`
}

// Settings are those of the measurement.
type Settings struct {
	Rounds    int           `json:"rounds"`
	Window    time.Duration `json:"window_ns"`
	Warm      time.Duration `json:"warm_ns"`
	Tries     int           `json:"tries"`
	Disturbed float64       `json:"disturbed"`
	GOGC      string        `json:"gogc"`
	Servers   int           `json:"servers"` // unless a scenario says otherwise
	Server    string        `json:"server"`  // their version
}

// Result is what a scenario showed.
type Result struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Base  string        `json:"base"` // the peer that ratios are to
	Work  load.Workload `json:"work"`
	Peers []*Measured   `json:"peers"`
}

// Measured is what a scenario showed of one peer.
type Measured struct {
	Peer    string  `json:"peer"`
	Failure string  `json:"failure,omitempty"` // why it has no more runs
	CPU     Figure  `json:"cpu_us"`
	Total   Figure  `json:"total_us"`                  // with the servers behind it
	Direct  *Spread `json:"total_to_direct,omitempty"` // Total, as a ratio to that of clients that ask the servers themselves
	Rate    Figure  `json:"rate"`
	P50     Figure  `json:"p50_us"`
	P99     Figure  `json:"p99_us"`
	P999    Figure  `json:"p999_us"`
	Runs    []Run   `json:"runs"`
}

// Figure is one quantity of one peer: the value, and round by round its ratio
// to the peer that the scenario compares with.
type Figure struct {
	Value Spread  `json:"value"`
	Ratio *Spread `json:"ratio,omitempty"`
}

// Spread sums up the rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Interval holds the true median with 95 % confidence whatever the
	// distribution, by order statistics; it needs 6 rounds.
	Interval *[2]float64 `json:"interval95,omitempty"`
}

// Run is one measurement of one peer.
type Run struct {
	Round    int         `json:"round"`
	CPU      float64     `json:"cpu_us"`      // of the peer, microseconds a request
	Servers  float64     `json:"servers_us"`  // CPU of the servers behind it, microseconds a request
	CoreBusy float64     `json:"core_us"`     // its CPU's whole busy time, microseconds a request
	Switches float64     `json:"switches"`    // how often it went to sleep, a request
	Rate     float64     `json:"rate"`        // requests a second
	P50      float64     `json:"p50_us"`      //
	P99      float64     `json:"p99_us"`      //
	P999     float64     `json:"p999_us"`     //
	LoadCPU  float64     `json:"load_cpu_us"` // of the load, microseconds a request
	Requests int64       `json:"requests"`
	Apart    *load.Apart `json:"apart,omitempty"`    // latency of reads by whose keys they are
	Good     []int64     `json:"good,omitempty"`     // beside clients that read nothing: by connection, answers without a miss or an error
	GivenUp  int         `json:"given_up,omitempty"` // requests that had no answer when it ended
	Seconds  float64     `json:"seconds"`
	Tries    int         `json:"tries"` // how often it was made until it was undisturbed
	Disturbance
}

// total is what a request costs on both sides of the peer's connections to servers.
func (r Run) total() float64 { return r.CPU + r.Servers }

// Goods are the good answers of all connections.
func (r *Run) Goods() (sum int64) {
	for _, n := range r.Good {
		sum += n
	}
	return sum
}

// Disturbance is what kept a run from having the machine for itself.
type Disturbance struct {
	Other     float64 `json:"other"`     // share of its CPUs that other work took
	Steal     float64 `json:"steal"`     // share that the hypervisor took
	Late      float64 `json:"late_us"`   // the worst delay of the load's clock
	Disturbed bool    `json:"disturbed"` // beyond what the settings allow
}

// Memory is what one proxy held under one load, in bytes.
type Memory struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Peer     string `json:"peer"`
	Anon     int64  `json:"anon"`      // RssAnon when the window ended
	AnonPeak int64  `json:"anon_peak"` // the most seen in the window, read every 20 ms
	Peak     int64  `json:"peak"`      // VmHWM: the most ever resident, files included
	Failure  string `json:"failure,omitempty"`
}

// Curve is how cost grows with one quantity.
type Curve struct {
	ID   string   `json:"id"`
	Name string   `json:"name"`
	Note string   `json:"note,omitempty"` // what a reader must know
	X    string   `json:"x"`              // what varies
	Rows []*Point `json:"rows"`

	Growth string `json:"growth,omitempty"` // how cost may grow with X and be no cliff
}

// Point is one row of a curve: what was measured at one X.
type Point struct {
	X      float64  `json:"x"`
	Label  string   `json:"label"`
	Cliffs []string `json:"cliffs,omitempty"` // which figures of which peer jump here
	Result
}

// Where tells where the time of one scenario goes.
type Where struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Work    load.Workload `json:"work"`
	Peers   []*Spent      `json:"peers"`
	Profile string        `json:"profile,omitempty"` // the file of Ringside's top functions
}

// Spent is what one peer spent on a request.
type Spent struct {
	Peer       string  `json:"peer"`
	CPU        float64 `json:"cpu_us"`      // microseconds a request
	Kernel     float64 `json:"kernel"`      // share of the CPU time in the kernel, sampled at its ticks
	Rate       float64 `json:"rate"`        // requests a second
	Switches   float64 `json:"switches"`    // how often it went to sleep, a request
	Other      float64 `json:"other"`       // share of the CPUs that other work took meanwhile
	TracedRate float64 `json:"traced_rate"` // requests a second while calls were counted
	Calls      []Calls `json:"calls"`       // most frequent first; none where they were not counted
	Loop       *Loop   `json:"loop,omitempty"`
	Failure    string  `json:"failure,omitempty"`
}

// Calls is how often a system call was made, a request.
type Calls struct {
	Name string  `json:"name"`
	Each float64 `json:"each"`
}

// Loop is what Ringside's own counters say, a request.
type Loop struct {
	Wakeups float64 `json:"wakeups"`
	Reads   float64 `json:"reads"`
	Writes  float64 `json:"writes"`
}

// Soak is what a soak showed.
type Soak struct {
	Length  time.Duration `json:"length_ns"`
	Leg     time.Duration `json:"leg_ns"`    // loads but one come and go once a leg, and one server is killed
	Outage  time.Duration `json:"outage_ns"` // for so long
	Kills   int           `json:"kills"`
	Loads   []*Soaked     `json:"loads"`
	Samples []Sample      `json:"samples"`
	Growth  []Growth      `json:"growth"`
	Notes   []string      `json:"notes,omitempty"`
	Failed  []string      `json:"failed,omitempty"`
}

// Soaked is what one load of the mix was given, all its runs together.
type Soaked struct {
	Name    string `json:"name"`
	Runs    int    `json:"runs"`
	Replies int64  `json:"replies"`
	Checked int64  `json:"checked_keys"` // found, and right to the last byte
	Misses  int64  `json:"misses"`
	Errors  int64  `json:"errors"` // SERVER_ERROR
}

// Sample is what Ringside held at one time.
type Sample struct {
	At          time.Duration `json:"at_ns"`
	Rest        bool          `json:"rest"`           // between two legs: only the steady load runs
	Anon        int64         `json:"anon"`           // RssAnon, bytes
	Heap        int64         `json:"heap,omitempty"` // what is alive of Go's heap, bytes; at rest only
	Goroutines  int           `json:"goroutines"`
	Descriptors int           `json:"descriptors"`
	Clients     int           `json:"clients"`
}

// Growth compares the first third of the samples with the last, by medians; a
// quarter of all is left out before, in which pools fill.
type Growth struct {
	What  string  `json:"what"`
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	Bound float64 `json:"bound"` // the most that Last may be
}

// Outage is what clients got while a server was gone.
type Outage struct {
	How       string  `json:"how"` // the server went
	Peer      string  `json:"peer"`
	Before    float64 `json:"before"`       // answers a second
	During    float64 `json:"during"`       // the same while it was gone
	Worst     float64 `json:"worst_second"` // the least in a second of that
	BelowHalf float64 `json:"below_half_s"` // the longest time at less than half of Before, in seconds
	Errors    int64   `json:"errors"`       // SERVER_ERROR, or a connection that was closed
}

// NameMissing names the peers that could have taken part, and why they did not.
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

// results are those of the scenarios and of all points of the curves.
func (r *Report) results() []*Result {
	all := slices.Concat(r.Scenarios, r.Tails)
	for _, c := range r.Curves {
		for _, row := range c.Rows {
			all = append(all, &row.Result)
		}
	}
	return all
}

// Failures lists what went wrong while the rest went on.
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

// disturbed counts runs that stayed disturbed, and all runs.
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
