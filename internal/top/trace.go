package top

// This file shows traced keys and what happens to them.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"ringside/proxy/live"
)

// Limits of the traced keys: how many keys are kept, and how many events, as letters, for each key.
const (
	mostTraced  = 200
	mostLetters = 2000
	traceLife   = time.Hour // longest duration of one trace; then a new trace starts
)

// traced adds a line for each traced key, at most `most` lines. Keys with the earliest first event
// are first. Each letter of a line is an event, and the newest event is at the right.
func (d *drawing) traced(most int) {
	if len(d.Patterns) == 0 || most < 2 {
		return
	}
	head := " TRACE " + strings.Join(d.Patterns, " ")
	switch {
	case d.Untraced != "":
		d.add(Warn, head+": "+d.Untraced)
		return
	case d.Traced == nil || d.Traced.Keys() == 0:
		d.add(Dim, head+": nothing has happened to such keys yet")
		return
	}
	end := len(d.lines) + most
	d.add(Dim, fmt.Sprintf("%s  %s events, %s dropped", head, live.Count(float64(d.Traced.Events)), live.Count(float64(d.Traced.Dropped))))
	const name = 10
	for l := range d.Traced.Lines() {
		if len(d.lines) == end-1 && d.Traced.Keys() > most-1 {
			d.add(Dim, fmt.Sprintf(" and %d keys more", d.Traced.Keys()-(most-2)))
			return
		}
		key := live.Clean(l.Key)
		if len(key) > 2*name {
			key = cut(key, 2*name)
		}
		head := " " + pad(key, max(name, len([]rune(key))), true)
		letters := l.Text
		if room := d.width - len([]rune(head)); len(letters) > room {
			letters = "…" + letters[len(letters)-room+1:]
		}
		d.add(Plain, head+letters)
	}
}

// traces has the running trace. The function end stops the trace; it is nil if no trace runs.
type traces struct {
	to  chan<- message
	end context.CancelFunc
}

// trace stops the running trace and starts a trace of the keys that match the patterns. Without
// patterns it starts no trace.
func (s *screen) trace(ctx context.Context, patterns []string) {
	if s.traces.end != nil {
		s.traces.end()
		s.traces.end = nil
	}
	s.view.Patterns, s.view.Traced, s.view.Untraced = patterns, nil, ""
	if len(patterns) == 0 {
		return
	}
	s.view.Traced = live.NewStories(mostTraced, mostLetters)
	ctx, s.traces.end = context.WithCancel(ctx)
	go s.followKeys(ctx, patterns, s.traces.to)
}

// followKeys traces the keys that match the patterns, and forwards the events to a channel.
func (o *Options) followKeys(ctx context.Context, patterns []string, to chan<- message) {
	repeat(ctx, to, func(take taker) (why message) {
		if err := o.Client.Trace(ctx, patterns, traceLife, take); err != nil {
			why = message{"untraced", []byte(live.Clean(err.Error())), nil}
		}
		return why
	})
}
