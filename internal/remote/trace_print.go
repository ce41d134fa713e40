package remote

// This file prints the events of the command `ringside trace`.

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"ringside/internal/cli"
	"ringside/internal/top"
	"ringside/internal/tracefile"
	"ringside/proxy/live"
	"ringside/proxy/watch"
)

// tracing prints the events of keys in one of three forms. Events are received at most
// four times a second. In the long form, each second with events also gets a summary
// line.
//
//	long      one line per event
//	asJSON    one object per event
//	compact   one line per key: rewritten on a terminal, otherwise new parts are appended
//
// mu guards all fields, because add and everySecond run concurrently.
type tracing struct {
	mu       sync.Mutex
	out      *bufio.Writer
	terminal *os.File // the terminal on which lines are rewritten; nil: lines are only appended
	compact  bool
	encode   *json.Encoder // writes events as JSON; nil: they are printed as text
	stories  *live.Stories
	told     int // number of events that are in earlier summary lines
}

// mostStories is the maximum number of keys for which letters are collected. mostStory is the
// maximum length of the letters of one key, in bytes.
const mostStories, mostStory = 10_000, 10_000

func newTracing(to io.Writer, compact, asJSON bool) *tracing {
	t := &tracing{out: bufio.NewWriter(to), compact: compact, stories: live.NewStories(mostStories, mostStory)}
	switch {
	case asJSON:
		t.encode = cli.NewEncoder(t.out)
	case compact && cli.OnTerminal(to):
		t.terminal = cli.Terminal(to)
		t.out = bufio.NewWriter(t.terminal) // without the sanitizer of the command's output, because the lines contain cursor positions
	}
	return t
}

// add prints the events in data, one message of the stream of events.
func (t *tracing) add(_ string, data []byte) error {
	is := &live.Traced{}
	if err := json.Unmarshal(data, is); err != nil {
		return fmt.Errorf("the admin interface sends what is not an event: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stories.Add(is)
	switch {
	case t.terminal != nil:
		t.draw(time.Now())
	case t.compact:
		for _, line := range tracefile.Lines(is) {
			t.out.Write(line)
		}
	default:
		for i := range is.Rows {
			if t.encode == nil {
				printEvent(t.out, &is.Rows[i])
			} else if err := t.encode.Encode(&is.Rows[i]); err != nil {
				return err
			}
		}
	}
	return t.out.Flush()
}

// everySecond prints a summary line each second, or draws the lines on the terminal again. It
// returns when ended is closed.
func (t *tracing) everySecond(ended <-chan struct{}) {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ended:
			return
		case now := <-ticks.C:
			t.mu.Lock()
			switch {
			case t.terminal != nil:
				t.draw(now)
			case !t.compact && t.encode == nil && t.stories.Events > t.told:
				fmt.Fprintln(t.out, t.summary(now))
			}
			t.told = t.stories.Events
			t.out.Flush()
			t.mu.Unlock()
		}
	}
}

// summary returns the summary line for the second that ends at the time now.
func (t *tracing) summary(now time.Time) string {
	return fmt.Sprintf("-- %s  %s/s, %s, %d dropped", now.UTC().Format(time.TimeOnly), cli.Counted(t.stories.Events-t.told, "event"), cli.Counted(t.stories.Keys(), "key"), t.stories.Dropped)
}

// draw rewrites the terminal, with one line per key. If there are too many keys for the terminal,
// it shows the keys with the latest events. If a line is too long, it shows only the end of the
// line.
func (t *tracing) draw(now time.Time) {
	width, height := top.Size(t.terminal)
	lines := slices.Collect(t.stories.Lines())
	if room := max(height-1, 0); len(lines) > room {
		slices.Reverse(lines)
		slices.SortStableFunc(lines, func(a, b live.Line) int { return cmp.Compare(b.Ended, a.Ended) })
		lines = lines[:room]
		slices.Reverse(lines)
		slices.SortStableFunc(lines, func(a, b live.Line) int { return cmp.Compare(a.Began, b.Began) })
	}
	row := 0
	print := func(text string) {
		row++
		fmt.Fprintf(t.out, "\x1b[%d;1H%s\x1b[K", row, text)
	}
	for _, l := range lines {
		key := []rune(live.Clean(l.Key))
		key = key[:min(len(key), width/2)]
		letters := []rune(l.Text)
		letters = letters[max(0, len(letters)-max(width-1-len(key), 0)):]
		print(string(key) + string(letters))
	}
	for row < height-1 {
		print("")
	}
	status := t.summary(now)
	print(status[:min(len(status), max(width-1, 0))])
}

// end prints the last lines of the trace: the summary and, on a terminal, one line per key.
func (t *tracing) end() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.terminal != nil {
		fmt.Fprint(t.out, "\x1b[1;1H\x1b[2J")
		for _, l := range slices.SortedFunc(t.stories.Lines(), func(a, b live.Line) int { return strings.Compare(a.Key, b.Key) }) {
			fmt.Fprintf(t.out, "%s%s\n", live.Clean(l.Key), l.Text)
		}
	}
	if t.encode == nil {
		fmt.Fprintf(t.out, "-- %s, %s, %d dropped\n", cli.Counted(t.stories.Events, "event"), cli.Counted(t.stories.Keys(), "key"), t.stories.Dropped)
	}
	return t.out.Flush()
}

// printEvent prints one event on a line.
func printEvent(out io.Writer, r *live.Row) {
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
