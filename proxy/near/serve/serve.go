// Package serve answers reads by what package near keeps, and tells near what other
// commands have to do with that.
//
// When the time of a value is over while one read asks for it anew, the reads that come
// meanwhile wait for its answer: each is a task, of which this package is the first
// leader. It leads them when that read has its answer; who can't be served by that goes
// to the next leader, and so to the server.
package serve

// All of it: reads, the tasks of those that wait, writes.

import (
	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/near"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/watch"
	"ringside/proxy/wire"
)

// Near is what one loop keeps of values, and serves by it.
type Near struct {
	near.Near
	clients *client.Clients
	tasks   *task.Tasks
	watch   *watch.Watch // which sees the reads that ask no server, too
	hash    func(key []byte) uint64
	admit   func(s *client.Session, x *client.Exchange, t *task.Task)
}

// New serves for one loop. admit leads a task.
func New(tasks *task.Tasks, w *watch.Watch, hash func(key []byte) uint64, admit func(s *client.Session, x *client.Exchange, t *task.Task)) *Near {
	return &Near{near.New(tasks.IO, hash), tasks.Clients, tasks, w, hash, admit}
}

// Keep gives the routes of a listener the stores of their values, each one of several
// such loops.
func (e *Near) Keep(lst *routing.Listener, learned func(label string) *stats.Near, loops int) {
	for i := range lst.Routes {
		if rt := &lst.Routes[i]; rt.Keeps != nil {
			label := rt.Name().Route
			rt.Near = e.Store(near.Name{Pool: rt.Pool.Name, Route: label, Strip: rt.Strip}, rt.Keeps, int(rt.Keeps.Memory)/loops, learned(label))
		}
	}
}

// Serve answers a read of key by what is kept here, or lets it wait for that. It reports
// false if it can't: then the request goes on, and x knows what it has to do with what is
// kept.
func (e *Near) Serve(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte) bool {
	r := &e.clients.Req
	switch {
	case r.Op > wire.Gets && r.Op != wire.Debug || r.Flags&wire.Effects != 0:
		e.Writes(x, rt, key)
		return false
	case rt.Near == nil || r.Op != wire.Get || r.Flags&wire.Base64 != 0:
		return false
	}
	brings := true // the client's flags, too
	if r.Dialect == wire.Meta {
		if !near.Fits(r) {
			return false
		}
		brings = r.Letters.Has('v') && r.Letters.Has('f')
	}
	name := key[len(rt.Strip):]
	hash := e.hash(name)
	v, how := rt.Near.Find(hash, name, brings)
	switch {
	case how == near.Wait && !e.clients.Scarce(task.TaskSize):
		t := e.tasks.NewTask(x, share, rt, raw, key, key)
		t.AwaitsKept = true
		e.admit(x.Session, x, t)
		return true
	case how == near.Give && (v.Known || r.Dialect == wire.Text):
		e.give(x, share, rt, raw, key, v)
		return true
	}
	rt.Count.Near.Asked++
	if brings && (rt.Near.All || e.isHot(rt, hash, key)) {
		e.Stake(x).Asks(rt.Near, hash, share, r.NumKeys <= 1)
	}
	return false
}

// Lead lets a read that awaits what is kept wait, or answers it by that: a task.Leader.
func (e *Near) Lead(t *task.Task) bool {
	rt := t.Route
	if !t.AwaitsKept || rt.Near == nil {
		return false
	}
	v, how := rt.Near.Find(e.hash(t.Key), t.Key, false)
	switch {
	case how == near.Wait:
		rt.Near.Await(v, func() {
			e.tasks.Runnable = append(e.tasks.Runnable, t)
			e.tasks.Soon(link.NearTimer) // so that End is called, which leads it
		})
		return true
	case how == near.Give && (v.Known || t.Req.Dialect == wire.Text):
		b := append(append([]byte(nil), v.Block...), wire.EndLine...)
		if t.Req.Dialect == wire.Meta {
			b = v.Append(nil, t.Raw, &t.Req)
		}
		e.count(rt, v)
		t.Answer(t.Result(nil, b), nil)
		return true
	}
	t.AwaitsKept = false
	rt.Count.Near.Asked++
	return false
}

// give gives the client a value that is kept here.
func (e *Near) give(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte, v *near.Value) {
	x.Hit(share)
	x.Outcome = stats.Hit
	switch {
	case e.clients.Req.Dialect == wire.Meta:
		e.clients.Line = v.Append(e.clients.Line[:0], raw, &e.clients.Req)
		x.Emit(nil, e.clients.Line)
	case x.InOrder != nil:
		x.InOrder.Keep(&e.clients.Buffers, string(key), v.Block)
	default:
		x.Emit(nil, v.Block)
	}
	e.count(rt, v)
	if e.watch.Left--; e.watch.Left < 0 {
		e.watch.Ended(e.clients.Now, key, len(rt.Strip), x.Op, stats.Hit, x.Session.ID, len(v.Data))
	}
}

// count counts a read that asked no server.
func (e *Near) count(rt *routing.Route, v *near.Value) {
	c := &rt.Count.Near
	c.Hits++
	c.Age += uint64(e.clients.Now - v.Asked)
}

// oftenEnough is how many reads in a ttl make it worth to keep a value.
const oftenEnough = 4

// isHot says that key, which has that hash as servers know it, is read often enough.
func (e *Near) isHot(rt *routing.Route, hash uint64, key []byte) bool {
	if rt.Strip != "" {
		hash = e.hash(key)
	}
	return e.watch.Rate(hash, e.clients.Now)*rt.Near.TTL.Seconds() >= oftenEnough
}

// Writes notes that x may change the value of key.
func (e *Near) Writes(x *client.Exchange, rt *routing.Route, key []byte) {
	if e.On && rt != nil {
		e.Stake(x).Writes(key[len(rt.Strip):])
	}
}

// Stake is what x has to do with what is kept here.
func (e *Near) Stake(x *client.Exchange) *near.Stake {
	if x.Stake == nil {
		x.Stake = e.Near.Stake()
	}
	return x.Stake
}
