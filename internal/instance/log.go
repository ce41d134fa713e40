package instance

// This file implements the log, with a level and format that a reload can change.

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"ringside/config"
)

const (
	mostLines = 1000        // number of log lines that wait for their reader, at most; further ones are dropped
	lastLines = time.Second // how long the end of the process waits for the reader of the log
)

// lineQueue writes log lines in a goroutine of its own. So the process does not wait for the reader of its log, which may have
// stopped: a full pipe, a log driver that blocks, or a terminal.
type lineQueue struct {
	to      io.Writer
	lines   chan []byte
	dropped atomic.Uint64 // lines since the last one that was written
	written chan struct{} // closed when all lines are written
	stalled func(n uint64)
}

// newLineQueue returns a queue of lines to be written. The function stalled logs that n lines were dropped, when the reader goes on. The
// caller must call close.
func newLineQueue(to io.Writer, stalled func(n uint64)) *lineQueue {
	q := &lineQueue{to: to, lines: make(chan []byte, mostLines), written: make(chan struct{}), stalled: stalled}
	go q.run()
	return q
}

// Write adds a line to the queue, or drops it if the queue is full. It never fails.
func (q *lineQueue) Write(line []byte) (int, error) {
	select {
	case q.lines <- bytes.Clone(line):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

func (q *lineQueue) run() {
	defer close(q.written)
	for line := range q.lines {
		if line == nil {
			return
		}
		q.to.Write(line)
		if len(q.lines) < mostLines/2 { // so that the line about them finds room
			if n := q.dropped.Swap(0); n > 0 {
				q.stalled(n)
			}
		}
	}
}

// close waits until all lines are written, for at most the time lastLines. Later lines may be dropped.
func (q *lineQueue) close() {
	late := time.NewTimer(lastLines)
	defer late.Stop()
	select {
	case q.lines <- nil:
		select {
		case <-q.written:
		case <-late.C:
		}
	case <-late.C:
	}
}

// logSettings contains the current level and format of a log, and where it is written. The
// log does not contain the secrets of the current configuration.
type logSettings struct {
	to      io.Writer
	current atomic.Pointer[slog.Handler]
}

// NewLogger returns a log that writes to `to` with the settings of f. The method set of the
// returned settings changes them later.
func NewLogger(f *config.File, to io.Writer) (log *slog.Logger, settings *logSettings) {
	s := &logSettings{to: to}
	s.set(f)
	return slog.New(logHandler{s, nil}), s
}

func (s *logSettings) set(f *config.File) {
	options := &slog.HandlerOptions{Level: f.Log.Level}
	to := hiding{s.to, f}
	var h slog.Handler = slog.NewTextHandler(to, options)
	if f.Log.Format == "json" {
		h = slog.NewJSONHandler(to, options)
	}
	s.current.Store(&h)
}

// hiding is a writer of log lines that replaces the secrets of a configuration.
type hiding struct {
	to   io.Writer
	file *config.File
}

func (h hiding) Write(line []byte) (int, error) {
	if _, err := io.WriteString(h.to, h.file.Hide(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// logHandler passes each log record to the slog.Handler of the current settings. The
// field more adds the attributes and groups of derived loggers to that handler.
type logHandler struct {
	settings *logSettings
	more     func(slog.Handler) slog.Handler
}

func (h logHandler) now() slog.Handler {
	is := *h.settings.current.Load()
	if h.more != nil {
		is = h.more(is)
	}
	return is
}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return (*h.settings.current.Load()).Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error { return h.now().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.adding(func(is slog.Handler) slog.Handler { return is.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return h.adding(func(is slog.Handler) slog.Handler { return is.WithGroup(name) })
}

func (h logHandler) adding(add func(slog.Handler) slog.Handler) slog.Handler {
	before := h.more
	if before == nil {
		return logHandler{h.settings, add}
	}
	return logHandler{h.settings, func(is slog.Handler) slog.Handler { return add(before(is)) }}
}
