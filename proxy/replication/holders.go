package replication

// This file finds the replicas of a key by the routes of the present routing table, with their
// states in the ledger.

import (
	"cmp"
	"iter"
	"slices"

	"ringside/proxy/routing"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// replica is a server that has a replica of a key, with what the ledger knows of this server.
type replica struct {
	routing.Holder
	*replicaState
}

// replicaAt returns the replica on the server of h, with its state in the ledger. A command that
// was parked during a reload may name a pool that no longer exists. The replica then gets the
// state of a temporary ledger, which is not stored.
func (e *Replicator) replicaAt(h routing.Holder) replica {
	w := e.Ledgers[h.Pool.Pool.Name]
	if w == nil || w.bp != h.Pool && !slices.Equal(w.Servers, h.Pool.Servers) {
		w = e.newLedger(h.Pool, w)
	}
	return replica{Holder: h, replicaState: &w.Members[h.Index]}
}

// copiesOf appends to list the replicas that serve key on the route rt. Until all instances have
// applied a reload, these are the replicas by the former routing table.
func (e *Replicator) copiesOf(list []replica, rt *routing.Route, key []byte) []replica {
	if h := e.handover; h != nil && h.Serving != nil {
		if before := e.byArrangement(list, h.Serving, rt, key); len(before) > len(list) {
			return before
		}
	}
	return e.present(list, rt, key)
}

// present appends to list the replicas of key by the present routing table.
func (e *Replicator) present(list []replica, rt *routing.Route, key []byte) []replica {
	var room [replicate.Max]routing.Holder
	for _, h := range rt.Holders(room[:0], key) {
		list = append(list, e.replicaAt(h))
	}
	return list
}

// routesOf yields the routes that keep replicas of a key, each with the replicas. The parameter key
// is the name of the key on the servers. Routes may strip a prefix, so one name on the servers can
// be a key of several routes. A yielded slice is valid until the next call of yield.
func (e *Replicator) routesOf(key []byte) iter.Seq2[*routing.Route, []replica] {
	return func(yield func(*routing.Route, []replica) bool) {
		for _, l := range e.InOrder {
			for i := range l.Routes {
				rt := &l.Routes[i]
				if rt.Copies.Copies == 0 {
					continue
				}
				named := key
				if rt.Strip != "" {
					named = append([]byte(rt.Strip), key...)
				}
				if l.Fitting(named) != rt {
					continue
				}
				e.holders = e.copiesOf(e.holders[:0], rt, key)
				if !yield(rt, e.holders) {
					return
				}
			}
		}
	}
}

// commonRoute finds a route on which the server `to` keeps a replica of key. The server `from`
// must also keep a replica of key on this route, or must have kept one before a handover. A route with one copy has no such pair:
// its keys only leave their former servers.
func (e *Replicator) commonRoute(key []byte, from, to *upstream.Server) (rt *routing.Route, a, b replica, ok bool) {
	for rt, replicas := range e.routesOf(key) {
		if rt.HasOneCopy() {
			continue
		}
		found := 0
		for _, m := range append(e.formersOf(rt, key, replicas), replicas...) {
			switch m.Server {
			case from:
				a = m
				found++
			case to:
				b = m
				found++
			}
		}
		if found == 2 && holds(replicas, to) {
			return rt, a, b, true
		}
	}
	return nil, a, b, false
}

// routeMovingOff finds a route on which srv had a replica of key before a handover and must no
// longer have one. It also returns all servers that have to give up this key, srv among them.
func (e *Replicator) routeMovingOff(key []byte, srv *upstream.Server) (rt *routing.Route, formers []replica, ok bool) {
	for rt, replicas := range e.routesOf(key) {
		formers := e.formersOf(rt, key, replicas)
		if holds(formers, srv) {
			return rt, formers, true
		}
	}
	return nil, nil, false
}

// holds reports whether a replica in list is on srv.
func holds(list []replica, srv *upstream.Server) bool {
	return slices.ContainsFunc(list, func(m replica) bool { return m.Server == srv })
}

// sourcesOf returns the servers that may have keys of which the server `to`, in the pool bp,
// keeps a replica. The server `to` is not among them. The order is the same on every loop.
func (e *Replicator) sourcesOf(bp *routing.BoundPool, to *upstream.Server) (list []replica) {
	seen := map[*upstream.Server]bool{to: true}
	add := func(p *routing.BoundPool) {
		for i, srv := range p.Servers {
			if !seen[srv] {
				seen[srv] = true
				list = append(list, e.replicaAt(routing.Holder{Pool: p, Index: i, Server: srv}))
			}
		}
	}
	for _, l := range e.InOrder {
		for i := range l.Routes {
			rt := &l.Routes[i]
			if !rt.HasReplicasOn(bp) {
				continue
			}
			for _, p := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
				add(p)
			}
			if e.handover != nil { // keys may come from another pool
				for _, p := range e.Pools {
					if e.Ledgers[p.Pool.Name] != nil {
						add(p)
					}
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b replica) int { return cmp.Compare(a.Server.Target.Address, b.Server.Target.Address) })
	return list
}
