package client

// A client as it is now, for people.

import (
	"fmt"
	"time"

	"ringside/proxy/stats"
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
		ID: s.ID, Age: time.Duration(now - s.since), Idle: time.Duration(now - s.Last), Requests: s.requests,
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
