package proxy

// Reads that are answered by what is kept here, and what other commands have to do with
// that: package near.

import (
	"ringside/proxy/client"
	"ringside/proxy/near"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/watch"
	"ringside/proxy/wire"
)

// nearby is what one loop keeps of values, and serves by it.
type nearby struct {
	near.Near
	*client.Clients
	watch *watch.Watch // which sees the reads that ask no server, too
	hash  func(key []byte) uint64
}

// keep gives the routes of a listener the stores of their values, each one of several
// such loops.
func (e *nearby) keep(lst *routing.Listener, learned func(label string) *stats.Near, loops int) {
	for i := range lst.Routes {
		if rt := &lst.Routes[i]; rt.Keeps != nil {
			label := rt.Name().Route
			rt.Near = e.Store(near.Name{Pool: rt.Pool.Name, Route: label, Strip: rt.Strip}, rt.Keeps, int(rt.Keeps.Memory)/loops, learned(label))
		}
	}
}

// serve answers a read of key by what is kept here. It reports false if it can't:
// then the request goes on, and x knows what it has to do with what is kept.
func (e *nearby) serve(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte) bool {
	r := &e.Req
	switch {
	case r.Op > wire.Gets && r.Op != wire.Debug || r.Flags&wire.Effects != 0:
		e.writes(x, rt, key)
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
	if v := rt.Near.Find(hash, name, brings); v != nil && (v.Known || r.Dialect == wire.Text) {
		e.give(x, share, rt, raw, key, v)
		return true
	}
	rt.Count.Near.Asked++
	if brings && (rt.Near.All || e.isHot(rt, hash, key)) {
		e.stake(x).Asks(rt.Near, hash, share)
	}
	return false
}

// give gives the client a value that is kept here.
func (e *nearby) give(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte, v *near.Value) {
	x.Hit(share)
	x.Outcome = stats.Hit
	switch {
	case e.Req.Dialect == wire.Meta:
		e.Line = v.Append(e.Line[:0], raw, &e.Req)
		x.Emit(nil, e.Line)
	case x.InOrder != nil:
		x.InOrder.Keep(&e.Buffers, string(key), v.Block)
	default:
		x.Emit(nil, v.Block)
	}
	c := &rt.Count.Near
	c.Hits++
	c.Age += uint64(e.Now - v.Asked)
	if e.watch.Left--; e.watch.Left < 0 {
		e.watch.Ended(e.Now, key, x.Op, stats.Hit, x.Session.ID, len(v.Data))
	}
}

// oftenEnough is how many reads in a ttl make it worth to keep a value.
const oftenEnough = 4

// isHot says that key, which has that hash as servers know it, is read often enough.
func (e *nearby) isHot(rt *routing.Route, hash uint64, key []byte) bool {
	if rt.Strip != "" {
		hash = e.hash(key)
	}
	return e.watch.Rate(hash, e.Now)*rt.Near.TTL.Seconds() >= oftenEnough
}

// writes notes that x may change the value of key.
func (e *nearby) writes(x *client.Exchange, rt *routing.Route, key []byte) {
	if e.On && rt != nil {
		e.stake(x).Writes(key[len(rt.Strip):])
	}
}

// stake is what x has to do with what is kept here.
func (e *nearby) stake(x *client.Exchange) *near.Stake {
	if x.Stake == nil {
		x.Stake = e.Stake()
	}
	return x.Stake
}
