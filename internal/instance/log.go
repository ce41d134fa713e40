package instance

// This file implements the log, with a level and format that a reload can change.

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"ringside/config"
)

// logSettings contains the current level and format of a log, and where it is written.
type logSettings struct {
	to      io.Writer
	current atomic.Pointer[slog.Handler]
}

// NewLogger returns a log that writes to `to` with the settings l. The method set of the
// returned settings changes them later.
func NewLogger(l config.Log, to io.Writer) (log *slog.Logger, settings *logSettings) {
	s := &logSettings{to: to}
	s.set(l)
	return slog.New(logHandler{s, nil}), s
}

func (s *logSettings) set(l config.Log) {
	options := &slog.HandlerOptions{Level: l.Level}
	var h slog.Handler = slog.NewTextHandler(s.to, options)
	if l.Format == "json" {
		h = slog.NewJSONHandler(s.to, options)
	}
	s.current.Store(&h)
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
