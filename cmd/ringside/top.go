package main

// ringside top

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/top"
	"ringside/proxy/live"
	"ringside/proxy/watch"
)

func newTop() *cobra.Command {
	var to adminFlags
	var pool string
	var once, asJSON, ascii bool
	var patterns []string
	var window time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what a running Ringside does, second by second",
		Long: `Show what a running Ringside does, second by second: whether the pool is well, in
a sentence; its servers, their traffic and memory; what has happened. 1 to 6 give
one part all the room; the arrows choose a server, Enter opens it, d drains it, u
restores it, both ask first; r h p q m e n sort; / finds; t follows keys, as
ringside trace does; + and - change the pace; ? says all of that; x ends.

With --once it prints one screen and ends, with --json too an object for scripts.
Then it exits 0 if all is well, 1 if nobody could be asked, 3 if a server is not
up. NO_COLOR leaves the colours out, --ascii all characters but those of ASCII, as
is done where TERM is linux.`,
		Example: `  ringside top
  ringside top --trace 'home:*'
  ringside top --once --json --for 5s | jq .health`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && !once || cmd.Flags().Changed("for") && !once {
				return &usageError{fmt.Errorf("--json and --for go with --once")}
			}
			if len(patterns) > 0 {
				if err := watch.Check(watch.Patterns(patterns)); err != nil {
					return &usageError{err}
				}
				if once {
					return &usageError{fmt.Errorf("--trace does not go with --once: see ringside trace")}
				}
			}
			ascii = ascii || os.Getenv("TERM") == "linux"
			if window < 100*time.Millisecond || window > time.Minute {
				return &usageError{fmt.Errorf("--for %v: want a time from 100ms to 1m", window)}
			}
			c, err := to.client()
			if err != nil {
				return err
			}
			defer c.Close()
			if !once {
				return blame(top.Run(cmd.Context(), top.Options{Client: c, Pool: pool, In: os.Stdin, Out: os.Stdout, Colours: wantsColours(), ASCII: ascii, Trace: patterns}))
			}
			now, err := c.Now(cmd.Context(), pool, window)
			if err != nil {
				return blame(err)
			}
			if asJSON {
				err = newEncoder(cmd.OutOrStdout()).Encode(now)
			} else {
				err = top.Print(cmd.OutOrStdout(), now, colours(cmd.OutOrStdout()), ascii)
			}
			for _, s := range now.List {
				if err == nil && s.State != live.Up && s.State != live.Unknown {
					err = &notUpError{fmt.Errorf("%s", now.Health.Title)}
				}
			}
			return err
		},
	}
	to.add(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "the `pool` (default: the first)")
	cmd.Flags().BoolVar(&once, "once", false, "print one screen and end")
	jsonFlag(cmd, &asJSON, oneJSON)
	cmd.Flags().BoolVar(&ascii, "ascii", false, "draw with the characters of ASCII alone")
	cmd.Flags().StringArrayVar(&patterns, "trace", nil, "follow the keys that fit the `pattern`; may be repeated")
	cmd.Flags().DurationVar(&window, "for", 2*time.Second, "how long is counted with --once")
	return cmd
}
