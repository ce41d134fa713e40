package proxy

// Answers of servers: paired with requests by order, and sent on their way.

import (
	"encoding/base64"
	"fmt"

	"ringside/proxy/wire"
)

// wholeValue is the largest value that is forwarded only when all of it is
// here. A larger one is forwarded as it comes; if its server dies under it,
// the client is closed.
const wholeValue = 64 << 10

// parse pairs the answers in the engine's current input.
func (c *Conn) parse() {
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
		n, err := wire.NextReply(a.op, a.dialect, buf, &e.rep)
		switch {
		case a.rare != nil && a.another(buf, &e.rep):
			c.doubt("sent the value of another key", buf)
			return
		case err == wire.ErrShort && e.rep.Kind == wire.Value && !a.asked() && !(a.rare != nil && a.translated()) && (a.x == nil || c.tooLarge(a.x)):
			c.startStream(a, buf)
		case err == wire.ErrShort:
			c.need = e.rep.Size
			return
		case err != nil || a.start+uint64(a.size) > c.taken && e.rep.Kind < wire.Error:
			c.doubt("sent what is no answer to "+a.op.String(), buf)
			return
		case a.probe && e.rep.Kind.Failed():
			e.cur.r += n
			e.freeAttempt(c.pop())
			c.unfit("it greets with "+string(e.rep.Line.Of(buf)), Unavailable)
		default:
			c.heard()
			size := n
			if a.x != nil && endFollows(&e.rep, buf[n:]) {
				e.rep.Last = true
				size += len(endLine)
				if a.x.endsWith() {
					n = size
				}
			}
			if c.reply(a, buf[:n]) {
				size -= n // the bytes were handed over
			}
			e.cur.r += size
		}
	}
	if c.answered && c.holding > 0 || c.srv.leaving() || c.zombie {
		e.mark(&c.Link)
	}
}

// endFollows says that r is a VALUE and behind it at once comes END, as behind the
// last VALUE nearly always: by itself it would cost as much as that.
func endFollows(r *wire.Reply, rest []byte) bool {
	return len(rest) >= len(endLine) && string(rest[:len(endLine)]) == wire.AnswerEnd && r.Kind == wire.Value && !r.Last
}

// endsWith says, and notes, that the END of its last part is what the client gets.
func (x *Exchange) endsWith() bool {
	x.ended = x.waiting == 1 && x.gather == nil && x.order == nil && x.trouble == "" && len(x.errLine) == 0
	return x.ended
}

