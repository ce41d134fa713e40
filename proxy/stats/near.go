package stats

// The counters of routes with a near cache, which keeps values in Ringside.

import "sync/atomic"

// NearCounts is what one loop has counted for a route with a near cache.
type NearCounts struct {
	Hits  uint64 // keys answered from the near cache
	Asked uint64 // keys that the near cache did not have, so they were requested from a server
	Age   uint64 // sum of the ages of the values returned from it, in nanoseconds
}

// Add adds the counts of o.
func (c *NearCounts) Add(o *NearCounts) {
	c.Hits += o.Hits
	c.Asked += o.Asked
	c.Age += o.Age
}

// Share returns the fraction of keys answered from the near cache, from 0 to 1. It
// returns false if no key was looked up.
func (c *NearCounts) Share() (share float64, known bool) {
	n := c.Hits + c.Asked
	return float64(c.Hits) / float64(max(n, 1)), n > 0
}

// Report appends lines of stats routes, unless no key was looked up.
func (c *NearCounts) Report(r *Report) {
	share, known := c.Share()
	if !known {
		return
	}
	r.Count("near_hits", c.Hits)
	r.Count("near_asked", c.Asked)
	r.Percent("near_hit_percent", share)
	if c.Hits > 0 {
		r.Count("near_age_us", c.Age/c.Hits/1000)
	}
}

// Near is the near cache of one route, over all loops.
type Near struct {
	Route         string       // the label of the route: see table.Route
	Bytes, Values atomic.Int64 // current totals
}
