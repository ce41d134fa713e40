package ring

// This file says which servers get keys when one placement replaces another.

import "slices"

// Gains reports for each server of next whether it may own keys that another server owns by p. same
// returns the index in next of the server with an index in p; -1: next does not have it. The result is
// exact for circles with the same key hash. For other rules, all servers may gain keys.
func (p *Placement) Gains(next *Placement, same func(server int) int) []bool {
	gains := make([]bool, next.Ring.Len())
	a, ok := p.Ring.(*Circle)
	b, too := next.Ring.(*Circle)
	if !ok || !too || p.Keys == "" || p.Keys != next.Keys || a.seek != b.seek || len(a.points) == 0 || len(b.points) == 0 {
		for i := range gains {
			gains[i] = true
		}
		return gains
	}
	// Between two neighboring points of either circle, all hashes have the same owner. The hashes at
	// a point and beside it represent all of these ranges.
	for _, at := range slices.Concat(a.points, b.points) {
		for _, h := range [...]uint32{at - 1, at, at + 1} {
			if is := int(b.owners[b.find(h)]); same(int(a.owners[a.find(h)])) != is {
				gains[is] = true
			}
		}
	}
	return gains
}
