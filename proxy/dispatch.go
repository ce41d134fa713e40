package proxy

// This file decides where a parsed request is sent: it is answered locally, or by one
// server, or by several.

import (
	"bytes"
	"encoding/base64"
	"slices"

	"ringside/proxy/client"
	"ringside/proxy/counters"
	"ringside/proxy/guard"
	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// handler handles the clients of one listener: it is their client.Handler. It pairs the
// engine with the listener.
type handler struct {
	*Engine
	*routing.Listener
}

// listener returns the listener that s is connected to.
func (e *Engine) listener(s *client.Session) *routing.Listener { return s.Handler.(*handler).Listener }

// NeedsFence reports whether a pool behind the listener moves keys or has replicas.
func (d *handler) NeedsFence() bool { return d.Moves }

// NoMemory rejects a storage command when there is no memory for its data block.
func (d *handler) NoMemory(s *client.Session, raw []byte, rest int) { d.refuseMemory(s, raw, rest) }

// ConnOf returns the connection on which a storage command would be sent: see client.Handler. For a key
// with several replicas it is that to the first one.
func (d *handler) ConnOf(s *client.Session, raw []byte) *upstream.Conn {
	r := &d.Req
	if !r.Op.Stores() || r.Flags&wire.TooLarge != 0 {
		return nil
	}
	_, srv, _ := d.place(d.Listener, d.tags.Bare(d.Listener, r.Key.Of(raw)))
	if srv == nil || srv.Down || d.refusal != "" {
		return nil
	}
	return srv.ConnFor(s.ID)
}

// Serve handles the request in e.Req, which has the bytes raw. It reports whether it
// has moved those bytes out of the client's input buffer.
func (e *Engine) Serve(s *client.Session, raw []byte) (taken bool) {
	r := &e.Req
	switch r.Op {
	case wire.Get, wire.Gets, wire.Gat, wire.Gats:
		if r.NumKeys > 1 {
			e.askMany(s, raw)
			return false
		}
		return e.ask(s, raw)
	case wire.Bad, wire.Shutdown:
		if r.Op == wire.Bad && string(bytes.TrimRight(raw, "\r\n")) == configGet && e.tellCluster(s) {
			return false
		}
		e.local(s, r.Answer, stats.ClientFault)
		s.Swallow = r.Swallow
	case wire.Quit:
		if r.Flags&wire.Binary != 0 {
			e.local(s, okLine, stats.Okay)
		}
		s.Quit()
	case wire.Noop:
		e.local(s, barrier, stats.Okay)
	case wire.Version:
		e.tellVersion(s)
	case wire.Verbosity:
		e.local(s, e.quietly(okLine), stats.Okay)
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
			e.Count.TooLarge++
			e.refuse(s, raw)
			return false
		}
		if r.Op.Stores() && e.LacksMemory(len(raw)) {
			e.refuseMemory(s, raw, 0)
			return false
		}
		return e.ask(s, raw)
	}
	if r.Flags&wire.CloseAfter != 0 {
		s.Quit()
	}
	return false
}

var (
	barrier = []byte(wire.AnswerBarrier)
	okLine  = []byte(wire.AnswerOK)
)

// quietly returns b, or nil if the client asked for noreply.
func (e *Engine) quietly(b []byte) []byte {
	if e.Req.Flags&wire.Quiet != 0 {
		return nil
	}
	return b
}

// local answers the request in e.Req without a server.
func (e *Engine) local(s *client.Session, answer []byte, o stats.Outcome) {
	if s.Head == nil && e.Req.Flags&wire.Binary == 0 { // the client has no earlier request without a reply
		e.Count.Requests[e.Req.Op][o]++
		s.Requested()
		s.Out.Append(&e.Buffers, e.CheckLocal(s, answer))
		s.Whole = true
		return
	}
	e.NewExchange(s).Answer(answer, o)
}

