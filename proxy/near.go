package proxy

// This file answers reads from the near cache, and records in it what other commands do.
//
// If a value expires while one read refreshes it, further reads wait for that reply. Each of them
// is a task, and nearHandler is its first handler. It answers the tasks when the refreshing read has
// its reply. Tasks that it cannot answer continue with the next handler, and so reach the server.

import (
	"ringside/proxy/client"
	"ringside/proxy/guard"
	"ringside/proxy/near"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/watch"
	"ringside/proxy/wire"
)

// nearReads is the near cache of one loop, and answers reads from it.
type nearReads struct {
	near.Near
	clients *client.Clients
	tasks   *task.Tasks
	watch   *watch.Watch // samples the reads that the near cache answers
	guards  *guard.Guard // is notified of reads of guarded keys that the near cache answers
	hash    func(key []byte) uint64
	admit   func(s *client.Session, x *client.Exchange, t *task.Task)
}

// newNearReads returns the near cache of one loop. admit starts a task.
func newNearReads(tasks *task.Tasks, w *watch.Watch, guards *guard.Guard, hash func(key []byte) uint64, admit func(s *client.Session, x *client.Exchange, t *task.Task)) *nearReads {
	return &nearReads{near.New(tasks.IO, hash), tasks.Clients, tasks, w, guards, hash, admit}
}

// Keep assigns a near cache to each route of a listener that has one in the configuration.
// loops is the number of loops that share the memory of a route.
func (e *nearReads) Keep(lst *routing.Listener, learned func(label string) *stats.Near, loops int) {
	for i := range lst.Routes {
		if rt := &lst.Routes[i]; rt.Keeps != nil {
			label := rt.Name().Route
			rt.Near = e.Store(near.Name{Pool: rt.Pool.Name, Route: label, Strip: rt.Strip}, rt.Keeps, int(rt.Keeps.Memory)/loops, learned(label))
		}
	}
}

// Serve answers a read of key from the near cache, or makes it wait for a refresh. It returns
// false if the server must answer. In that case x.Lookup records whether the reply may be
// stored in the near cache.
func (e *nearReads) Serve(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte) bool {
	r := &e.clients.Req
	switch {
	case r.Op > wire.Gets && r.Op != wire.Debug || r.Flags&wire.Effects != 0:
		e.Writes(x, rt, key)
		return false
	case rt.Near == nil || r.Op != wire.Get || r.Flags&wire.Base64 != 0:
		return false
	}
	brings := true // whether the server's reply will contain the value and its client flags
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
		t := e.tasks.NewTask(x, share, rt, r, raw, key, key)
		t.AwaitsKept = true
		e.admit(x.Session, x, t)
		return true
	case how == near.Give && (v.Known || r.Dialect == wire.Text):
		e.give(x, share, rt, raw, key, v)
		return true
	}
	rt.Count.Near.Asked++
	if brings && (rt.Near.All || e.isHot(rt, hash, key)) {
		e.lookupOf(x).Asks(rt.Near, hash, share, r.NumKeys <= 1)
	}
	return false
}

// nearHandler serves the reads that wait for a refresh of the near cache. It passes all other tasks
// to next.
type nearHandler struct {
	*nearReads
	next task.Handler
}

// Handle makes a read wait for a refresh, or answers it from the near cache.
func (e nearHandler) Handle(t *task.Task) {
	rt := t.Route
	if !t.AwaitsKept || rt.Near == nil {
		t.Pass(e.next)
		return
	}
	v, how := rt.Near.Find(e.hash(t.Key), t.Key, false)
	switch {
	case how == near.Wait:
		rt.Near.Await(v, func() { e.tasks.Ready(t) })
		return
	case how == near.Give && (v.Known || t.Req.Dialect == wire.Text):
		b := append(append([]byte(nil), v.Block...), wire.EndLine...)
		if t.Req.Dialect == wire.Meta {
			b = v.Append(nil, t.Raw, &t.Req)
		}
		e.count(rt, v)
		e.guards.Shown(t)
		t.Answer(t.Result(nil, b), nil)
		return
	}
	t.AwaitsKept = false
	rt.Count.Near.Asked++
	t.Pass(e.next)
}

// give sends the client v, a value from the near cache, as the reply to a read of key.
func (e *nearReads) give(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte, v *near.Value) {
	x.Hit(share)
	x.Outcome = stats.Hit
	switch {
	case e.clients.Req.Dialect == wire.Meta:
		e.clients.Line = v.Append(e.clients.Line[:0], raw, &e.clients.Req)
		x.Emit(e.clients.Line)
	case x.InOrder != nil:
		x.InOrder.Keep(&e.clients.Buffers, string(key), v.Block)
	default:
		x.Emit(v.Block)
	}
	e.count(rt, v)
	if s := x.Session; rt.Guard != nil && guard.Expects(s) {
		e.guards.Found(s, rt, key[len(rt.Strip):])
	}
	if e.watch.Left--; e.watch.Left < 0 {
		e.watch.Ended(e.clients.Now, key, len(rt.Strip), x.Op, stats.Hit, x.Session.ID, len(v.Data))
	}
}

// count counts a read that the near cache has answered with v.
func (e *nearReads) count(rt *routing.Route, v *near.Value) {
	c := &rt.Count.Near
	c.Hits++
	c.Age += uint64(e.clients.Now - v.Asked)
}

// oftenEnough is the number of reads of a key within the ttl of the near cache from which the
// cache keeps the value.
const oftenEnough = 4

// isHot reports whether key is read often enough to be kept in the near cache. hash is the hash
// of the key without the prefix that the route strips.
func (e *nearReads) isHot(rt *routing.Route, hash uint64, key []byte) bool {
	if rt.Strip != "" {
		hash = e.hash(key)
	}
	return e.watch.Rate(hash, e.clients.Now)*rt.Near.TTL.Seconds() >= oftenEnough
}

// Writes records for the near cache that x may change the value of key.
func (e *nearReads) Writes(x *client.Exchange, rt *routing.Route, key []byte) {
	if e.On && rt != nil {
		e.lookupOf(x).Writes(key[len(rt.Strip):])
	}
}

// lookupOf returns x.Lookup, which records the use of the near cache by x. It creates the
// Lookup if there is none.
func (e *nearReads) lookupOf(x *client.Exchange) *near.Lookup {
	if x.Lookup == nil {
		x.Lookup = e.Near.NewLookup()
	}
	return x.Lookup
}
