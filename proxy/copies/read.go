package copies

// A get as an ordinary exchange: where the copy that is read first has a value, no rule
// has to decide anything.

import (
	"bytes"

	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// Reader is the exchange of a plain text get that has asked one copy. A value ends it. All
// else (a miss, a mark, an error or no answer) goes on as a task, whose rule is told of it as
// the answer to what it would have asked first.
type Reader client.Exchange

// door is what the client of such a read is connected to.
type door interface {
	Fitting(key []byte) *routing.Route
	Copied() *Copies
}

// Copied is what the loop of a client does for copies.
func (e *Copies) Copied() *Copies { return e }

// ReadAt is the connection by which s reads key, which has that hash as servers know it, at
// the copy that is read first, without a task; nil: a task is needed. owner is the server that
// the key belongs to.
//
// A value there is the answer while nobody in the process knows of a write that the copy has
// missed, or may run yet: that is for the loop that leads the key to know, which may be another
// one. It says so before the write is answered (doubt), so who reads behind a write that was
// acknowledged sees it.
func (e *Copies) ReadAt(s *client.Session, rt *routing.Route, owner *upstream.Server, key []byte, hash uint64) *upstream.Conn {
	if !rt.AllIn() || e.Doubtful.Load() > 0 && !(e.Loops.Owner(hash) == e.Tasks && e.clean(rt, key, hash)) {
		return nil
	}
	srv := owner
	if !rt.ReadsFirst() {
		srv = e.nextOf(rt, key)
	}
	if srv == nil {
		return nil
	}
	c, _, _ := srv.Pick(s.ID, false)
	return c
}

// nextOf is the copy of key that is read first where that is not always the same.
func (e *Copies) nextOf(rt *routing.Route, key []byte) *upstream.Server {
	var room [replicate.Max]routing.Holder
	list := rt.Holders(room[:0], key)
	if len(list) == 0 {
		return nil
	}
	if rt.Copies.Read == replicate.Spread {
		e.turn++
		return list[e.turn%uint64(len(list))].Server
	}
	for _, h := range list {
		if rt.IsNear(h) {
			return h.Server
		}
	}
	return list[0].Server
}

// clean reports whether no copy of a key has missed a write, as far as this loop knows, which
// leads the key.
func (e *Copies) clean(rt *routing.Route, key []byte, hash uint64) bool {
	e.holders = e.copiesOf(e.holders[:0], rt, key)
	for i := range e.holders {
		if m := &e.holders[i]; m.Dirty(hash) || m.Server.HasLateDelete(key) {
			return false
		}
	}
	return true
}

// doubt tells the other loops, before what made it known is answered, that a member has missed
// a write or may run one late. Tend takes that back.
func (e *Copies) doubt() {
	if !e.doubts {
		e.doubts = true
		e.Doubtful.Add(1)
	}
}

// reassure takes doubt back, if nothing is left to be known of any member.
func (e *Copies) reassure() {
	if !e.doubts || e.LateDeletes > 0 {
		return
	}
	for _, w := range e.Ledgers {
		for i := range w.Members {
			if m := &w.Members[i]; m.overflowed || len(m.Keys) > 0 {
				return
			}
		}
	}
	e.doubts = false
	e.Doubtful.Add(-1)
}

// ReadAs lets x, a read of s, be answered by what a asks for.
func ReadAs(a *upstream.Attempt, x *client.Exchange, share int32, hash uint64) {
	a.To, a.Share = (*Reader)(x), share
	x.Session.Reads = append(x.Session.Reads, hash)
}

func (p *Reader) exchange() *client.Exchange { return (*client.Exchange)(p) }

func (p *Reader) Client() uint64 { return p.exchange().Client() }

func (p *Reader) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	if r.Kind == wire.Value && string(r.ClientFlags.Of(b)) != wire.MarkFlags {
		return p.exchange().Reply(c, a, r, b)
	}
	if p.Session == nil {
		return 0
	}
	return p.goOn(c, a, &upstream.Result{Bytes: b, Reply: *r})
}

// goOn lets a task go on with what has come, or has not: r.
func (p *Reader) goOn(c *upstream.Conn, a *upstream.Attempt, r *upstream.Result) (taken int) {
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
	t.Rule = &command{first: r, firstFrom: c.Server.Target}
	a.GoesOn = true
	e.GoOn(t)
	return 0
}

// end takes the read off those that others of its client's wait for.
func (p *Reader) end(a *upstream.Attempt) {
	s := p.Session
	switch {
	case s == nil || a.GoesOn:
	case s.Tasks == 0 && len(s.Reads) == 1:
		s.Reads = s.Reads[:0]
	default:
		e := s.Handler.(door).Copied()
		key, _ := a.Named()
		e.EndRead(s, e.Loops.HashKey(key))
	}
}

func (p *Reader) Done(c *upstream.Conn, a *upstream.Attempt) {
	p.end(a)
	p.exchange().Done(c, a)
}

func (p *Reader) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	if p.Session != nil {
		p.goOn(c, a, &upstream.Result{Failure: f})
		p.end(a)
	}
	p.exchange().FinishOne()
}
