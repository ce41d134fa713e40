package stats

// This file has the counters of routes with a near cache.

import "sync/atomic"

// NearCounts is what one loop has counted for a route with a near cache.
type NearCounts struct {
	Hits  uint64 // number of keys that the near cache had
	Asked uint64 // number of keys that the near cache did not have, so that they were requested from a server
	Age   uint64 // sum of the ages of the values that the near cache returned, in nanoseconds
}

// Add adds the counts of o to c.
func (c *NearCounts) Add(o *NearCounts) { sumUp(c, o) }

// Share returns the fraction of the requested keys that the near cache had, from 0 to 1. It returns
// false if no key was requested.
func (c *NearCounts) Share() (share float64, known bool) {
	n := c.Hits + c.Asked
	return float64(c.Hits) / float64(max(n, 1)), n > 0
}

// Near describes the near cache of one route, for all loops together.
type Near struct {
	Route         string       // label of the route; see table.Route
	Bytes, Values atomic.Int64 // current size of the values in the near cache, and their current number
}

// Metrics of routes with a near cache.
var (
	nearKeys = NewCounter("near_keys_total",
		"Keys of reads on routes with near, by result. hit: returned from the near cache. asked: requested from a server.",
		"listener", "route", "pool", "result")
	nearAge = NewCounter("near_age_seconds_total",
		"Sum of the ages of the values returned from the near cache, in seconds since their request to a server. Divided by the hits, "+
			"it is the average age.",
		"listener", "route", "pool")
	nearBytes = PerRoute.Gauge("near_bytes",
		"Memory used by the values in the near cache, in bytes.")
	nearValues = PerRoute.Gauge("near_values",
		"Values in the near cache.")
)

// Figures returns the numbers of the near cache of one route of one listener.
func (c *NearCounts) Figures() []Figure {
	return []Figure{{nearKeys, "hit", "near_hits", c.Hits}, {nearKeys, "asked", "near_asked", c.Asked}, {nearAge, "", "", float64(c.Age) / 1e9}}
}

// Report appends lines about the near cache to a reply to `stats routes`. It appends nothing if no
// key was requested.
func (c *NearCounts) Report(r *Report) {
	share, known := c.Share()
	if !known {
		return
	}
	r.Figures(c.Figures())
	r.Percent("near_hit_percent", share)
	if c.Hits > 0 {
		r.Count("near_age_us", c.Age/c.Hits/1000)
	}
}

// Figures returns the numbers of the near cache of the route.
func (n *Near) Figures() []Figure {
	return []Figure{{nearBytes, "", "", n.Bytes.Load()}, {nearValues, "", "", n.Values.Load()}}
}
