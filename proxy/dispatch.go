package proxy

// A parsed request on its way: to Ringside itself, to one server, to several.

import (
	"encoding/base64"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// dispatch serves the request in e.req, whose bytes are raw. It reports
// whether it has handed the bytes over, which are then gone from the input.
func (e *Engine) dispatch(s *Session, raw []byte) (taken bool) {
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
	endLine = []byte(wire.AnswerEnd)

	missLine = []byte(wire.AnswerMiss)
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
	e.newExchange(s, nil).answer(e, answer, o)
}

// place finds the route and the server for key as it is on the wire. The
// route is nil if no route wants the key, the server if the rule gives it to
// nobody.
func (e *Engine) place(s *Session, key []byte) (rt *route, srv *Server, decoded []byte) {
	if e.req.Flags&wire.Base64 != 0 {
		e.key, _ = wire.DecodeKey(e.key[:0], key)
		key = e.key
	}
	rt = s.lst.route(key)
	if rt == nil {
		return nil, nil, key
	}
	if i := rt.owners.Owner(key[len(rt.strip):]); i >= 0 {
		srv, e.refusal = rt.servers[i], rt.refusal(i)
	}
	return rt, srv, key
}

const (
	noRoute  = "no route for this key: add one without a prefix"
	noServer = "the pool has no server for this key"
	noKey    = "CLIENT_ERROR the key is nothing but the prefix that its route strips\r\n"
)

// ask sends the request in e.req to the server of its key.
func (e *Engine) ask(s *Session, raw []byte) (taken bool) {
	r := &e.req
	rt, srv, key := e.place(s, r.Key.Of(raw))
	if rt != nil && len(key) == len(rt.strip) {
		e.refuseKey(s)
		return false
	}
	if rt != nil && reserved(key[len(rt.strip):]) {
		e.local(s, e.quietly(reservedKey), ClientFault)
		return false
	}
	x := e.newExchange(s, rt)
	x.keys = r.NumKeys
	if r.Op == wire.Get && r.Dialect == wire.Meta && r.Flags&wire.Quiet == 0 { // what a miss must echo
		x.miss = wire.AppendAnswer(x.miss[:0], raw, r, wire.Miss)
	}
	if e.leads(s, rt, srv, key) {
		e.lead(e.newTask(x, rt, raw, r.Key.Of(raw), key))
	} else if c := e.reach(x, srv); c != nil {
		a := e.newAttempt(x)
		c.begin(a, &rt.pool.Timeouts)
		taken = e.send(c, a, raw, key[len(rt.strip):])
	}
	x.done(e)
	return taken
}

// led says that a command on a key of srv needs a task: the route keeps
// copies, or the server is gone, or everything has to be sure.
func (rt *route) led(srv *Server) bool {
	return rt != nil && rt.watch != nil && (rt.copies.Copies != 0 || rt.pool.Failover.Strict || !rt.watch.quiet.Load() && !rt.plain(srv))
}

// leads says that a command of s on key, as the client knows it, needs a task:
// also behind one that waits.
func (e *Engine) leads(s *Session, rt *route, srv *Server, key []byte) bool {
	return rt.led(srv) || len(e.parked) > 0 && rt != nil && e.behindParked(s.id, rt, key[len(rt.strip):])
}

// reserved says whether a key is one of those that Ringside makes itself.
func reserved(key []byte) bool {
	return len(key) >= len(health.Reserved) && string(key[:len(health.Reserved)]) == health.Reserved
}

var reservedKey = []byte("CLIENT_ERROR keys that begin with __rs are Ringside's own\r\n")

// refuseKey answers a command whose route leaves nothing of its key.
func (e *Engine) refuseKey(s *Session) {
	answer := []byte(noKey)
	if e.req.Dialect == wire.Text {
		answer = e.quietly(answer)
	}
	e.req.Op = wire.Bad
	e.local(s, answer, ClientFault)
}

// reach finds the connection to srv, which place found, for a part of x; if there is none, the
// part has failed.
func (e *Engine) reach(x *Exchange, srv *Server) *Conn {
	switch {
	case x.route == nil:
		x.fail(noRoute, Unavailable)
	case srv == nil:
		x.fail(noServer, Unavailable)
	case e.refusal != "":
		srv.count.Ordered++
		x.fail(e.refusal, Unavailable)
	default:
		c, why, o := srv.pick(x.s.id)
		if c == nil {
			x.fail(why, o)
		}
		return c
	}
	return nil
}

// send puts the request in e.req on c, in a form whose answer can be counted
// and with the key that the servers know.
func (e *Engine) send(c *Conn, a *Attempt, raw, key []byte) (taken bool) {
	r := &e.req
	strip := a.x.route.strip
	a.remember(r, key)
	c.want(a, r.Needs())
	switch {
	case strip != "" || r.Flags&wire.Rewrite != 0:
		e.line = wire.AppendPlain(e.line[:0], raw, r)
		line, n := e.line, len(e.line)
		if strip != "" {
			a.rarely().strip = strip
			if r.Flags&wire.Base64 != 0 {
				e.key2 = base64.StdEncoding.AppendEncode(e.key2[:0], key)
				key = e.key2
			}
			e.gen.wire.Next(line, &e.plain)
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
	x := e.newExchange(s, nil)
	x.keys = r.NumKeys
	if s.lst.ordered {
		x.orderKeys(e, raw)
	}
	command := raw[r.Line.Start:r.Keys.Start]
	if r.Op == wire.Get { // or bget, which not every server knows
		command = plainGet
	}
	e.parts = e.parts[:0]
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
		if x.route == nil || rt.getErrors && !x.route.getErrors {
			x.route = rt // the strictest get_errors of the keys' routes counts
		}
		if reserved(key[len(rt.strip):]) {
			continue // nor can a client hold one of Ringside's own
		}
		if e.leads(s, rt, srv, key) {
			led = append(led, e.newTask(x, rt, raw, span.Of(raw), key))
			continue
		}
		if c := e.part(x, rt, srv, command, len(key)); c != nil {
			word := raw[span.Start-1 : span.End] // a space is before every key
			if rt.strip != "" {
				c.out.append(&e.pool, space)
				word = key[len(rt.strip):]
				c.give(c.tail, len(space))
			}
			c.out.append(&e.pool, word)
			c.give(c.tail, len(word))
		}
	}
	for _, c := range e.parts {
		c.out.append(&e.pool, lineEnd)
		c.give(c.tail, len(lineEnd))
		c.srv.asking = nil
	}
	for _, t := range led {
		e.lead(t)
	}
	x.done(e)
}

var (
	plainGet = []byte("get")

	space   = []byte(" ")
	lineEnd = []byte("\r\n")
)

// longGat is where a gat is split: memcached takes a line of which it has got
// 2,048 bytes without its end for junk and closes, unless it is a get or gets.
const longGat = 2000

// part finds the command to srv that the next key of x joins, or begins one.
// On one connection the parts of x follow each other, so a key by a route
// that strips another prefix ends one and begins the next.
func (e *Engine) part(x *Exchange, rt *route, srv *Server, command []byte, key int) *Conn {
	if srv != nil && srv.asking == x && e.refusal == "" {
		c := srv.asked
		long := x.op >= wire.Gat && c.tail.size+key > longGat
		if c.tail.strip() == rt.strip && !long {
			return c
		}
		c.out.append(&e.pool, lineEnd)
		c.give(c.tail, len(lineEnd))
		e.beginPart(x, rt, c, command)
		return c
	}
	c := e.reach(x, srv)
	if c == nil {
		return nil
	}
	srv.asking, srv.asked = x, c
	e.parts = append(e.parts, c)
	e.beginPart(x, rt, c, command)
	return c
}

func (e *Engine) beginPart(x *Exchange, rt *route, c *Conn, command []byte) {
	a := e.newAttempt(x)
	if rt.strip != "" {
		a.rarely().strip = rt.strip
	}
	c.begin(a, &rt.pool.Timeouts)
	c.want(a, e.req.Needs())
	for len(command) > 0 && command[len(command)-1] == ' ' {
		command = command[:len(command)-1]
	}
	c.out.append(&e.pool, command)
	c.give(a, len(command))
}

// strip is what the route took off the front of a's key.
func (a *Attempt) strip() string {
	if a.rare == nil {
		return ""
	}
	return a.rare.strip
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
	if rt != nil && len(key) == len(rt.strip) {
		e.refuseKey(s)
		return
	}
	if rt != nil && reserved(key[len(rt.strip):]) {
		e.local(s, e.quietly(reservedKey), ClientFault)
		return
	}
	x := e.newExchange(s, rt)
	if e.leads(s, rt, srv, key) {
		e.lead(e.newRemoval(x, rt, r.Key.Of(raw), key, r.Answer))
	} else if c := e.reach(x, srv); c != nil {
		a := e.newAttempt(x)
		a.op, a.dialect, a.flags = wire.Delete, wire.Text, 0
		a.rarely().instead = append([]byte{}, r.Answer...)
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
		e.line = append(e.line, lineEnd...)
		c.begin(a, &rt.pool.Timeouts)
		if a.dialect == wire.Meta {
			c.want(a, wire.Metas)
		}
		c.out.append(&e.pool, e.line)
		c.give(a, len(e.line))
	}
	x.done(e)
}

// scarce says that limits.memory has no room for a value of n bytes.
func (e *Engine) scarce(n int) bool {
	return n > bigSpan && e.Shared.memory.Load()+e.pool.held-e.booked+int64(n) > e.gen.limits.Memory
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
