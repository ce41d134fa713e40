package routes

// How many copies there are of keys in a pool, and how many are left without a server.

import (
	"slices"
	"strings"

	"ringside/proxy/table"
	"ringside/replicate"
)

// Copies is what a server has to do with copies.
type Copies struct {
	Of      int  `json:"of"`      // how many there are of a key; the fewest, if routes differ
	Left    int  `json:"left"`    // of those that are in use, how many are left, at least, of a key that has one on the server, if that is taken out
	Repair  bool `json:"repair"`  // copies that are missing are made in the background
	Filling bool `json:"filling"` // it came back empty, and lacks some that it should have

	Lacking string `json:"lacking,omitempty"` // why Left is not one less than Of: other servers, and how they are
}

// CopiesIn says what routes keep of a key in a pool, and what is left without one of its
// servers; nil if none keeps several copies there. lacking is how many servers of a pool,
// but for that one, are not up or lack copies, and how some of them are. In each of several
// pools the key may be on any server, so one that lacks copies leaves none there.
func CopiesIn(t *table.Table, pool *table.Pool, lacking func(*table.Pool) (n int, how []string)) (c *Copies) {
	var reasons []string
	for _, l := range t.Listeners {
		for i := range l.Routes {
			r := &l.Routes[i]
			n := CopiesOf(r, pool)
			if n < 2 {
				continue
			}
			left := n - 1
			pools := []*table.Pool{pool}
			if len(r.Also) > 0 {
				pools = slices.DeleteFunc(append([]*table.Pool{r.Pool}, r.Also...), func(p *table.Pool) bool { return p == pool })
			}
			for _, p := range pools {
				lack, how := lacking(p)
				if len(r.Also) > 0 {
					lack = min(lack, 1)
				}
				left -= lack
				reasons = append(reasons, how...)
			}
			if c == nil {
				c = &Copies{Of: n, Left: left}
			}
			c.Of, c.Left = min(c.Of, n), max(0, min(c.Left, left))
			c.Repair = c.Repair || r.Copies.RepairRate > 0
		}
	}
	if c != nil {
		slices.Sort(reasons)
		c.Lacking = strings.Join(slices.Compact(reasons), "; ")
	}
	return c
}

// CopiesOf is how many copies a route keeps of a key, of which pool has one or all; 0: the
// route does not lead there.
func CopiesOf(r *table.Route, pool *table.Pool) int {
	switch {
	case r.Pool != pool && !slices.Contains(r.Also, pool):
		return 0
	case len(r.Also) > 0:
		return 1 + len(r.Also)
	case r.Copies.Copies == replicate.All:
		return len(pool.Servers)
	}
	return max(1, r.Copies.Copies)
}
