//go:build linux

package main

// This file implements the command `ringbench instructions`.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"ringside/internal/bench/instructions"
)

func instructionsCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ringbench instructions", flag.ContinueOnError)
	var c instructions.Config
	flags.StringVar(&c.Package, "package", "ringside/proxy", "package of the benchmarks")
	flags.StringVar(&c.Bench, "bench", "^BenchmarkEngine$", "which benchmarks, a regular expression")
	flags.IntVar(&c.Repeat, "repeat", 2, "how often each is counted")
	path := flags.String("json", "", "file for the counts as JSON")
	against := flags.String("against", "", "file of earlier counts to compare with")
	limit := flags.Float64("limit", 0.05, "the rise, as a share, from which on the command fails")
	if err := parse(flags, args); err != nil {
		return err
	}
	if c.Repeat < 1 || *limit < 0 {
		return errors.New("-repeat is at least 1, -limit at least 0")
	}
	var earlier []instructions.Count
	if *against != "" {
		text, err := os.ReadFile(*against)
		if err == nil {
			err = json.Unmarshal(text, &earlier)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", *against, err)
		}
	}
	counts, err := instructions.Run(ctx, c)
	if err != nil {
		return err
	}
	if *path != "" {
		file, err := os.Create(*path)
		if err != nil {
			return err
		}
		if err := errors.Join(writeJSON(file, counts), file.Close()); err != nil {
			return err
		}
	}
	return instructions.Compare(os.Stdout, counts, earlier, *limit)
}

func writeJSON(w io.Writer, value any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(value)
}
