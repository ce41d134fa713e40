package guard

// This file sends a guarded get as an ordinary exchange, without a task. A plain hit needs no
// task.

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

// Reader receives the reply to the mg that is sent for a client's text read.
type Reader client.Exchange

var _ upstream.Streamer = (*Reader)(nil) // so that large values are streamed

// connHandler is the handler of the client's connection.
type connHandler interface {
	Fitting(key []byte) *routing.Route
	Guarded() *Guard
}

// Ask sends the read of one key of x on c. share is the index of the key's route in the shares of
// x: see client.Exchange.Share. It does nothing and returns false if the server has no meta
// commands.
func Ask(g *Guard, x *client.Exchange, share int32, rt *routing.Route, c *upstream.Conn, key []byte) bool {
	if c.Features != 0 && c.Features&wire.Metas == 0 {
		return false
	}
	a := x.Attempt()
	a.To, a.Share = (*Reader)(x), share
	AskFor(g, x, rt, c, a, key)
	return true
}

// AskFor sends the read of a key on c, as the attempt a. The receiver of a must pass the reply to
// a Reader.
func AskFor(g *Guard, x *client.Exchange, rt *routing.Route, c *upstream.Conn, a *upstream.Attempt, key []byte) {
	hide := rt.Guard.Hide
	if g.Blind(c) {
		rt.Guard.Learned.Count(stats.GuardOff)
		hide = true
	}
	g.BeginRead(x.Session, g.Loops.HashKey(key))
	a.Op, a.Dialect, a.Flags, a.Strip = wire.Get, wire.Meta, wire.ReturnKey|wire.Effects, rt.Strip
	c.Begin(a, &rt.Timeouts)
	a.Remember(&noOpaque, nil, key)
	c.Require(a, wire.Metas)
	g.Line = append(append(append(g.Line[:0], "mg "...), key...), " f v c"...)
	g.Line = g.AppendFlags(g.Line, rt.Guard, x.Op == wire.Gets, hide)
	g.Line = append(g.Line, " k\r\n"...) // k is the last meta flag, because a hit needs the other flags first
	c.Out.Append(&g.Buffers, g.Line)
	c.Give(a, len(g.Line))
}

var noOpaque wire.Request

func (p *Reader) exchange() *client.Exchange { return (*client.Exchange)(p) }

func (p *Reader) Client() uint64 { return p.exchange().Client() }

// token returns the cas that the client sees in the reply; nil for a get, which shows no cas.
func (p *Reader) token(s *Item) []byte {
	if p.Op == wire.Gets {
		return s.Cas
	}
	return nil
}

func (p *Reader) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	return p.Judge(c, a, r, b, nil)
}

// Stamps has the versions of tags that are known when a value arrives, and the tags that the
// value must have.
type Stamps struct {
	Must    []stamp.Tag // tags that a valid value must have
	Known   stamp.Known // known versions of tags, among them those in Must
	Learned *stats.TagStats
	flags   [10]byte // scratch space for the client flags as text
}

// Judge handles the reply r to the read of p, with the bytes b. It checks the tags of a value
// against `tags`, which is nil on routes without tags.
func (p *Reader) Judge(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte, tags *Stamps) (taken int) {
	var known stamp.Known
	whole := r.Body
	if tags == nil && r.Kind == wire.Value && !hasRebuildFlags(r) && p.Op == wire.Get {
		flags, _ := wire.FlagArg(b, r.MetaFlags, 'f')
		if s := (Item{Flags: flags.Of(b)}); !s.IsSpecial() && r.Body.Len() > 0 { // the reply is a plain hit
			p.found(a)
			return p.exchange().Value(a, r, b, s.Flags, nil)
		}
	}
	if r.Kind == wire.Value {
		s := parseItem(r, b)
		stands := true
		if tags != nil {
			stands, known = tags.uncover(r, b, &s), tags.Known
		}
		empty := s.Size == 0 && p.Flags&wire.Binary != 0 // a binary reply is built from the stored item, which has flags that no client has set
		if stands && !empty && (!s.IsSpecial() || p.fresh(a, &s)) {
			p.found(a)
			return p.exchange().Value(a, r, b, s.ClientFlags(), p.token(&s))
		}
	} else if tags != nil {
		known = tags.Known
	}
	r.Body = whole
	return p.cold(c, a, &upstream.Result{Server: c.Server, Bytes: b, Reply: *r, ConnEpoch: c.EpochOf(a)}, known)
}

