package main

// ringside trace

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringside/proxy/watch"
)

func newTrace() *cobra.Command {
	var to adminFlags
	var compact, asJSON bool
	var any bool
	var sample int
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "trace PATTERN... | --any",
		Short: "Show what happens to keys, as it happens",
		Long: `Show what happens to the keys that fit one of up to eight patterns, as it happens:
* stands for any bytes or none, ? for one, [a-z] for one of these. A key that begins
with lock: belongs to what it locks, whatever fits that.

  H a read found it       M it found nothing      S found an old value
  R is to make it anew    L add stored: lock won  l add refused: another has it
  W written  w refused    U lock deleted          D deleted  d was not there
  I counted               T touched               E failed

Behind a miss, where admin.misses knows what it follows from: X memcached threw the
value away, F its server was flushed or is out, or the key has another server now.

Values are never shown. At more than 2,000 events a second hits and counts are counted,
and then events dropped; a line a second says how many. It ends after --for, or with
Ctrl-C.`,
		Example: `  ringside trace 'home:*'
  ringside trace -1 --for 10s 'home:*' 'page:?'
  ringside trace --any --sample 1000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case any && len(args) > 0:
				return &usageError{fmt.Errorf("--any follows all keys: leave the patterns out")}
			case any && (sample < 1 || sample > watch.MostSample):
				return &usageError{fmt.Errorf("--sample %d: want one key in 1 to %d", sample, watch.MostSample)}
			case any:
				args = []string{string(watch.Sample(sample))}
			case cmd.Flags().Changed("sample"):
				return &usageError{fmt.Errorf("--sample goes with --any")}
			case len(args) == 0:
				return &usageError{fmt.Errorf("which keys? give 1 to %d patterns, or --any", watch.MostPatterns)}
			}
			if err := watch.Check(watch.Patterns(args)); err != nil {
				return &usageError{err}
			}
			if life < time.Second || life > time.Hour {
				return &usageError{fmt.Errorf("--for %v: want a time from 1s to 1h", life)}
			}
			if compact && asJSON {
				return &usageError{fmt.Errorf("-1 and --json don't go together")}
			}
			c, err := to.client()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			t, ended := newTracing(cmd.OutOrStdout(), compact, asJSON), make(chan struct{})
			go t.everySecond(ended)
			err = c.Trace(ctx, args, life, t.add)
			close(ended)
			if ctx.Err() != nil { // a person has ended it
				err = nil
			}
			if err != nil {
				return blame(err)
			}
			return t.end()
		},
	}
	to.add(cmd)
	cmd.Flags().BoolVarP(&compact, "compact", "1", false, "one line a key: rewritten on a terminal; else what is new of it, appended")
	cmd.Flags().BoolVar(&any, "any", false, "follow keys whichever they are, one in --sample")
	cmd.Flags().IntVar(&sample, "sample", 100, "with --any: follow one key in so many, all that happens to it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object an event")
	cmd.Flags().DurationVar(&life, "for", 10*time.Minute, "how long")
	return cmd
}
