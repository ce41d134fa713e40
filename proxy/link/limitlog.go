package link

// Log lines that clients, servers or peers can cause at any rate.

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// LogLimit writes at most one line of a kind in ten seconds, with a count. The loops of a
// process share one.
type LogLimit struct {
	mu    sync.Mutex
	kinds map[logKind]*limitedLines
	last  int // number of the last line that waits
}

// logKind is a message and what it is about: a server, a pool, a listener or a route.
type logKind struct{ what, of string }

// limitedLines are the lines of one kind.
type limitedLines struct {
	until int64      // no line is written before, on the clock of the loops
	count int        // lines since the last that was written
	level slog.Level // of the last that was not
	args  []any      // likewise
	nth   int        // its number among all lines that wait
	group string     // lines of one group are written in the order of their events; empty: no group
}

const (
	logEvery = 10 * time.Second
	logKinds = 4096 // that are remembered: what is older than logEvery is forgotten first
)

// LogLimited logs what, unless a line with the same what and of was logged in the last
// ten seconds. Then the line waits until these are over. If others follow meanwhile only
// the last is written, so that the log ends with what is true. A line that stands for
// several says so by count.
func (io *IO) LogLimited(level slog.Level, of, what string, args ...any) {
	if due := io.logLimit.Log(io.Log, io.Now, level, of, what, args...); due > 0 {
		io.At(LogTimer, due)
	}
}

// LogInOrder is LogLimited for lines that must keep their order with others of the same
// group: those that wait are written before a later one.
func (io *IO) LogInOrder(level slog.Level, group, of, what string, args ...any) {
	if due := io.logLimit.log(io.Log, io.Now, level, group, of, what, args...); due > 0 {
		io.At(LogTimer, due)
	}
}

// Log is IO.LogLimited at the time now. It returns when the line that waits is due, on the
// same clock; 0: it was written. Without a Flush it goes with the next of its kind.
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

// write writes the last line of a kind, behind those of its group that came before it.
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

// write writes the last line of k.
func (k *limitedLines) write(log *slog.Logger, kind logKind, now int64) {
	if k.count > 1 {
		k.args = append(k.args, "count", k.count)
	}
	log.Log(context.Background(), k.level, kind.what, k.args...)
	k.count, k.args = 0, nil
	k.until = now + int64(logEvery)
}

// forget forgets kinds of which no line waits, and all if that is not enough.
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
		if l.kinds[kind].count > 0 { // else it was written before another of its group
			l.write(io.Log, kind, io.Now)
		}
	}
}
