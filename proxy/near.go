package proxy

// Reads that are answered by what is kept here, and what other commands have to do with
// that: package near.

import (
	"ringside/proxy/client"
	"ringside/proxy/near"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// keepNear gives the routes of a listener the stores of their values.
func (e *Engine) keepNear(lst *routing.Listener) {
	for i := range lst.Routes {
		if rt := &lst.Routes[i]; rt.Keeps != nil {
			label := rt.Name().Route
			most := int(rt.Keeps.Memory) / len(e.Shared.Engines())
			rt.Near = e.near.Store(near.Name{Pool: rt.Pool.Name, Route: label, Strip: rt.Strip}, rt.Keeps, most, e.Shared.near(label))
		}
	}
}

// serveNear answers a read of key by what is kept here. It reports false if it can't:
// then the request goes on, and x knows what it has to do with what is kept.
func (e *Engine) serveNear(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte) bool {
	r := &e.Req
	switch {
	case r.Op > wire.Gets && r.Op != wire.Debug || r.Flags&wire.Effects != 0:
		e.writesNear(x, rt, key)
		return false
	case rt.Near == nil || r.Op != wire.Get || r.Flags&wire.Base64 != 0:
		return false
	}
	brings := true // the client's flags, too
	if r.Dialect == wire.Meta {
		if !r.ValueOnly() {
			return false
		}
		brings = r.Letters.Has('v') && r.Letters.Has('f')
	}
	name := key[len(rt.Strip):]
	hash := e.Shared.Hash(name)
	if v := rt.Near.Find(hash, name, brings); v != nil && (v.Known || r.Dialect == wire.Text) {
		e.giveNear(x, share, rt, raw, key, v)
		return true
	}
	rt.Count.Near.Asked++
	if brings && (rt.Near.All || e.isHot(rt, hash, key)) {
		e.stake(x).Asks(rt.Near, hash, share)
	}
	return false
}

// giveNear gives the client a value that is kept here.
func (e *Engine) giveNear(x *client.Exchange, share int32, rt *routing.Route, raw, key []byte, v *near.Value) {
	x.Hit(share)
	x.Outcome = stats.Hit
	switch {
	case e.Req.Dialect == wire.Meta:
		e.Line = wire.AppendValue(e.Line[:0], raw, &e.Req, v.Flags, v.Data)
		x.Emit(nil, e.Line)
	case x.InOrder != nil:
		x.InOrder.Keep(&e.Buffers, string(key), v.Block)
	default:
		x.Emit(nil, v.Block)
	}
	c := &rt.Count.Near
	c.Hits++
	c.Age += uint64(e.Now - v.Asked)
	if e.Watch.Left--; e.Watch.Left < 0 {
		e.Watch.Ended(e.Now, key, x.Op, stats.Hit, x.Session.ID, len(v.Data))
	}
}

// oftenEnough is how many reads in a ttl make it worth to keep a value.
const oftenEnough = 4

// isHot says that key, which has that hash as servers know it, is read often enough.
func (e *Engine) isHot(rt *routing.Route, hash uint64, key []byte) bool {
	if rt.Strip != "" {
		hash = e.Shared.Hash(key)
	}
	return e.Watch.Rate(hash, e.Now)*rt.Near.TTL.Seconds() >= oftenEnough
}

// writesNear notes that x may change the value of key.
func (e *Engine) writesNear(x *client.Exchange, rt *routing.Route, key []byte) {
	if e.near.On && rt != nil {
		e.stake(x).Writes(key[len(rt.Strip):])
	}
}

// stake is what x has to do with what is kept here.
func (e *Engine) stake(x *client.Exchange) *near.Stake {
	if x.Stake == nil {
		x.Stake = e.near.Stake()
	}
	return x.Stake
}