// found ends the recorded miss of the client, because the client gets a value of the key. It does
// nothing if the client has no miss.
func (p *Reader) found(a *upstream.Attempt) {
	if p.Session == nil || p.Session.Companion == nil || !Expects(p.Session) {
		return
	}
	if rt, g := p.route(a); rt != nil && rt.Guard != nil {
		key, _ := a.Named()
		g.Found(p.Session, rt, key)
	}
}

// head returns the header with tag versions of the value in r; nil if there is none. b may be
// only the beginning of the reply. stands reports whether the value is valid by the versions in
// tags.Known.
func (tags *Stamps) head(r *wire.Reply, b []byte, s *Item) (h stamp.Head, stands bool) {
	if string(s.Flags) != stamp.Flags {
		return nil, len(tags.Must) == 0
	}
	h, ok := stamp.ReadHead(b[r.Body.Start:min(int(r.Body.End), len(b))])
	return h, ok && tags.Known.Judge(h) == stamp.Stands && h.HasAll(tags.Must)
}

// uncover removes the header with tag versions from a value, if there is one and the
// value is valid. It reports whether the value is valid according to the versions in
// tags.Known.
func (tags *Stamps) uncover(r *wire.Reply, b []byte, s *Item) bool {
	h, stands := tags.head(r, b, s)
	if h == nil || !stands {
		return stands
	}
	tags.Learned.Count(stats.TagHit)
	s.Flags = strconv.AppendUint(tags.flags[:0], uint64(h.Flags()), 10)
	r.Body.Start += uint32(len(h))
	s.Size -= len(h)
	return true
}

// fresh reports whether the value s may be served as a hit although another client rebuilds it:
// it has not expired, and the lease holder is not overdue.
func (p *Reader) fresh(a *upstream.Attempt, s *Item) bool {
	if s.HasLease() || s.IsInvalidated() || s.IsTombstone() || s.IsPlaceholder() || p.Session == nil {
		return false
	}
	rt, g := p.route(a)
	if rt == nil || rt.Guard == nil || s.SecondsLeft() <= int64(rt.Guard.Stale/time.Second) {
		return false
	}
	key, _ := a.Named()
	return !g.Overdue(rt.Guard, g.Loops.HashKey(key), s.Cas) // if the lease holder is overdue, a task handles the reply, and may cancel the lease
}

// route returns the route of a's key in the current routing table, and the guard of the client's
// loop.
func (p *Reader) route(a *upstream.Attempt) (*routing.Route, *Guard) {
	d, ok := p.Session.Handler.(connHandler)
	if !ok {
		return nil, nil
	}
	key, _ := a.Named()
	g := d.Guarded()
	g.Line = append(append(g.Line[:0], a.Strip...), key...)
	return d.Fitting(g.Line), g
}

