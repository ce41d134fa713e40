package proxy

// Answers of servers: paired with requests by order.

import "ringside/proxy/wire"

// Parse pairs the answers in the input.
func (c *Conn) Parse() {
	e := c.srv.e
	for e.cur.len() > 0 && c.state == connUp {
		buf := e.cur.bytes()
		if c.streamLeft > 0 {
			c.stream(buf)
			continue
		}
		a := c.head
		if a == nil || a.start >= c.taken {
			c.doubt("answered a question nobody asked", buf)
			return
		}
		r := &e.rep
		n, err := wire.NextReplyOf(a.op, a.dialect, a.awaited(), buf, r)
		switch {
		case err == wire.ErrShort && r.Kind == wire.Value && c.startStream(a, buf):
		case err == wire.ErrShort:
			c.need = r.Size
			return
		case err != nil || a.start+uint64(a.size) > c.taken && r.Kind < wire.Error:
			c.doubt("sent what is no answer to "+a.op.String(), buf)
			return
		case !r.Awaited && r.Kind != wire.End && !c.names(a, buf):
			c.doubt(otherName, buf)
			return
		case a.probe && r.Kind.Failed():
			e.cur.r += n
			e.freeAttempt(c.pop())
			c.unfit("it greets with "+string(r.Line.Of(buf)), Unavailable)
		default:
			c.heard()
			if endFollows(r, buf[n:]) {
				r.Last = true
				n += len(wire.EndLine)
			}
			if r.Awaited && !r.Last {
				a.passed(r.Key.Len())
			}
			e.cur.r += n - c.reply(a, r, buf[:n])
		}
	}
	if c.answered && c.holding > 0 || c.srv.leaving() || c.zombie {
		e.mark(&c.Link)
	}
}

const otherName = "named another key or opaque than it was asked for"

// endFollows says that r is a VALUE and behind it at once comes END, as behind the
// last VALUE nearly always: by itself it would cost as much as that.
func endFollows(r *wire.Reply, rest []byte) bool {
	return len(rest) >= len(wire.EndLine) && string(rest[:len(wire.EndLine)]) == wire.AnswerEnd && r.Kind == wire.Value && !r.Last
}

// doubt ends a connection on which nobody can tell any more which answer
// belongs to which request. Going on would hand one client another's value.
func (c *Conn) doubt(what string, buf []byte) {
	e := c.srv.e
	e.count.Doubts++
	e.log.Error("aborted a server connection: it "+what, "server", c.srv.target.Name, "address", c.srv.target.Address, "bytes", string(buf[:min(len(buf), 64)]))
	e.cur.r = e.cur.w
	if !c.greeted && !c.zombie {
		c.abort(c.srv.whyDown("it "+what), Unavailable)
		c.srv.fail("it " + what)
		return
	}
	c.abort("server "+c.srv.label()+": "+what, Lost)
}

// heard notes that the server has answered.
func (c *Conn) heard() {
	c.answered, c.greeted = true, true
	if (c.srv.down || c.srv.timeouts > 0) && !c.zombie {
		c.srv.alive()
	}
}

// reply hands one reply, r, whose bytes are b, to who waits for a, and returns
// how many of them are gone from the input.
func (c *Conn) reply(a *Attempt, r *wire.Reply, b []byte) (taken int) {
	if a.classic != nil && a.to != nil {
		if b = c.modern(a, b); b == nil {
			return 0
		}
	}
	last := r.Last
	switch {
	case a.to != nil:
		taken = a.to.Reply(c, a, r, b)
	case r.Kind == wire.VersionIs:
		c.learn(r.Line.Of(b))
	}
	if last {
		c.finished(a)
	}
	return taken
}

// finished takes a, whose answer is complete, off the list.
func (c *Conn) finished(a *Attempt) {
	e := c.srv.e
	c.pop()
	c.srv.count.observe(e.now - a.sentAt)
	if c.settled++; c.settled == meanOf {
		c.came, c.settled = c.came/2, c.settled/2
	}
	switch {
	case a.to != nil:
		a.to.Done(c, a)
	case a.undo && e.rep.Kind == wire.Deleted:
		e.observer.LateDeleted(c.srv, a.keys)
	}
	e.freeAttempt(a)
}

// meanOf is of how many answers, at most, a connection keeps the mean size; the
// older half then counts for half.
const meanOf = 512

// startStream lets the receiver of a have the head, buf, of a value that is not
// whole yet, if it wants that. A value that nobody waits for is not waited for.
func (c *Conn) startStream(a *Attempt, buf []byte) bool {
	e, r := c.srv.e, &c.srv.e.rep
	to, ok := a.to.(Streamer)
	if !ok && a.to != nil || ok && (a.classic != nil || !to.Streams(r)) {
		return false
	}
	if !c.names(a, buf) {
		c.doubt(otherName, buf)
		return true
	}
	left, last, taken := r.Size-len(buf), r.Last, 0
	if ok {
		taken = to.Begin(c, a, r, buf)
		a.streams = true
	}
	c.heard()
	c.streamLeft, c.streamLast = left, last
	e.cur.r += len(buf) - taken
	return true
}

// stream hands on more of the value at the head of the list.
func (c *Conn) stream(buf []byte) {
	e, a := c.srv.e, c.head
	n := min(c.streamLeft, len(buf))
	c.streamLeft -= n
	taken := 0
	if a.to != nil && a.streams {
		taken = a.to.(Streamer).More(c, a, buf[:n], c.streamLeft == 0)
		a.streams = c.streamLeft > 0
	}
	e.cur.r += n - taken
	if c.streamLeft == 0 && c.streamLast {
		c.finished(a)
	}
}
