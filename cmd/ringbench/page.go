//go:build linux

package main

// This file implements the command `ringbench page`.

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ringside/internal/bench"
)

func pageCommand(args []string) error {
	flags := flag.NewFlagSet("ringbench page", flag.ContinueOnError)
	page := flags.String("page", "BENCHMARKS.md", `file with places such as "<!-- run: first -->" and "<!-- end -->", between which the part "first" of the report run.json goes`)
	from := flags.String("from", "bin/tables", "directory of the reports")
	if err := parse(flags, args); err != nil {
		return err
	}
	text, err := os.ReadFile(*page)
	if err != nil {
		return err
	}
	filled, left, err := bench.FillPage(string(text), func(name string) (*bench.Report, error) {
		text, err := os.ReadFile(filepath.Join(*from, name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		r := new(bench.Report)
		return r, json.Unmarshal(text, r)
	})
	if err != nil {
		return err
	}
	for _, place := range left {
		fmt.Printf("left as it was, for there is no report: %s\n", place)
	}
	return os.WriteFile(*page, []byte(filled), 0o666)
}
