package client

// This file collects data about single clients for operators: the current state of each, and a
// log of some slow commands.

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
)

// activity counts what a client has done so far.
type activity struct {
	since, Last int64 // when the client connected; when it last sent something, or could continue after a stall; in nanoseconds on the loop's clock
	requests    uint64
}

// Requested counts a request that Ringside answers without an exchange.
func (s *Session) Requested() { s.requests++ }

// Snapshot returns the current state of s, without the addresses of client and listener.
func (s *Session) Snapshot() stats.ClientSnapshot {
	now := s.e.Now
	return stats.ClientSnapshot{
		ID: s.ID &^ upstream.Bulky, Age: time.Duration(now - s.since), Idle: time.Duration(now - s.Last), Requests: s.requests,
		In: s.BytesIn, Out: s.BytesOut, InFlight: s.InFlight, Held: s.Buffered(), Waits: s.waits(),
	}
}

// waits returns what s waits for, unless it is a server.
func (s *Session) waits() stats.Wait {
	wait := func(phase, format string, args ...any) stats.Wait {
		return stats.Wait{Phase: phase, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.Full && s.Out.Size+s.Handed > 0:
		return wait(stats.Client, "the client to read %d bytes of its replies", s.Out.Size+s.Handed)
	case s.unknown:
		return wait(stats.Login, "the client to log in")
	case s.Head != nil: // the client waits for servers, or for its other commands on the key: not reported here
		return stats.Wait{}
	case s.room.waits && s.room.conn != nil:
		return wait(stats.Send, "server %s to read %d bytes before a large value is sent", s.room.conn.Server.Label(), s.room.conn.Out.Size)
	case s.room.waits:
		return wait(stats.Command, "memory for a large value: half of limits.memory is in use")
	case s.Swallow > 0:
		return wait(stats.Command, "%d more bytes of a rejected command", s.Swallow)
	case s.In != nil && s.Stalled:
		return wait(stats.Turn, "its turn: the loop handles other clients first; %d bytes of its commands have arrived", s.In.Len())
	case s.In != nil && s.Need > s.In.Len():
		return wait(stats.Command, "the rest of a command: %d of %d bytes have arrived", s.In.Len(), max(s.Need, s.room.whole))
	case s.In != nil:
		return wait(stats.Command, "the end of a command line: %d bytes have arrived", s.In.Len())
	}
	return stats.Wait{}
}

// slowLog selects the slow commands that are logged. In each ten seconds these are the first
// ten, and then those with a number that is a power of two. So there are few lines, spread over
// the time, and the last one shows how many there were.
type slowLog struct {
	after int64 // a command is slow from this duration on, in nanoseconds; link.Never: none is
	until int64 // the end of the current ten seconds
	count int   // slow commands in the current ten seconds
}

const (
	slowTime  = 10 * time.Second
	slowFirst = 10
)

// LogSlow logs commands that take at least this long from now on; 0: none.
func (e *Clients) LogSlow(after time.Duration) {
	if e.slow.after = int64(after); after == 0 {
		e.slow.after = link.Never
	}
}

// Slow describes a slow command, or one server's part of it, in the log.
type Slow struct {
	Key           []byte // the key as the client knows it; if there are several keys, the first
	Keys          int
	Server, Phase string // Server is empty if no server has replied to a command that needs several
	Why           string // why the request has failed; empty: it was answered
}

// Slow reports whether x has taken long enough to count as slow.
func (x *Exchange) Slow() bool { return x.e.Now-x.Start >= x.e.slow.after }

// LogSlow logs the slow command x, unless there are too many.
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
	more := []any{event.SlowCommand.Attr(), "command", x.Op.Command(x.dialect, x.Flags), "key", escaped(is.Key), "keys", is.Keys}
	if is.Server != "" {
		more = append(more, "server", is.Server)
	}
	more = append(more, "client", peer, "ms", (e.Now-x.Start)/int64(time.Millisecond), "phase", is.Phase, "slow_in_10s", l.count)
	if is.Why != "" {
		more = append(more, "error", is.Why)
	}
	e.Log.Info("slow command", more...)
}

// escaped returns the key without characters that a terminal or a log could interpret.
func escaped(key []byte) string {
	quoted := strconv.QuoteToASCII(string(key))
	return quoted[1 : len(quoted)-1]
}

// slowPart logs the part a of x, which was sent on c.
func (x *Exchange) slowPart(c *upstream.Conn, a *upstream.Attempt, phase, why string) {
	key, keys := a.FirstKey()
	x.LogSlow(Slow{append([]byte(a.Strip), key...), keys, c.Server.Label(), phase, why})
}
