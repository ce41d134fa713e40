package live

// This file computes the work of routes from the counters of two moments.

import (
	"fmt"
	"math"
	"strings"
	"time"

	"ringside/proxy"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// Routes describes what the routes to a pool did recently in addition to forwarding requests. All
// rates are per second over the time Window.
type Routes struct {
	Window        float64       `json:"win"`           // length of the counted time, in seconds; 0: there is no earlier moment, so all rates are 0
	Guards        []GuardLine   `json:"guards"`        // work of the guards, for each route that has one
	Tags          []TagLine     `json:"tags"`          // work of the tags, for each route that has tags
	Near          []NearLine    `json:"near"`          // work of the near caches, for each route that has one
	Invalidations Invalidations `json:"invalidations"` // invalidations of tags by this process, in all pools
	Replicas      *ReplicaWork  `json:"replicas"`      // work on replicas; null: no route keeps replicas in the pool
	Lacks         []LackLine    `json:"lacks"`         // the servers of the pool that lack replicas
}

// GuardLine describes the work of a guard on one route. The rates are per second.
type GuardLine struct {
	Route   []byte   `json:"route"`   // label of the route; empty: the route of all keys that match no other route
	Leases  float64  `json:"leases"`  // gets per second after which the client rebuilds the value
	Stored  float64  `json:"stored"`  // rebuilt values per second that were stored
	Saved   float64  `json:"saved"`   // gets per second that waited and got the value; each saved a rebuild
	Old     float64  `json:"old"`     // gets per second that got the stale value during a rebuild; each saved a rebuild
	Late    float64  `json:"late"`    // gets per second that waited until the timeout
	Refused float64  `json:"refused"` // sets per second that came too late to be stored
	Waiting int64    `json:"waiting"` // number of gets that wait now
	Ever    uint64   `json:"ever"`    // number of rebuilds that the guard has saved since the start
	P50     *float64 `json:"p50_ms"`  // median time from the miss to the set of a rebuild, in milliseconds; null: no rebuild in the counted time
	P99     *float64 `json:"p99_ms"`
}

// TagLine describes the work of tags on one route. The rates are per second.
type TagLine struct {
	Route    []byte  `json:"route"`
	Hits     float64 `json:"hits"`      // values per second that were found with valid tags
	Invalid  float64 `json:"invalid"`   // values per second that were found, but had an invalidated tag
	LateSets float64 `json:"late_sets"` // sets per second that were not stored, because a tag may have changed since the miss
	Broken   uint64  `json:"broken"`    // number of values that could not be read, since the start
	Known    int     `json:"known"`     // number of keys with tags that the instance remembers
}

// NearLine describes the work of the near cache of one route. The rates are per second.
type NearLine struct {
	Route  []byte   `json:"route"`
	Hits   float64  `json:"hits"`   // keys per second that the near cache had
	Asked  float64  `json:"asked"`  // keys per second that were requested from a server
	Share  *float64 `json:"share"`  // fraction of the keys that the near cache had, 0 to 1; null: no keys were requested in the counted time
	Age    *float64 `json:"age_ms"` // average age of the values from the near cache, in milliseconds; null: there were none
	Bytes  int64    `json:"bytes"`  // size of the values in the near cache, in bytes
	Values int64    `json:"values"`
}

// Invalidations counts the invalidations of tags by this process.
type Invalidations struct {
	Rate float64  `json:"rate"`
	Ever uint64   `json:"ever"`   // number of invalidations since the start
	Bad  uint64   `json:"bad"`    // number of invalidations since the start that at least one server did not confirm
	P99  *float64 `json:"p99_ms"` // 99th percentile of the duration of an invalidation, in milliseconds; null: none in the counted time
}

// ReplicaWork describes the background work on replicas in all pools. The rates are per second.
type ReplicaWork struct {
	Repaired float64 `json:"repaired"` // repairs per second that were started because a replica was missing or wrong
	Dropped  float64 `json:"dropped"`  // repairs per second that were skipped because there were too many
	Refilled float64 `json:"refilled"` // keys per second that were copied to servers that rejoined empty
}

// LackLine describes what one server of the pool lacks.
type LackLine struct {
	Server  int    `json:"server"` // index of the server in the pool
	Text    string `json:"text"`   // what the server lacks, in words; printed after the server's name
	Filling bool   `json:"filling"`
	Copied  uint64 `json:"copied"` // number of keys that were copied to the server so far; see stats.Lack
	Missed  int    `json:"missed"`
	Waiting int    `json:"waiting"`
}

func lacking(l *stats.Lack) string {
	var list []string
	if l.Filling {
		list = append(list, "is empty until it is filled: "+keys(l.Copied)+" copied to it so far")
	}
	switch {
	case l.Flush:
		list = append(list, "has missed more writes than are remembered: it is flushed before it is read")
	case l.Missed > 0:
		list = append(list, "has missed writes of "+keys(uint64(l.Missed)))
	}
	if l.Waiting > 0 {
		list = append(list, keys(uint64(l.Waiting))+" to be deleted there or copied to it")
	}
	return strings.Join(list, "; ")
}

func keys(n uint64) string { return plural(fmt.Sprint(n), "key") }

// Counts contains the counters of the routes at one moment.
type Counts struct {
	at      time.Time
	guards  map[string]stats.GuardSnapshot
	tags    map[string]stats.TagSnapshot
	near    map[nearRoute]stats.NearCounts
	kept    map[string][2]int64 // bytes and number of the values in each near cache, by label of the route
	voided  stats.InvalidationCounts
	repairs [3]uint64 // counters of repairs: started, dropped, and keys copied to servers that rejoined empty
	lacks   map[[2]string]stats.Lack
}

// nearRoute identifies a route with a near cache by its pool and label. If several listeners have
// this route, they count together.
type nearRoute struct{ pool, label string }

// takeCounts copies the current counters of the routes of the proxy p. sum must be a current
// snapshot.
func takeCounts(p *proxy.Proxy, sum *stats.Snapshot) *Counts {
	c := &Counts{at: time.Now(), guards: map[string]stats.GuardSnapshot{}, tags: map[string]stats.TagSnapshot{}, near: map[nearRoute]stats.NearCounts{}, kept: map[string][2]int64{},
		repairs: [3]uint64{sum.Repairs, sum.RepairsDropped, sum.Refilled}, lacks: sum.Lacks}
	for _, g := range p.Guards() {
		c.guards[g.Route] = g.Snapshot()
	}
	for _, t := range p.Tags() {
		c.tags[t.Route] = t.Snapshot()
	}
	for name, r := range sum.Routes {
		at := nearRoute{name.Pool, name.Route}
		one := c.near[at]
		one.Add(&r.Near)
		c.near[at] = one
	}
	for _, n := range p.Nears() {
		c.kept[n.Route] = [2]int64{n.Bytes.Load(), n.Values.Load()}
	}
	c.voided = p.Invalidations()
	return c
}

// Since returns the time between the moment of `before` and that of c.
func (c *Counts) Since(before *Counts) time.Duration { return c.at.Sub(before.at) }

// routesBetween returns what the routes of the table t to the given pool did between two moments.
// It returns nil if no route to the pool has a guard, tags, replicas or a near cache.
func routesBetween(before, now *Counts, t *table.Table, pool *table.Pool) *Routes {
	is := &Routes{Window: math.Round(10*now.Since(before).Seconds()) / 10, Guards: []GuardLine{}, Tags: []TagLine{}, Near: []NearLine{}, Lacks: []LackLine{}}
	rate := func(now, then uint64) float64 {
		return thousandth(float64(stats.Since(now, then)) / max(is.Window, 1e-3))
	}
	if is.Window == 0 {
		rate = func(uint64, uint64) float64 { return 0 }
	}
	seen := map[string]bool{}
	for _, l := range t.Listeners {
		for i := range l.Routes {
			r := &l.Routes[i]
			if label := r.Label(); r.Pool == pool && !seen[label] {
				seen[label] = true
				if r.Guard != nil {
					is.Guards = append(is.Guards, guardLine(label, now.guards[label], before.guards[label], rate))
				}
				if r.Tags != nil {
					is.Tags = append(is.Tags, tagLine(label, now.tags[label], before.tags[label], rate))
				}
				if r.Near != nil {
					at := nearRoute{pool.Name, label}
					is.Near = append(is.Near, nearLine(label, now.near[at], before.near[at], now.kept[label], rate))
				}
			}
		}
	}
	took := now.voided.Taken.Since(&before.voided.Taken)
	is.Invalidations = Invalidations{Rate: rate(took.Count(), 0), Ever: now.voided.Taken.Count(), Bad: now.voided.Bad, P99: millis(&took, .99)}
	if pool.Copied(t) {
		is.Replicas = &ReplicaWork{rate(now.repairs[0], before.repairs[0]), rate(now.repairs[1], before.repairs[1]), rate(now.repairs[2], before.repairs[2])}
	}
	for i := range pool.Servers {
		if l, ok := now.lacks[[2]string{pool.Name, pool.Servers[i].Name}]; ok {
			is.Lacks = append(is.Lacks, LackLine{i, lacking(&l), l.Filling, l.Copied, l.Missed, l.Waiting})
		}
	}
	if is.Replicas == nil && len(is.Guards)+len(is.Tags)+len(is.Near) == 0 {
		return nil
	}
	return is
}

func guardLine(label string, now, then stats.GuardSnapshot, rate func(now, then uint64) float64) GuardLine {
	by := func(list ...stats.GuardEvent) (sum float64) {
		for _, e := range list {
			sum += rate(now.Events[e], then.Events[e])
		}
		return sum
	}
	took := now.Rebuilt.Since(&then.Rebuilt)
	return GuardLine{Route: []byte(label), Leases: by(stats.GuardLeaseGranted), Stored: by(stats.GuardFill), Saved: by(stats.GuardSaved), Old: by(stats.GuardStale), Late: by(stats.GuardLate),
		Refused: by(stats.GuardExists, stats.GuardGone, stats.GuardVoid), Waiting: now.Waiting,
		Ever: now.Events[stats.GuardSaved] + now.Events[stats.GuardStale], P50: millis(&took, .5), P99: millis(&took, .99)}
}

func tagLine(label string, now, then stats.TagSnapshot, rate func(now, then uint64) float64) TagLine {
	by := func(e stats.TagEvent) float64 { return rate(now.Events[e], then.Events[e]) }
	return TagLine{[]byte(label), by(stats.TagHit), by(stats.TagInvalid), by(stats.TagLateSet), now.Events[stats.TagBroken], now.Known}
}

func nearLine(label string, now, then stats.NearCounts, kept [2]int64, rate func(now, then uint64) float64) NearLine {
	of := stats.NearCounts{Hits: stats.Since(now.Hits, then.Hits), Asked: stats.Since(now.Asked, then.Asked), Age: stats.Since(now.Age, then.Age)}
	is := NearLine{Route: []byte(label), Hits: rate(of.Hits, 0), Asked: rate(of.Asked, 0), Bytes: kept[0], Values: kept[1]}
	if share, known := of.Share(); known {
		is.Share = new(thousandth(share))
	}
	if of.Hits > 0 {
		is.Age = new(thousandth(float64(of.Age) / float64(of.Hits) / 1e6))
	}
	return is
}

// millis returns the quantile q of a histogram in milliseconds. It returns nil if the histogram is
// empty.
func millis(h *stats.Histogram, q float64) *float64 {
	if h.Count() == 0 {
		return nil
	}
	return new(thousandth(float64(h.Quantile(q)) / 1e6))
}

func thousandth(v float64) float64 { return math.Round(1000*v) / 1000 }
