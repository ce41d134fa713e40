//go:build linux

package main

// This file implements the commands run, curves, where, outages, tails and soak.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"ringside/internal/bench"
)

// proxyVariable is the name of an environment variable. Its value is the path of a memcached that
// was built with its own proxy.
const proxyVariable = "MEMCACHED_PROXY"

func runCommand(ctx context.Context, args []string) error {
	flags := measuringFlags("run", 30*time.Minute)
	c := &flags.config
	c.MemcachedProxy = os.Getenv(proxyVariable)
	flags.nutcrackerFlag()
	flags.runFlags(3, 3, time.Second, 2*time.Second)
	flags.StringVar(&c.Haproxy, "haproxy", "haproxy", "haproxy's binary; left out when it does not exist (memcached's own proxy takes part when MEMCACHED_PROXY names a memcached built with it)")
	flags.StringVar(&c.Scenarios, "scenarios", bench.UsualScenarios, "letters of the scenarios to run; empty for none:\n"+bench.ScenarioList())
	flags.BoolVar(&c.NoFloor, "nofloor", false, "leave plain memcached out, where it is not what others are compared with")
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
	flags.nutcrackerFlag()
	flags.runFlags(2, 2, 500*time.Millisecond, 600*time.Millisecond)
	names := flags.String("curves", "", "names of the curves to measure, with commas; empty is all")
	return flags.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		if err := checkRuns(c); err != nil {
			return nil, err
		}
		return bench.Curves(ctx, c, strings.FieldsFunc(*names, func(r rune) bool { return r == ',' }))
	})
}

func whereCommand(ctx context.Context, args []string) error {
	flags := measuringFlags("where", 15*time.Minute)
	flags.config.MemcachedProxy = os.Getenv(proxyVariable)
	flags.nutcrackerFlag()
	flags.StringVar(&flags.config.Scenarios, "scenarios", bench.UsualScenarios, "letters of the scenarios to run:\n"+bench.ScenarioList())
	flags.DurationVar(&flags.config.Window, "time", 700*time.Millisecond, "measured time of a run")
	flags.DurationVar(&flags.config.Warm, "warm", 2*time.Second, "load before it; moderation finds its pace in the first two seconds")
	var to bench.WhereTo
	flags.StringVar(&to.Profiles, "profiles", "", "directory for CPU profiles of Ringside and their top functions; empty takes none")
	flags.DurationVar(&to.Time, "profile-time", 3*time.Second, "how long each is taken, in whole seconds")
	return flags.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		if c.Window <= 0 || c.Warm < 0 || to.Time < time.Second || to.Time > time.Minute {
			return nil, errors.New("-time is more than 0, -warm at least 0, -profile-time 1s to 1m")
		}
		c.Rounds, c.Tries, c.Disturbed = 1, 1, 1
		return bench.FindWhere(ctx, c, to)
	})
}

func soakCommand(ctx context.Context, args []string) error {
	flags := measuringFlags("soak", 25*time.Hour)
	length := flags.Duration("time", 10*time.Minute, "how long to soak")
	return flags.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		return bench.RunSoak(ctx, c, *length)
	})
}

func outagesCommand(ctx context.Context, args []string) error {
	flags := measuringFlags("outages", 15*time.Minute)
	flags.nutcrackerFlag()
	each := flags.Duration("time", 6*time.Second, "how long a server is gone, and how long the rate before is measured")
	return flags.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		return bench.Outages(ctx, c, *each)
	})
}

func tailsCommand(ctx context.Context, args []string) error {
	flags := measuringFlags("tails", 30*time.Minute)
	flags.nutcrackerFlag()
	flags.runFlags(10, 2, time.Second, 2*time.Second)
	late, rate := slowFlags(flags.FlagSet), flags.Float64("rate", 10_000, "requests a second of scenario h: the forwarder has its CPU from load and servers")
	return flags.run(ctx, args, func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		if err := errors.Join(checkRuns(c), checkSlow(*late)); err != nil {
			return nil, err
		}
		if *rate <= 0 {
			return nil, errors.New("-rate is more than 0")
		}
		return bench.Tails(ctx, c, *late, *rate)
	})
}

func slowFlags(flags *flag.FlagSet) *bench.Server {
	s := new(bench.Server)
	flags.Float64Var(&s.Share, "share", 0.01, "share of the answers that are held back")
	flags.DurationVar(&s.Delay, "delay", 20*time.Millisecond, "how long they are")
	return s
}

func checkSlow(s bench.Server) error {
	if s.Share < 0 || s.Share > 1 || s.Delay < 0 {
		return errors.New("-share is 0 to 1, -delay at least 0")
	}
	return nil
}

// slowCommand implements the command `ringbench slow`. It forwards clients to one memcached and
// delays some of the replies. The command `ringbench tails` starts it in front of one of its
// servers.
func slowCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ringbench slow", flag.ContinueOnError)
	s := slowFlags(flags)
	listen := flags.String("listen", "", "where to listen, IP:PORT")
	flags.StringVar(&s.To, "to", "", "where the memcached is, IP:PORT")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := checkSlow(*s); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	return s.Serve(listener)
}

func wakeupsCommand(args []string) error {
	flags := flag.NewFlagSet("ringbench wakeups", flag.ContinueOnError)
	n := flags.Int("n", 2000, "how many of each")
	cpu := flags.Int("cpu", 1, "the CPU to measure on")
	other := flags.Int("other", 0, "the CPU of the thread that is woken")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *n < 1 || *cpu < 0 || *other < 0 || *cpu == *other {
		return errors.New("-n is at least 1; -cpu and -other are two CPUs, counted from 0")
	}
	w, err := bench.MeasureWakeups(*n, *cpu, *other)
	if err == nil {
		fmt.Print(w)
	}
	return err
}

func checkRuns(c bench.Config) error {
	if c.Rounds < 1 || c.Tries < 1 || c.Window <= 0 || c.Warm < 0 {
		return errors.New("-rounds and -tries are at least 1, -time is more than 0 and -warm at least 0")
	}
	return nil
}
