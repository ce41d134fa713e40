package handover

// Who holds which keys by the routes of one table, to be asked when there is another.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringside/proxy/routing"
)

// Arrangement is who holds the copies of which keys by one table.
type Arrangement struct {
	Print     string // of all that it depends on; empty: no route keeps copies
	listeners map[string]*routing.Listener
}

// Arrange is the arrangement of the table that the listeners are bound to.
func Arrange(listeners map[string]*routing.Listener) *Arrangement {
	a := &Arrangement{listeners: map[string]*routing.Listener{}}
	var print strings.Builder
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		l := *listeners[name] // the routes are made anew by each table
		a.listeners[name] = &l
		for i := range l.Routes {
			rt := &l.Routes[i]
			if rt.Copies.Copies == 0 {
				continue
			}
			fmt.Fprintf(&print, "%+v %d %v\n", rt.Name(), rt.Copies.Copies, rt.Copies.Apart)
			for _, bp := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
				fmt.Fprintf(&print, " %q %q", bp.Pool.Name, bp.Pool.Place.Fingerprint)
				for _, srv := range bp.Servers {
					fmt.Fprintf(&print, " %s %s", srv.Target.Network, srv.Target.Address)
				}
			}
		}
	}
	a.Print = print.String()
	return a
}

// Holders are the servers that keep, by the arrangement, the key of a route of another
// table: none if the key had another name on servers, or one copy.
func (a *Arrangement) Holders(rt *routing.Route, key []byte) []routing.Holder {
	if l := a.listeners[rt.Listener]; l != nil {
		if old := l.Fitting(append([]byte(rt.Strip), key...)); old != nil && old.Copies.Copies != 0 && old.Strip == rt.Strip {
			return old.Holders(nil, key)
		}
	}
	return nil
}
