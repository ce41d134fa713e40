package client

// What people see of single clients: each as it is now, and of commands whose answers
// took long a few.

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
)

// activity is what a client has done so far.
type activity struct {
	since, Last int64 // when it connected; when it was last read, or allowed to say more; in nanoseconds on the loop's clock
	requests    uint64
}

// Requested counts a request that gets no exchange.
func (s *Session) Requested() { s.requests++ }

// Snapshot is s as it is now, without its names.
func (s *Session) Snapshot() stats.ClientSnapshot {
	now := s.e.Now
	return stats.ClientSnapshot{
		ID: s.ID &^ upstream.Bulky, Age: time.Duration(now - s.since), Idle: time.Duration(now - s.Last), Requests: s.requests,
		In: s.BytesIn, Out: s.BytesOut, InFlight: s.InFlight, Held: s.Buffered(), Waits: s.waits(),
	}
}

// waits is what s waits for, as far as it is not a server.
func (s *Session) waits() stats.Wait {
	wait := func(phase, format string, args ...any) stats.Wait {
		return stats.Wait{Phase: phase, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.Full && s.Out.Size+s.Handed > 0:
		return wait(stats.Client, "the client to take %d bytes of its answers", s.Out.Size+s.Handed)
	case s.unknown:
		return wait(stats.Login, "the client to say who it is")
	case s.Head != nil: // servers, or its other commands on the key
		return stats.Wait{}
	case s.Swallow > 0:
		return wait(stats.Command, "%d more bytes of a command that was refused", s.Swallow)
	case s.In != nil && s.Need > s.In.Len():
		return wait(stats.Command, "the rest of a command: %d of %d bytes are here", s.In.Len(), s.Need)
	case s.In != nil:
		return wait(stats.Command, "the end of a command's line: %d bytes are here", s.In.Len())
	}
	return stats.Wait{}
}

// slowLog says which slow commands are logged: in each ten seconds the first ten,
// and then each whose number is a power of two. So it has few lines, from all of the
// time, and says how many there were.
type slowLog struct {
	after int64 // commands that took so many nanoseconds are slow; link.Never: none is
	until int64 // the end of the ten seconds
	count int   // slow commands in them so far
}

const (
	slowTime  = 10 * time.Second
	slowFirst = 10
)

// LogSlow logs commands from now on that take so long; 0: none.
func (e *Clients) LogSlow(after time.Duration) {
	if e.slow.after = int64(after); after == 0 {
		e.slow.after = link.Never
	}
}

// Slow is what is said of a slow command, or of one server's part of it.
type Slow struct {
	Key           []byte // as the client knows it; of a part with several the first
	Keys          int
	Server, Phase string
	Why           string // why it got no answer; empty: it did
}

// Slow says whether x has taken long.
func (x *Exchange) Slow() bool { return x.e.Now-x.Start >= x.e.slow.after }

// LogSlow logs x, which has taken long, unless there are too many such.
func (x *Exchange) LogSlow(is Slow) {
	e := x.e
	l := &e.slow
	if e.Now >= l.until {
		l.until, l.count = e.Now+int64(slowTime), 0
	}
	if l.count++; l.count > slowFirst && bits.OnesCount(uint(l.count)) > 1 {
		return
	}
	peer := "gone"
	if x.Session != nil {
		peer = x.Session.Peer()
	}
	more := []any{"command", x.Op.String(), "key", escaped(is.Key), "keys", is.Keys, "server", is.Server, "client", peer,
		"ms", (e.Now - x.Start) / int64(time.Millisecond), "phase", is.Phase, "slow_in_10s", l.count}
	if is.Why != "" {
		more = append(more, "error", is.Why)
	}
	e.Log.Info("slow command", more...)
}

// escaped is a key without what a terminal or a log could take for something else.
func escaped(key []byte) string {
	quoted := strconv.QuoteToASCII(string(key))
	return quoted[1 : len(quoted)-1]
}

// slowPart logs the part a, on c, of x.
func (x *Exchange) slowPart(c *upstream.Conn, a *upstream.Attempt, phase, why string) {
	key, keys := a.FirstKey()
	x.LogSlow(Slow{append([]byte(a.Strip), key...), keys, c.Server.Label(), phase, why})
}
