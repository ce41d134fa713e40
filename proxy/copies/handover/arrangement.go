package handover

// Who holds which keys by the routes of one table, to be asked when there is another.

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"ringside/proxy/routing"
)

// Arrangement is who holds the copies of which keys by one table.
type Arrangement struct {
	Print     string // another one wherever a key may have other holders; empty: no route keeps copies
	hash      uint64
	listeners map[string]*routing.Listener
}

// Arrange is the arrangement of the table that the listeners are bound to.
func Arrange(listeners map[string]*routing.Listener) *Arrangement {
	a := &Arrangement{listeners: map[string]*routing.Listener{}}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		l := *listeners[name] // the routes are made anew by each table
		a.listeners[name] = &l
		for i := range l.Routes {
			rt := &l.Routes[i]
			if rt.Copies.Copies == 0 {
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
	if a.Print = b.String(); a.Print != "" {
		h := fnv.New64a()
		h.Write([]byte(a.Print))
		a.hash = max(h.Sum64(), 1)
	}
	return a
}

// Hash stands for the print; 0: no route keeps copies.
func (a *Arrangement) Hash() uint64 { return a.hash }

// Holders are the servers that the arrangement gives a key to, whose route rt is of another
// table. There are none if by the arrangement the key has another name on servers, or one
// copy.
func (a *Arrangement) Holders(rt *routing.Route, key []byte) []routing.Holder {
	if l := a.listeners[rt.Listener]; l != nil {
		if old := l.Fitting(append([]byte(rt.Strip), key...)); old != nil && old.Copies.Copies != 0 && old.Strip == rt.Strip {
			return old.Holders(nil, key)
		}
	}
	return nil
}
