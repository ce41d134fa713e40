package stats

// What routes that keep values near have counted.

import "sync/atomic"

// NearCounts are what one loop has counted of a route that keeps values near.
type NearCounts struct {
	Hits  uint64 // keys that were answered by what is kept here
	Asked uint64 // keys that could have been, and were asked for
	Age   uint64 // sum of how old the values were that were given out, in nanoseconds
}

// Add counts what o has counted too.
func (c *NearCounts) Add(o *NearCounts) {
	c.Hits += o.Hits
	c.Asked += o.Asked
	c.Age += o.Age
}

// Share is the part of the keys that were answered by what is kept here, from 0 to 1;
// false if none was asked for.
func (c *NearCounts) Share() (share float64, known bool) {
	n := c.Hits + c.Asked
	return float64(c.Hits) / float64(max(n, 1)), n > 0
}

// Report appends the lines of stats routes, once there is something to tell.
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

// Near is what is kept of one route, over all loops.
type Near struct {
	Route         string       // its label: see table.Route
	Bytes, Values atomic.Int64 // now
}
