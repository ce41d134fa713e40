package tracefile

// This file contains the traces of the current configuration.

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ringside/config"
	"ringside/proxy/event"
	"ringside/proxy/link"
	"ringside/proxy/live"
	"ringside/proxy/watch"
)

func same(a, b *config.Trace) bool {
	return slices.Equal(a.Keys, b.Keys) && a.File == b.File && a.Max == b.Max && a.Keep == b.Keep
}

// keys returns the key patterns of the trace t, separated by spaces, for messages.
func keys(t *config.Trace) string { return live.Clean(strings.Join(t.Keys, " ")) }

// Look returns the error that Open would return for the trace t, as far as it can be found
// without creating a file.
func Look(t *config.Trace) error {
	if err := (&file{path: t.File}).look(); err != nil {
		return unwritable(t, err)
	}
	return nil
}

func unwritable(t *config.Trace, err error) error {
	return fmt.Errorf("cannot write the trace of %s: %w; see that its directory is there and that Ringside may write to it", keys(t), err)
}

// Traces contains the traces that are being written into files.
type Traces struct {
	tracer *live.Tracer
	log    link.LimitedLog
	list   []*writing
}

// New returns an empty Traces. tracer is the source of the events that its traces write.
func New(tracer *live.Tracer, log *slog.Logger) *Traces {
	return &Traces{tracer: tracer, log: link.LimitedLog{Log: log}}
}

// writing is one trace that is being written into a file.
type writing struct {
	config.Trace
	to       *file
	follower *live.Follower // reader of the events of the trace; nil until the trace starts
	ended    chan struct{}  // closed after the last line was written
	failed   atomic.Bool
}

// Open opens the files of the traces in list, which must have valid patterns. Nothing else
// changes until the caller calls take. take(true) starts the new traces and ends the traces that
// are not in list. Unchanged traces continue. take(false) closes the files that Open has opened.
func (t *Traces) Open(list []config.Trace) (take func(bool), err error) {
	var now, opened []*writing
	give := func() {
		for _, w := range opened {
			w.to.close()
		}
	}
	for i := range list {
		s := &list[i]
		if at := slices.IndexFunc(t.list, func(w *writing) bool { return same(&w.Trace, s) && !w.failed.Load() }); at >= 0 {
			now = append(now, t.list[at])
			continue
		}
		to, err := openFile(s.File, s.Max, s.Keep)
		if err != nil {
			give()
			return nil, unwritable(s, err)
		}
		w := &writing{Trace: *s, to: to, ended: make(chan struct{})}
		now, opened = append(now, w), append(opened, w)
	}
	return func(yes bool) {
		if !yes {
			give()
			return
		}
		for _, w := range t.list {
			if !slices.Contains(now, w) {
				w.end()
			}
		}
		for _, w := range opened {
			w.follower = t.tracer.Record(watch.Patterns(w.Keys))
			t.log.LogOrder(slog.LevelInfo, w.File, "trace started", event.TraceStarted.Attr(), "keys", keys(&w.Trace), "file", w.File)
			go w.run(&t.log)
		}
		t.list = now
	}, nil
}

// Close ends all traces. It returns when all their events are written.
func (t *Traces) Close() {
	for _, w := range t.list {
		w.end()
	}
	t.list = nil
	t.log.End()
}

// end stops the trace w. It returns when all events of the trace are written.
func (w *writing) end() {
	w.follower.Close()
	<-w.ended
}

func (w *writing) run(log *link.LimitedLog) {
	defer close(w.ended)
	defer w.to.close()
	for more := true; more; {
		_, more = <-w.follower.Ready
		is := w.follower.Take()
		if !w.put(&is, log) {
			w.follower.Close()
			return
		}
	}
}

// put writes the events in `is` into the file of the trace w. It returns false if that fails,
// which ends the trace.
func (w *writing) put(is *live.Traced, log *link.LimitedLog) bool {
	lines := Lines(is)
	if len(lines) == 0 {
		return true
	}
	err := w.to.write(lines)
	if err != nil {
		w.failed.Store(true)
		log.LogOrder(slog.LevelError, w.File, "trace stopped: repair its file, and reload", event.TraceStopped.Attr(), "keys", keys(&w.Trace), "file", w.File, "error", err)
	}
	return err == nil
}

// mostLetters is about the maximum number of bytes in one line for the events of a key. Each
// event is written as a letter (see live.Stories).
const mostLetters = 4000

// Lines returns the lines to append to a trace file. Each line is complete: a key, and the
// letters of what has happened to the key since the previous line.
func Lines(is *live.Traced) (lines [][]byte) {
	s := live.NewStories(len(is.Rows), mostLetters)
	s.Add(is)
	add := func(at int64, format string, args ...any) {
		b := time.UnixMilli(at).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z ")
		lines = append(lines, fmt.Appendf(b, format+"\n", args...))
	}
	for l := range s.Lines() {
		add(l.Began, "%s%s", strings.ReplaceAll(live.Clean(l.Key), " ", `\x20`), l.Text)
	}
	if s.Dropped > 0 {
		add(time.Now().UnixMilli(), "-- %d events dropped", s.Dropped)
	}
	return lines
}
