package link

// This file limits the lines in the log that clients, servers or peers can cause at any rate.

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// LogLimit limits the lines of each kind. In ten seconds it writes one line, or a few lines about orders
// and then one, with a count of the lines that it replaces. All loops of a process share one LogLimit.
type LogLimit struct {
	mu    sync.Mutex
	kinds map[logKind]*limitedLines
	last  int // number of the last line that was logged or waits
}

// logKind is a message and its subject: a server, a pool, a listener or a route.
type logKind struct{ what, of string }

// limitedLines are the lines of one kind.
type limitedLines struct {
	until   int64      // lines in excess wait until this time, in nanoseconds of the clock of their caller
	written int        // lines that were written since the ten seconds before until began
	waited  bool       // a line had to wait in that time
	count   int        // lines since the last written line
	level   slog.Level // level of the last line that was not written
	args    []any      // attributes of the last line that was not written
	nth     int        // number of the last line that was not written; waiting lines are written in the order of their numbers
	group   string     // lines of the same group are written in the order of their events; empty: no group
}

const (
	logEvery = 10 * time.Second
	logKinds = 4096 // maximum number of kinds that are remembered: at this number, kinds without a line in the last logEvery are forgotten first
	orders   = 5    // lines about orders of an operator that are written at once, so that the log has each order of a person
)

// LogLimited writes a line, unless a line with the same arguments `of` and `what` was written in
// the last ten seconds. In that case the line waits until they have passed. If more lines follow in
// that time, only the last one is written, so that the log ends with the current state. The
// attribute count is the number of lines that it replaces.
func (io *IO) LogLimited(level slog.Level, of, what string, args ...any) {
	io.logLines(1, level, "", of, what, args...)
}

// LogInOrder writes a line as LogLimited does, but keeps the order of the lines of a group:
// waiting lines of the group are written before a later one.
func (io *IO) LogInOrder(level slog.Level, group, of, what string, args ...any) {
	io.logLines(1, level, group, of, what, args...)
}

// LogOrder writes a line about an order of an operator, or about another rare event. It limits lines as
// LogLimited does, from the sixth line in ten seconds on. Lines with the same argument `of` keep their order.
func (io *IO) LogOrder(level slog.Level, of, what string, args ...any) {
	io.logLines(orders, level, of, of, what, args...)
}

func (io *IO) logLines(first int, level slog.Level, group, of, what string, args ...any) {
	if due := io.logLimit.log(io.Log, io.Now, first, level, group, of, what, args...); due > 0 {
		io.At(LogTimer, due)
	}
}

// log writes a line at the time now, or makes it wait if `first` lines of its kind were written in
// the last ten seconds. It returns when the waiting line is due, on the same clock, or 0 if the line was
// written.
func (l *LogLimit) log(log *slog.Logger, now int64, first int, level slog.Level, group, of, what string, args ...any) (due int64) {
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
	if now < k.until && k.written >= first {
		k.waited = true
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

// write writes the last line of k to the log, with the number of lines that it replaces. If that line
// has waited, the next one must wait, too: a flood has one line in ten seconds.
func (k *limitedLines) write(log *slog.Logger, kind logKind, now int64) {
	if k.count > 1 {
		k.args = append(k.args, "count", k.count)
	}
	log.Log(context.Background(), k.level, kind.what, k.args...)
	k.count, k.args = 0, nil
	switch {
	case k.waited:
		k.until, k.written, k.waited = now+int64(logEvery), orders, false
	case now >= k.until:
		k.until, k.written = now+int64(logEvery), 1
	default:
		k.written++
	}
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
	if due := io.logLimit.flush(io.Log, io.Now); due > 0 {
		io.At(LogTimer, due)
	}
}

// End writes all lines that wait, because the process ends.
func (l *LogLimit) End(log *slog.Logger) { l.flush(log, Never) }

// flush writes the lines that have waited long enough. It returns when the next one is due, or 0 if no
// line waits.
func (l *LogLimit) flush(log *slog.Logger, now int64) (next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []logKind
	for kind, k := range l.kinds {
		switch {
		case k.count == 0:
		case k.until <= now:
			due = append(due, kind)
		case next == 0 || k.until < next:
			next = k.until
		}
	}
	slices.SortFunc(due, func(a, b logKind) int { return l.kinds[a].nth - l.kinds[b].nth })
	for _, kind := range due {
		if l.kinds[kind].count > 0 { // count is 0 if the line was written with another line of its group
			l.write(log, kind, now)
		}
	}
	return next
}

// LimitedLog limits lines that no loop writes. The zero value with a Log is ready for use. It may be used by
// several goroutines.
type LimitedLog struct {
	Log   *slog.Logger
	limit LogLimit

	mu      sync.Mutex
	started time.Time // when its clock was 0
	waits   bool      // a timer will call flush
}

// LogLimited does what IO.LogLimited does. Lines with the same argument `of` keep their order.
func (l *LimitedLog) LogLimited(level slog.Level, of, what string, args ...any) {
	l.logLines(1, level, of, what, args...)
}

// LogOrder does what IO.LogOrder does.
func (l *LimitedLog) LogOrder(level slog.Level, of, what string, args ...any) {
	l.logLines(orders, level, of, what, args...)
}

// End writes all lines that wait, because the process ends.
func (l *LimitedLog) End() { l.limit.End(l.Log) }

func (l *LimitedLog) logLines(first int, level slog.Level, of, what string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started.IsZero() {
		l.started = time.Now()
	}
	l.wait(l.limit.log(l.Log, int64(time.Since(l.started)), first, level, of, of, what, args...))
}

// wait makes a timer flush the lines at the time due, unless it is 0. The caller holds mu.
func (l *LimitedLog) wait(due int64) {
	if due == 0 || l.waits {
		return
	}
	l.waits = true
	time.AfterFunc(time.Duration(due)-time.Since(l.started), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waits = false
		l.wait(l.limit.flush(l.Log, int64(time.Since(l.started))))
	})
}
