//go:build linux

package bench

// This file writes the report as Markdown.

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

// Markdown writes the report: a description, a table with the ratios of all scenarios, the result
// of each scenario, and the memory.
func (r *Report) Markdown(w io.Writer) error {
	m := new(strings.Builder)
	fmt.Fprintf(m, "# Ringside and its peers, %s\n\n", r.Date.Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(m, "%s, %d CPUs, Linux %s. The proxy alone on CPU %d; load and servers on CPU %s; all over loopback. Servers: %d %s. ",
		r.Machine.CPU, r.Machine.CPUs, r.Machine.Kernel, r.Machine.ProxyCPU, strings.Trim(fmt.Sprint(r.Machine.LoadCPUs), "[]"), r.Settings.Servers, r.Settings.Server)
	if r.Settings.Rounds > 0 {
		fmt.Fprintf(m, "Rounds: %d, of %v each after %v of warming up, peers in turn, a fresh process for each. ",
			r.Settings.Rounds, r.Settings.Window, r.Settings.Warm)
	}
	fmt.Fprintf(m, "GOGC %s. Interrupts are accounted %s.\n\n", r.Settings.GOGC, r.Machine.Softirq)
	if kept, runs := r.disturbed(); runs > 0 {
		fmt.Fprintf(m, "Other work disturbed %d runs, which were repeated; of the %d runs below %d are disturbed (the least disturbed of %d tries; more than %s of the CPUs went to others, or half that to the hypervisor, or the load's clock was late by %v).\n\n",
			r.Repeated, runs, kept, r.Settings.Tries, percent(r.Settings.Disturbed), lateLimit)
	}
	fmt.Fprintf(m, "Every reply was parsed, and every byte of every hit was checked.")
	if r.Placement != "" {
		fmt.Fprintf(m, " Placement of nutcracker and Ringside: %s.", r.Placement)
	}
	m.WriteString("\n\n")

	r.programs(m)
	r.glance(m)
	r.totals(m)
	for _, s := range r.Scenarios {
		s.markdown(m)
	}
	r.memoryTable(m)
	if len(r.Curves) > 0 {
		fmt.Fprintf(m, "A cliff is a row that costs more than %.1f times the CPU of the row before it, or serves fewer than 1/%.1f of its requests, or whose p99/p50 is more than %d times as high; it was measured %d times more before it was called so.\n\n",
			cliffCost, cliffCost, cliffTail, cliffAgain)
	}
	for _, c := range r.Curves {
		c.markdown(m)
	}
	r.whereTables(m)
	r.Soak.markdown(m)
	r.outageTable(m)
	r.tailTables(m)
	for _, f := range r.Failures() {
		fmt.Fprintf(m, "**Failed:** %s\n\n", oneLine(f))
	}
	fmt.Fprintf(m, "Measured in %v.\n", time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
	_, err := io.WriteString(w, m.String())
	return err
}

func (r *Report) programs(m *strings.Builder) {
	table(m, []string{"peer", "version", "note"}, func(row func(...string)) {
		for _, p := range r.Programs {
			row(p.Name, p.Version, p.Note)
		}
	})
}

// glance writes a table with one row per scenario, which shows the ratios of all peers.
func (r *Report) glance(m *strings.Builder) {
	if len(r.Scenarios) == 0 {
		return
	}
	var names []string
	for _, p := range r.Programs {
		if p.Version != "" {
			names = append(names, p.Name)
		}
	}
	others := ""
	for _, s := range r.Scenarios {
		if s.Base != "nutcracker" {
			others += fmt.Sprintf("; in scenario %s to %q", s.ID, s.Base)
		}
	}
	fmt.Fprintf(m, "## At a glance\n\nCPU per request as a ratio to nutcracker%s; median of the rounds; in brackets throughput, p50 / p99.\n\n", others)
	table(m, append([]string{"scenario"}, names...), func(row func(...string)) {
		for _, s := range r.Scenarios {
			cells := []string{s.ID + ", " + s.Name}
			for _, name := range names {
				switch p := s.of(name); {
				case p == nil:
					cells = append(cells, "–")
				case p.Failure != "":
					cells = append(cells, "failed")
				case p.Rate.Ratio == nil:
					cells = append(cells, "no ratio")
				case p.CPU.Ratio == nil:
					cells = append(cells, fmt.Sprintf("– (%.2f, %.2f / %.2f)", p.Rate.Ratio.Median, p.P50.Ratio.Median, p.P99.Ratio.Median))
				default:
					cells = append(cells, fmt.Sprintf("%.2f (%.2f, %.2f / %.2f)", p.CPU.Ratio.Median, p.Rate.Ratio.Median, p.P50.Ratio.Median, p.P99.Ratio.Median))
				}
			}
			row(cells...)
		}
	})
}

// totals writes a table with the CPU time of a request in the proxy and the servers together,
// compared with the peer direct (clients without a proxy).
func (r *Report) totals(m *strings.Builder) {
	var names []string
	for _, s := range r.Scenarios {
		for _, p := range s.Peers {
			if p.Direct != nil && p.Peer != Direct && !slices.Contains(names, p.Peer) {
				names = append(names, p.Peer)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(m, "## In all\n\nCPU per request of the proxy and the servers together, as a ratio to the CPU of the servers if clients use them directly. Median of the rounds, in brackets its 95 %% interval (the range if there are fewer than 6 rounds), then µs. Servers: %s.\n\n", r.Settings.Server)
	table(m, append(append([]string{"scenario"}, names...), "direct, µs"), func(row func(...string)) {
		for _, s := range r.Scenarios {
			cells, any := []string{s.ID + ", " + s.Name}, false
			for _, name := range append(slices.Clone(names), Direct) {
				switch p := s.of(name); {
				case p == nil || p.Direct == nil:
					cells = append(cells, "–")
				case name == Direct:
					cells = append(cells, fmt.Sprintf("%.2f", p.Total.Value.Median))
				default:
					any = true
					cells = append(cells, fmt.Sprintf("%s, %.2f", p.Direct.known(), p.Total.Value.Median))
				}
			}
			if any {
				row(cells...)
			}
		}
	})
}

func (r *Result) markdown(m *strings.Builder) {
	fmt.Fprintf(m, "## %s: %s\n\n", r.ID, r.Name)
	if r.Work.Rate > 0 {
		fmt.Fprintf(m, "Latency counts from when a request was due.")
		for _, p := range r.Peers {
			if len(p.Runs) > 0 && p.Rate.Value.Median < 0.98*r.Work.Rate {
				fmt.Fprintf(m, " **%s did not keep the pace:** its latency is that of a growing queue.", p.Peer)
			}
		}
		m.WriteString("\n\n")
	}
	header := []string{"peer", "CPU µs/request", "to " + r.Base, "requests/s", "to " + r.Base, "p50 µs", "to " + r.Base, "p99 µs", "to " + r.Base, "p99.9 µs", "to " + r.Base, "servers' CPU µs/request", "total CPU µs/request", "to " + r.Base, "to direct", "its sleeps/request", "its core µs/request", "load's CPU µs/request"}
	table(m, header, func(row func(...string)) {
		for _, p := range r.Peers {
			if len(p.Runs) == 0 {
				row(p.Peer, "failed")
				continue
			}
			cells := []string{p.Peer}
			for _, f := range []struct {
				Figure
				format string
			}{{p.CPU, "%.2f"}, {p.Rate, "%.0f"}, {p.P50, "%.0f"}, {p.P99, "%.0f"}, {p.P999, "%.0f"}} {
				cells = append(cells, fmt.Sprintf(f.format, f.Value.Median), f.Ratio.String())
			}
			row(append(cells,
				fmt.Sprintf("%.2f", p.mean(func(r Run) float64 { return r.Servers })), fmt.Sprintf("%.2f", p.Total.Value.Median), p.Total.Ratio.String(), p.Direct.String(),
				fmt.Sprintf("%.2f", p.mean(func(r Run) float64 { return r.Switches })),
				fmt.Sprintf("%.2f", p.mean(func(r Run) float64 { return r.CoreBusy })),
				fmt.Sprintf("%.2f", p.mean(func(r Run) float64 { return r.LoadCPU })))...)
		}
	})
	for _, p := range r.Peers {
		for _, run := range p.Runs {
			if run.Good != nil {
				fmt.Fprintf(m, "%s.\n\n", run.beside(p.Peer))
			}
		}
		if p.Peer == r.Base || p.Peer == Direct {
			continue
		}
		var known []string
		for _, f := range []struct {
			name  string
			ratio *Spread
		}{{"CPU", p.CPU.Ratio}, {"requests", p.Rate.Ratio}, {"p50", p.P50.Ratio}, {"p99", p.P99.Ratio}, {"total CPU to direct", p.Direct}} {
			if f.ratio != nil && f.ratio.Interval != nil {
				known = append(known, fmt.Sprintf("%s %.2f to %.2f", f.name, f.ratio.Interval[0], f.ratio.Interval[1]))
			}
		}
		if len(known) > 0 {
			fmt.Fprintf(m, "%s, 95 %% interval of the median ratio: %s.\n\n", p.Peer, strings.Join(known, ", "))
		}
	}
}

// beside describes the result of a run in which other clients did not read their replies.
func (r *Run) beside(peer string) string {
	if r.Requests == 0 {
		return fmt.Sprintf("%s, round %d: nobody got an answer in %.0f s, so that there is nothing to compare with but that", peer, r.Round, r.Seconds)
	}
	return fmt.Sprintf("%s, round %d: %d good answers of %d that were due in %.0f s (by client: %s), %d others; p99 %.1f ms, with the %d that waited when it ended",
		peer, r.Round, r.Goods(), r.Requests+int64(r.GivenUp), r.Seconds, strings.Join(strings.Fields(strings.Trim(fmt.Sprint(r.Good), "[]")), ", "), r.Requests-r.Goods(), r.P99/1e3, r.GivenUp)
}

func (c *Curve) markdown(m *strings.Builder) {
	fmt.Fprintf(m, "## %s\n\n", c.Name)
	for _, note := range []string{c.Note, c.Growth} {
		if note != "" {
			fmt.Fprintf(m, "%s\n\n", note)
		}
	}
	var names []string
	header := []string{c.X}
	for _, p := range c.Rows[0].Peers {
		names = append(names, p.Peer)
		for _, figure := range []string{"CPU µs/request", "requests/s", "p50 µs", "p99 µs"} {
			header = append(header, p.Peer+", "+figure)
		}
	}
	compared := slices.Contains(names, "ringside") && len(names) > 1
	if compared {
		header = append(header, "CPU to "+c.Rows[0].Base, "requests to "+c.Rows[0].Base)
	}
	table(m, append(header, "cliff"), func(line func(...string)) {
		for _, row := range c.Rows {
			cells := []string{row.Label}
			ratios := []string{"–", "–"}
			for _, p := range row.Peers {
				if len(p.Runs) == 0 {
					cells = append(cells, "failed", "", "", "")
					continue
				}
				cells = append(cells, fmt.Sprintf("%.2f", p.CPU.Value.Median), fmt.Sprintf("%.0f", p.Rate.Value.Median),
					fmt.Sprintf("%.0f", p.P50.Value.Median), fmt.Sprintf("%.0f", p.P99.Value.Median))
				if p.Peer == "ringside" {
					ratios = []string{p.CPU.Ratio.String(), p.Rate.Ratio.String()}
				}
			}
			if compared {
				cells = append(cells, ratios...)
			}
			line(append(cells, strings.Join(row.Cliffs, ", "))...)
		}
	})
}

// whereTables writes how CPU time is spent, by scenario.
func (r *Report) whereTables(m *strings.Builder) {
	if len(r.Where) == 0 {
		return
	}
	fmt.Fprintf(m, "The kernel's share is sampled at its timer ticks. System calls and Ringside's own counters are per request, over the whole load including connects and closes. System calls rarer than %g a request are left out. System calls: %s.\n\n", rareCall, r.Tracer)
	for _, w := range r.Where {
		fmt.Fprintf(m, "## CPU time, %s: %s\n\n", w.ID, w.Name)
		table(m, []string{"peer", "CPU µs/request", "in the kernel", "requests/s", "while counting", "sleeps", "system calls", "by name", "its loop: wakeups, reads, writes", "other work"}, func(row func(...string)) {
			for _, p := range w.Peers {
				if p.Failure != "" {
					row(p.Peer, "failed")
					continue
				}
				var names []string
				total := 0.0
				for _, c := range p.Calls {
					total += c.Each
					names = append(names, fmt.Sprintf("%s %.3f", c.Name, c.Each))
				}
				calls, traced, loop := "–", "–", "–"
				if p.Calls != nil {
					calls, traced = fmt.Sprintf("%.2f", total), fmt.Sprintf("%.0f", p.TracedRate)
				}
				if p.Loop != nil {
					loop = fmt.Sprintf("%.3f, %.3f, %.3f", p.Loop.Wakeups, p.Loop.Reads, p.Loop.Writes)
				}
				row(p.Peer, fmt.Sprintf("%.2f", p.CPU), percent(p.Kernel), fmt.Sprintf("%.0f", p.Rate), traced, fmt.Sprintf("%.3f", p.Switches), calls, strings.Join(names, ", "), loop, percent(p.Other))
			}
		})
		if w.Profile != "" {
			fmt.Fprintf(m, "Ringside's top functions are in %s.\n\n", w.Profile)
		}
	}
}

// outageTable writes the results of the outages.
func (r *Report) outageTable(m *strings.Builder) {
	if len(r.Outages) == 0 {
		return
	}
	fmt.Fprintf(m, "## Outages\n\nClosed-loop clients, one request in ten a set, while one of three servers is gone. With \"black hole\", the server is killed, and attempts to connect get no reply.\n\n")
	table(m, []string{"the server", "peer", "answers/s before", "while it is gone", "in the worst second", "longest below half, s", "errors"}, func(row func(...string)) {
		for _, o := range r.Outages {
			row(o.How, o.Peer, fmt.Sprintf("%.0f", o.Before), fmt.Sprintf("%.0f", o.During), fmt.Sprintf("%.0f", o.Worst), fmt.Sprintf("%.1f", o.BelowHalf), fmt.Sprint(o.Errors))
		}
	})
}

// tailTables writes tables that show the effect of one slow server on the latency of reads.
func (r *Report) tailTables(m *strings.Builder) {
	for _, s := range r.Tails {
		fmt.Fprintf(m, "## Tails, %s: %s\n\nµs, medians of the rounds. A forwarder in front of that server delays the replies. It is also there in the runs without late replies. Ratios compare runs of one round: median and its 95 %% interval (the range if there are fewer than 6 rounds).\n\n", s.ID, s.Name)
		if s.Work.Rate > 0 {
			for _, p := range s.Peers {
				if len(p.Runs) > 0 && p.Rate.Value.Median < 0.98*s.Work.Rate {
					fmt.Fprintf(m, "**%s did not keep the pace:** its latency is that of a growing queue.\n\n", p.Peer)
				}
			}
		}
		table(m, []string{"peer", "p99 of all, nothing late", "p99 of all", "to nutcracker", "reads of the other servers' keys, p99: nothing late", "one slow", "ratio", "p50: ratio", "reads of its keys, p50", "p99", "requests/s"}, func(row func(...string)) {
			for _, p := range s.Peers {
				name, ok := strings.CutSuffix(p.Peer, OneSlow)
				if !ok {
					continue
				}
				calm := s.of(name)
				if len(p.Runs) == 0 || len(calm.Runs) == 0 {
					row(name, "failed")
					continue
				}
				others, its := func(r Run) load.Latency { return r.Apart.Others }, func(r Run) load.Latency { return r.Apart.Its }
				p99 := func(r Run) float64 { return others(r).P99 }
				µs := func(m *Measured, of func(Run) float64) string { return fmt.Sprintf("%.0f", m.median(of)) }
				before := s.rounds(name)
				row(name, µs(calm, func(r Run) float64 { return r.P99 }), µs(p, func(r Run) float64 { return r.P99 }), p.P99.Ratio.known(),
					µs(calm, p99), µs(p, p99), p.to(before, p99).known(), p.to(before, func(r Run) float64 { return others(r).P50 }).known(),
					µs(p, func(r Run) float64 { return its(r).P50 }), µs(p, func(r Run) float64 { return its(r).P99 }), fmt.Sprintf("%.0f", p.Rate.Value.Median))
			}
		})
	}
}

func (s *Soak) markdown(m *strings.Builder) {
	if s == nil {
		return
	}
	fmt.Fprintf(m, "## Soak of %v\n\n", s.Length)
	fmt.Fprintf(m, "Legs of %v; in each, loads start and stop, and one of two servers is killed and returns empty after %v; %d kills. Misses and errors of its keys are expected. A wrong byte ends the soak. Every sample reads Ringside's metrics.\n\n", s.Leg, s.Outage, s.Kills)
	table(m, []string{"load", "runs", "requests", "keys checked", "misses", "errors"}, func(row func(...string)) {
		for _, l := range s.Loads {
			row(l.Name, fmt.Sprint(l.Runs), fmt.Sprint(l.Replies), fmt.Sprint(l.Checked), fmt.Sprint(l.Misses), fmt.Sprint(l.Errors))
		}
	})
	fmt.Fprintf(m, "Medians of the first and the last third of the samples, without a first quarter:\n\n")
	table(m, []string{"what", "first", "last", "may be", "grew"}, func(row func(...string)) {
		for _, g := range s.Growth {
			grew := "no"
			if g.Last > g.Bound {
				grew = "**yes**"
			}
			row(g.What, fmt.Sprintf("%.0f", g.First), fmt.Sprintf("%.0f", g.Last), fmt.Sprintf("%.0f", g.Bound), grew)
		}
	})
	fmt.Fprintf(m, "At rest, between the legs and after a forced collection (the report as JSON has all samples):\n\n")
	table(m, []string{"at", "RssAnon MB", "live heap MB", "goroutines", "descriptors", "clients"}, func(row func(...string)) {
		for _, x := range s.Samples {
			if x.Rest {
				row(x.At.Round(time.Second).String(), fmt.Sprintf("%.1f", float64(x.Anon)/1e6), fmt.Sprintf("%.2f", float64(x.Heap)/1e6), fmt.Sprint(x.Goroutines), fmt.Sprint(x.Descriptors), fmt.Sprint(x.Clients))
			}
		}
	})
	for _, note := range s.Notes {
		fmt.Fprintf(m, "%s.\n\n", note)
	}
}

// known formats the median and, in brackets, its 95 % interval. If there is no interval, the
// brackets have the range.
func (s *Spread) known() string {
	if s == nil || s.Interval == nil {
		return s.String()
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Interval[0], s.Interval[1])
}

// String formats the median and, in brackets, the range.
func (s *Spread) String() string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Min, s.Max)
}

func (r *Report) memoryTable(m *strings.Builder) {
	if len(r.Memory) == 0 {
		return
	}
	fmt.Fprintf(m, "## Memory\n\nMB (10⁶ bytes) of a fresh process: anonymous (RssAnon) at the end of the load; in brackets its maximum during the load, and the maximum of resident memory including files (VmHWM). Metrics were not scraped. GOGC %s.\n\n", r.Settings.GOGC)
	var names []string
	cells := make(map[string]string)
	var loads []string
	for _, x := range r.Memory {
		if !slices.Contains(names, x.Peer) {
			names = append(names, x.Peer)
		}
		if !slices.Contains(loads, x.Name) {
			loads = append(loads, x.Name)
		}
		cell := "failed"
		if x.Failure == "" {
			cell = fmt.Sprintf("%.1f (%.1f, %.1f)", float64(x.Anon)/1e6, float64(x.AnonPeak)/1e6, float64(x.Peak)/1e6)
		}
		cells[x.Name+x.Peer] = cell
	}
	table(m, append([]string{"load"}, names...), func(row func(...string)) {
		for _, load := range loads {
			line := []string{load}
			for _, name := range names {
				line = append(line, cells[load+name])
			}
			row(line...)
		}
	})
}

// table writes a Markdown table. The function rows gets a function that writes one row, and calls
// it once for each row.
func table(m *strings.Builder, header []string, rows func(row func(cells ...string))) {
	row := func(cells ...string) {
		for i := range cells {
			cells[i] = strings.ReplaceAll(oneLine(cells[i]), "|", "\\|")
		}
		for len(cells) < len(header) {
			cells = append(cells, "")
		}
		fmt.Fprintf(m, "| %s |\n", strings.Join(cells, " | "))
	}
	row(slices.Clone(header)...)
	fmt.Fprintf(m, "|%s\n", strings.Repeat(" --- |", len(header)))
	rows(row)
	m.WriteString("\n")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// percent formats a share as a percentage.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
