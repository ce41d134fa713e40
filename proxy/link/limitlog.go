package link

// This file limits the lines in the log that clients, servers or peers can cause at any rate.

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// LogLimit writes at most one line of each kind in ten seconds, with a count of the lines that
// it replaces. All loops of a process share one LogLimit.
type LogLimit struct {
	mu    sync.Mutex
	kinds map[logKind]*limitedLines
	last  int // number of the last line that was logged or waits
}

// logKind is a message and its subject: a server, a pool, a listener or a route.
type logKind struct{ what, of string }

// limitedLines are the lines of one kind.
type limitedLines struct {
	until int64      // no line is written before this time, in nanoseconds of the loops' clock
	count int        // lines since the last written line
	level slog.Level // level of the last line that was not written
	args  []any      // attributes of the last line that was not written
	nth   int        // number of the last line that was not written; waiting lines are written in the order of their numbers
	group string     // lines of the same group are written in the order of their events; empty: no group
}

const (
	logEvery = 10 * time.Second
	logKinds = 4096 // maximum number of kinds that are remembered: at this number, kinds without a line in the last logEvery are forgotten first
)

// LogLimited writes a line, unless a line with the same arguments `of` and `what` was written in
// the last ten seconds. In that case the line waits until they have passed. If more lines follow in
// that time, only the last one is written, so that the log ends with the current state. The
// attribute count is the number of lines that it replaces.
func (io *IO) LogLimited(level slog.Level, of, what string, args ...any) {
	if due := io.logLimit.Log(io.Log, io.Now, level, of, what, args...); due > 0 {
		io.At(LogTimer, due)
	}
}

// LogInOrder writes a line as LogLimited does, but keeps the order of the lines of a group:
// waiting lines of the group are written before a later one.
func (io *IO) LogInOrder(level slog.Level, group, of, what string, args ...any) {
	if due := io.logLimit.log(io.Log, io.Now, level, group, of, what, args...); due > 0 {
		io.At(LogTimer, due)
	}
}

// Log writes a line at the time now, or makes it wait: see IO.LogLimited. It returns when the
// waiting line is due, on the same clock, or 0 if the line was written. If FlushLog is not
// called, the waiting line is replaced by the next line of its kind.
func (l *LogLimit) Log(log *slog.Logger, now int64, level slog.Level, of, what string, args ...any) (due int64) {
	return l.log(log, now, level, "", of, what, args...)
}

func (l *LogLimit) log(log *slog.Logger, now int64, level slog.Level, group, of, what string, args ...any) (due int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[logKind]*limitedLines{}
	}
	kind := logKind{what, of}
	k := l.kinds[kind]
	if k == nil {
		if len(l.kinds) >= logKinds {
			l.forget(now)
		}
		k = &limitedLines{}
		l.kinds[kind] = k
	}
	k.count++
	k.level, k.args, k.group = level, args, group
	l.last++
	k.nth = l.last
	if now < k.until {
		return k.until
	}
	l.write(log, kind, now)
	return 0
}

// write writes the last line of a kind, after the earlier lines of its group.
func (l *LogLimit) write(log *slog.Logger, kind logKind, now int64) {
	k := l.kinds[kind]
	var before []logKind
	if k.group != "" {
		for other, o := range l.kinds {
			if o.count > 0 && o.group == k.group && o.nth < k.nth {
				before = append(before, other)
			}
		}
	}
	slices.SortFunc(before, func(a, b logKind) int { return l.kinds[a].nth - l.kinds[b].nth })
	for _, other := range append(before, kind) {
		l.kinds[other].write(log, other, now)
	}
}

// write writes the last line of k to the log, with the number of lines that it replaces.
func (k *limitedLines) write(log *slog.Logger, kind logKind, now int64) {
	if k.count > 1 {
		k.args = append(k.args, "count", k.count)
	}
	log.Log(context.Background(), k.level, kind.what, k.args...)
	k.count, k.args = 0, nil
	k.until = now + int64(logEvery)
}

// forget removes kinds that have no waiting line, and all kinds if that is not enough.
func (l *LogLimit) forget(now int64) {
	for kind, k := range l.kinds {
		if k.count == 0 && k.until <= now {
			delete(l.kinds, kind)
		}
	}
	if len(l.kinds) >= logKinds {
		clear(l.kinds)
	}
}

// FlushLog writes the lines that have waited long enough.
func (io *IO) FlushLog() {
	l := io.logLimit
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []logKind
	for kind, k := range l.kinds {
		switch {
		case k.count == 0:
		case k.until <= io.Now:
			due = append(due, kind)
		default:
			io.At(LogTimer, k.until)
		}
	}
	slices.SortFunc(due, func(a, b logKind) int { return l.kinds[a].nth - l.kinds[b].nth })
	for _, kind := range due {
		if l.kinds[kind].count > 0 { // count is 0 if the line was written with another line of its group
			l.write(io.Log, kind, io.Now)
		}
	}
}
