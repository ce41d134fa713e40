package guard

// This file reads guarded keys without a task, as long as the reply is a plain hit.

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Reader is the task.ReadStrategy and the task.Judge of guarded routes.
type Reader struct {
	*Guard
	Tags *Stamps // the tags of the key that gets its reply next; nil on routes without tags
}

// Stamps has the versions of tags that are known when a value arrives, and the tags that the
// value must have.
type Stamps struct {
	Must    []stamp.Tag // tags that a valid value must have
	Known   stamp.Known // known versions of tags, among them those in Must
	Learned *stats.TagStats
	flags   [10]byte // scratch space for the client flags as text
}

// Conn returns the connection to the owner of the key. It returns nil if the owner does not serve
// its keys now, or has no meta commands.
func (p *Reader) Conn(x *client.Exchange, rt *routing.Route, owner *upstream.Server, _ []byte) *upstream.Conn {
	if !rt.Serves(owner) {
		return nil
	}
	c, _, _ := owner.Pick(x.Session.ID, false)
	if c == nil || c.Features != 0 && c.Features&wire.Metas == 0 {
		return nil
	}
	return c
}

// Send sends the read as an mg that also returns what the guard needs.
func (p *Reader) Send(r *task.Read, rt *routing.Route, c *upstream.Conn, a *upstream.Attempt) task.Judge {
	g, hide := p.Guard, rt.Guard.Hide
	if g.Blind(c) {
		rt.Guard.Learned.Count(stats.GuardOff)
		hide = true
	}
	a.Op, a.Dialect, a.Flags = wire.Get, wire.Meta, wire.ReturnKey|wire.ReturnValue|wire.Effects
	c.Begin(a, &rt.Timeouts)
	c.Require(a, wire.Metas)
	line := append(append(append(g.Draft(&c.Out, longestGet), "mg "...), r.Name...), " f v c"...)
	line = append(g.appendFlags(line, rt.Guard, r.X.Op == wire.Gets, hide), " k\r\n"...) // k is the last meta flag, because a hit needs the other flags first
	g.Add(&c.Out, line)
	c.Give(a, len(line))
	return p
}

// longestGet is more bytes than the request of Send has.
const longestGet = 400

// token returns the cas that the client sees in the reply to r; nil for a get, which shows no cas.
func token(r *task.Read, s *Item) []byte {
	if r.X.Op == wire.Gets {
		return s.Cas
	}
	return nil
}

// Judge passes a valid value to the client.
func (p *Reader) Judge(r *task.Read, _ *upstream.Conn, a *upstream.Attempt, rep *wire.Reply, b []byte) (taken int, hit bool) {
	if rep.Kind != wire.Value {
		return 0, false
	}
	if p.Tags == nil && isUsual(rep) && r.X.Op == wire.Get {
		if flags := rep.ClientFlags.Of(b); string(flags) != tombstoneFlags && rep.Body.Len() > 0 { // the usual case, which needs no other flag
			p.found(r, a)
			return r.X.Value(a, rep, b, flags, nil), true
		}
	}
	if lacksItem(rep) {
		return 0, false
	}
	s, whole := parseItem(rep, b), rep.Body
	stands := p.Tags == nil || p.Tags.uncover(rep, b, &s)
	empty := s.Size == 0 && r.X.Flags&wire.Binary != 0 // a binary reply is built from the stored item, which has flags that no client has set
	if stands && !empty && (!s.IsSpecial() || p.fresh(r, a, &s)) {
		p.found(r, a)
		return r.X.Value(a, rep, b, s.ClientFlags(), token(r, &s)), true
	}
	rep.Body = whole
	return 0, false
}

// found ends the recorded miss of the client, because the client gets a value of the key. It does
// nothing if the client has no miss.
func (p *Reader) found(r *task.Read, a *upstream.Attempt) {
	if s := r.X.Session; s != nil && s.Companion != nil && Expects(s) {
		if rt := r.Route(a); rt != nil && rt.Guard != nil {
			p.Found(s, rt, r.Name)
		}
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
func (p *Reader) fresh(r *task.Read, a *upstream.Attempt, s *Item) bool {
	if s.HasLease() || s.IsInvalidated() || s.IsTombstone() || s.IsPlaceholder() {
		return false
	}
	rt := r.Route(a)
	if rt == nil || rt.Guard == nil || s.SecondsLeft() <= int64(rt.Guard.Stale/time.Second) {
		return false
	}
	return !p.rebuilds[nameOf(rt, r.Name)].Overdue(rt.Guard, s.Cas, p.Now) // if the lease holder is overdue, a task handles the reply, and may cancel the lease
}

// Resume makes t continue with the reply res.
func (p *Reader) Resume(r *task.Read, t *task.Task, c *upstream.Conn, res *upstream.Result) {
	if t.Route.Guard == nil { // a new routing table has removed the guard, so t reads the key again
		if res != nil {
			p.Drop(r, c, res)
		}
		return
	}
	if res != nil {
		fast := FastAnswer{Result: res, from: c.Server.Target.Network + " " + c.Server.Target.Address, Name: bytes.Clone(r.Name)}
		if res.Reply.Kind.Answered() {
			s := parseItem(&res.Reply, res.Bytes)
			if p.Heard(c.Server, res.ConnEpoch, &s); p.Tags != nil {
				fast.Known = slices.Clone(p.Tags.Known)
			}
		}
		res.Server = nil // the task may run on another loop
		t.Rule = &rule{fast: fast}
	}
	p.Enroll(r.X.Session, r.X, t)
}

// Drop cancels the lease that the reply res grants.
func (p *Reader) Drop(r *task.Read, c *upstream.Conn, res *upstream.Result) {
	if res.Reply.Kind.Answered() {
		s := parseItem(&res.Reply, res.Bytes)
		CancelLease(c, string(r.Name), &s)
	}
}

// Ended does nothing.
func (p *Reader) Ended() {}

// Streams reports whether the value in rep is streamed to the client: it is large and valid, and its
// reply has all flags that Send requests, and none of W, Z and X. Any other value is not streamed,
// because a task may serve it during its rebuild.
func (p *Reader) Streams(r *task.Read, rep *wire.Reply, b []byte) bool {
	if !isUsual(rep) || !r.X.Streams(rep, b) {
		return false
	}
	if p.Tags == nil {
		return true
	}
	s := parseItem(rep, b)
	_, stands := p.Tags.head(rep, b, &s)
	return stands
}

// Begin starts to stream a value to the client.
func (p *Reader) Begin(r *task.Read, c *upstream.Conn, a *upstream.Attempt, rep *wire.Reply, b []byte) {
	s := parseItem(rep, b)
	if p.Tags != nil {
		p.Tags.uncover(rep, b, &s)
	}
	p.found(r, a)
	r.X.BeginValue(c, a, rep, b, s.ClientFlags(), token(r, &s))
}
