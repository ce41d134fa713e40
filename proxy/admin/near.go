package admin

// This file has the metrics of routes with a near cache.

import "ringside/proxy/stats"

var (
	nearKeys = counter("near_keys_total",
		"Keys of reads on routes with near, by result. hit: returned from the near cache. asked: requested from a server.",
		"listener", "route", "pool", "result")
	nearAge = counter("near_age_seconds_total",
		"Sum of the ages of the values returned from the near cache, in seconds since their request to a server. Divided by the hits, "+
			"it is the average age.",
		"listener", "route", "pool")
	nearBytes = perRoute.gauge("near_bytes",
		"Memory used by the values in the near cache, in bytes.")
	nearValues = perRoute.gauge("near_values",
		"Values in the near cache.")
)

func (out *output) near(c *stats.NearCounts, at []string) {
	out.count(nearKeys, c.Hits, append(at[:3:3], "hit")...)
	out.count(nearKeys, c.Asked, append(at[:3:3], "asked")...)
	out.set(nearAge, float64(c.Age)/1e9, at...)
}
