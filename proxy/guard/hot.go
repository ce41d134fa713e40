package guard

// A guarded get as an ordinary exchange: nothing else runs where a value answers
// it.

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Reader is the exchange of a text read while servers are asked in meta.
type Reader client.Exchange

// door is what the client of a guarded read is connected to.
type door interface {
	Fitting(key []byte) *routing.Route
	Guarded() *Guard
}

// Ask asks for one key of x's text read, of that share, on c. It reports false, and has done
// nothing, if the server can't be asked so.
func (g *Guard) Ask(x *client.Exchange, share int32, rt *routing.Route, c *upstream.Conn, key []byte) bool {
	if c.Speech != 0 && c.Speech&wire.Metas == 0 {
		return false
	}
	a := x.Attempt()
	a.To, a.Share = (*Reader)(x), share
	g.AskFor(x, rt, c, a, key)
	return true
}

// AskFor asks for a key by the attempt a, whose receiver hands on the answer to a
// Reader.
func (g *Guard) AskFor(x *client.Exchange, rt *routing.Route, c *upstream.Conn, a *upstream.Attempt, key []byte) {
	hide := rt.Guard.Hide
	if g.blind(c) {
		rt.Guard.Learned.Count(stats.GuardOff)
		hide = true
	}
	a.Op, a.Dialect, a.Flags, a.Strip = wire.Get, wire.Meta, wire.ReturnKey|wire.Effects, rt.Strip
	c.Begin(a, &rt.Timeouts)
	a.Remember(&noOpaque, nil, key)
	c.Require(a, wire.Metas)
	g.Line = append(append(append(g.Line[:0], "mg "...), key...), " f v c"...)
	g.Line = g.appendFlags(g.Line, rt.Guard, x.Op == wire.Gets, hide)
	g.Line = append(g.Line, " k\r\n"...) // behind what a hit is read for
	c.Out.Append(&g.Buffers, g.Line)
	c.Give(a, len(g.Line))
}

var noOpaque wire.Request

func (p *Reader) exchange() *client.Exchange { return (*client.Exchange)(p) }

func (p *Reader) Client() uint64 { return p.exchange().Client() }

// token is what a client of gets is shown; nil to a get.
func (p *Reader) token(s *seen) []byte {
	if p.Op == wire.Gets {
		return s.cas
	}
	return nil
}

func (p *Reader) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	return p.Judge(c, a, r, b, nil)
}

// Stamps is what is known of the tags of a value when it comes.
type Stamps struct {
	Must    []stamp.Tag // it has these, or does not stand
	Known   stamp.Known // of these tags and others
	Learned *stats.Tags
	flags   [10]byte // scratch: the client's, as text
}

// Judge is Reply for a value that stands only as long as its tags do; tags is nil on
// routes without.
func (p *Reader) Judge(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte, tags *Stamps) (taken int) {
	var known stamp.Known
	if tags == nil && r.Kind == wire.Value && !marked(r) && p.Op == wire.Get {
		flags, _ := wire.FlagArg(b, r.MetaFlags, 'f')
		if s := (seen{flags: flags.Of(b)}); !s.special() && r.Body.Len() > 0 { // nothing else of the answer is of interest
			return p.exchange().Value(a, r, b, s.shown(), nil)
		}
	}
	if r.Kind == wire.Value {
		s := see(r, b)
		stands := true
		if tags != nil {
			stands, known = tags.uncover(r, b, &s), tags.Known
		}
		hollow := s.size == 0 && p.Flags&wire.Binary != 0 // a frame is made of the reply as it is, with flags that no client has given
		if stands && !hollow && (!s.special() || p.fresh(c, a, &s)) {
			return p.exchange().Value(a, r, b, s.shown(), p.token(&s))
		}
	} else if tags != nil {
		known = tags.Known
	}
	return p.cold(c, a, &upstream.Result{Server: c.Server, Bytes: b, Via: c.Via(a)}, known)
}

// uncover takes the head off a value, if it has one. It reports whether the value
// stands, as far as is known.
func (tags *Stamps) uncover(r *wire.Reply, b []byte, s *seen) bool {
	if string(s.flags) != stamp.Flags {
		return len(tags.Must) == 0
	}
	h, ok := stamp.ReadHead(r.Body.Of(b))
	if !ok || tags.Known.Judge(h) != stamp.Stands || !h.HasAll(tags.Must) {
		return false
	}
	tags.Learned.Count(stats.TagHit)
	s.flags = strconv.AppendUint(tags.flags[:0], uint64(h.Flags()), 10)
	r.Body.Start += uint32(len(h))
	s.size -= len(h)
	return true
}