// place finds the route and the server for key, which is spelled as on the wire. The route is
// nil if no route of lst matches the key. The server is nil if the pool's placement rule
// assigns the key to no server. decoded is the key without base64. place also sets e.refusal:
// why an operator keeps requests from the server.
func (e *Engine) place(lst *routing.Listener, key []byte) (rt *routing.Route, srv *upstream.Server, decoded []byte) {
	if e.Req.Flags&wire.Base64 != 0 {
		e.Key, _ = wire.DecodeKey(e.Key[:0], key)
		key = e.Key
	}
	if rt = lst.Route(key); rt == nil {
		if rt = lst.Fitting(key); rt == nil {
			return nil, nil, key
		}
	}
	if i := rt.Owners.Owner(key[len(rt.Strip):]); i >= 0 {
		if srv = rt.Servers[i]; rt.Refusals != nil || e.refusal != "" { // without overrides e.refusal is empty already, and a store costs time
			e.refusal = rt.Refusal(i)
		}
	}
	return rt, srv, key
}

const (
	noKey       = "the key is only the prefix that its route strips"
	reservedKey = "keys that begin with __rs are reserved for Ringside"
)

// ask sends the request in e.Req to the server of its key, or creates a task for it.
func (e *Engine) ask(s *client.Session, raw []byte) (taken bool) {
	r, lst := &e.Req, e.listener(s)
	if lst.Tagged {
		bare, err := e.tags.Cut(lst, raw)
		if err != nil {
			e.refuseKey(s, err.Error())
			return false
		}
		raw = bare
	}
	rt, srv, key := e.place(lst, r.Key.Of(raw))
	if why := unfitKey(rt, key); why != "" {
		e.refuseKey(s, why)
		return false
	}
	x := e.NewExchange(s)
	x.Keys = r.NumKeys
	if rt == nil {
		x.Fail(0, client.NoRoute, stats.Unavailable)
		x.FinishOne()
		return false
	}
	setRoute(x, rt)
	if r.Op == wire.Get && r.Dialect == wire.Meta && r.Flags&(wire.Quiet|wire.Binary) == 0 { // memcached's reply to a missing key repeats some flags of the request
		x.Miss = wire.AppendAnswer(x.Miss[:0], raw, r, wire.Miss)
	}
	switch {
	case e.near.On && e.near.Serve(x, 0, rt, raw, key):
		// The near cache has served the get, or makes it wait for a refresh.
	case rt.NeedsTask(srv) || e.Follows(s, rt, key) || rt.Autocreate != nil && counters.Counts(r):
		if !e.readDirectly(x, 0, rt, srv, key) {
			t := e.NewTask(x, 0, rt, r, raw, r.Key.Of(raw), key)
			if len(raw) >= link.BigSpan && r.Op.Stores() && srv != nil {
				if c := srv.ConnFor(s.ID); c != nil {
					t.CountOn(c)
				}
			}
			e.admit(s, x, t)
		}
	default:
		if c := e.reach(x, 0, rt, srv); c != nil {
			a := x.Attempt()
			if e.Watch.Left--; e.Watch.Left < 0 {
				e.Watch.Sample(e.Now, a, key, len(rt.Strip), len(raw), false)
			}
			before := c.Tail
			c.Begin(a, &rt.Timeouts)
			taken = e.send(c, a, before, rt, raw, key[len(rt.Strip):])
		}
	}
	x.FinishOne()
	return taken
}

// setRoute records in x that its key matched the route rt. If rt is nil it does nothing.
func setRoute(x *client.Exchange, rt *routing.Route) {
	if rt != nil {
		x.MissErrors, x.Route = !rt.GetErrors, rt.Count
	}
}

// readDirectly sends a text read of one key without a task, if the features of its route permit it:
// see task.Read. Otherwise it does nothing and returns false.
func (e *Engine) readDirectly(x *client.Exchange, share int32, rt *routing.Route, srv *upstream.Server, key []byte) bool {
	how, r := e.reads[rt.Features], &e.Req
	if how == nil || r.Op > wire.Gets || r.Dialect != wire.Text || srv == nil || e.refusal != "" || e.Follows(x.Session, rt, key) {
		return false
	}
	c := how.Conn(x, rt, srv, key[len(rt.Strip):])
	if c == nil {
		return false
	}
	e.endPart(c.Server) // completes the multi-key read that is being built for this server, because the next request must not be in the middle of it
	e.SendRead(how, x, share, rt, c, key)
	if e.Watch.Left--; e.Watch.Left < 0 {
		e.Watch.Sample(e.Now, c.Tail, key, len(rt.Strip), 0, true)
	}
	return true
}

