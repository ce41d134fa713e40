package remote

// ringside trace

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

// traceFlags are those of ringside trace.
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
	flags.BoolVarP(&f.compact, "compact", "1", false, "one line a key: rewritten on a terminal; else what is new of it, appended")
	flags.BoolVar(&f.any, "any", false, "follow keys whichever they are, one in --sample")
	flags.IntVar(&f.sample, "sample", 100, "with --any: follow one key in so many, all that happens to it")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object an event")
	flags.DurationVar(&f.life, "for", 10*time.Minute, "how long")
	return cmd
}

// patterns are those of the keys to follow. The error says what is wrong with the command
// line; sampled, that it has --sample.
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

// follow prints what happens to the keys that fit one of patterns, until --for is over or a
// person ends it.
func (f *traceFlags) follow(cmd *cobra.Command, c *admin.Client, patterns []string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	t, ended := newTracing(cmd.OutOrStdout(), f.compact, f.asJSON), make(chan struct{})
	go t.everySecond(ended)
	err := c.Trace(ctx, patterns, f.life, t.add)
	close(ended)
	if err != nil && ctx.Err() == nil { // else a person has ended it, which is no error
		return cli.AsUsage(err)
	}
	return t.end()
}
