package live

// This file compares the counters of two moments.

import (
	"fmt"
	"math"
	"strings"
	"time"

	"ringside/proxy"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// Routes describes the recent work of the routes to a pool, beyond forwarding requests.
// Rates are per second over Window.
type Routes struct {
	Window        float64       `json:"win"`           // in seconds; 0: there is no earlier moment to compare with
	Guards        []GuardLine   `json:"guards"`        // routes with a guard
	Tags          []TagLine     `json:"tags"`          // routes with tags
	Near          []NearLine    `json:"near"`          // routes with a near cache
	Invalidations Invalidations `json:"invalidations"` // invalidations of tags by this process, over all pools
	Replicas      *ReplicaWork  `json:"replicas"`      // null: no route keeps replicas in the pool
	Lacks         []LackLine    `json:"lacks"`         // servers that lack something
}

// GuardLine describes a route with a guard.
type GuardLine struct {
	Route   []byte   `json:"route"`   // label of the route; empty: the route of all other keys
	Leases  float64  `json:"leases"`  // gets that made their client rebuild the value
	Stored  float64  `json:"stored"`  // rebuilt values that were stored
	Saved   float64  `json:"saved"`   // gets that waited and got the value: saved rebuilds
	Old     float64  `json:"old"`     // gets that got the old value during a rebuild: also saved rebuilds
	Late    float64  `json:"late"`    // gets that waited until the timeout
	Refused float64  `json:"refused"` // sets that were too late to be stored
	Waiting int64    `json:"waiting"` // gets that wait now
	Ever    uint64   `json:"ever"`    // saved rebuilds since the start
	P50     *float64 `json:"p50_ms"`  // from the miss to the set; null: none in the window
	P99     *float64 `json:"p99_ms"`
}

// TagLine describes a route with tags.
type TagLine struct {
	Route    []byte  `json:"route"`
	Hits     float64 `json:"hits"`      // values with unchanged tags
	Invalid  float64 `json:"invalid"`   // values that were found, but had an invalidated tag
	LateSets float64 `json:"late_sets"` // sets not stored, because a tag may have changed since the miss
	Broken   uint64  `json:"broken"`    // unreadable values, since the start
	Known    int     `json:"known"`     // keys with remembered tags
}

// NearLine describes a route with a near cache.
type NearLine struct {
	Route  []byte   `json:"route"`
	Hits   float64  `json:"hits"`   // keys served from the near cache
	Asked  float64  `json:"asked"`  // keys requested from a server
	Share  *float64 `json:"share"`  // hit rate of the near cache, 0 to 1; null: no requests in the window
	Age    *float64 `json:"age_ms"` // average age of the served values; null: none was served
	Bytes  int64    `json:"bytes"`  // size of the stored values
	Values int64    `json:"values"`
}

// Invalidations counts invalidations of tags.
type Invalidations struct {
	Rate float64  `json:"rate"`
	Ever uint64   `json:"ever"`   // since the start
	Bad  uint64   `json:"bad"`    // of Ever, those that some server did not confirm
	P99  *float64 `json:"p99_ms"` // latency, in the window
}

// ReplicaWork describes the background work on replicas, over all pools.
type ReplicaWork struct {
	Repaired float64 `json:"repaired"` // replicas written because they were missing or stale
	Dropped  float64 `json:"dropped"`  // repairs skipped because there were too many
	Refilled float64 `json:"refilled"` // keys copied to servers that rejoined empty
}

// LackLine describes a server of the pool that lacks replicas.
type LackLine struct {
	Server  int    `json:"server"` // index in the pool
	Text    string `json:"text"`   // description; printed after the server's name
	Filling bool   `json:"filling"`
	Copied  uint64 `json:"copied"` // see stats.Lack
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

func keys(n uint64) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprint(n, " keys")
}

// Counts contains the counters at one moment.
type Counts struct {
	at      time.Time
	guards  map[string]guardCounts
	tags    map[string]tagCounts
	near    map[nearRoute]stats.NearCounts
	kept    map[string][2]int64 // by label: bytes and values
	voided  stats.Histogram
	bad     uint64
	repairs [3]uint64 // repaired, dropped, refilled
	lacks   map[[2]string]stats.Lack
}

// nearRoute identifies a route with a near cache. Listeners that have the same route
// share it.
type nearRoute struct{ pool, label string }

type guardCounts struct {
	events  [stats.NumGuardEvents]uint64
	rebuilt stats.Histogram
	waiting int64
}

type tagCounts struct {
	events [stats.NumTagEvents]uint64
	known  int
}

// takeCounts copies the current counters of the routes of p. sum must be a current snapshot.
func takeCounts(p *proxy.Proxy, sum *stats.Snapshot) *Counts {
	c := &Counts{at: time.Now(), guards: map[string]guardCounts{}, tags: map[string]tagCounts{}, near: map[nearRoute]stats.NearCounts{}, kept: map[string][2]int64{},
		repairs: [3]uint64{sum.Repairs, sum.RepairsDropped, sum.Refilled}, lacks: sum.Lacks}
	for _, g := range p.Guards() {
		one := guardCounts{rebuilt: g.Snapshot().Rebuilt, waiting: g.Waiting.Load()}
		for e := range one.events {
			one.events[e] = g.Counted(stats.GuardEvent(e))
		}
		c.guards[g.Route] = one
	}
	for _, t := range p.Tags() {
		one := tagCounts{known: t.Remembered()}
		for e := range one.events {
			one.events[e] = t.Counted(stats.TagEvent(e))
		}
		c.tags[t.Route] = one
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
	said := p.Invalidations()
	c.voided, c.bad = said.Taken, said.Bad
	return c
}

// Since returns the time since an earlier moment.
func (c *Counts) Since(before *Counts) time.Duration { return c.at.Sub(before.at) }

// routesBetween returns the work of the routes of t to pool between two moments. It returns nil if
// no route has a guard, tags, replicas or a near cache.
func routesBetween(before, now *Counts, t *table.Table, pool *table.Pool) *Routes {
	is := &Routes{Window: math.Round(10*now.Since(before).Seconds()) / 10, Guards: []GuardLine{}, Tags: []TagLine{}, Near: []NearLine{}, Lacks: []LackLine{}}
	rate := func(now, then uint64) float64 {
		return toThousandth(float64(stats.Since(now, then)) / max(is.Window, 1e-3))
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
	took := now.voided.Since(&before.voided)
	is.Invalidations = Invalidations{Rate: rate(took.Count(), 0), Ever: now.voided.Count(), Bad: now.bad, P99: millis(&took, .99)}
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

func guardLine(label string, now, then guardCounts, rate func(now, then uint64) float64) GuardLine {
	by := func(list ...stats.GuardEvent) (sum float64) {
		for _, e := range list {
			sum += rate(now.events[e], then.events[e])
		}
		return sum
	}
	took := now.rebuilt.Since(&then.rebuilt)
	return GuardLine{Route: []byte(label), Leases: by(stats.GuardLeaseGranted), Stored: by(stats.GuardFill), Saved: by(stats.GuardSaved), Old: by(stats.GuardStale), Late: by(stats.GuardLate),
		Refused: by(stats.GuardExists, stats.GuardGone, stats.GuardVoid), Waiting: now.waiting,
		Ever: now.events[stats.GuardSaved] + now.events[stats.GuardStale], P50: millis(&took, .5), P99: millis(&took, .99)}
}

func tagLine(label string, now, then tagCounts, rate func(now, then uint64) float64) TagLine {
	by := func(e stats.TagEvent) float64 { return rate(now.events[e], then.events[e]) }
	return TagLine{[]byte(label), by(stats.TagHit), by(stats.TagInvalid), by(stats.TagLateSet), now.events[stats.TagBroken], now.known}
}

func nearLine(label string, now, then stats.NearCounts, kept [2]int64, rate func(now, then uint64) float64) NearLine {
	of := stats.NearCounts{Hits: stats.Since(now.Hits, then.Hits), Asked: stats.Since(now.Asked, then.Asked), Age: stats.Since(now.Age, then.Age)}
	is := NearLine{Route: []byte(label), Hits: rate(of.Hits, 0), Asked: rate(of.Asked, 0), Bytes: kept[0], Values: kept[1]}
	if share, known := of.Share(); known {
		share = toThousandth(share)
		is.Share = &share
	}
	if of.Hits > 0 {
		age := toThousandth(float64(of.Age) / float64(of.Hits) / 1e6)
		is.Age = &age
	}
	return is
}

// millis returns a quantile in milliseconds, or nil if there are no durations.
func millis(h *stats.Histogram, q float64) *float64 {
	if h.Count() == 0 {
		return nil
	}
	ms := toThousandth(float64(h.Quantile(q)) / 1e6)
	return &ms
}

func toThousandth(v float64) float64 { return math.Round(1000*v) / 1000 }