// doubt ends a connection on which nobody can tell any more which answer
// belongs to which request. Going on would hand one client another's value.
func (c *Conn) doubt(what string, buf []byte) {
	e := c.srv.e
	e.count.Doubts++
	e.Shared.Log.Error("aborted a server connection: it "+what, "server", c.srv.target.Name, "address", c.srv.target.Address, "bytes", string(buf[:min(len(buf), 64)]))
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

// reply settles what one reply line or value, the bytes b, says about a. It
// reports whether it has handed the bytes over, which are then gone from the
// input.
func (c *Conn) reply(a *Attempt, b []byte) (taken bool) {
	e, x, r := c.srv.e, a.x, &c.srv.e.rep
	last := r.Last
	if a.rare != nil && a.translated() {
		if b = c.modern(a, b); b == nil {
			return false
		}
	}
	if a.asked() {
		if r.Kind == wire.Listed {
			a.rare.to.(*dump).listed(e, a, r.Key.Of(b))
			return false
		}
		a.rare.answer = append(a.rare.answer, b...)
		c.finished(a, last)
		return false
	}
	if x == nil {
		if r.Kind == wire.VersionIs {
			c.learn(r.Line.Of(b))
		}
		c.finished(a, last)
		return false
	}
	switch {
	case x.gather != nil:
		c.collect(a, b, last)
	case a.rare != nil && a.rare.instead != nil:
		x.emit(e, a, a.rare.instead)
		x.outcome = ClientFault
	case a.dialect == wire.Text && a.op <= wire.Gats:
		taken = c.textRead(x, a, b)
	case r.Kind == wire.ServerError && a.op == wire.Get:
		x.fail("server "+c.srv.label()+": "+string(r.Line.Of(b)), ServerFault)
	default:
		x.outcome = outcomeOf(r.Kind)
		if a.op == wire.Get && r.Kind == wire.Header { // mg without v
			x.outcome = Hit
		}
		if !wire.Hidden(a.op, a.dialect, a.flags, r.Kind) {
			taken = c.forward(x, a, b)
		}
	}
	c.finished(a, last)
	return taken
}

// textRead settles one VALUE, END or error line of a part of a text read.
func (c *Conn) textRead(x *Exchange, a *Attempt, b []byte) (taken bool) {
	switch r := &c.srv.e.rep; r.Kind {
	case wire.Value:
		x.hits++
		if x.order != nil && x.s != nil {
			x.order.keep(c.srv.e, a.strip()+string(r.Key.Of(b)), c.clientForm(a, b))
			return false
		}
		return c.forward(x, a, b)
	case wire.End:
	case wire.ServerError:
		x.fail("server "+c.srv.label()+": "+string(r.Line.Of(b)), ServerFault)
	default: // one line ends the answer, however many parts have one
		x.errLine = append(x.errLine[:0], b...)
		x.outcome = ClientFault
	}
	return false
}

// forward sends b to the client, with the key as the client knows it.
func (c *Conn) forward(x *Exchange, a *Attempt, b []byte) (taken bool) {
	e := c.srv.e
	q := x.dest(e, a)
	switch {
	case q == nil:
		return false
	case a.rare != nil: // stripped of the route's prefix, or translated
		q.append(&e.pool, c.clientForm(a, b))
		return false
	case len(b) >= bigSpan:
		q.push(&e.pool, e.take(len(b)))
		return true
	default:
		q.append(&e.pool, b)
		return false
	}
}

// clientForm is the reply b with the key as the client knows it.
func (c *Conn) clientForm(a *Attempt, b []byte) []byte {
	if a.strip() == "" {
		return b
	}
	e := c.srv.e
	e.line = unstrip(e.line[:0], a, b, &e.rep)
	return e.line
}

// finished takes a off the list when last says that its answer is complete.
func (c *Conn) finished(a *Attempt, last bool) {
	if !last {
		return
	}
	e := c.srv.e
	c.pop()
	c.srv.count.observe(e.now - a.sentAt)
	if c.settled++; c.settled == meanOf {
		c.came, c.settled = c.came/2, c.settled/2
	}
	switch {
	case a.asked():
		c.tell(a)
	case a.x != nil:
		a.x.done(e)
	case a.undo && e.rep.Kind == wire.Deleted:
		e.undid(c.srv, a.key)
	}
	e.freeAttempt(a)
}

// meanOf is of how many answers, at most, a connection keeps the mean size; the
// older half then counts for half.
const meanOf = 512

// tooLarge says whether the value in e.rep is not waited for until it is
// whole. One that has to be kept until its turn is, unless there is no room.
func (c *Conn) tooLarge(x *Exchange) bool {
	e := c.srv.e
	if x.order != nil {
		return e.scarce(e.rep.Size)
	}
	return e.rep.Body.Len() > wholeValue
}

// startStream forwards the beginning of a value too large to wait for.
func (c *Conn) startStream(a *Attempt, buf []byte) {
	e, r := c.srv.e, &c.srv.e.rep
	c.heard()
	c.streamLeft, c.streamLast = r.Size-len(buf), r.Last
	switch x := a.x; {
	case x == nil:
	case x.order != nil:
		x.fail(fmt.Sprintf("server %s: limits.memory has no room for a value of %d bytes that waits for its turn", c.srv.label(), r.Body.Len()), ServerFault)
	default:
		x.begin(a)
		x.hits++
		x.outcome = Hit
		if c.forward(x, a, buf) {
			return
		}
	}
	e.cur.r = e.cur.w
}

// stream forwards more of the value at the head of the list.
func (c *Conn) stream(buf []byte) {
	e, a := c.srv.e, c.head
	n := min(c.streamLeft, len(buf))
	c.streamLeft -= n
	var q *queue
	if a.x != nil && a.streaming {
		q = a.x.dest(e, a)
	}
	if q != nil && n >= bigSpan {
		q.push(&e.pool, e.take(n))
	} else {
		if q != nil {
			q.append(&e.pool, buf[:n])
		}
		e.cur.r += n
	}
	if c.streamLeft == 0 {
		if a.x != nil && a.streaming {
			a.x.end(e, a)
		}
		c.finished(a, c.streamLast)
	}
}

// unstrip appends the reply b to dst with the prefix that the route took off
// the key put back.
func unstrip(dst []byte, a *Attempt, b []byte, r *wire.Reply) []byte {
	rare := a.rare
	switch {
	case r.Kind == wire.Item:
		dst = append(dst, "ME "...)
		dst = append(dst, rare.strip...)
		return append(dst, b[len("ME "):]...)
	case r.Key.Len() > 0 && a.dialect == wire.Text:
		dst = append(dst, b[:r.Key.Start]...)
		dst = append(dst, rare.strip...)
		return append(dst, b[r.Key.Start:]...)
	case r.Key.Len() > 0 && r.Letters.Has('b'): // the server gives it back in base64
		key, _ := wire.DecodeKey(nil, r.Key.Of(b))
		dst = append(dst, b[:r.Key.Start]...)
		dst = base64.StdEncoding.AppendEncode(dst, append([]byte(rare.strip), key...))
		return append(dst, b[r.Key.End:]...)
	case r.Key.Len() > 0: // the k flag of a meta answer
		dst = append(dst, b[:r.Key.Start]...)
		dst = append(dst, rare.strip...)
		return append(dst, b[r.Key.Start:]...)
	}
	return append(dst, b...)
}