// admit starts the task t, which executes a request of the client s. x is the exchange of the
// request.
func (e *Engine) admit(s *client.Session, x *client.Exchange, t *task.Task) {
	if tell := t.Route.Count.Misses; tell != nil {
		t.TTL = tell.TTL(e.Now, t.Req.Exptime.Of(t.Raw))
	}
	if t.Route.Guard != nil {
		e.guards.Enroll(s, x, t)
		guard.Tag(t, e.tags.Named)
	}
	e.Admit(t)
}

// askDebug serves the me command. If the key is in base64 it sends the decoded key, because
// memcached answers both spellings alike. The reply contains the raw bytes of the key unless
// the item was stored with a base64 key. Up to 1.6.45 memcached forgets that for some items,
// and sends the raw key. So a key with spaces or control characters is rejected:
// its reply may span several lines, and its end could not be found.
func (e *Engine) askDebug(s *client.Session, raw []byte) {
	r := &e.Req
	if r.Flags&wire.Base64 != 0 {
		key, _ := wire.DecodeKey(nil, r.Key.Of(raw))
		if !wire.PlainKey(key) {
			e.refuseKey(s, "me can't show a key with spaces or control characters: use mg with b and k")
			return
		}
		raw = append(append([]byte("me "), key...), wire.CRLF...)
		e.Wire.One(raw, r)
	}
	e.ask(s, raw)
}

// unfitKey returns why a client must not use key on a route, or "" if it may.
func unfitKey(rt *routing.Route, key []byte) string {
	switch {
	case rt == nil:
	case len(key) == len(rt.Strip):
		return noKey
	case divert.IsReserved(key[len(rt.Strip):]):
		return reservedKey
	}
	return ""
}

// refuseKey answers the command in e.Req with a CLIENT_ERROR. noreply suppresses the error, the
// q flag does not. The error is the whole reply, also to a read: no END follows.
func (e *Engine) refuseKey(s *client.Session, why string) {
	answer := wire.AppendClientError(nil, why)
	if e.Req.Dialect == wire.Text {
		answer = e.quietly(answer)
	}
	e.Req.Op = wire.Bad
	e.local(s, answer, stats.ClientFault)
}

// reach returns a connection to srv, the server of a key, for the given share of x. If the
// request can't be sent it returns nil, after it has recorded the reason in x.
func (e *Engine) reach(x *client.Exchange, share int32, rt *routing.Route, srv *upstream.Server) *upstream.Conn {
	switch {
	case rt == nil:
		x.Fail(share, client.NoRoute, stats.Unavailable)
	case srv == nil:
		x.Fail(share, rt.WhyNoServer(), stats.Unavailable)
	case e.refusal != "":
		srv.Count.Overridden++
		x.Fail(share, e.refusal, stats.Unavailable)
	default:
		c, why, o := srv.Pick(x.Session.ID, false)
		if c == nil {
			x.Fail(share, why, o)
		}
		return c
	}
	return nil
}

// send writes the request in e.Req, on a key of rt, to c as the attempt a. It rewrites
// the request if the key must be stripped or if the reply could otherwise not be
// parsed. before is the attempt that was last in the queue. send reports whether it has
// moved the bytes out of the client's input buffer.
func (e *Engine) send(c *upstream.Conn, a, before *upstream.Attempt, rt *routing.Route, raw, key []byte) (taken bool) {
	r, strip := &e.Req, rt.Strip
	a.Remember(r, raw, key)
	if r.Op > wire.Gets {
		a.LeavesValue, a.Values = task.LeavesValue(r), r.Op <= wire.Gats
		if tell := rt.Count.Misses; tell != nil {
			a.TTL = tell.TTL(e.Now, r.Exptime.Of(raw))
		}
	} else if r.Dialect == wire.Meta {
		a.Shows = r.Letters.Shown()
	}
	c.Require(a, r.Needs())
	switch {
	case r.Op <= wire.Gets && c.GiveGet(a, before, r, raw, strip):
	case strip != "" || r.Flags&wire.Rewrite != 0 || r.RawKey(raw):
		if a.Strip = strip; strip == "" {
			key = nil
		} else if r.Flags&wire.Base64 != 0 {
			e.EncodedKey = base64.StdEncoding.AppendEncode(e.EncodedKey[:0], key)
			key = e.EncodedKey
		}
		e.Line = wire.AppendPlain(e.Line[:0], raw, r, key)
		if !e.Wire.One(e.Line, &e.Plain) { // the parser has accepted the request, so this can't be
			c.Require(a, wire.Unknown)
		}
		line := e.Wire.CutKey(e.Line, &e.Plain)
		if r.RawKey(raw) {
			a.Echo = new(r.KeyEcho(raw))
		}
		c.Out.Append(&e.Buffers, line)
		c.Give(a, len(line))
	case r.Drop.Len() > 0:
		c.Out.Append(&e.Buffers, raw[:r.Drop.Start])
		c.Out.Append(&e.Buffers, raw[r.Drop.End:])
		c.Give(a, len(raw)-r.Drop.Len())
	case len(raw) >= link.BigSpan:
		c.Give(a, len(raw))
		c.Out.Push(&e.Buffers, e.Take(len(raw)))
		return true
	default:
		c.Out.Append(&e.Buffers, raw)
		c.Give(a, len(raw))
	}
	return false
}

