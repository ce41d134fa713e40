//go:build linux

package bench

// This file fills pages that have placeholders for parts of reports: BENCHMARKS.md and
// docs/benchmarks/README.md.

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// placeOnPage is the placeholder of a part on a page:
//
//	<!-- run: first -->
//	this text is replaced
//	<!-- end -->
var placeOnPage = regexp.MustCompile(`(?s)(<!-- ([\w.-]+): ([a-z ]+) -->\n).*?(<!-- end -->)`)

// FillPage replaces the placeholders of a page with parts of reports. The function read returns the
// report with a given name. A placeholder stays as it is if there is no such report or if the
// report lacks the part. `left` lists the placeholders that stay.
func FillPage(page string, read func(name string) (*Report, error)) (filled string, left []string, err error) {
	found := false
	filled = placeOnPage.ReplaceAllStringFunc(page, func(text string) string {
		found = true
		m := placeOnPage.FindStringSubmatch(text)
		report, e := read(m[2])
		part := ""
		if e == nil && report != nil {
			part, e = report.part(m[3])
		}
		switch {
		case e != nil:
			err = errors.Join(err, fmt.Errorf("%s: %s: %w", m[2], m[3], e))
		case part == "":
			left = append(left, m[2]+": "+m[3])
		default:
			return m[1] + "\n" + part + "\n\n" + m[4]
		}
		return text
	})
	if !found {
		return "", nil, errors.New(`the page has no place such as "<!-- run: first -->", "<!-- end -->"`)
	}
	return filled, left, err
}

// part returns the Markdown of the part of the report with that name. The headings are one level
// deeper than in a report, and a part with only one section has no heading. The Markdown is empty
// if the report has no data for the part.
func (r *Report) part(name string) (string, error) {
	all := new(strings.Builder)
	parts := map[string]func(){
		"machine":   func() { r.machine(all) },
		"first":     func() { r.first(all) },
		"programs":  func() { r.programs(all) },
		"glance":    func() { r.glance(all) },
		"totals":    func() { r.totals(all) },
		"memory":    func() { r.memoryTable(all) },
		"tails":     func() { r.tailTables(all) },
		"where":     func() { r.whereTables(all) },
		"outages":   func() { r.outageTable(all) },
		"soak":      func() { r.Soak.markdown(all) },
		"scenarios": func() { each(all, r.Scenarios, (*Result).markdown) },
		"curves":    func() { each(all, r.Curves, (*Curve).markdown) },
	}
	write := parts[name]
	if write == nil {
		return "", fmt.Errorf("there is no such part; use one of %s", strings.Join(slices.Sorted(maps.Keys(parts)), ", "))
	}
	write()
	text := all.String()
	if strings.Count("\n"+text, "\n## ") == 1 && strings.HasPrefix(text, "## ") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.TrimSpace(strings.ReplaceAll("\n"+text, "\n## ", "\n### ")), nil
}

func each[T any](m *strings.Builder, all []T, write func(T, *strings.Builder)) {
	for _, x := range all {
		write(x, m)
	}
}

// machine writes a paragraph about the machine, the programs and the disturbed runs.
func (r *Report) machine(m *strings.Builder) {
	fmt.Fprintf(m, "`%s`, %s, %s, %d CPUs, Linux %s, %s behind", strings.ReplaceAll(r.Command, "`", "'"), r.Date.Format(time.DateOnly), r.Machine.CPU, r.Machine.CPUs, r.Machine.Kernel, r.Settings.Server)
	for _, p := range r.Programs {
		if p.Name == "ringside" && p.Version != "" {
			fmt.Fprintf(m, "; %s", p.Version)
		}
	}
	if kept, runs := r.disturbed(); runs > 0 {
		fmt.Fprintf(m, "; of %d runs %d were disturbed, the least disturbed of %d tries each", runs, kept, r.Settings.Tries)
	}
	m.WriteString(".\n")
	for _, f := range r.Failures() {
		fmt.Fprintf(m, "\n**Failed:** %s\n", oneLine(f))
	}
}

// first writes one row for each scenario that nutcracker supports. A row compares Ringside's cost
// with nutcracker's, and the cost of both with that of clients without a proxy.
func (r *Report) first(m *strings.Builder) {
	table(m, []string{"scenario", "CPU of Ringside, to nutcracker", "requests/s", "p50", "p99", "CPU of Ringside and servers, to asking directly", "of nutcracker and servers"}, func(row func(...string)) {
		for _, s := range r.Scenarios {
			for _, how := range []string{"", OverSocket} {
				ours, theirs := s.of("ringside"+how), s.of("nutcracker"+how)
				if ours == nil || theirs == nil || len(ours.Runs) == 0 || len(theirs.Runs) == 0 {
					continue
				}
				base := s.rounds("nutcracker" + how)
				cells := []string{s.ID + ", " + s.Name + how}
				for _, of := range []func(Run) float64{
					func(r Run) float64 { return r.CPU },
					func(r Run) float64 { return r.Rate },
					func(r Run) float64 { return r.P50 },
					func(r Run) float64 { return r.P99 },
				} {
					cells = append(cells, ours.to(base, of).known())
				}
				row(append(cells, ours.Direct.known(), theirs.Direct.known())...)
			}
		}
	})
}
