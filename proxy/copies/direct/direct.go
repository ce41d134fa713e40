// Package direct reads keys of several copies as ordinary exchanges, which is all that is
// needed where the copy that is read first has a value.
//
// A plain text get, or one key of a get of many, asks the copy that Copies.ReadAt names, as
// a get of a key with one copy asks its server: there is no task, no other loop, and gets
// share lines. What comes decides how it goes on:
//
//	a value                               the client gets it
//	a mark, a miss, an error, no answer   a task takes over with that: its rule asks the other copies, and this one not again
//	any of these, the client is gone      nothing
//	the route has no copies any more      a value is the answer, all else an error
//
// In the order of its client's commands it stands where it was sent: what changes the key
// waits for it, and a task that takes over has its place (Tasks.TakeOver).
//
// Large values are not forwarded piece by piece: if the server fails in the middle of one,
// another copy has it.
//
// # What it does not do
//
// It leaves to tasks all reads that want more than a value (gets, gat, meta, the binary
// protocol), and all gets where consistency is strict, where gets are hedged or guarded, and
// while a server of the route is not simply in use or a write may be missing on one.
package direct

import (
	"bytes"

	"ringside/proxy/client"
	"ringside/proxy/copies"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Reader is the exchange of a get that has asked one copy.
type Reader client.Exchange

// door is what the client of such a read is connected to.
type door interface {
	Fitting(key []byte) *routing.Route
	Copied() *copies.Copies
}

// Ask asks on c for key, of x's text get and of that share; name, of that hash, is what servers
// know it as. raw is the request, in Clients.Req, unless that has many keys.
func Ask(x *client.Exchange, share int32, rt *routing.Route, c *upstream.Conn, e *copies.Copies, raw, key, name []byte, hash uint64) {
	a, before := x.Attempt(), c.Tail
	a.To, a.Share = (*Reader)(x), share
	x.Session.Reads = append(x.Session.Reads, hash)
	c.Begin(a, &rt.Timeouts)
	r := &e.Clients.Req
	if r.NumKeys > 1 {
		e.Line = append(append(append(e.Line[:0], "get "...), key...), wire.CRLF...)
		e.Wire.Next(e.Line, &e.Plain)
		r, raw = &e.Plain, e.Line
	}
	a.Remember(r, raw, name)
	if !c.GiveGet(a, before, r, raw, rt.Strip) {
		a.Strip = rt.Strip
		e.Line = append(append(append(e.Line[:0], "get "...), name...), wire.CRLF...)
		c.Out.Append(&e.Buffers, e.Line)
		c.Give(a, len(e.Line))
	}
}

func (p *Reader) exchange() *client.Exchange { return (*client.Exchange)(p) }

func (p *Reader) Client() uint64 { return p.exchange().Client() }

func (p *Reader) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	switch value := r.Kind == wire.Value; {
	case a.TakenOver: // behind a mark, of which this is the END
		return 0
	case value && string(r.ClientFlags.Of(b)) != wire.MarkFlags, !value && found(a):
		return p.exchange().Reply(c, a, r, b)
	case p.Session == nil:
		return 0
	}
	return p.takeOver(c, a, &upstream.Result{Bytes: b, Reply: *r})
}

// found says that a has had a VALUE, whose END comes by itself: it is not there yet.
func found(a *upstream.Attempt) bool { return len(a.NextKey()) == 0 }

// takeOver makes a task that takes over, with what has come, or why nothing has: r.
func (p *Reader) takeOver(c *upstream.Conn, a *upstream.Attempt, r *upstream.Result) (taken int) {
	x, d := p.exchange(), p.Session.Handler.(door)
	e := d.Copied()
	key, _ := a.Named()
	whole := append([]byte(a.Strip), key...)
	rt := d.Fitting(whole)
	if rt == nil || rt.Copies.Copies == 0 { // by a table that has just come
		x.Fail(a.Share, "the configuration has just changed", stats.Unavailable)
		return 0
	}
	r.Bytes = bytes.Clone(r.Bytes)
	req := e.Clients.Req
	line := append(append([]byte("get "), whole...), wire.CRLF...)
	e.Wire.Next(line, &e.Clients.Req)
	t := e.NewTask(x, a.Share, rt, line, whole, whole)
	e.Clients.Req = req
	t.WaitReason = r.Why // of what a deadline that has passed is told
	t.Rule = copies.TakesOver(r, c.Server.Target)
	a.TakenOver = true
	e.TakeOver(t)
	return 0
}

// Done is told that the part a has all of its answer. If a task has taken over, the part
// ends with that.
func (p *Reader) Done(c *upstream.Conn, a *upstream.Attempt) {
	if a.TakenOver {
		p.exchange().FinishOne()
		return
	}
	p.end(a)
	p.exchange().Done(c, a)
}

func (p *Reader) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	if p.Session != nil && !a.TakenOver && !found(a) {
		p.takeOver(c, a, &upstream.Result{Failure: f})
	}
	if !a.TakenOver {
		p.end(a)
	}
	p.exchange().FinishOne()
}

// end takes the read off those that others of its client's wait for.
func (p *Reader) end(a *upstream.Attempt) {
	s := p.Session
	switch {
	case s == nil:
	case s.Tasks == 0 && len(s.Reads) == 1:
		s.Reads = s.Reads[:0]
	default:
		e := s.Handler.(door).Copied()
		key, _ := a.Named()
		e.EndRead(s, e.Loops.HashKey(key))
	}
}
