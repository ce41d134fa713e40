package instance

// This file logs that a limit was reached. Each limit has at most one line in ten
// seconds, with the number of times.

import (
	"cmp"
	"log/slog"
	"time"

	"ringside/proxy/stats"
)

const (
	boundsEvery = time.Second      // how often the limits are checked
	boundQuiet  = 10 * time.Second // minimum time between two log lines about the same limit
)

// boundLog remembers, for each limit, what was logged about it.
type boundLog struct {
	log  *slog.Logger
	said map[string]*saidBound
}

type saidBound struct {
	count uint64    // how often the limit had been reached at the last log line about it
	at    time.Time // time of the last log line about the limit
}

// check logs each limit that was reached since the last log line about it.
func (b *boundLog) check(is stats.Bounds, now time.Time) {
	b.one("limits.clients", is.Clients, now, "clients rejected: limits.clients reached")
	b.one("descriptors", is.Descriptors, now, "clients not accepted: raise the limit of open files (ulimit -n, LimitNOFILE), or lower limits.clients")
	b.one("limits.output_hard", is.Output, now, "clients closed because they do not read their replies: limits.output_hard reached")
	b.one("limits.unfinished", is.Unfinished, now, "clients closed because they stopped in the middle of a command: limits.unfinished reached")
	b.one("limits.memory clients", is.Memory, now, "clients with the most buffered bytes closed: limits.memory reached")
	b.one("limits.value", is.TooLarge, now, "values rejected: longer than limits.value; raise it if the servers accept more (memcached -I)")
	b.one("limits.memory values", is.Values, now, "values rejected: limits.memory reached")
	var queue, shed uint64
	var busiest, slowest string
	for name, s := range is.Servers {
		queue, shed = queue+s.Queue, shed+s.Shed
		busiest = most(busiest, name, is.Servers[busiest].Queue, s.Queue)
		slowest = most(slowest, name, is.Servers[slowest].Shed, s.Shed)
	}
	b.one("queue", queue, now, "requests rejected: the queue of a server is full", "most_at", busiest)
	b.one("limits.memory requests", shed, now, "requests to servers rejected: limits.memory reached", "most_at", slowest)
}

// most returns that of the names a and b with the greater count. If the counts are equal,
// it returns the name that sorts first.
func most(a, b string, countA, countB uint64) string {
	if a == "" || cmp.Or(cmp.Compare(countB, countA), cmp.Compare(a, b)) > 0 {
		return b
	}
	return a
}

func (b *boundLog) one(bound string, count uint64, now time.Time, what string, more ...any) {
	s := b.said[bound]
	if s == nil {
		s = &saidBound{}
		b.said[bound] = s
	}
	s.count = min(s.count, count) // count is a sum over all servers, so it becomes smaller when a server is removed
	if count == s.count || now.Sub(s.at) < boundQuiet {
		return
	}
	b.log.Warn(what, append([]any{"count", count - s.count}, more...)...)
	s.count, s.at = count, now
}
