package instance

// Bounds that are reached, in the log: a line each, at most once in ten seconds,
// with how often it was.

import (
	"cmp"
	"log/slog"
	"time"

	"ringside/proxy/stats"
)

const (
	boundsEvery = time.Second      // how often it is looked whether a bound was reached
	boundQuiet  = 10 * time.Second // between two lines on one of them
)

// boundLog is what was said of each bound.
type boundLog struct {
	log  *slog.Logger
	said map[string]*saidBound
}

type saidBound struct {
	count uint64    // up to the last line
	at    time.Time // of the last line
}

// look says which bounds were reached since it was said last.
func (b *boundLog) look(is stats.Bounds, now time.Time) {
	b.one("limits.clients", is.Clients, now, "clients were refused: limits.clients is reached")
	b.one("descriptors", is.Descriptors, now, "clients could not be accepted: raise the limit of open files (ulimit -n, LimitNOFILE), or lower limits.clients")
	b.one("limits.output_hard", is.Output, now, "clients that don't read their answers were closed: limits.output_hard is reached")
	b.one("limits.unfinished", is.Unfinished, now, "clients that stopped in the middle of a command were closed: limits.unfinished is reached")
	b.one("limits.memory clients", is.Memory, now, "the clients that held most were closed: limits.memory is reached")
	b.one("limits.value", is.TooLarge, now, "values were refused: they are longer than limits.value; raise it if the servers take more (memcached -I)")
	b.one("limits.memory values", is.Values, now, "values were refused: limits.memory is reached")
	var queue, shed uint64
	var busiest, slowest string
	for name, s := range is.Servers {
		queue, shed = queue+s.Queue, shed+s.Shed
		busiest = most(busiest, name, is.Servers[busiest].Queue, s.Queue)
		slowest = most(slowest, name, is.Servers[slowest].Shed, s.Shed)
	}
	b.one("queue", queue, now, "requests were refused: the queue of a server is full", "most_at", busiest)
	b.one("limits.memory requests", shed, now, "requests to servers were refused: limits.memory is reached", "most_at", slowest)
}

// most is the name that has the greater count; of two that are equal the one
// that sorts first.
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
	s.count = min(s.count, count) // a server that is gone takes its counts with it
	if count == s.count || now.Sub(s.at) < boundQuiet {
		return
	}
	b.log.Warn(what, append([]any{"count", count - s.count}, more...)...)
	s.count, s.at = count, now
}
