//go:build linux

package main

// The commands run and curves.

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"ringside/internal/bench"
)

func runCommand(ctx context.Context, args []string) error {
	flags := measuringFlags("run", 30*time.Minute)
	c := &flags.config
	c.MemcachedProxy = os.Getenv("MEMCACHED_PROXY")
	flags.runFlags(3, 3, time.Second)
	flags.StringVar(&c.Haproxy, "haproxy", "haproxy", "haproxy's binary; left out when it does not exist (memcached's own proxy takes part when MEMCACHED_PROXY names a memcached built with it)")
	flags.StringVar(&c.Scenarios, "scenarios", bench.AllScenarios, "letters of the scenarios to run; empty for none")
	flags.BoolVar(&c.Memory, "memory", true, "measure memory too")
	return flags.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		if err := checkRuns(c); err != nil {
			return nil, err
		}
		return bench.Measure(ctx, c)
	})
}

func curvesCommand(ctx context.Context, args []string) error {
	flags := measuringFlags("curves", 15*time.Minute)
	flags.runFlags(2, 2, 500*time.Millisecond)
	names := flags.String("curves", "", "names of the curves to measure, with commas; empty is all")
	return flags.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		if err := checkRuns(c); err != nil {
			return nil, err
		}
		return bench.Curves(ctx, c, strings.FieldsFunc(*names, func(r rune) bool { return r == ',' }))
	})
}

func checkRuns(c bench.Config) error {
	if c.Rounds < 1 || c.Tries < 1 || c.Window <= 0 || c.Warm < 0 {
		return errors.New("-rounds and -tries are at least 1, -time is more than 0 and -warm at least 0")
	}
	return nil
}
