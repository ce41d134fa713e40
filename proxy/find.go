package proxy

// Who serves a key now, and who keeps its copies.

import (
	"ringside/proxy/health"
	"ringside/replicate"
	"ringside/ring"
)

// find works out who serves a key, by its hashed part and its hash.
func (lp *livePool) find(part []byte, h uint64, owner int) health.Route {
	var p health.Path
	if lp.pass(&p, owner) {
		return p.Route()
	}
	switch {
	case lp.pool.Failover.Mode == FailFast:
	case lp.pool.Failover.Mode == Gutter:
		part, h, _ = lp.pool.Failover.Gutter.Place.Locate(part)
		for n := 0; ; n++ {
			if i := lp.gutter.At(part, h, n); i < 0 || lp.pass(&p, len(lp.servers)+i) {
				break
			}
		}
	case lp.pool.Without != nil:
		lp.findRebuilt(&p, part, h, owner)
	default:
		for n := 1; ; n++ {
			if i := lp.order.At(part, h, n); i < 0 || i != owner && lp.pass(&p, i) {
				break
			}
		}
	}
	return p.Route()
}

// pass adds a member to the path of a key.
func (lp *livePool) pass(p *health.Path, i int) (done bool) {
	return p.Add(i, lp.view.N(i), lp.view.Renamed(i))
}

// findRebuilt asks the rule of a client that rebuilds its ring. The ring
// depends on everybody who is out, so the diverted key does too; and while
// anybody is between in and out, the ring of those who are in is not settled.
func (lp *livePool) findRebuilt(p *health.Path, part []byte, h uint64, owner int) {
	out := make([]bool, len(lp.servers))
	out[owner] = true
	for i := range out {
		if phase := lp.view.Phase(i); i != owner && phase != health.In {
			out[i] = true
			if lp.pass(p, i) {
				return
			}
		}
	}
	if r := lp.without(out); r != nil {
		if i := r.At(part, h, 0); i >= 0 {
			lp.pass(p, i)
		}
	}
}

// without is the ring without the servers that are out, made once for each
// set of them; nil if there is none.
func (lp *livePool) without(out []bool) ring.Ring {
	set := make([]byte, len(out))
	for i, o := range out {
		if o {
			set[i] = 1
		}
	}
	if r, ok := lp.rebuilt[string(set)]; ok {
		return r
	}
	r, err := lp.pool.Without(out)
	if err != nil {
		r = nil
	}
	if lp.rebuilt == nil || len(lp.rebuilt) >= maxRebuilt {
		lp.rebuilt = map[string]ring.Ring{}
	}
	lp.rebuilt[string(set)] = r
	return r
}

// maxRebuilt bounds how many rings a pool keeps for sets of servers that are
// out.
const maxRebuilt = 64

// plain says that the keys of srv need nothing special.
func (lp *livePool) plain(srv *Server) bool {
	for i, s := range lp.servers {
		if s == srv {
			return lp.view.Serves(i)
		}
	}
	return false
}

// unknown is the view of one of the route's pools of which is not known yet who
// is out; nil if all know.
func (rt *route) unknown() *health.View {
	if v := rt.view; v != nil && !v.Learned() {
		return v
	}
	for _, lp := range rt.also {
		if v := lp.view; v != nil && !v.Learned() {
			return v
		}
	}
	return nil
}

// holder is a server that keeps a copy of a key.
type holder struct {
	lp    *livePool
	index int // in the pool
	srv   *Server
}

// members appends who has key: one member of each pool that the route names, or
// several of its only one.
func (rt *route) members(list []holder, key []byte) []holder {
	if len(rt.also) > 0 {
		for i := -1; i < len(rt.also); i++ {
			lp := rt.livePool
			if i >= 0 {
				lp = rt.also[i]
			}
			if i := lp.owners.Owner(key); i >= 0 {
				list = append(list, holder{lp, i, lp.servers[i]})
			}
		}
		return list
	}
	part := rt.pool.Place.Part.Of(key)
	h := rt.pool.Place.Hash(part)
	servers := rt.pool.Servers
	same := func(a, b int) bool {
		switch rt.copies.Apart {
		case replicate.Hosts:
			return servers[a].Host == servers[b].Host
		case replicate.Zones:
			return servers[a].Zone == servers[b].Zone
		}
		return false
	}
	var room [replicate.Max]int
	for _, i := range replicate.Members(room[:0], func(n int) int { return rt.order.At(part, h, n) }, rt.copies.Copies, same) {
		list = append(list, holder{rt.livePool, i, rt.servers[i]})
	}
	return list
}

// led says that a command on a key of srv needs a task: the route keeps
// copies, or the server is gone, or everything has to be sure.
func (rt *route) led(srv *Server) bool {
	return rt != nil && rt.view != nil && (rt.copies.Copies != 0 || rt.pool.Failover.Strict || !rt.view.AllIn() && !rt.plain(srv))
}

const noServer = "the pool has no server for this key"
