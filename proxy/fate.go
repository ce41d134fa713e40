package proxy

// This file reports writes and misses of keys to the book that explains misses: see
// package missreason. A read that finds its value is not reported; it costs one comparison.

import (
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// keepBook creates or drops the book, which explains misses: if on is set the process has one,
// and otherwise it has none.
func (p *Proxy) keepBook(on bool, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch b := p.book.Load(); {
	case !on:
		p.book.Store(nil)
	case b == nil:
		p.book.Store(missreason.NewBook(now, time.Now(), p.Hash))
	}
}

// Misses returns why reads of the route with this label missed. It returns nil if there is no
// book, so that misses are not explained.
func (p *Proxy) Misses(label string) *missreason.Account {
	if b := p.book.Load(); b != nil {
		return b.Route(label)
	}
	return nil
}

// MissReport returns the report of why keys missed and how long their values took to
// rebuild. It returns nil if there is no book, so that misses are not explained. It
// returns an error in the same cases as Snapshot.
func (p *Proxy) MissReport() (is *missreason.Report, err error) {
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

// Observe reports the reply r to the book, which explains misses, if the attempt a is a
// client's own request and not part of a task.
func (o observer) Observe(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply) {
	e, at := o.e, missreason.Place{Home: c.Server.Number, Served: c.Server.Number}
	if e.Shared.book.Load() == nil {
		return
	}
	to, ok := a.To.(interface {
		RouteOf(share int32) *stats.RouteCounters
	})
	if !ok { // a is part of a task, which reports its outcome when its client gets the reply: see Engine.recordOutcome
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

// recordOutcome reports the outcome o of the task t to the book, which explains misses. The
// client has the reply already.
func (e *Engine) recordOutcome(t *task.Task, o stats.Outcome) {
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

// placed sets two fields of t, with which the book explains misses. t.Place is the server of
// the key, and t.Account collects the misses of its route. For a replicated key the place is
// always the primary's server, even if that server is out: the followers still have the key.
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
	at.Served = t.Route.Server(served).Number
}

// lost reports to the book, which explains misses, that a server has lost its contents.
// The server was flushed, or it is out and its contents are unknown when it rejoins.
// The parameter `at` is the time of the loss.
func (e *Engine) lost(srv *upstream.Server, at int64, flushed bool) {
	switch b := e.Shared.book.Load(); {
	case b == nil:
	case flushed:
		b.Flush(at, srv.Number)
	default:
		b.Out(at, srv.Number)
	}
}
