package admin

// The metrics of routes with a near cache.

import "ringside/proxy/stats"

var (
	nearKeys = counter("near_keys_total",
		"Keys of reads on routes with near, by result: hit (given from what is kept in Ringside), or asked (a server was asked).",
		"listener", "route", "pool", "result")
	nearAge = counter("near_age_seconds_total",
		"Sum of how old the values were that were given out, since their server was asked; by the hits it is how old they are on average.",
		"listener", "route", "pool")
	nearBytes = perRoute.gauge("near_bytes",
		"Memory that values kept in Ringside take now.")
	nearValues = perRoute.gauge("near_values",
		"Values kept in Ringside now.")
)

func (out *output) near(c *stats.NearCounts, at []string) {
	out.count(nearKeys, c.Hits, append(at[:3:3], "hit")...)
	out.count(nearKeys, c.Asked, append(at[:3:3], "asked")...)
	out.set(nearAge, float64(c.Age)/1e9, at...)
}
