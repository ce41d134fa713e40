package upstream

// This file determines what clients wait for at servers, for display.

import (
	"fmt"
	"time"

	"ringside/proxy/stats"
)

// Waits calls tell for each client that waits for replies on a connection. It passes to tell what the
// client's first request on the connection waits for.
func (e *Servers) Waits(tell func(client uint64, w stats.Wait)) {
	for _, srv := range e.ByAddress {
		for _, c := range srv.Conns {
			c.waits(tell)
		}
	}
	for _, list := range [][]*Conn{e.Closing, e.Lingering} {
		for _, c := range list {
			c.waits(tell)
		}
	}
}

func (c *Conn) waits(tell func(client uint64, w stats.Wait)) {
	told := map[uint64]bool{}
	for a, before := c.Head, 0; a != nil; a, before = a.Next, before+1 {
		if a.To != nil {
			if id := a.To.Client() &^ Bulky; id != 0 && !told[id] {
				told[id] = true
				phase, why := c.phase(a, before)
				tell(id, stats.Wait{Phase: phase, Server: c.Server.Label(), For: time.Duration(c.Server.e.Now - a.sentAt), Why: why})
			}
		}
	}
}

// phase returns what the attempt a waits for now (one of the phases in package stats), and a text
// that explains it. The parameter `before` is the number of attempts before a in the queue.
func (c *Conn) phase(a *Attempt, before int) (phase, why string) {
	switch {
	case c.State != ConnUp:
		return stats.Connect, "a connection to the server"
	case a.Start+uint64(a.Size) > c.Taken && c.Full:
		return stats.Send, fmt.Sprintf("the server to read the request (bytes before it: %d)", max(0, int64(a.Start)-int64(c.Taken)))
	case a != c.Head: // other requests are before a in the queue; a may not be sent yet: see Conn.Flush
		return stats.Queue, fmt.Sprintf("the server to answer earlier requests (%d)", before)
	case a.Begun || c.StreamLeft > 0:
		return stats.Value, "the rest of the server's answer"
	}
	return stats.Answer, "the server's answer"
}

// Slowest returns in which phase (see package stats) the attempt a has spent most of its time. The
// reply to a must just have become complete.
func (c *Conn) Slowest(a *Attempt) string {
	connected := max(a.sentAt, c.upAt)
	first := max(connected, c.headAt)
	begun := max(first, c.Server.e.Now)
	if a.Begun {
		begun = max(first, a.begunAt)
	}
	longest, phase := connected-a.sentAt, stats.Connect
	for _, p := range []struct {
		took  int64
		phase string
	}{{first - connected, stats.Queue}, {begun - first, stats.Answer}, {c.Server.e.Now - begun, stats.Value}} {
		if p.took > longest {
			longest, phase = p.took, p.phase
		}
	}
	return phase
}

// FailedIn returns the phase (see package stats) in which the attempt a has failed.
func (c *Conn) FailedIn(a *Attempt, f Failure) string {
	switch {
	case f.Unsent && c.State != ConnUp:
		return stats.Connect
	case f.Unsent:
		return stats.Send
	case a.Begun:
		return stats.Value
	}
	return stats.Answer
}
