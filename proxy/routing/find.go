package routing

// This file finds the server that serves a key now, and the servers that hold its replicas.

import (
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// Find returns the server that serves a key now. part is the hashed part of the key, h
// its hash, and owner the index of the server that owns it.
func (bp *BoundPool) Find(part []byte, h uint64, owner int) health.Route {
	var p health.Path
	if bp.pass(&p, bp.InView(owner)) {
		return p.Route()
	}
	switch {
	case bp.Pool.Failover.Mode == table.FailFast:
	case bp.Pool.Failover.Mode == table.Gutter:
		part, h, _ = bp.Pool.Failover.Gutter.Place.Locate(part)
		for n := 0; ; n++ {
			if i := bp.Gutter.At(part, h, n); i < 0 || bp.pass(&p, bp.GutterAt+i) {
				break
			}
		}
	case bp.Pool.Without != nil:
		bp.findRebuilt(&p, part, h, owner)
	default:
		for n := 1; ; n++ {
			if i := bp.Walk.At(part, h, n); i < 0 || i != owner && bp.pass(&p, bp.InView(i)) {
				break
			}
		}
	}
	return p.Route()
}

// pass adds the server with the index i in View to the servers that decide where a key is sent. It reports whether
// the decision is complete.
func (bp *BoundPool) pass(p *health.Path, i int) (done bool) {
	return p.Add(i, bp.View.N(i), bp.View.Renamed(i))
}

// InView returns the index in View of server i of bp.
func (bp *BoundPool) InView(i int) int {
	if bp.Indexes != nil {
		return bp.Indexes[i]
	}
	return i
}

// findRebuilt does the work of Find for a pool that rebuilds its ring without ejected servers.
// That ring depends on all ejected servers. So does the name of a key on its substitute server.
// While a server is neither IN nor OUT, it is undecided which ring applies, and that server
// takes part in the decision for every key whose owner is not IN.
func (bp *BoundPool) findRebuilt(p *health.Path, part []byte, h uint64, owner int) {
	out := make([]bool, len(bp.Servers))
	out[owner] = true
	for i := range out {
		if phase := bp.View.Phase(bp.InView(i)); i != owner && phase != health.In {
			out[i] = true
			if bp.pass(p, bp.InView(i)) {
				return
			}
		}
	}
	if r, err := bp.Pool.Without(out); err == nil {
		if i := r.At(part, h, 0); i >= 0 {
			bp.pass(p, bp.InView(i))
		}
	}
}

// Serves reports whether srv serves its keys itself, under their own names.
func (bp *BoundPool) Serves(srv *upstream.Server) bool {
	if bp.View == nil || bp.View.AllIn() {
		return true
	}
	if bp.View.Moves() {
		return false
	}
	for i, s := range bp.Servers {
		if s == srv {
			return bp.View.Serves(i)
		}
	}
	return false
}

// Serving returns which service a key gets while the server list changes: All if its server serves it as
// usual, Nothing if this process does not know the list in force, and else the service of a key that moves.
func (bp *BoundPool) Serving(key []byte) resize.Service {
	s, _ := bp.ServingBy(key)
	return s
}

// ServingBy returns Serving with the state that decides it. The caller uses no later state for the same command.
func (bp *BoundPool) ServingBy(key []byte) (s resize.Service, by resize.Status) {
	if bp.View == nil || !bp.View.Moves() {
		return resize.All, by
	}
	by = bp.View.Resize()
	if s = by.Serves(); s > resize.Nothing && !bp.Moves(key) {
		s = resize.All
	}
	return s, by
}

// Outdated reports whether the instances use another server list than this one has. A command for all
// servers of bp can't reach them then.
func (bp *BoundPool) Outdated() bool {
	return bp.View != nil && bp.View.Moves() && bp.View.Resize().Serves() == resize.Nothing
}

// Incoming returns the servers that only the next list has, if Joining does not have them. An instance
// that is one stage ahead may have stored values there.
func (bp *BoundPool) Incoming() (list []*upstream.Server) {
	if bp.Next == nil || bp.View == nil || !bp.View.Moves() || bp.Outdated() {
		return nil
	}
	for _, srv := range bp.Next.Servers {
		if !slices.Contains(bp.Servers, srv) && !slices.Contains(bp.Joining, srv) {
			list = append(list, srv)
		}
	}
	return list
}

// Moves reports whether a key has another server in the list to which the pool changes.
func (bp *BoundPool) Moves(key []byte) bool {
	if bp.Next == nil {
		return true
	}
	_, _, i := bp.Pool.Place.Locate(key)
	_, _, j := bp.Next.Pool.Place.Locate(key)
	return i < 0 || j < 0 || bp.Servers[i] != bp.Next.Servers[j]
}

// Ends returns bp as it is by the list that keys leave (from), and by the list to which they move (to). Next must
// not be nil.
func (bp *BoundPool) Ends(is resize.Status) (from, to *BoundPool) {
	if is.Reversed() {
		return bp.Next, bp
	}
	return bp, bp.Next
}

// Arrival is where a key that moves to another server is served. The new owner decides, or its substitute
// server while it is out.
type Arrival struct {
	health.Route        // by the list to which the key moves
	Owner        int    // index of the new owner in that list; -1: none
	Tag          uint64 // number in the cas tokens of clients, see divert.TagCas: it differs from those of other times and servers, because the cas of two servers can't be compared
}

// Arrives reports whether both owners of a key serve it, as it moves, or the new one alone does so.
func (bp *BoundPool) Arrives(key []byte) bool {
	return bp.Next != nil && bp.Serving(key) >= resize.Turning
}

// Arrival returns where a key is served in the state is, while Arrives reports true.
func (bp *BoundPool) Arrival(is resize.Status, key []byte) Arrival {
	_, to := bp.Ends(is)
	part, h, owner := to.Pool.Place.Locate(key)
	if owner < 0 {
		return Arrival{Owner: owner}
	}
	a := Arrival{Route: to.Find(part, h, owner), Owner: owner}
	a.Tag = divert.Tag(uint64(is.Change()) + a.First.Number + 1<<11)
	return a
}

// Diverges reports whether the next list gives a key another substitute server than route, its present route, while another
// instance may use that list for it. The key is not served then. That may be so in the last stage of a change, and until the
// loops of this process use the new list (state). It may be so in all stages for a process that finds servers by another list than
// its peers.
func (bp *BoundPool) Diverges(state resize.Status, key []byte, route health.Route) bool {
	switch stage := state.Stage(); {
	case bp.Next == nil, !route.First.Diverted && route.Role == health.In:
		return false
	case state.Strays():
	case stage != resize.Cool && stage != resize.Clear && !state.Superseded(), state.Reversed():
		return false
	}
	if bp.Next.View == nil { // in mode flush, servers of the next list have no phases here
		return true
	}
	part, h, owner := bp.Next.Pool.Place.Locate(key)
	if owner < 0 {
		return false
	}
	to := bp.Next.Find(part, h, owner)
	return to.First != route.First || to.Interim != route.Interim
}

// UnlearnedView returns the view of a pool of the route that does not know yet which
// servers are out. It returns nil if there is none.
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

// ReadsFirst reports whether reads ask the primary replica, as long as it replies.
func (rt *Route) ReadsFirst() bool { return rt.Copies.Read == replicate.First && rt.Prefer == nil }

// Holder is a server that has a replica of a key.
type Holder struct {
	Pool   *BoundPool
	Index  int // index of the server in Pool.Servers
	Server *upstream.Server
}

// Holders appends the servers that hold replicas of key, the primary first. If the
// route names several pools, each of them has one replica. Otherwise all replicas are
// in the route's only pool. A key with one copy has one holder, its owner.
func (rt *Route) Holders(list []Holder, key []byte) []Holder {
	if len(rt.Also) > 0 || rt.HasOneCopy() {
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

// IsNear reports whether h is a replica that reads by Nearest ask first.
func (rt *Route) IsNear(h Holder) bool {
	return rt.Prefer == h.Pool || rt.Prefer == nil && rt.Zone != "" && h.Pool.Pool.Servers[h.Index].Zone == rt.Zone
}

// AllIn reports whether no server of the route's pools needs special treatment: View.AllIn is
// true in all of them.
func (rt *Route) AllIn() bool {
	for _, bp := range rt.Also {
		if !bp.View.AllIn() {
			return false
		}
	}
	return rt.View.AllIn()
}

// readsDirectly reports whether one server may answer a read without a task, although the other
// commands of the route need tasks. It may not with strict consistency, when a get may ask several
// replicas, when increments are buffered, or for replicated keys with a guard or tags.
func (rt *Route) readsDirectly() bool {
	strict := func(bp *BoundPool) bool { return bp.Pool.Failover.Strict }
	switch {
	case rt.Buffer != nil || strict(rt.BoundPool) || slices.ContainsFunc(rt.Also, strict):
		return false
	case rt.Copies.Copies != 0:
		return rt.Copies.Read != replicate.Fastest && rt.Guard == nil && rt.Tags == nil
	}
	return rt.Source != nil || rt.Guard != nil && (rt.Tags == nil || !rt.Tags.Command)
}

// NeedsTask reports whether a command on a key of srv needs more than one plain request. It does if the
// route has replicas, a guard, buffered increments, strict consistency or a pool to fill from, or if srv
// does not serve its keys normally.
func (rt *Route) NeedsTask(srv *upstream.Server) bool {
	return rt != nil && rt.mayTask && rt.special(srv)
}

func (rt *Route) special(srv *upstream.Server) bool {
	return rt.Guard != nil || rt.Buffer != nil || rt.Copies.Copies != 0 || rt.Source != nil || rt.Pool.Failover.Strict || !rt.Serves(srv)
}

// NoServer is the error for a key that the pool's rule assigns to no server.
const NoServer = "the pool has no server for this key"

// Outdated is the error for the keys of a pool if the instances use another server list than this one.
const Outdated = "this instance does not have the server list of its peers: reload it with their configuration"

// Unknown is the error for the keys of a pool without known servers.
const Unknown = "the servers of this pool are not known yet"

// WhyNoServer returns the error for a key of the pool that has no server.
func (bp *BoundPool) WhyNoServer() string {
	if bp.Pool.Unknown {
		return Unknown
	}
	return NoServer
}
