package table

// How values of a route are kept in Ringside.

import "time"

// Near is what a route keeps of its values: package near.
type Near struct {
	TTL    time.Duration // after that time a value is given out no more
	Memory int64         // bytes of values, and what keeps them, over all loops
	All    bool          // all values that are read are kept, not only those of hot keys
}

// KeepsNear says that a route of t keeps values in Ringside.
func (t *Table) KeepsNear() bool {
	for _, l := range t.Listeners {
		for _, r := range l.Routes {
			if r.Near != nil {
				return true
			}
		}
	}
	return false
}
