//go:build linux

package bench

// The report: what was measured, on what, with what.

import (
	"os"
	"runtime"
	"slices"
	"time"

	"ringside/internal/bench/proc"
)

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

func (b *bench) newReport() *Report {
	r := &Report{
		Date: time.Now().UTC(), Command: b.Command,
		Machine: Machine{
			Kernel: proc.Kernel(), CPU: proc.Model(), CPUs: runtime.NumCPU(),
			ProxyCPU: b.ProxyCPU, LoadCPUs: b.LoadCPUs,
			Softirq: "unknown: this kernel's configuration cannot be read",
		},
		Settings: Settings{
			Rounds: b.Rounds, Window: b.Window, Warm: b.Warm, Tries: b.Tries, Disturbed: b.Disturbed,
			GOGC: "not set (100)", Servers: serverCount, Server: b.server,
		},
		Memory: []Memory{},
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
		r.Programs = append(r.Programs, Program{p.name, p.version, p.note})
	}
	return r
}

// nameMissing names the peers that could have taken part, and why they did not.
func (r *Report) nameMissing() {
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
