package remote

// This file implements the command `ringside top`.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/internal/top"
	"ringside/proxy/admin"
	"ringside/proxy/live"
	"ringside/proxy/watch"
)

// topFlags are the flags of the command `ringside top`.
type topFlags struct {
	cli.Admin
	pool                string
	once, asJSON, ascii bool
	patterns            []string
	window              time.Duration
}

func newTop() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show traffic, errors and memory of a running instance, live",
		Long: `Show a running instance, live. The first line is the worst state of all pools. Below it
are the servers of one pool with their traffic and memory, and recent events.

Keys: 1 to 6 enlarge one part. The arrows select a server, Enter opens it, d drains it,
u restores it (both ask first). r h p w m e n sort. / searches. t follows keys, like
ringside trace. + and - change the interval. ? shows this help. q quits.

--once prints one screen and ends; --once --json prints an object for scripts. The exit
status is then 0 if all pools are fine, 1 if the instance does not reply, and 3 if any
pool has a problem, for example a server that is not up, or requests that fail. The
first line describes the problem. NO_COLOR disables colours. --ascii disables other
characters than ASCII, as TERM=linux does.`,
		Example: `  ringside top
  ringside top --trace 'home:*'
  ringside top --once --json --for 5s | jq .health`,
		Args: cli.WantArgs(0, 0),
		RunE: f.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			if err := f.check(cmd.Flags().Changed("for")); err != nil {
				return cli.Usage(err)
			}
			f.ascii = f.ascii || os.Getenv("TERM") == "linux"
			if f.once {
				return f.printOnce(cmd.Context(), c, cmd.OutOrStdout())
			}
			return cli.AsUsage(top.Run(cmd.Context(), top.Options{Client: c, Pool: f.pool, In: os.Stdin, Out: os.Stdout, Colours: cli.WantsColours(), ASCII: f.ascii, Trace: f.patterns}))
		}),
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.pool, "pool", "", "the `pool` to show (default: the one with the worst state)")
	flags.BoolVar(&f.once, "once", false, "print one screen and end")
	flags.BoolVar(&f.asJSON, "json", false, cli.OneJSON)
	flags.BoolVar(&f.ascii, "ascii", false, "draw with ASCII characters only")
	flags.StringArrayVar(&f.patterns, "trace", nil, "follow the keys that match the `pattern`; can be repeated")
	flags.DurationVar(&f.window, "for", 2*time.Second, "with --once: how long to measure")
	return cmd
}

// check returns an error if the flags of `ringside top` are invalid. windowed means that the flag
// --for was set.
func (f *topFlags) check(windowed bool) error {
	if (f.asJSON || windowed) && !f.once {
		return errors.New("--json and --for go with --once")
	}
	if len(f.patterns) > 0 {
		if err := watch.Check(watch.Patterns(f.patterns)); err != nil {
			return err
		}
		if f.once {
			return errors.New("--trace does not go with --once: see ringside trace")
		}
	}
	if f.window < 100*time.Millisecond || f.window > time.Minute {
		return fmt.Errorf("--for %v: want a time from 100ms to 1m", f.window)
	}
	return nil
}

// printOnce prints one screen of `ringside top`, or the same data as JSON. It returns an error if
// a request fails, and also if the health that it has printed is not good.
func (f *topFlags) printOnce(ctx context.Context, c *admin.Client, out io.Writer) error {
	now, err := c.Now(ctx, f.pool, f.window)
	if err != nil {
		return cli.AsUsage(err)
	}
	if f.asJSON {
		err = cli.NewEncoder(out).Encode(now)
	} else {
		err = top.Print(out, now, cli.Colours(out), f.ascii)
	}
	if err != nil {
		return err
	}
	if now.Health.Level != live.Good {
		return cli.NotUp(errors.New(now.Health.Title))
	}
	return nil
}