// askMany splits a multi-key read by server. It sends one command to each server, all
// of them at once.
func (e *Engine) askMany(s *client.Session, raw []byte) {
	r := &e.Req
	if r.Flags&wire.Rewrite != 0 {
		raw = wire.AppendPlain(nil, raw, r, nil)
		e.Wire.One(raw, r)
	}
	x := e.NewExchange(s)
	x.Keys = r.NumKeys
	lst := e.listener(s)
	if lst.Tagged {
		raw = e.tags.CutAll(lst, raw)
	}
	if lst.InOrder {
		x.KeepOrder(raw)
	}
	e.askKeys(x, raw, false)
}

// AskRest sends the next of the remaining keys of x, which were held back until the client read
// more of its replies, or until its next turn. A reload may have replaced the routes since. If
// it has removed the listener, nothing is sent by the old routes: the servers, views and near
// caches of these routes are not maintained any more.
func (e *Engine) AskRest(x *client.Exchange, raw []byte) {
	if lst := e.listener(x.Session); e.Listeners[lst.Name] != lst {
		x.Fail(client.NoShare, client.Reconfigured, stats.Unavailable)
		x.FinishOne()
		return
	}
	if r := &e.Req; len(r.Several) == 0 { // one key
		r.Several = append(r.Several, r.Key)
	}
	e.askKeys(x, raw, true)
}

// askKeys splits the multi-key read in e.Req by server. again means that x has already
// sent some of its keys.
func (e *Engine) askKeys(x *client.Exchange, raw []byte, again bool) {
	r, s := &e.Req, x.Session
	lst := e.listener(s)
	e.tags.Named = e.tags.Named[:0] // tags named in a get only save requests, so multi-key reads ignore them
	command := raw[r.Line.Start:r.Keys.Start]
	if r.Op == wire.Get { // the command may be bget, a synonym of get that not every server supports
		command = plainGet
	}
	now := len(r.Several)
	if !again { // a later piece of a read was cut to the right size before this call
		now = s.Window(now)
	}
	s.UseTurn(now - 1)
	x.AddWork(now - 1)
	if now < len(r.Several) {
		x.KeepRest(bytes.TrimRight(command, " "), raw[r.Several[now].Start-1:r.Line.End])
	}
	routed := again
	var tasks []*task.Task // started after all parts are complete, because they may use the same connections
	for _, span := range r.Several[:now] {
		rt, srv, key := e.place(lst, span.Of(raw))
		if rt == nil {
			x.Fail(client.NoShare, client.NoRoute, stats.Unavailable)
			continue
		}
		share := x.Share(rt.Count)
		if len(key) == len(rt.Strip) {
			continue // the key is nothing but the stripped prefix, which no server can store, so it is a miss
		}
		x.MissErrors = (x.MissErrors || !routed) && !rt.GetErrors // the read is an error if a server fails and the route of any of its keys has get_errors: error
		routed = true
		if divert.IsReserved(key[len(rt.Strip):]) {
			continue // Ringside reserves keys that begin with __rs: a read of such a key is a miss
		}
		if e.near.On && e.near.Serve(x, share, rt, raw, key) {
			continue
		}
		if rt.NeedsTask(srv) || e.Follows(s, rt, key) {
			switch {
			case e.readDirectly(x, share, rt, srv, key):
			case e.Scarce(task.TaskSize):
				x.Fail(share, link.OutOfMemory, stats.QueueFull)
			default:
				tasks = append(tasks, e.NewTask(x, share, rt, r, raw, span.Of(raw), key))
			}
			continue
		}
		if c := e.part(x, share, rt, srv, command, len(key)); c != nil {
			word := raw[span.Start-1 : span.End] // every key is preceded by a space
			if rt.Strip != "" {
				e.Line = append(append(e.Line[:0], ' '), key[len(rt.Strip):]...)
				word = e.Line
			}
			c.AddKey(word, len(key)-len(rt.Strip))
			if e.Watch.Left--; e.Watch.Left < 0 {
				e.Watch.Sample(e.Now, c.Tail, key, len(rt.Strip), 0, false)
			}
		}
	}
	e.endParts()
	for _, t := range tasks {
		e.admit(s, x, t)
	}
	x.FinishOne()
}

