//go:build linux

package main

// This file implements the command `ringbench load`.

import (
	"context"
	"flag"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

// loadCommand runs a load and prints its result as JSON. The defaults of its flags are scenario a.
func loadCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ringbench load", flag.ContinueOnError)
	var to load.Target
	var w load.Workload
	var b load.Bounds
	var pids []int
	flags.StringVar(&to.Addr, "addr", "", "address to put the load on, IP:PORT or unix:/path; empty asks -servers directly")
	flags.Func("servers", "servers to ask directly, IP:PORT with commas, among which ketama places keys", func(text string) error {
		to.Servers = strings.Split(text, ",")
		return nil
	})
	numbers(flags, &pids, "watch", "process ids, with commas: their usage is reported too")
	flags.IntVar(&w.Conns, "conns", 50, "connections")
	flags.IntVar(&w.Depth, "depth", 1, "requests in flight on a connection")
	flags.IntVar(&w.Keys, "keys", 1, "keys of one read; more than 1 is a multi-get")
	flags.IntVar(&w.Value, "value", 100, "bytes of a value")
	flags.IntVar(&w.KeySize, "keysize", 20, "bytes of a key")
	flags.IntVar(&w.Count, "count", 10000, "how many keys there are")
	flags.IntVar(&w.Reads, "reads", 90, "per cent of requests that read")
	flags.Float64Var(&w.Rate, "rate", 0, "requests a second, latency counted from when each is due; 0 sends as replies come")
	flags.IntVar(&w.Visit, "visit", 0, "requests of a connection that comes and goes; 0: connections stay")
	flags.BoolVar(&w.Lossy, "lossy", false, "count misses and SERVER_ERROR replies and go on")
	flags.BoolVar(&b.NoFill, "nofill", false, "do not write the keys first: they are there")
	flags.DurationVar(&b.Warm, "warm", 250*time.Millisecond, "load before the measured window")
	flags.DurationVar(&b.Window, "duration", 2*time.Second, "the measured window")
	flags.Int64Var(&b.Requests, "requests", 0, "end the window after so many requests; 0 is no limit")
	flags.DurationVar(&b.Timeout, "timeout", 5*time.Second, "a reply that takes longer is lost")
	if err := parse(flags, args); err != nil {
		return err
	}
	// Switch off the garbage collector. The load itself allocates no memory, and only its timer
	// allocates a few bytes. A collection would interrupt the load.
	debug.SetGCPercent(-1)
	result, err := load.Run(ctx, to, w, b, pids)
	if err != nil {
		return err
	}
	return writeJSON(os.Stdout, result)
}
