package routing

// Who serves a key now, and who keeps its copies.

import (
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// Find works out who serves a key, by its hashed part and its hash.
func (bp *BoundPool) Find(part []byte, h uint64, owner int) health.Route {
	var p health.Path
	if bp.pass(&p, owner) {
		return p.Route()
	}
	switch {
	case bp.Pool.Failover.Mode == table.FailFast:
	case bp.Pool.Failover.Mode == table.Gutter:
		part, h, _ = bp.Pool.Failover.Gutter.Place.Locate(part)
		for n := 0; ; n++ {
			if i := bp.Gutter.At(part, h, n); i < 0 || bp.pass(&p, len(bp.Servers)+i) {
				break
			}
		}
	case bp.Pool.Without != nil:
		bp.findRebuilt(&p, part, h, owner)
	default:
		for n := 1; ; n++ {
			if i := bp.Walk.At(part, h, n); i < 0 || i != owner && bp.pass(&p, i) {
				break
			}
		}
	}
	return p.Route()
}

// pass adds member i to the path of a key. It reports whether the path is complete.
func (bp *BoundPool) pass(p *health.Path, i int) (done bool) {
	return p.Add(i, bp.View.N(i), bp.View.Renamed(i))
}

// findRebuilt is Find where the client's rule rebuilds its ring without the servers
// that are out. That ring depends on all of them, so the name of a diverted key does
// too; and while any server is between IN and OUT, it is not settled which ring it is.
func (bp *BoundPool) findRebuilt(p *health.Path, part []byte, h uint64, owner int) {
	out := make([]bool, len(bp.Servers))
	out[owner] = true
	for i := range out {
		if phase := bp.View.Phase(i); i != owner && phase != health.In {
			out[i] = true
			if bp.pass(p, i) {
				return
			}
		}
	}
	if r, err := bp.Pool.Without(out); err == nil {
		if i := r.At(part, h, 0); i >= 0 {
			bp.pass(p, i)
		}
	}
}

// plain says that srv serves its keys itself, under their own names.
func (bp *BoundPool) plain(srv *upstream.Server) bool {
	for i, s := range bp.Servers {
		if s == srv {
			return bp.View.Serves(i)
		}
	}
	return false
}

// UnlearnedView is the view of one of the route's pools that has not learned yet who
// is out; nil if all have.
func (rt *Route) UnlearnedView() *health.View {
	if v := rt.View; v != nil && !v.Learned() {
		return v
	}
	for _, bp := range rt.Also {
		if v := bp.View; v != nil && !v.Learned() {
			return v
		}
	}
	return nil
}

// ReadsFirst says that of several copies reads ask the one that decides, while it answers.
func (rt *Route) ReadsFirst() bool { return rt.Copies.Read == replicate.First && rt.Prefer == nil }

// Holder is a server that keeps a copy of a key.
type Holder struct {
	Pool   *BoundPool
	Index  int // in the pool
	Server *upstream.Server
}

// Holders appends the servers that keep key: one of each pool that the route names,
// or several of its only one. The one that decides is first.
func (rt *Route) Holders(list []Holder, key []byte) []Holder {
	if len(rt.Also) > 0 {
		for i := -1; i < len(rt.Also); i++ {
			bp := rt.BoundPool
			if i >= 0 {
				bp = rt.Also[i]
			}
			if i := bp.Owners.Owner(key); i >= 0 {
				list = append(list, Holder{bp, i, bp.Servers[i]})
			}
		}
		return list
	}
	var room [replicate.Max]int
	for _, i := range rt.Pool.Holders(room[:0], rt.Walk, key, rt.Copies) {
		list = append(list, Holder{rt.BoundPool, i, rt.Servers[i]})
	}
	return list
}

// IsNear says that of several copies reads by Nearest ask h first.
func (rt *Route) IsNear(h Holder) bool {
	return rt.Prefer == h.Pool || rt.Prefer == nil && rt.Zone != "" && h.Pool.Pool.Servers[h.Index].Zone == rt.Zone
}

// AllIn says that in all pools of the route nothing is special: see health.View.
func (rt *Route) AllIn() bool {
	for _, bp := range rt.Also {
		if !bp.View.AllIn() {
			return false
		}
	}
	return rt.View.AllIn()
}

// readsDirectly says whether a get may ask one of several copies without a task. Where
// everything has to be sure, one get may ask several copies, or the guard wants to know,
// it may not.
func (rt *Route) readsDirectly() bool {
	strict := func(bp *BoundPool) bool { return bp.Pool.Failover.Strict }
	return rt.Copies.Copies != 0 && rt.Copies.Read != replicate.Fastest && rt.Copies.Hedge == 0 && rt.Guard == nil && rt.Tags == nil &&
		!strict(rt.BoundPool) && !slices.ContainsFunc(rt.Also, strict)
}

// NeedsTask says that a command on a key of srv needs a task: the route keeps
// copies or lets increments wait, or the server is gone, or everything has to be sure.
func (rt *Route) NeedsTask(srv *upstream.Server) bool {
	return rt != nil && rt.mayTask && rt.special(srv)
}

func (rt *Route) special(srv *upstream.Server) bool {
	return rt.Buffer != nil || rt.Copies.Copies != 0 || rt.Pool.Failover.Strict || !rt.View.AllIn() && !rt.plain(srv)
}

// NoServer is why a key that the pool's rule gives to nobody gets no answer.
const NoServer = "the pool has no server for this key"