var (
	plainGet  = []byte("get")
	plainGets = []byte("gets")
)

// ServeQuiet adds a quiet get of key to a batch. It returns false if the get must be
// sent alone. A sampled get is sent alone, because in a batch its reply could not be
// attributed to it.
func (d *handler) ServeQuiet(s *client.Session, key []byte) bool {
	e := d.Engine
	rt, srv, _ := e.place(d.Listener, key)
	if rt == nil || unfitKey(rt, key) != "" || rt.Near != nil || rt.NeedsTask(srv) || e.Watch.Left <= 0 {
		return false
	}
	e.Watch.Left--
	x := s.Batch(!rt.GetErrors)
	c := e.part(x, x.Share(rt.Count), rt, srv, plainGets, len(key))
	if c == nil {
		x.AsksLast(nil)
		return true
	}
	e.Line = append(append(e.Line[:0], ' '), key[len(rt.Strip):]...)
	c.AddKey(e.Line, len(e.Line)-1)
	x.AsksLast(c.Tail)
	return true
}

// EndBatch sends the gets that are batched in x.
func (d *handler) EndBatch(x *client.Exchange) {
	d.endParts()
	x.FinishOne()
}

// endParts completes the multi-key reads that are being built, one for each server.
func (e *Engine) endParts() {
	for _, c := range e.parts {
		c.EndLine(c.Tail)
		c.Server.Asked = nil
	}
	e.parts = e.parts[:0]
}

// endPart completes the multi-key read that is being built for srv, if there is one.
func (e *Engine) endPart(srv *upstream.Server) {
	c := srv.Asked
	if c == nil {
		return
	}
	c.EndLine(c.Tail)
	srv.Asked = nil
	e.parts = slices.DeleteFunc(e.parts, func(o *upstream.Conn) bool { return o == c })
}

// longGat is the line length in bytes at which a gat is split. If memcached before 1.6.14 has
// read 1,024 bytes without a line end it closes the connection, unless the command is get or
// gets.
const longGat = 1000

// part returns the connection whose current command line the next key of x is added to.
// It begins a command line if there is none. key is the key's length in bytes. A key of
// another share ends the current line and begins a new one, because the parts of x are
// consecutive on a connection. part returns nil if srv can't be asked.
func (e *Engine) part(x *client.Exchange, share int32, rt *routing.Route, srv *upstream.Server, command []byte, key int) *upstream.Conn {
	if srv != nil && srv.Asked != nil && e.refusal == "" {
		c := srv.Asked
		long := x.Op >= wire.Gat && c.Tail.Size+key > longGat
		if c.Tail.Share == share && !long {
			return c
		}
		c.EndLine(c.Tail)
		e.beginPart(x, share, rt, c, command, key)
		return c
	}
	c := e.reach(x, share, rt, srv)
	if c == nil {
		return nil
	}
	srv.Asked = c
	e.parts = append(e.parts, c)
	e.beginPart(x, share, rt, c, command, key)
	return c
}

func (e *Engine) beginPart(x *client.Exchange, share int32, rt *routing.Route, c *upstream.Conn, command []byte, key int) {
	a := x.Attempt()
	a.Share, a.Values = share, true
	if rt.Strip != "" {
		a.Strip = rt.Strip
	}
	for len(command) > 0 && command[len(command)-1] == ' ' {
		command = command[:len(command)-1]
	}
	before := c.Tail
	c.Enqueue(a, &rt.Timeouts, e.Req.Needs(), nil)
	c.BeginLine(a, before, command, key)
}
