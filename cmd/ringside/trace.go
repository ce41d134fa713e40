package main

// ringside trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringside/proxy/live"
	"ringside/proxy/live/trace"
	"ringside/proxy/watch"
)

func newTrace() *cobra.Command {
	var to adminFlags
	var compact, asJSON bool
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "trace PATTERN...",
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
and then events dropped; the last line says how many. It ends after --for, or with
Ctrl-C.`,
		Example: `  ringside trace 'home:*'
  ringside trace -1 --for 10s 'home:*' 'page:?'`,
		Args: wantArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			out, stories := bufio.NewWriter(cmd.OutOrStdout()), trace.NewStories(mostStories, mostStory)
			encode := json.NewEncoder(out)
			encode.SetEscapeHTML(false)
			err = c.Trace(ctx, args, life, func(_ string, data []byte) error {
				is := &trace.Traced{}
				if err := json.Unmarshal(data, is); err != nil {
					return fmt.Errorf("the admin interface sends what is no event: %w", err)
				}
				stories.Add(is)
				for i := range is.Rows {
					switch {
					case asJSON:
						if err := encode.Encode(&is.Rows[i]); err != nil {
							return err
						}
					case !compact:
						printEvent(out, &is.Rows[i])
					}
				}
				return out.Flush()
			})
			if ctx.Err() != nil { // a person has ended it
				err = nil
			}
			if err != nil {
				return blame(err)
			}
			if compact {
				for _, l := range slices.SortedFunc(stories.Lines(), func(a, b trace.Line) int { return strings.Compare(a.Key, b.Key) }) {
					fmt.Fprintf(out, "%s%s\n", live.Clean(l.Key), l.Text)
				}
			}
			if !asJSON {
				fmt.Fprintf(out, "-- %d events, %d keys, %d dropped\n", stories.Events, stories.Keys(), stories.Dropped)
			}
			return out.Flush()
		},
	}
	to.add(cmd)
	cmd.Flags().BoolVarP(&compact, "compact", "1", false, "one line a key, when the trace ends")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object an event")
	cmd.Flags().DurationVar(&life, "for", 10*time.Minute, "how long")
	return cmd
}

// mostStories is how many keys are told of in one line each, and mostStory of how many bytes
// these are.
const mostStories, mostStory = 10_000, 10_000

// printEvent prints one event in a line.
func printEvent(out io.Writer, r *trace.Row) {
	took := ""
	if r.Micros > 0 {
		took = live.Micros(float64(r.Micros))
	}
	key, asked := string(r.Key), r.Command
	if of, ok := strings.CutPrefix(key, watch.Lock); ok {
		key, asked = of, asked+" "+live.Clean(key)
	}
	what := asked + " " + r.Outcome
	if r.Why != "" {
		what += ", " + r.Why
	}
	letter := r.Letter + r.Cause
	if r.Times > 1 {
		letter += fmt.Sprint(r.Times)
	}
	fmt.Fprintf(out, "%s  %-4s %-24s %-28s %8s  %-12s %s  c%d\n", time.UnixMilli(r.T).UTC().Format("15:04:05.000"), letter, live.Clean(key), what, took,
		live.Clean(r.Server), live.Bytes(float64(r.Bytes)), r.Client)
}
