package proxy

// What becomes of keys is told to the book of why they miss: see package why. A read that
// finds its value tells nothing, and costs a compare.

import (
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/watch/why"
	"ringside/proxy/wire"
)

// keepBook makes the book, if the table in force wants one, or ends it.
func (p *Proxy) keepBook(on bool, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch b := p.book.Load(); {
	case !on:
		p.book.Store(nil)
	case b == nil:
		p.book.Store(why.NewBook(now, time.Now(), p.Hash))
	}
}

// Misses is the account of the route with a label; nil: there is no book.
func (p *Proxy) Misses(label string) *why.Account {
	if b := p.book.Load(); b != nil {
		return b.Route(label)
	}
	return nil
}

// Judged is why keys have missed, and how long their values took; nil: nobody looks. It
// fails as Snapshot does.
func (p *Proxy) Judged() (is *why.Report, err error) {
	b := p.book.Load()
	if b == nil {
		return nil, nil
	}
	now := int64(0)
	err = p.waited(func(e *Engine) { now = max(now, e.Now) })
	if err != nil {
		return nil, err
	}
	return b.Report(now), nil
}

// Fate tells what a server has answered to a, if it is a client's own request.
func (o observer) Fate(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply) {
	e, at := o.e, why.Place{Home: c.Server.Number, Served: c.Server.Number}
	if e.Shared.book.Load() == nil {
		return
	}
	to, ok := a.To.(interface {
		RouteOf(share int32) *stats.RouteCounters
	})
	if !ok { // what is a task's is told when that has its answer
		return
	}
	count := to.RouteOf(a.Share)
	if count == nil || count.Misses == nil {
		return
	}
	tell := count.Misses
	if a.Many {
		if r.Last && (r.Kind == wire.Value || r.Kind == wire.End) {
			strip := a.Strip
			a.Missing(r.Kind == wire.Value && r.Awaited, func(key []byte) { tell.Missed(e.Now, key, strip, at, false) })
		}
		return
	}
	key, _ := a.Named()
	switch {
	case r.Kind == wire.Stored && a.Op != wire.Append && a.Op != wire.Prepend:
		tell.Stored(e.Now, key, a.Strip, at, a.TTL)
	case (r.Kind == wire.Miss || r.Kind == wire.End) && a.Op <= wire.Gats:
		tell.Missed(e.Now, key, a.Strip, at, false)
	case r.Kind == wire.Deleted:
		tell.Removed(e.Now, key)
	case r.Kind == wire.Touched || r.Kind == wire.Value:
		tell.Touched(e.Now, key, a.TTL)
	}
}

// fateOf tells what has become of the key of t, whose client has its answer.
func (e *Engine) fateOf(t *task.Task, o stats.Outcome) {
	tell := t.Account
	switch {
	case tell == nil || t.Removal():
	case t.Op <= wire.Gats && o == stats.Miss:
		tell.Missed(e.Now, t.Key, t.Strip, t.Place, t.Invalidated)
	case t.Op.Stores() && o == stats.Stored && t.Op != wire.Append && t.Op != wire.Prepend:
		tell.Stored(e.Now, t.Key, t.Strip, t.Place, t.TTL)
	case t.Op == wire.Delete && o == stats.Okay:
		tell.Removed(e.Now, t.Key)
	case (t.Op == wire.Touch || t.Op == wire.Gat || t.Op == wire.Gats) && (o == stats.Okay || o == stats.Hit):
		tell.Touched(e.Now, t.Key, t.TTL)
	}
}

// placed finds where the key of t is, and whose book hears of it. Of several copies that is
// the first's server: a key with copies is not gone with a server.
func (e *Engine) placed(t *task.Task) {
	t.Account = t.Route.Count.Misses
	if t.Account == nil {
		return
	}
	part, h, owner := t.Route.Pool.Place.Locate(t.Key)
	if owner < 0 {
		return
	}
	at := &t.Place
	at.Home = t.Route.Servers[owner].Number
	if at.Served = at.Home; t.Route.View == nil || t.Route.Copies.Copies != 0 {
		return
	}
	is := t.Route.Find(part, h, owner)
	served := is.First.Server
	if is.Role == health.Returning {
		served = is.Interim.Server
	}
	at.Served = t.Route.Member(served).Number
}

// lost tells that what a server keeps is gone, or will be at a time to come: it was flushed,
// or is out, and nobody knows what it has when it is back.
func (e *Engine) lost(srv *upstream.Server, at int64, flushed bool) {
	switch b := e.Shared.book.Load(); {
	case b == nil:
	case flushed:
		b.Flush(at, srv.Number)
	default:
		b.Out(at, srv.Number)
	}
}
