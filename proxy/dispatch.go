package proxy

// A parsed request on its way: to Ringside itself, to one server, to several.

import (
	"encoding/base64"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// door is what the clients of one listener meet: its engine, which serves them.
type door struct {
	*Engine
	*listener
}

// listener is what s is connected to.
func (e *Engine) listener(s *Session) *listener { return s.handler.(*door).listener }

// NeedsFence says that a pool behind the listener moves keys or keeps copies.
func (d *door) NeedsFence() bool { return d.moves }

// NoMemory refuses a storage command for whose data block there is no memory.
func (d *door) NoMemory(s *Session, raw []byte, rest int) { d.refuseMemory(s, raw, rest) }

// Serve serves the request in e.req, whose bytes are raw. It reports
// whether it has handed the bytes over, which are then gone from the input.
func (e *Engine) Serve(s *Session, raw []byte) (taken bool) {
	r := &e.req
	switch r.Op {
	case wire.Get, wire.Gets, wire.Gat, wire.Gats:
		if r.NumKeys > 1 {
			e.askMany(s, raw)
			return false
		}
		return e.ask(s, raw)
	case wire.Bad, wire.Shutdown:
		e.local(s, r.Answer, ClientFault)
		s.swallow = r.Swallow
	case wire.Quit:
		s.quit()
	case wire.Noop:
		e.local(s, barrier, Okay)
	case wire.Version:
		e.tellVersion(s)
	case wire.Verbosity:
		e.local(s, e.quietly(okLine), Okay)
	case wire.Memlimit:
		e.limitMemory(s, raw)
	case wire.FlushAll:
		e.flushAll(s, raw)
	case wire.Stats:
		e.stats(s, raw)
	case wire.Debug:
		e.askDebug(s, raw)
	default:
		if r.Flags&wire.TooLarge != 0 {
			e.refuse(s, raw)
			return false
		}
		if r.Op.Stores() && e.scarce(len(raw)) {
			e.refuseMemory(s, raw, 0)
			return false
		}
		return e.ask(s, raw)
	}
	if r.Flags&wire.CloseAfter != 0 {
		s.quit()
	}
	return false
}

var (
	barrier = []byte(wire.AnswerBarrier)
	okLine  = []byte(wire.AnswerOK)
)

// quietly is b, or nothing if the client asked for noreply.
func (e *Engine) quietly(b []byte) []byte {
	if e.req.Flags&wire.Quiet != 0 {
		return nil
	}
	return b
}

// local answers the request in e.req without asking anybody.
func (e *Engine) local(s *Session, answer []byte, o Outcome) {
	if s.head == nil { // nothing to wait for
		e.count.Requests[e.req.Op][o]++
		s.out.append(&e.pool, answer)
		s.whole = true
		return
	}
	e.newExchange(s).answer(answer, o)
}

// place finds the route and the server for key as it is on the wire. The
// route is nil if no route wants the key, the server if the rule gives it to
// nobody.
func (e *Engine) place(s *Session, key []byte) (rt *route, srv *Server, decoded []byte) {
	if e.req.Flags&wire.Base64 != 0 {
		e.key, _ = wire.DecodeKey(e.key[:0], key)
		key = e.key
	}
	rt = e.listener(s).route(key)
	if rt == nil {
		return nil, nil, key
	}
	if i := rt.owners.Owner(key[len(rt.strip):]); i >= 0 {
		srv, e.refusal = rt.servers[i], rt.refusal(i)
	}
	return rt, srv, key
}

const (
	noKey = "the key is nothing but the prefix that its route strips"

	reservedKey = "keys that begin with __rs are Ringside's own"
)

// ask sends the request in e.req to the server of its key.
func (e *Engine) ask(s *Session, raw []byte) (taken bool) {
	r := &e.req
	rt, srv, key := e.place(s, r.Key.Of(raw))
	if why := unfitKey(rt, key); why != "" {
		e.refuseKey(s, why)
		return false
	}
	x := e.newExchange(s)
	x.missErrors = rt != nil && !rt.getErrors
	x.keys = r.NumKeys
	if r.Op == wire.Get && r.Dialect == wire.Meta && r.Flags&wire.Quiet == 0 { // what a miss must echo
		x.miss = wire.AppendAnswer(x.miss[:0], raw, r, wire.Miss)
	}
	if rt.led(srv) || s.tasks > 0 && e.follows(s, rt, key) {
		e.begin(e.newTask(x, rt, raw, r.Key.Of(raw), key))
	} else if c := e.reach(x, rt, srv); c != nil {
		a := x.attempt()
		c.begin(a, &rt.pool.Timeouts)
		taken = e.send(c, a, rt.strip, raw, key[len(rt.strip):])
	}
	x.done()
	return taken
}

// askDebug serves an me. One in base64 goes to the server with its key as it is:
// memcached answers both alike, with the bytes of the key unless the item was
// made in base64, which up to 1.6.45 it forgets of some. So a key that can't be
// written as it is can't be answered in one line either, nor told from what comes
// behind it, and not even a connection of its own would show where it ends.
func (e *Engine) askDebug(s *Session, raw []byte) {
	r := &e.req
	if r.Flags&wire.Base64 != 0 {
		key, _ := wire.DecodeKey(nil, r.Key.Of(raw))
		if !plainKey(key) {
			e.refuseKey(s, "me can't show a key with spaces or control characters: use mg with b and k")
			return
		}
		raw = append(append([]byte("me "), key...), wire.LineEnd...)
		e.wire.Next(raw, r)
	}
	e.ask(s, raw)
}

// unfitKey says why no client may have key on a route; "" if it may.
func unfitKey(rt *route, key []byte) string {
	switch {
	case rt == nil:
	case len(key) == len(rt.strip):
		return noKey
	case health.IsReserved(key[len(rt.strip):]):
		return reservedKey
	}
	return ""
}

// refuseKey answers the command in e.req with a CLIENT_ERROR, which noreply
// hides and q does not. Of a read it is all of the answer: no END follows.
func (e *Engine) refuseKey(s *Session, why string) {
	answer := wire.AppendClientError(nil, why)
	if e.req.Dialect == wire.Text {
		answer = e.quietly(answer)
	}
	e.req.Op = wire.Bad
	e.local(s, answer, ClientFault)
}

// reach finds the connection to srv, which place found, for a part of x; if there is none, the
// part has failed.
func (e *Engine) reach(x *Exchange, rt *route, srv *Server) *Conn {
	switch {
	case rt == nil:
		x.fail(noRoute, Unavailable)
	case srv == nil:
		x.fail(noServer, Unavailable)
	case e.refusal != "":
		srv.count.Ordered++
		x.fail(e.refusal, Unavailable)
	default:
		c, why, o := srv.pick(x.s.id, false)
		if c == nil {
			x.fail(why, o)
		}
		return c
	}
	return nil
}

// send puts the request in e.req on c, in a form whose answer can be counted
// and with the key that the servers know.
func (e *Engine) send(c *Conn, a *Attempt, strip string, raw, key []byte) (taken bool) {
	r := &e.req
	a.remember(r, raw, key)
	if r.Op > wire.Gats {
		a.leaves = leavesValue(r)
	}
	c.want(a, r.Needs())
	switch {
	case strip != "" || r.Flags&wire.Rewrite != 0 || r.RawKey(raw):
		e.line = wire.AppendPlain(e.line[:0], raw, r)
		e.wire.Next(e.line, &e.plain)
		line := e.wire.CutKey(e.line, &e.plain)
		if r.RawKey(raw) {
			echo := r.KeyEcho(raw)
			a.echo = &echo
		}
		n := len(line)
		if strip != "" {
			a.strip = strip
			if r.Flags&wire.Base64 != 0 {
				e.key2 = base64.StdEncoding.AppendEncode(e.key2[:0], key)
				key = e.key2
			}
			at := e.plain.Key
			c.out.append(&e.pool, line[:at.Start])
			c.out.append(&e.pool, key)
			n += len(key) - at.Len()
			line = line[at.End:]
		}
		c.out.append(&e.pool, line)
		c.give(a, n)
	case r.Drop.Len() > 0:
		c.out.append(&e.pool, raw[:r.Drop.Start])
		c.out.append(&e.pool, raw[r.Drop.End:])
		c.give(a, len(raw)-r.Drop.Len())
	case len(raw) >= bigSpan:
		c.give(a, len(raw))
		c.out.push(&e.pool, e.take(len(raw)))
		return true
	default:
		c.out.append(&e.pool, raw)
		c.give(a, len(raw))
	}
	return false
}

// askMany splits a read of many keys by server: one command to each, all at
// once.
func (e *Engine) askMany(s *Session, raw []byte) {
	r := &e.req
	x := e.newExchange(s)
	x.keys = r.NumKeys
	if e.listener(s).ordered {
		x.orderKeys(raw)
	}
	command := raw[r.Line.Start:r.Keys.Start]
	if r.Op == wire.Get { // or bget, which not every server knows
		command = plainGet
	}
	e.parts = e.parts[:0]
	routed := false
	var led []*task // when the parts are whole: they may go to the same connections
	for _, span := range r.Several {
		rt, srv, key := e.place(s, span.Of(raw))
		if rt == nil {
			x.fail(noRoute, Unavailable)
			continue
		}
		if len(key) == len(rt.strip) {
			continue // a key that nobody can hold is a miss
		}
		x.missErrors = (x.missErrors || !routed) && !rt.getErrors // the strictest get_errors of the keys' routes counts
		routed = true
		if health.IsReserved(key[len(rt.strip):]) {
			continue // nor can a client hold one of Ringside's own
		}
		if rt.led(srv) || s.tasks > 0 && e.follows(s, rt, key) {
			if e.scarce(taskSize) {
				x.fail(outOfMemory, Crowded)
				continue
			}
			led = append(led, e.newTask(x, rt, raw, span.Of(raw), key))
			continue
		}
		if c := e.part(x, rt, srv, command, len(key)); c != nil {
			word := raw[span.Start-1 : span.End] // a space is before every key
			if rt.strip != "" {
				e.line = append(append(e.line[:0], ' '), key[len(rt.strip):]...)
				word = e.line
			}
			c.addKey(word, len(key)-len(rt.strip))
		}
	}
	for _, c := range e.parts {
		e.endPart(c)
		c.srv.asked = nil
	}
	for _, t := range led {
		e.begin(t)
	}
	x.done()
}

var plainGet = []byte("get")

// longGat is where a gat is split: memcached takes a line of which it has got
// 2,048 bytes without its end for junk and closes, unless it is a get or gets.
const longGat = 2000

// part finds the command to srv that the next key of x joins, or begins one.
// On one connection the parts of x follow each other, so a key by a route
// that strips another prefix ends one and begins the next.
func (e *Engine) part(x *Exchange, rt *route, srv *Server, command []byte, key int) *Conn {
	if srv != nil && srv.asked != nil && e.refusal == "" {
		c := srv.asked
		long := x.op >= wire.Gat && c.tail.size+key > longGat
		if c.tail.strip == rt.strip && !long {
			return c
		}
		e.endPart(c)
		e.beginPart(x, rt, c, command)
		return c
	}
	c := e.reach(x, rt, srv)
	if c == nil {
		return nil
	}
	srv.asked = c
	e.parts = append(e.parts, c)
	e.beginPart(x, rt, c, command)
	return c
}

func (e *Engine) beginPart(x *Exchange, rt *route, c *Conn, command []byte) {
	a := x.attempt()
	if rt.strip != "" {
		a.strip = rt.strip
	}
	c.begin(a, &rt.pool.Timeouts)
	c.want(a, e.req.Needs())
	for len(command) > 0 && command[len(command)-1] == ' ' {
		command = command[:len(command)-1]
	}
	c.out.append(&e.pool, command)
	c.give(a, len(command))
	a.at = len(command)
}

func (e *Engine) endPart(c *Conn) {
	c.rememberLine(c.tail)
	c.out.append(&e.pool, wire.LineEnd)
	c.give(c.tail, len(wire.LineEnd))
}

// refuse answers a storage command whose value is too large for Ringside. The
// old value must go first, as it does in memcached: the client meant to
// replace it.
func (e *Engine) refuse(s *Session, raw []byte) {
	r := &e.req
	s.swallow = r.Swallow
	if r.Dialect == wire.Text && r.Op != wire.Set { // memcached keeps the old value of these
		e.local(s, r.Answer, ClientFault)
		return
	}
	rt, srv, key := e.place(s, r.Key.Of(raw))
	if why := unfitKey(rt, key); why != "" {
		e.refuseKey(s, why)
		return
	}
	x := e.newExchange(s)
	x.missErrors = rt != nil && !rt.getErrors
	if rt.led(srv) || s.tasks > 0 && e.follows(s, rt, key) {
		e.begin(e.newRemoval(x, rt, r.Key.Of(raw), key, r.Answer))
	} else if c := e.reach(x, rt, srv); c != nil {
		a := x.attempt()
		a.op, a.dialect, a.flags = wire.Delete, wire.Text, 0
		a.to = &instead{Exchange: x, answer: append([]byte{}, r.Answer...)}
		key = key[len(rt.strip):]
		e.line = append(e.line[:0], "delete "...)
		if r.Flags&wire.Base64 != 0 {
			a.dialect = wire.Meta
			e.line = append(e.line[:0], "md "...)
			e.line = base64.StdEncoding.AppendEncode(e.line, key)
			e.line = append(e.line, " b"...)
		} else {
			e.line = append(e.line, key...)
		}
		e.line = append(e.line, wire.LineEnd...)
		c.begin(a, &rt.pool.Timeouts)
		if a.dialect == wire.Meta {
			c.want(a, wire.Metas)
		}
		c.out.append(&e.pool, e.line)
		c.give(a, len(e.line))
	}
	x.done()
}

// refuseMemory refuses a storage command for whose data block there is no
// memory. rest bytes of it are still to come, and are discarded as they do.
func (e *Engine) refuseMemory(s *Session, raw []byte, rest int) {
	e.count.NoMemory++
	r := &e.req
	r.Swallow = int64(rest)
	r.Answer = noMemory
	if r.Dialect == wire.Text {
		r.Answer = e.quietly(noMemory)
	}
	e.refuse(s, raw)
}

// what memcached says when it has no memory for an item.
var noMemory = []byte("SERVER_ERROR out of memory storing object\r\n")
