//go:build linux

package main

// This file implements the command `ringbench load`.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

func loadCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ringbench load", flag.ContinueOnError)
	to := load.Target{}
	flags.StringVar(&to.Addr, "addr", "", "address to put the load on, IP:PORT or unix:/path; empty asks -servers directly")
	servers := flags.String("servers", "", "servers, IP:PORT with commas, among which ketama places keys: who is asked without -addr, and whose keys -apart means")
	flags.StringVar(&to.Apart, "apart", "", "one of -servers: the latency of reads of its keys is told apart")
	watch := flags.String("watch", "", "process ids, with commas, whose CPU and memory are reported too")
	work, bounds := loadFlags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *servers != "" {
		to.Servers = strings.Split(*servers, ",")
	}
	var pids []int
	for text := range strings.SplitSeq(*watch, ",") {
		if text == "" {
			continue
		}
		pid, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-watch %q: use process ids, with commas", *watch)
		}
		pids = append(pids, pid)
	}
	// Switch off the garbage collector. The load itself allocates no memory, and only its timer
	// allocates a few bytes. A collection would interrupt the load.
	debug.SetGCPercent(-1)
	result, err := load.Run(ctx, to, *work, *bounds, pids)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(result)
}

// loadFlags declares the flags that describe a load. Their defaults are those of the scenario
// with the letter a.
func loadFlags(flags *flag.FlagSet) (*load.Workload, *load.Bounds) {
	w, b := new(load.Workload), new(load.Bounds)
	flags.IntVar(&w.Conns, "conns", 50, "connections")
	flags.IntVar(&w.Depth, "depth", 1, "requests in flight on a connection")
	flags.IntVar(&w.Keys, "keys", 1, "keys of one read; more than 1 is a multi-get")
	flags.IntVar(&w.Quiet, "quiet", 0, "speak quiet meta batches of so many keys, closed with mn; 0 speaks text")
	flags.BoolVar(&w.Binary, "binary", false, "speak the binary protocol; a multi-get is quiet gets and a noop")
	flags.IntVar(&w.Value, "value", 100, "bytes of a value")
	flags.IntVar(&w.KeySize, "keysize", 20, "bytes of a key")
	flags.IntVar(&w.Count, "count", 10000, "how many keys there are")
	flags.IntVar(&w.Reads, "reads", 90, "per cent of requests that read")
	flags.Float64Var(&w.Rate, "rate", 0, "requests a second, latency counted from when each is due; 0 sends as replies come")
	flags.BoolVar(&w.Sliding, "sliding", false, "refill a pipeline at each reply, not when it is empty")
	flags.IntVar(&w.Visit, "visit", 0, "requests of a connection that comes and goes; 0: connections stay")
	flags.BoolVar(&w.Idle, "idle", false, "after one read on each connection send nothing")
	flags.BoolVar(&w.Lossy, "lossy", false, "count misses and SERVER_ERROR replies and go on")
	flags.BoolVar(&b.NoFill, "nofill", false, "do not write the keys first: they are there")
	flags.BoolVar(&b.Cut, "cut", false, "end with the window, whatever is due; needs -nofill and -warm 0")
	flags.DurationVar(&b.Warm, "warm", 250*time.Millisecond, "load before the measured window")
	flags.DurationVar(&b.Window, "duration", 2*time.Second, "the measured window")
	flags.Int64Var(&b.Requests, "requests", 0, "end the window after so many requests; 0 is no limit")
	flags.DurationVar(&b.Timeout, "timeout", 5*time.Second, "a reply that takes longer is lost")
	return w, b
}
