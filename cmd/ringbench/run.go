//go:build linux

package main

// The run command.

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

func runCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ringbench run", flag.ContinueOnError)
	c := bench.Config{MemcachedProxy: os.Getenv("MEMCACHED_PROXY")}
	flags.StringVar(&c.Ringside, "ringside", "", "Ringside's binary; without it Ringside is left out")
	flags.StringVar(&c.Nutcracker, "nutcracker", "nutcracker", "nutcracker's binary")
	flags.StringVar(&c.Haproxy, "haproxy", "haproxy", "haproxy's binary; left out when it does not exist")
	flags.StringVar(&c.Memcached, "memcached", "memcached", "memcached's binary, for the servers and the floor; MEMCACHED_PROXY in the environment names one built with its proxy")
	flags.StringVar(&c.Scenarios, "scenarios", "abcdefghi", "letters of the scenarios to run; empty for none")
	flags.IntVar(&c.Rounds, "rounds", 3, "rounds of every scenario")
	flags.DurationVar(&c.Window, "time", time.Second, "measured time of a run")
	flags.DurationVar(&c.Warm, "warm", 250*time.Millisecond, "load before it")
	flags.BoolVar(&c.Memory, "memory", true, "measure memory too")
	flags.IntVar(&c.Tries, "tries", 3, "how often a disturbed run is made in all")
	flags.Float64Var(&c.Disturbed, "disturbed", 0.1, "share of its CPUs that others may take from a run")
	flags.IntVar(&c.ProxyCPU, "proxy-cpu", -1, "CPU of the proxy under test; -1 is the last")
	cpus := flags.String("load-cpus", "", "CPUs of load and servers, with commas; empty is the first")
	markdown := flags.String("md", "", "file for the report as Markdown, which is printed too")
	asJSON := flags.String("json", "", "file for the report as JSON")
	limit := flags.Duration("limit", 30*time.Minute, "give up after this time")
	quiet := flags.Bool("q", false, "do not log each run")
	if err := parse(flags, args); err != nil {
		return err
	}
	if c.Rounds < 1 || c.Tries < 1 || c.Window <= 0 || c.Warm < 0 {
		return errors.New("-rounds and -tries are at least 1, -time is more than 0 and -warm at least 0")
	}
	for text := range strings.SplitSeq(*cpus, ",") {
		if text == "" {
			continue
		}
		id, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-load-cpus %q: use numbers, with commas", *cpus)
		}
		c.LoadCPUs = append(c.LoadCPUs, id)
	}
	var err error
	if c.Self, err = os.Executable(); err != nil {
		return err
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if *quiet {
		c.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done within -limit %v", *limit))
	defer cancel()
	report, err := bench.Measure(ctx, c)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if err := report.Markdown(os.Stdout); err != nil {
		return err
	}
	if err := save(*markdown, report.Markdown); err != nil {
		return err
	}
	if err := save(*asJSON, func(w io.Writer) error {
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

// save writes a report to path, if there is one.
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
