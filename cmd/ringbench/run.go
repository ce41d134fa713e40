//go:build linux

package main

// This file implements the commands run, outages and soak.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"ringside/internal/bench"
)

// measuring contains the flags of a command that measures, with their values.
type measuring struct {
	*flag.FlagSet
	bench.Config
	pages, name string
	limit       time.Duration
	quiet       bool
}

// measuringFlags declares the flags that all measuring commands have. name is the name of the
// command. limit is the default of the flag -limit.
func measuringFlags(name string, limit time.Duration) *measuring {
	m := &measuring{FlagSet: flag.NewFlagSet("ringbench "+name, flag.ContinueOnError)}
	m.StringVar(&m.Ringside, "ringside", "bin/ringside", "Ringside's binary")
	m.StringVar(&m.Memcached, "memcached", "memcached", "memcached's binary")
	numbers(m.FlagSet, &m.ProxyCPUs, "proxy-cpus", "CPUs of the proxy under test, with commas; the last without this flag")
	numbers(m.FlagSet, &m.LoadCPUs, "load-cpus", "CPUs of load and servers, with commas; the first without this flag")
	m.StringVar(&m.pages, "pages", "", `files, with commas, in which the report replaces what is between marks such as "<!-- NAME: ratios -->" and "<!-- end -->"`)
	m.StringVar(&m.name, "name", name, "NAME of these marks")
	m.DurationVar(&m.limit, "limit", limit, "give up after this time")
	m.BoolVar(&m.quiet, "q", false, "do not log each run")
	return m
}

// peerFlags declares the flags that name other programs than Ringside.
func (m *measuring) peerFlags() {
	m.StringVar(&m.Nutcracker, "nutcracker", "nutcracker", "nutcracker's binary; empty leaves it out")
	m.Func("also", "Ringside once more, as NAME=BINARY or 'NAME=BINARY SETTINGS' with more of its configuration file, such as 'engine: {moderation: off}'; may be repeated", func(text string) error {
		name, binary, _ := strings.Cut(text, "=")
		binary, more, _ := strings.Cut(binary, " ")
		if binary == "" || slices.Contains([]string{"", "ringside", "nutcracker", "direct"}, name) {
			return errors.New("use NAME=BINARY, and a NAME that no peer has")
		}
		m.Also = append(m.Also, bench.Variant{Name: name, Binary: binary, More: more})
		return nil
	})
}

// run parses the flags, calls measure, prints the report and puts it into pages. It returns an
// error if the report contains failures.
func (m *measuring) run(ctx context.Context, args []string, measure func(context.Context, bench.Config) (*bench.Report, error)) (err error) {
	if err := parse(m.FlagSet, args); err != nil {
		return err
	}
	m.Command = m.said()
	if m.Self, err = os.Executable(); err != nil {
		return err
	}
	m.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if m.quiet {
		m.Log = slog.New(slog.DiscardHandler)
	}
	pages := strings.FieldsFunc(m.pages, func(r rune) bool { return r == ',' })
	for _, page := range pages {
		if _, err := os.Stat(page); err != nil {
			return err // before measuring, which can take hours
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.limit, fmt.Errorf("not done within -limit %v", m.limit))
	defer cancel()
	report, err := measure(ctx, m.Config)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	fmt.Print(report)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		filled, err := report.Fill(string(text), m.name)
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(page, []byte(filled), 0o666); err != nil {
			return err
		}
	}
	if len(report.Failures) > 0 {
		return fmt.Errorf("%d measurements failed, the first: %s", len(report.Failures), report.Failures[0])
	}
	return nil
}

// said returns the command line for the report. It omits flags that do not change the
// measurement, and paths of binaries and files, which differ between machines.
func (m *measuring) said() string {
	words := []string{m.Name()}
	m.Visit(func(f *flag.Flag) {
		if slices.Contains([]string{"ringside", "memcached", "nutcracker", "pages", "name", "q", "limit", "also", "proxy-cpus", "load-cpus"}, f.Name) {
			return
		}
		words = append(words, "-"+f.Name+"="+f.Value.String())
	})
	for _, v := range m.Also {
		words = append(words, fmt.Sprintf("-also='%s'", strings.TrimSpace(v.Name+" "+v.More)))
	}
	return strings.Join(words, " ")
}

func runCommand(ctx context.Context, args []string) error {
	m := measuringFlags("run", 30*time.Minute)
	m.peerFlags()
	m.StringVar(&m.Scenarios, "scenarios", bench.AllScenarios(), "letters of the scenarios to run:\n"+bench.ScenarioList())
	m.Float64Var(&m.Rate, "rate", 0, "requests a second of scenario h; 0 is its usual rate")
	m.IntVar(&m.Rounds, "rounds", 3, "rounds of every scenario")
	m.DurationVar(&m.Window, "time", time.Second, "measured time of a run")
	m.DurationVar(&m.Warm, "warm", 2*time.Second, "load before it; moderation finds its pace in the first two seconds")
	m.IntVar(&m.Tries, "tries", 3, "how often a disturbed run is made in all")
	m.Float64Var(&m.Disturbed, "disturbed", 0.1, "share of its CPUs that others may take from a run")
	m.BoolVar(&m.Calls, "calls", false, "count the system calls of the proxies too, under a second load (needs perf)")
	return m.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		if c.Rounds < 1 || c.Tries < 1 || c.Window <= 0 || c.Warm < 0 || c.Rate < 0 {
			return nil, errors.New("-rounds and -tries are at least 1, -time is more than 0, -warm and -rate at least 0")
		}
		return bench.Measure(ctx, c)
	})
}

func outagesCommand(ctx context.Context, args []string) error {
	m := measuringFlags("outages", 15*time.Minute)
	m.peerFlags()
	each := m.Duration("time", 6*time.Second, "how long a server is gone, and how long the rate before is measured")
	return m.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		return bench.Outages(ctx, c, *each)
	})
}

func soakCommand(ctx context.Context, args []string) error {
	m := measuringFlags("soak", 25*time.Hour)
	length := m.Duration("time", 10*time.Minute, "how long to soak")
	return m.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		return bench.Soak(ctx, c, *length)
	})
}
