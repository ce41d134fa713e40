package remote

// This file implements the command `ringside trace`.

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
	"ringside/proxy/watch"
)

// traceFlags are the flags of the command `ringside trace`.
type traceFlags struct {
	cli.Admin
	compact, asJSON bool
	any             bool
	sample          int
	life            time.Duration
}

func newTrace() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace PATTERN... | --any",
		Short: "Show what happens to keys, live",
		Long: `Show what happens to the keys that match one of up to eight patterns, as it happens.
* is any bytes, also none; ? is one byte; [a-z] is one of these. A key that begins with
lock: belongs to the key that it locks.

  H hit                   M miss                  S a read got an old value
  R a read must rebuild   L add stored: locked    l add not stored: another has it
  W stored  w not stored  U lock deleted          D deleted  d nothing to delete
  I incr or decr          T touch or gat          E error

After a miss, if admin.misses knows the reason: X memcached evicted the value; F its
server was flushed or is out, or the key belongs to another server now.

Values are never shown. Above 2,000 events per second, hits are added up, and then events
are dropped; a line per second has their number. It ends after --for, or with Ctrl-C.`,
		Example: `  ringside trace 'home:*'
  ringside trace -1 --for 10s 'home:*' 'page:?'
  ringside trace --any --sample 1000`,
		RunE: f.Ask(func(cmd *cobra.Command, c *admin.Client, args []string) error {
			patterns, err := f.patterns(args, cmd.Flags().Changed("sample"))
			if err != nil {
				return cli.Usage(err)
			}
			return f.follow(cmd, c, patterns)
		}),
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&f.compact, "compact", "1", false, "one line per key: rewritten in a terminal, otherwise appended")
	flags.BoolVar(&f.any, "any", false, "follow a sample of all keys, see --sample")
	flags.IntVar(&f.sample, "sample", 100, "with --any: follow one key in this many, with everything that happens to it")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object per event")
	flags.DurationVar(&f.life, "for", 10*time.Minute, "end after this time")
	return cmd
}

// patterns returns the patterns of the keys that the trace shows. It returns an error if the
// command line is invalid. sampled means that the flag --sample was set.
func (f *traceFlags) patterns(args []string, sampled bool) ([]string, error) {
	switch {
	case f.any && len(args) > 0:
		return nil, errors.New("--any follows all keys: leave the patterns out")
	case f.any && (f.sample < 1 || f.sample > watch.MostSample):
		return nil, fmt.Errorf("--sample %d: want one key in 1 to %d", f.sample, watch.MostSample)
	case f.any:
		args = []string{string(watch.Sample(f.sample))}
	case sampled:
		return nil, errors.New("--sample goes with --any")
	case len(args) == 0:
		return nil, fmt.Errorf("which keys? give 1 to %d patterns, or --any", watch.MostPatterns)
	}
	if err := watch.Check(watch.Patterns(args)); err != nil {
		return nil, err
	}
	switch {
	case f.life < time.Second || f.life > time.Hour:
		return nil, fmt.Errorf("--for %v: want a time from 1s to 1h", f.life)
	case f.compact && f.asJSON:
		return nil, errors.New("-1 and --json don't go together")
	}
	return args, nil
}

// follow prints the events of keys that match one of patterns. It ends after the time of the flag
// --for, or after a signal.
func (f *traceFlags) follow(cmd *cobra.Command, c *admin.Client, patterns []string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	t, ended := newTracing(cmd.OutOrStdout(), f.compact, f.asJSON), make(chan struct{})
	go t.everySecond(ended)
	err := c.Trace(ctx, patterns, f.life, t.add)
	close(ended)
	if err != nil && ctx.Err() == nil { // an error after SIGINT or SIGTERM is ignored, because the signal is the usual end
		return cli.AsUsage(err)
	}
	return t.end()
}
