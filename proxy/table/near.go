package table

// This file defines the near cache settings of a route: Ringside itself keeps values.

import "time"

// NearSettings holds the near cache settings of a route. Package near implements them.
type NearSettings struct {
	TTL    time.Duration // how long a cached value is served
	Memory int64         // bytes of values and their bookkeeping, for all loops together
	All    bool          // cache all values that are read, not only those of hot keys
}

// KeepsNear reports whether a route of t has a near cache.
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