// fresh says that a value that somebody else refreshes is not old yet.
func (p *Reader) fresh(c *upstream.Conn, a *upstream.Attempt, s *seen) bool {
	if s.wins() || s.soft() || s.mark() || s.stub() || p.Session == nil {
		return false
	}
	rt, g := p.route(a)
	if rt == nil || rt.Guard == nil || s.left() <= int64(rt.Guard.Stale/time.Second) {
		return false
	}
	key, _ := a.Named()
	w := g.winners[g.Loops.HashKey(key)] // nobody has seen its winner for a lease: a task looks after it
	return w.cas != string(s.cas) || g.Now-w.since <= int64(time.Second)*lease(rt.Guard)
}

// route is that of the key that a asked for, by the table of now.
func (p *Reader) route(a *upstream.Attempt) (*routing.Route, *Guard) {
	d, ok := p.Session.Handler.(door)
	if !ok {
		return nil, nil
	}
	key, _ := a.Named()
	g := d.Guarded()
	g.Line = append(append(g.Line[:0], a.Strip...), key...)
	return d.Fitting(g.Line), g
}

// cold goes on with an answer that is not simply a value.
func (p *Reader) cold(c *upstream.Conn, a *upstream.Attempt, r *upstream.Result, known stamp.Known) (taken int) {
	x := p.exchange()
	if x.Session == nil {
		p.giveBack(c, a, r)
		return 0
	}
	rt, g := p.route(a)
	if rt == nil {
		x.Fail(a.Share, client.NoRoute, stats.Unavailable)
		return 0
	}
	key, _ := a.Named()
	if rt.Guard == nil { // it is guarded no more, by a table that has just come
		if rep := &c.Server.Loop().Rep; r.Bytes != nil && rep.Kind == wire.Value {
			if s := see(rep, r.Bytes); !s.nothing() && string(s.flags) != stamp.Flags {
				return x.Value(a, rep, r.Bytes, s.shown(), p.token(&s))
			}
		} else if r.Bytes == nil {
			x.Fail(a.Share, r.Why, r.Outcome)
		}
		return 0
	}
	if rep := &c.Server.Loop().Rep; r.Bytes != nil && !rep.Kind.Failed() {
		s := see(rep, r.Bytes)
		g.heard(c.Server, r.Via, &s)
	}
	r.Bytes = bytes.Clone(r.Bytes)
	g.resume(x, a.Share, rt, append([]byte(a.Strip), key...), &rule{first: r, firstName: bytes.Clone(key), firstKnown: slices.Clone(known)})
	return 0
}

// giveBack gives back what was won for a client that is gone.
func (p *Reader) giveBack(c *upstream.Conn, a *upstream.Attempt, r *upstream.Result) {
	rep := &c.Server.Loop().Rep
	if r.Bytes == nil || rep.Kind.Failed() {
		return
	}
	s := see(rep, r.Bytes)
	if !s.wins() || string(s.cas) == "0" {
		return
	}
	flags := " I C"
	if s.stub() {
		flags = " C"
	}
	key, _ := a.Named()
	limit := ownTimeouts
	c.Server.Loop().Ask(c, asker(nil), 0, &limit, []byte(spelled("md ", string(key), flags+string(s.cas))), true)
}

// resume makes a task of a read that found more or less than a value.
func (g *Guard) resume(x *client.Exchange, share int32, rt *routing.Route, whole []byte, l *rule) {
	req := &g.Clients.Req
	before := *req
	command := "get "
	if x.Op == wire.Gets {
		command = "gets "
	}
	line := append(append([]byte(command), whole...), wire.LineEnd...)
	g.Wire.Next(line, req)
	req.Flags |= x.Flags & wire.Binary
	t := g.NewTask(x, share, rt, line, whole, whole)
	*req = before
	t.Rule = l
	g.Enroll(x.Session, x, t)
	g.Admit(t)
}

func (p *Reader) Done(c *upstream.Conn, a *upstream.Attempt) { p.exchange().Done(c, a) }

func (p *Reader) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	x := p.exchange()
	if a.Streams || x.Session == nil {
		x.Failed(c, a, f)
		return
	}
	r := &upstream.Result{Server: c.Server, Failure: f}
	p.cold(c, a, r, nil)
	x.FinishOne()
}

// Streams says that a value is too large to wait for, and nothing but a value.
func (p *Reader) Streams(r *wire.Reply) bool {
	return !marked(r) && p.exchange().Streams(r)
}

// marked says that memcached says something of an item besides what it is.
func marked(r *wire.Reply) bool {
	return r.Letters.Has('W') || r.Letters.Has('Z') || r.Letters.Has('X')
}

func (p *Reader) Begin(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	s := see(r, b)
	p.exchange().BeginValue(c, a, r, b, s.shown(), p.token(&s))
	return 0
}

func (p *Reader) More(c *upstream.Conn, a *upstream.Attempt, b []byte, last bool) (taken int) {
	return p.exchange().More(c, a, b, last)
}
