//go:build linux

package main

// This file contains what the commands that measure share: flags, and writing reports.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"ringside/internal/bench"
)

// measuring contains the flags of a command that measures, with their values.
type measuring struct {
	*flag.FlagSet
	config         bench.Config
	cpus           *string
	markdown, json *string
	limit          *time.Duration
	quiet          *bool
}

// measuringFlags declares the flags that all measuring commands have. name is the name of the
// command. limit is the default of the flag -limit.
func measuringFlags(name string, limit time.Duration) *measuring {
	m := &measuring{FlagSet: flag.NewFlagSet("ringbench "+name, flag.ContinueOnError)}
	c := &m.config
	m.StringVar(&c.Ringside, "ringside", "", "Ringside's binary; without it Ringside is left out")
	m.StringVar(&c.Memcached, "memcached", "memcached", "memcached's binary, for the servers and the floor")
	m.IntVar(&c.ProxyCPU, "proxy-cpu", -1, "CPU of the proxy under test; -1 is the last")
	m.cpus = m.String("load-cpus", "", "CPUs of load and servers, with commas; empty is the first")
	m.markdown = m.String("md", "", "file for the report as Markdown, which is printed too")
	m.json = m.String("json", "", "file for the report as JSON")
	m.limit = m.Duration("limit", limit, "give up after this time")
	m.quiet = m.Bool("q", false, "do not log each run")
	return m
}

// nutcrackerFlag declares the flag -nutcracker, for commands that compare Ringside with
// nutcracker (twemproxy).
func (m *measuring) nutcrackerFlag() {
	m.StringVar(&m.config.Nutcracker, "nutcracker", "nutcracker", "nutcracker's binary")
}

// runFlags declares the flags of commands that repeat their runs. The parameters are the defaults
// of these flags.
func (m *measuring) runFlags(rounds, tries int, window, warm time.Duration) {
	c := &m.config
	m.IntVar(&c.Rounds, "rounds", rounds, "rounds of every scenario")
	m.DurationVar(&c.Window, "time", window, "measured time of a run")
	m.DurationVar(&c.Warm, "warm", warm, "load before it; moderation finds its pace in the first two seconds")
	m.IntVar(&c.Tries, "tries", tries, "how often a disturbed run is made in all")
	m.Func("also", "Ringside once more, as NAME=BINARY or 'NAME=BINARY SETTINGS' with settings of its engine such as 'moderation: off'; may be repeated", func(text string) error {
		name, binary, ok := strings.Cut(text, "=")
		binary, engine, _ := strings.Cut(binary, " ")
		if !ok || name == "" || binary == "" {
			return fmt.Errorf("%q is not NAME=BINARY", text)
		}
		c.Also = append(c.Also, bench.Variant{Name: name, Binary: binary, Engine: engine})
		return nil
	})
	m.Float64Var(&c.Disturbed, "disturbed", 0.1, "share of its CPUs that others may take from a run")
}

// run parses the flags, calls measure, and prints and saves the report. It returns an error if
// the report contains failures.
func (m *measuring) run(ctx context.Context, args []string, measure func(context.Context, bench.Config) (*bench.Report, error)) error {
	if err := parse(m.FlagSet, args); err != nil {
		return err
	}
	c := m.config
	for text := range strings.SplitSeq(*m.cpus, ",") {
		if text == "" {
			continue
		}
		id, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-load-cpus %q: use numbers, with commas", *m.cpus)
		}
		c.LoadCPUs = append(c.LoadCPUs, id)
	}
	c.Command = m.said()
	var err error
	if c.Self, err = os.Executable(); err != nil {
		return err
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if *m.quiet {
		c.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *m.limit, fmt.Errorf("not done within -limit %v", *m.limit))
	defer cancel()
	report, err := measure(ctx, c)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if err := report.Markdown(os.Stdout); err != nil {
		return err
	}
	if err := save(*m.markdown, report.Markdown); err != nil {
		return err
	}
	if err := save(*m.json, func(w io.Writer) error {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(report)
	}); err != nil {
		return err
	}
	if failures := report.Failures(); len(failures) > 0 {
		return fmt.Errorf("%d measurements failed, the first: %s", len(failures), failures[0])
	}
	return nil
}

// said returns the command line for the report. It omits flags that do not change the
// measurement, and paths of binaries and files, which differ between machines.
func (m *measuring) said() string {
	words := []string{m.Name()}
	m.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "ringside", "memcached", "nutcracker", "md", "json", "q", "limit", "profiles":
			return
		}
		value := f.Value.String()
		if strings.ContainsAny(value, " *") || value == "" {
			value = "'" + value + "'"
		}
		if value == "true" {
			words = append(words, "-"+f.Name)
		} else {
			words = append(words, "-"+f.Name+"="+value)
		}
	})
	return strings.Join(words, " ")
}

// save creates a file at path and writes a report to it. It does nothing if path is empty.
func save(path string, report func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(report(file), file.Close())
}