// cold handles the reply r to the read of p, if r is not simply a value.
func (p *Reader) cold(c *upstream.Conn, a *upstream.Attempt, r *upstream.Result, known stamp.Known) (taken int) {
	x := p.exchange()
	if x.Session == nil {
		p.cancelLease(c, a, r)
		return 0
	}
	rt, g := p.route(a)
	if rt == nil {
		x.Fail(a.Share, client.NoRoute, stats.Unavailable)
		return 0
	}
	if rt.Strip != a.Strip { // a new routing table has given the key another name at the servers, so Resume reads the key again
		p.cancelLease(c, a, r)
	}
	key, _ := a.Named()
	if rt.Guard == nil { // a new routing table has removed the guard
		if rep := &r.Reply; rep.Kind == wire.Value {
			if s := parseItem(rep, r.Bytes); !s.IsMiss() && string(s.Flags) != stamp.Flags {
				return x.Value(a, rep, r.Bytes, s.ClientFlags(), p.token(&s))
			}
		} else if r.Bytes == nil {
			x.Fail(a.Share, r.Why, r.Outcome)
		}
		return 0
	}
	if r.Reply.Kind.Answered() {
		s := parseItem(&r.Reply, r.Bytes)
		g.Heard(c.Server, r.ConnEpoch, &s)
	}
	r.Bytes = bytes.Clone(r.Bytes)
	a.TakenOver = true
	g.Resume(x, a.Share, rt, append([]byte(a.Strip), key...), FastAnswer{Result: r, Name: bytes.Clone(key), Known: slices.Clone(known)})
	return 0
}

// cancelLease cancels the lease that the reply r grants, because the client gets no value or miss
// from this reply.
func (p *Reader) cancelLease(c *upstream.Conn, a *upstream.Attempt, r *upstream.Result) {
	if !r.Reply.Kind.Answered() {
		return
	}
	s := parseItem(&r.Reply, r.Bytes)
	key, _ := a.Named()
	CancelLease(c, string(key), &s)
}

func (p *Reader) Done(c *upstream.Conn, a *upstream.Attempt) {
	p.end(a)
	p.exchange().Done(c, a)
}

// end records that the read of p has ended, so that later commands of the client need not wait
// for it. A task that continues the read keeps its place in the order of these commands.
func (p *Reader) end(a *upstream.Attempt) {
	if s := p.Session; s != nil && !a.TakenOver && !a.ReadEnded {
		a.ReadEnded = true
		key, _ := a.Named()
		s.Handler.(connHandler).Guarded().EndRead(s, key)
	}
}

func (p *Reader) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	x := p.exchange()
	if a.Streams || x.Session == nil {
		x.Failed(c, a, f)
		return
	}
	r := &upstream.Result{Server: c.Server, Failure: f}
	p.cold(c, a, r, nil)
	p.end(a)
	x.FinishOne()
}

// Streams reports whether the value in r is streamed to the client: it is large, and the reply
// has none of the flags W, Z and X.
func (p *Reader) Streams(r *wire.Reply, b []byte) bool { return p.Flows(r, b, nil) }

// Flows reports whether the value in r is streamed to the client, like Streams, but also checks
// tags. An invalid value is not streamed, because a task may serve it during its rebuild.
func (p *Reader) Flows(r *wire.Reply, b []byte, tags *Stamps) (stands bool) {
	if hasRebuildFlags(r) || !p.exchange().Streams(r, b) {
		return false
	}
	if tags == nil {
		return true
	}
	s := parseItem(r, b)
	_, stands = tags.head(r, b, &s)
	return stands
}

func (p *Reader) Begin(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	return p.Open(c, a, r, b, nil)
}

// Open starts to stream a value to the client, after Flows has returned true for it. tags is nil
// on routes without tags.
func (p *Reader) Open(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte, tags *Stamps) (taken int) {
	s := parseItem(r, b)
	if tags != nil {
		tags.uncover(r, b, &s)
	}
	p.found(a)
	p.end(a) // the server has executed the read, so later commands of the client need not wait for the rest of the value
	p.exchange().BeginValue(c, a, r, b, s.ClientFlags(), p.token(&s))
	return 0
}

func (p *Reader) More(c *upstream.Conn, a *upstream.Attempt, b []byte, last bool) (taken int) {
	return p.exchange().More(c, a, b, last)
}

func (p *Reader) IsSlow() bool { return p.exchange().IsSlow() }
