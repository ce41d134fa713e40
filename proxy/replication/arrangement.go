package replication

// This file describes which servers keep which keys by one routing table (an arrangement). A
// former arrangement is kept until the keys have left its servers, to find the keys that are
// still there.

import (
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"

	"ringside/proxy/health/barrier"
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/ring"
)

// arrangement describes which servers keep the replicas of which keys, according to the
// routes of one routing table.
type arrangement struct {
	Print     string // text form of the arrangement; if two arrangements have different texts, a key may have different replicas. Empty: no key is replicated. Keys with one copy are not in it
	hash      uint64
	listeners map[string]*routing.Listener
}

// newArrangement returns the arrangement by the routing tables of the given listeners.
func newArrangement(listeners map[string]*routing.Listener) *arrangement {
	a := &arrangement{listeners: map[string]*routing.Listener{}}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		l := *listeners[name] // a copy, because a reload replaces the routes in the listener
		a.listeners[name] = &l
		for i := range l.Routes {
			rt := &l.Routes[i]
			if rt.HasOneCopy() {
				continue
			}
			fmt.Fprintf(&b, "%+v %d %v\n", rt.Name(), rt.Copies.Copies, rt.Copies.Apart)
			for _, bp := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
				fmt.Fprintf(&b, " %q %q", bp.Pool.Name, bp.Pool.Place.Fingerprint)
				for _, srv := range bp.Servers {
					fmt.Fprintf(&b, " %s %s", srv.Target.Network, srv.Target.Address)
				}
			}
		}
	}
	a.Print = b.String()
	h := fnv.New64a()
	h.Write([]byte(a.Print))
	a.hash = max(h.Sum64(), barrier.None+1)
	return a
}

// by returns the arrangement by the same routes, but with other lists of servers, by the names of pools.
func (a *arrangement) by(lists map[string]*table.List) *arrangement {
	bound := map[*routing.BoundPool]*routing.BoundPool{}
	of := func(bp *routing.BoundPool) *routing.BoundPool {
		list := lists[bp.Pool.Name]
		if list == nil {
			return bp
		}
		if bound[bp] == nil {
			pool := *bp.Pool
			pool.Next = list
			was := &routing.BoundPool{Pool: pool.Successor(), Walk: ring.Distinct(list.Place.Ring)}
			was.Pool.Servers = slices.Clone(list.Servers)
			for i, m := range was.Pool.Servers {
				if j := slices.IndexFunc(bp.Pool.Servers, m.SameAddress); j >= 0 {
					was.Pool.Servers[i] = bp.Pool.Servers[j] // a list does not have the zones of servers
				}
				was.Servers = append(was.Servers, &upstream.Server{Target: was.Pool.Servers[i]})
			}
			was.Owners = ring.NewMemo(&was.Pool.Place, func(int) bool { return false })
			bound[bp] = was
		}
		return bound[bp]
	}
	listeners := map[string]*routing.Listener{}
	for name, l := range a.listeners {
		is := *l
		is.Routes = slices.Clone(l.Routes)
		for i := range is.Routes {
			rt := &is.Routes[i]
			rt.BoundPool, rt.Also = of(rt.BoundPool), slices.Clone(rt.Also)
			for j := range rt.Also {
				rt.Also[j] = of(rt.Also[j])
			}
		}
		listeners[name] = &is
	}
	return newArrangement(listeners)
}

// text returns the list of the servers of a pool as a text; nil: no route keeps replicas in the pool, or the list has no text.
func (a *arrangement) text(pool string) []byte {
	for _, l := range a.listeners {
		for i := range l.Routes {
			rt := &l.Routes[i]
			for _, bp := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
				if !rt.HasOneCopy() && bp.Pool.Name == pool {
					return bp.Pool.Text
				}
			}
		}
	}
	return nil
}

// Hash returns a hash of the text in Print. It is above barrier.None.
func (a *arrangement) Hash() uint64 { return a.hash }

// Holders returns the servers that keep the key by the arrangement a. rt is the key's route in
// another routing table. The result is nil if the arrangement has no route of the key: see route.
func (a *arrangement) Holders(rt *routing.Route, key []byte) []routing.Holder {
	if old := a.route(rt, key); old != nil {
		return old.Holders(nil, key)
	}
	return nil
}

// route returns the route of the key by the arrangement a. rt is the key's route in another routing table. The result is nil in these
// cases:
//
//   - By the arrangement the key has another name on the servers.
//   - The key has one copy by both: package health/resize moves such keys.
//   - The key has one copy by the arrangement, in another pool than the first one of rt.
func (a *arrangement) route(rt *routing.Route, key []byte) *routing.Route {
	l := a.listeners[rt.Listener]
	if l == nil {
		return nil
	}
	old := l.Fitting(append([]byte(rt.Strip), key...))
	if old == nil || old.Strip != rt.Strip || old.HasOneCopy() && (rt.HasOneCopy() || old.Pool.Name != rt.Pool.Name) {
		return nil
	}
	return old
}

// shared yields the pairs of a route by the arrangement a and a route of present, a later routing table, that may have a key in common
// with replicas by one of them.
func (a *arrangement) shared(present map[string]*routing.Listener) iter.Seq2[*routing.Route, *routing.Route] {
	return func(yield func(old, rt *routing.Route) bool) {
		for _, name := range slices.Sorted(maps.Keys(a.listeners)) {
			now := present[name]
			if now == nil {
				continue
			}
			was := a.listeners[name]
			for i := range was.Routes {
				for j := range now.Routes {
					old, rt := &was.Routes[i], &now.Routes[j]
					both := old.Name().Route != rt.Name().Route && hasLabel(was, rt.Name().Route) && hasLabel(now, old.Name().Route) // the more specific of the two has the key by both tables
					if old.HasOneCopy() && rt.HasOneCopy() || both || !rt.Overlaps(old) {
						continue
					}
					if !yield(old, rt) {
						return
					}
				}
			}
		}
	}
}

// hasLabel reports whether a route of l has the given label, which names its keys.
func hasLabel(l *routing.Listener, label string) bool {
	return slices.ContainsFunc(l.Routes, func(rt routing.Route) bool { return rt.Name().Route == label })
}
