package main

// ringside trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/top"
	"ringside/proxy/live"
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

Values are never shown. At more than 2,000 events a second hits and counts are counted,
and then events dropped; the last line says how many. It ends after --for, or with
Ctrl-C.`,
		Example: `  ringside trace 'home:*'
  ringside trace -1 --for 10s 'home:*' 'page:?'`,
		Args: wantArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var patterns []watch.Pattern
			for _, a := range args {
				patterns = append(patterns, watch.Pattern(a))
			}
			if err := watch.Check(patterns); err != nil {
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
			out := traceOutput{w: bufio.NewWriter(cmd.OutOrStdout()), stories: map[string]*story{}}
			out.json = json.NewEncoder(out.w)
			out.json.SetEscapeHTML(false)
			err = c.Trace(ctx, args, life, func(_ string, data []byte) error {
				is := &live.Traced{}
				if err := json.Unmarshal(data, is); err != nil {
					return fmt.Errorf("the admin interface sends what is no event: %w", err)
				}
				out.dropped += is.Dropped
				for i := range is.Rows {
					r := &is.Rows[i]
					out.events += r.Times
					out.note(r)
					switch {
					case asJSON:
						if err := out.json.Encode(r); err != nil {
							return err
						}
					case !compact:
						out.line(r)
					}
				}
				return out.w.Flush()
			})
			if ctx.Err() != nil { // a person has ended it
				err = nil
			}
			if err != nil {
				return blame(err)
			}
			if compact {
				out.tell()
			}
			if !asJSON {
				fmt.Fprintf(out.w, "-- %d events, %d keys, %d dropped\n", out.events, out.keys, out.dropped)
			}
			return out.w.Flush()
		},
	}
	to.add(cmd)
	cmd.Flags().BoolVarP(&compact, "compact", "1", false, "one line a key, when the trace ends")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object an event")
	cmd.Flags().DurationVar(&life, "for", 10*time.Minute, "how long")
	return cmd
}

// traceOutput prints events.
type traceOutput struct {
	w                     *bufio.Writer
	json                  *json.Encoder
	events, keys, dropped int
	stories               map[string]*story // by what was locked or is the key
	order                 []string          // of stories, as they began
}

// story is what has happened to one key.
type story struct {
	text  strings.Builder
	last  string // letter
	times int    // of that, so far
}

// mostStories is how many keys are told of in one line each.
const mostStories = 10_000

// note adds an event to the story of its key.
func (o *traceOutput) note(r *live.TraceRow) {
	key := strings.TrimPrefix(string(r.Key), watch.Lock)
	s := o.stories[key]
	if s == nil {
		if len(o.order) == mostStories {
			o.dropped += r.Times
			return
		}
		s = &story{}
		o.keys++
		o.stories[key], o.order = s, append(o.order, key)
	}
	if s.last == r.Letter && strings.Contains("HIMl", r.Letter) {
		s.times += r.Times
		return
	}
	s.end()
	s.last, s.times = r.Letter, r.Times
}

// end writes the last letter.
func (s *story) end() {
	if s.last == "" {
		return
	}
	s.text.WriteString(" " + s.last)
	if s.times > 1 {
		fmt.Fprint(&s.text, s.times)
	}
	s.last = ""
}

// tell prints the stories.
func (o *traceOutput) tell() {
	slices.Sort(o.order)
	for _, key := range o.order {
		s := o.stories[key]
		s.end()
		fmt.Fprintf(o.w, "%s%s\n", top.Clean(key), s.text.String())
	}
}

// line prints one event.
func (o *traceOutput) line(r *live.TraceRow) {
	took := ""
	if r.Micros > 0 {
		took = live.Micros(float64(r.Micros))
	}
	key := string(r.Key)
	what := r.Command + " " + r.Outcome
	if of, ok := strings.CutPrefix(key, watch.Lock); ok {
		what, key = r.Command+" "+top.Clean(string(r.Key))+" "+r.Outcome, of
	}
	times := ""
	if r.Times > 1 {
		times = fmt.Sprint(r.Times)
	}
	fmt.Fprintf(o.w, "%s  %s%-3s %-24s %-28s %8s  %-12s %s  c%d\n", time.UnixMilli(r.T).UTC().Format("15:04:05.000"), r.Letter, times, top.Clean(key), what, took,
		top.Clean(r.Server), live.Bytes(float64(r.Bytes)), r.Client)
}
