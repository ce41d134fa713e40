package upstream

// This file pairs the replies of servers with requests, by their order.

import (
	"fmt"
	"log/slog"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// Parse pairs the replies in the input of c with the requests in the queue, one by one and in order. It
// stops when the rest of the input is not a complete reply.
func (c *Conn) Parse() {
	e, first := c.Server.e, c.Head
	for c.State == ConnUp {
		buf := e.Input.Bytes()
		if len(buf) == 0 {
			break
		}
		if c.StreamLeft > 0 {
			c.stream(buf)
			continue
		}
		a := c.Head
		if a == nil || a.Start >= c.Taken {
			c.desync("sent a reply without a request", buf)
			return
		}
		if c.passing > 0 {
			c.pass(a)
			continue
		}
		r := &e.rep
		awaited := a.NextKey()
		if a.Dialect == wire.Meta && (!a.keyed() || a.Flags&wire.ReturnValue == 0 || a.Shows != 0) {
			awaited = nil
		}
		n, err := wire.NextReplyOf(a.Op, a.Dialect, awaited, buf, r)
		switch {
		case !a.Joined:
		case r.Awaited:
			r.Last = a.LastKey()
		case r.Kind != wire.NoReply && c.divide(a, r, buf):
			continue
		}
		switch {
		case r.Unique.End > 0 && (a.Op == wire.Get && a.Flags&wire.Binary == 0 || a.Op == wire.Gat): // only gets and gats return a cas
			c.desync(a.invalid(), buf)
			return
		case err == wire.ErrShort:
			if r.Kind == wire.Value && c.startStream(a, buf) {
				continue
			}
			if a.exceedsOwn(r.Size) {
				c.desync(longAnswer, buf)
			} else {
				c.short(a)
			}
			return
		case err != nil || a.Start+uint64(a.Size) > c.Taken && r.Kind < wire.Error:
			c.desync(a.invalid(), buf)
			return
		}
		if !r.Awaited && (r.Kind == wire.Value || a.Dialect == wire.Meta) { // only a VALUE and meta replies contain a key
			if why := c.misfit(a, buf); why != "" {
				c.desync(why, buf)
				return
			}
		}
		switch {
		case a.Probe && (r.Kind.Failed() || a == c.login && r.Kind != wire.Stored):
			why := c.refusal(a, string(r.Line.Of(buf)))
			e.Input.Start += n
			e.freeAttempt(c.pop())
			c.rejectGreeting(why, stats.Unavailable)
		default:
			c.noteAnswer()
			if !r.Last && !a.Joined && endFollows(r, buf[n:]) {
				r.Last = true
				n += len(wire.EndLine)
			}
			if !r.Last {
				if a.exceedsOwn(n) {
					c.desync(longAnswer, buf)
					return
				}
				c.flows(a)
				if r.Awaited {
					a.Found(r.Key.Len())
				}
			}
			taken := c.reply(a, r, buf[:n])
			e.Input.Start += n - taken // the receiver may have moved bytes out of the input: e.Input is another chunk then, without the taken bytes
		}
	}
	if c.Head != first { // a reply is complete, so another request is the first in the queue now
		c.headAt = e.Now
	}
	if a := c.Head; a != nil && a.Begun {
		c.setAside(a)
	}
	if c.answered && c.holding > 0 || c.Server.Draining() || c.Lingering {
		e.Mark(&c.Link)
	}
}

// short is called when the input has only a part of the current reply to the attempt a. Parse continues
// when c.Need bytes have arrived.
func (c *Conn) short(a *Attempt) {
	c.Need = c.Server.e.rep.Size
	c.flows(a)
	c.setAside(a)
}

const longAnswer = "sent more than 1 MiB in reply to a request of Ringside's own"

const otherName = "replied with another key or opaque than requested"

// endFollows reports whether r is a VALUE, and rest, the input after r, begins with END. For the last
// VALUE of a reply this is nearly always true. To parse END as a separate reply would cost as much as
// to parse the VALUE.
func endFollows(r *wire.Reply, rest []byte) bool {
	return len(rest) >= len(wire.EndLine) && string(rest[:len(wire.EndLine)]) == wire.AnswerEnd && r.Kind == wire.Value
}

// desync aborts a connection on which replies can no longer be paired with requests: one client could
// get another client's value. what says what the server has sent. The server is marked as down if
// this happens before its first reply on a connection, or after_failures times within a short time
// (violationTime). Ringside then dials the server again at growing intervals.
func (c *Conn) desync(what string, buf []byte) {
	c.Server.e.Input.Start = c.Server.e.Input.End
	c.broken(what, buf)
}

// broken is desync if no input of c is being parsed.
func (c *Conn) broken(what string, buf []byte) {
	e, srv := c.Server.e, c.Server
	if c.Untrusted {
		c.abort("server "+srv.Label()+": "+what, stats.ServerFault)
		return
	}
	e.Count.Desyncs++
	e.LogLimited(slog.LevelError, srv.Label(), "server connection closed: the server broke the protocol", "server", srv.Target.Name, "address", srv.Address(), "why", "it "+what, "bytes", string(buf[:min(len(buf), 64)]))
	if a := c.Head; a != nil && a.Shared(a.Size) && srv.joinGets {
		srv.joinGets = false
		e.LogLimited(slog.LevelWarn, srv.Label(), "server replied to several gets in the wrong order, so it gets one key per request from now on: set gets: single, or multiget_order: request if it is a Ringside instance", "server", srv.Target.Name, "address", srv.Address())
	}
	if srv.violated(); !c.greeted && !c.Lingering && !srv.worksWithout(c) || srv.violations >= srv.downAfter {
		was := srv.Down
		c.abort(srv.whyDown("it "+what), stats.Unavailable)
		if srv.goDown("it "+what, false); !was {
			srv.backOff()
		}
		return
	}
	c.abort("server "+srv.Label()+": "+what, stats.Lost)
}

// violationTime is the minimum time without protocol violations of a server after which its earlier
// violations no longer count.
const violationTime = 10 * time.Second

// violated counts a protocol violation of the server.
func (srv *Server) violated() {
	if srv.e.Now >= srv.violatedBy {
		srv.violations = 0
	}
	srv.violations++
	srv.violatedBy = srv.e.Now + int64(max(violationTime, 2*srv.backoff.Max))
}

// backOff sets the wait before the next dial after a protocol violation. The wait doubles with each
// recent violation after the one that first marked the server as down. A reply to the greeting in
// between does not reset the wait.
func (srv *Server) backOff() {
	for n := srv.violations - srv.downAfter; n > 0 && srv.wait < int64(srv.backoff.Max); n-- {
		srv.wait = min(2*srv.wait, int64(srv.backoff.Max))
	}
	srv.RedialAt = srv.e.Now + srv.wait
	srv.e.At(link.RequestTimer, srv.RedialAt)
}

// noteAnswer records that the server has replied on c, so the server is not down.
func (c *Conn) noteAnswer() {
	c.answered, c.greeted = true, true
	if c.Server.Down || c.Server.timeouts > 0 {
		c.comeUp()
	}
}

// reply passes the reply r, which has the bytes b, to the receiver of a. It returns how many bytes
// the receiver has moved out of the input.
func (c *Conn) reply(a *Attempt, r *wire.Reply, b []byte) (taken int) {
	if r.Kind == wire.ServerError && a.To != nil && !a.Internal {
		c.Server.noteError(r.Line.Of(b))
	}
	if a.AsText != nil && a.To != nil {
		if b = c.toMeta(a, b); b == nil {
			return 0
		}
	}
	last := r.Last
	switch {
	case a.To != nil:
		taken = a.To.Reply(c, a, r, b)
	case a == c.login:
		c.loggedIn()
	case r.Kind == wire.VersionIs:
		c.learnRelease(r.Line.Of(b))
	case a.Op == wire.Version && c.Features == 0: // the server has rejected the version command, so it counts as the oldest release on this connection
		c.speaks(wire.Oldest.Features())
	}
	if r.Kind != wire.Value || a.Values && (last || !a.Many) {
		c.Server.e.Observer.Observe(c, a, r)
	}
	if last {
		c.finished(a)
	}
	return taken
}

// flows records that a part of the reply to the attempt a has arrived, but not the end of the reply.
func (c *Conn) flows(a *Attempt) {
	if !a.Begun {
		a.Begun, a.begunAt = true, c.Server.e.Now
	}
}

// finished removes the attempt a from the queue. The reply to a is complete.
func (c *Conn) finished(a *Attempt) {
	e := c.Server.e
	c.pop()
	c.Server.Count.Latency.Observe(e.Now - a.sentAt)
	if c.meanAnswers++; c.meanAnswers == meanOf {
		c.meanBytes, c.meanAnswers = c.meanBytes/2, c.meanAnswers/2
	}
	switch {
	case a.To != nil:
		a.To.Done(c, a)
	case a.LateDelete && (e.rep.Kind == wire.Deleted || e.rep.Kind == wire.Stored):
		e.Observer.LateDeleted(c.Server, a.Room())
	}
	e.freeAttempt(a)
}

// meanOf is the number of replies after which the sums for the mean reply size are halved, so
// that recent replies count more.
const meanOf = 512

// ExceedsWhole reports whether a reply of n bytes is too large to be kept whole: larger than
// limits.value and than an eighth of limits.memory.
func (e *Servers) ExceedsWhole(n int) bool { return int64(n) > max(e.WholeValue, e.MemoryLimit/8) }

// startStream starts to pass a value, of which only a part has arrived, to the receiver of a in
// pieces. It returns false if the receiver does not accept that. buf is the head of the value and
// the part that has arrived. If a has no receiver, the pieces are discarded as they arrive.
// So are those of a value that its receiver needs whole, if it is too large for that (ExceedsWhole),
// because it would leave too little memory for other requests.
func (c *Conn) startStream(a *Attempt, buf []byte) bool {
	e, r := c.Server.e, &c.Server.e.rep
	if (a.To == nil || a.To.Client() == 0) && !a.Internal && e.Unread != nil {
		e.Unread(r.Size)
	}
	to, ok := a.To.(Streamer)
	if a.To != nil && (!ok || a.AsText != nil || !to.Streams(r, buf)) {
		if !e.ExceedsWhole(r.Size) {
			return false
		}
		c.failOne(a, fmt.Sprintf("server %s sends a reply of %d bytes, which is too large to be received whole: raise limits.value or limits.memory", c.Server.Label(), r.Size), stats.ServerFault)
		ok = false // its rest is discarded
	}
	if why := c.misfit(a, buf); why != "" {
		c.desync(why, buf)
		return true
	}
	r.Awaited = false // c.misfit has already recorded that the key of this value has its VALUE
	left, last, taken := r.Size-len(buf), r.Last, 0
	if ok {
		taken = to.Begin(c, a, r, buf)
		a.Streams = true
	}
	c.noteAnswer()
	c.flows(a)
	c.StreamLeft, c.streamLast = left, last && !a.Many // the reply to a multi-key read does not end here: the rest shows which keys are misses
	e.Input.Start += len(buf) - taken
	return true
}

// stream passes the next part of a value to the receiver of the first request in the queue. buf is the
// input.
func (c *Conn) stream(buf []byte) {
	e, a := c.Server.e, c.Head
	n := min(c.StreamLeft, len(buf))
	c.StreamLeft -= n
	c.flows(a)
	taken := 0
	if a.To != nil && a.Streams {
		taken = a.To.(Streamer).More(c, a, buf[:n], c.StreamLeft == 0)
		a.Streams = c.StreamLeft > 0
	}
	e.Input.Start += n - taken
	if c.StreamLeft == 0 && c.streamLast {
		c.finished(a)
	}
}
