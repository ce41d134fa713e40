package replication

// The type directReader reads replicated keys as ordinary exchanges, without a task, if the
// replica that is read first has a value.
//
// A plain text get, or one key of a get of many, is sent to the replica that Replicator.ReadAt
// returns. It needs no task and no other loop, and gets can share request lines, as for a key
// with one replica. The reply decides what happens next:
//
//	a value                                   the client gets it
//	a tombstone, a miss, an error, no reply   a task continues: its rule asks the other replicas, but not this one again
//	any of these, but the client has gone     nothing
//	the route has no replicas any more        a value is the reply; anything else is an error
//
// The get keeps its place in the order of its client's commands. A command that changes the key
// waits for the get. If a task continues the get, the task has the same place (Tasks.TakeOver).
//
// Large values are not streamed, because another replica has the value if the server fails in
// between.
//
// # Limits
//
// These gets are left to tasks:
//
//   - reads that want more than a value (gets, gat, meta, the binary protocol);
//   - all gets of routes with strict consistency, hedged reads or a guard;
//   - all gets while a server of the route is not simply in use, or may be missing a
//     write.

import (
	"bytes"

	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// directReader receives the reply to a get that was sent to one replica.
type directReader client.Exchange

// connHandler is the handler of the client's connection.
type connHandler interface {
	Fitting(key []byte) *routing.Route
	Copied() *Replicator
}

// Ask sends the read of one key of x on c. The parameter `share` says which part of x the key
// belongs to (see client.Exchange.Share). name is the key as servers know it, and hash the hash
// of name. raw is the request in Clients.Req; if the request has many keys, raw is not used.
func Ask(x *client.Exchange, share int32, rt *routing.Route, c *upstream.Conn, e *Replicator, raw, key, name []byte, hash uint64) {
	a, before := x.Attempt(), c.Tail
	a.To, a.Share = (*directReader)(x), share
	e.BeginRead(x.Session, hash)
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

func (p *directReader) exchange() *client.Exchange { return (*client.Exchange)(p) }

func (p *directReader) Client() uint64 { return p.exchange().Client() }

func (p *directReader) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	switch value := r.Kind == wire.Value; {
	case a.TakenOver: // the reply is the END after a tombstone: a task continues the read since the tombstone
		return 0
	case value && string(r.ClientFlags.Of(b)) != wire.TombstoneFlags, !value && found(a):
		return p.exchange().Reply(c, a, r, b)
	case p.Session == nil:
		return 0
	}
	return p.takeOver(c, a, &upstream.Result{Bytes: b, Reply: *r})
}

// found reports whether the reply to the attempt has already shown a VALUE, so that only its END
// follows. While the VALUE itself is being handled, found still returns false.
func found(a *upstream.Attempt) bool { return len(a.NextKey()) == 0 }

// takeOver starts a task that continues the read of p. r is the reply so far, or the reason why
// there is no reply.
func (p *directReader) takeOver(c *upstream.Conn, a *upstream.Attempt, r *upstream.Result) (taken int) {
	x, d := p.exchange(), p.Session.Handler.(connHandler)
	e := d.Copied()
	key, _ := a.Named()
	whole := append([]byte(a.Strip), key...)
	rt := d.Fitting(whole)
	if rt == nil || rt.Copies.Copies == 0 { // a new routing table has removed the replicas
		x.Fail(a.Share, client.Reconfigured, stats.Unavailable)
		return 0
	}
	r.Bytes = bytes.Clone(r.Bytes)
	t := e.NewRead(x, a.Share, rt, whole)
	t.WaitReason = r.Why     // the reason that the client gets if the deadline has passed
	if rt.Strip == a.Strip { // if Strip differs, a reload has given the key another name at the servers, and the task reads the key there
		t.Rule = continueRead(r, c.Server.Target)
	}
	a.TakenOver = true
	e.TakeOver(t, key)
	return 0
}

// Done ends the attempt a after its reply. If a task continues the read, the task replies to the
// client.
func (p *directReader) Done(c *upstream.Conn, a *upstream.Attempt) {
	if a.TakenOver {
		p.exchange().FinishOne()
		return
	}
	p.end(a)
	p.exchange().Done(c, a)
}

func (p *directReader) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	if p.Session != nil && !a.TakenOver && !found(a) {
		p.takeOver(c, a, &upstream.Result{Failure: f})
	}
	if !a.TakenOver {
		p.end(a)
	}
	p.exchange().FinishOne()
}

// end records that the read of p has ended, so that later commands of the client need not wait
// for it.
func (p *directReader) end(a *upstream.Attempt) {
	if s := p.Session; s != nil {
		key, _ := a.Named()
		s.Handler.(connHandler).Copied().EndRead(s, key)
	}
}
