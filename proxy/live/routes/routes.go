package routes

// Two moments, and what came between them.

import (
	"fmt"
	"math"
	"strings"
	"time"

	"ringside/proxy"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// Routes is what the routes to a pool have done lately that do more than lead keys to a
// server. Rates are per second over Window.
type Routes struct {
	Window float64     `json:"win"`    // seconds; 0: there was nothing to compare with yet
	Guards []GuardLine `json:"guards"` // of the routes with a guard
	Tags   []TagLine   `json:"tags"`   // of the routes with tags
	Near   []NearLine  `json:"near"`   // of the routes that keep values in Ringside
	Voided Voided      `json:"voided"` // by this process, of all pools
	Copies *CopyWork   `json:"copies"` // null: no route keeps copies in the pool
	Lacks  []LackLine  `json:"lacks"`  // servers that lack something
}

// GuardLine is a route with a guard.
type GuardLine struct {
	Route   []byte   `json:"route"`   // its label; empty: that of all other keys
	Told    float64  `json:"told"`    // gets that were told to rebuild
	Stored  float64  `json:"stored"`  // rebuilds that were stored
	Saved   float64  `json:"saved"`   // gets that waited and got the value: rebuilds saved
	Old     float64  `json:"old"`     // gets that were given the old value meanwhile: saved, too
	Late    float64  `json:"late"`    // gets that waited in vain
	Refused float64  `json:"refused"` // sets that came too late to be stored
	Waiting int64    `json:"waiting"` // gets that wait now
	Ever    uint64   `json:"ever"`    // rebuilds saved since the start
	P50     *float64 `json:"p50_ms"`  // from the order to rebuild to the set; null: none in the window
	P99     *float64 `json:"p99_ms"`
}

// TagLine is a route with tags.
type TagLine struct {
	Route     []byte  `json:"route"`
	Hits      float64 `json:"hits"`      // values whose tags were all the same still
	Invalid   float64 `json:"invalid"`   // values that were there, and a tag of theirs was not
	Unordered float64 `json:"unordered"` // sets not stored: a tag may have changed since their miss
	Broken    uint64  `json:"broken"`    // values that could not be read, since the start
	Known     int     `json:"known"`     // keys whose tags are remembered
}

// NearLine is a route that keeps values in Ringside.
type NearLine struct {
	Route  []byte   `json:"route"`
	Hits   float64  `json:"hits"`   // keys given from what is kept
	Asked  float64  `json:"asked"`  // keys of which a server was asked
	Share  *float64 `json:"share"`  // the part of both that hits are, 0 to 1; null: none was asked for in the window
	Age    *float64 `json:"age_ms"` // how old the values were that were given, on average; null: none was
	Bytes  int64    `json:"bytes"`  // of what is kept now
	Values int64    `json:"values"`
}

// Voided are invalidations of tags.
type Voided struct {
	Rate float64  `json:"rate"`
	Ever uint64   `json:"ever"`   // since the start
	Bad  uint64   `json:"bad"`    // of these, those that not all servers have answered
	P99  *float64 `json:"p99_ms"` // of the window
}

// CopyWork is what copies cost in the background, over all pools.
type CopyWork struct {
	Repaired float64 `json:"repaired"` // copies made because they were missing or old
	Dropped  float64 `json:"dropped"`  // copies not made: too many were to be made
	Refilled float64 `json:"refilled"` // keys given to servers that had come back empty
}

// LackLine is a server of the pool that does not have all that it should.
type LackLine struct {
	Server  int    `json:"server"` // of the pool
	Text    string `json:"text"`   // what it lacks; the server's name goes before it
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

// Counts is what Routes is made of, at one moment.
type Counts struct {
	at      time.Time
	guards  map[string]guardCounts
	tags    map[string]tagCounts
	near    map[nearRoute]stats.NearCounts
	kept    map[string][2]int64 // by label: bytes and values
	voided  stats.Histogram
	bad     uint64
	repairs [3]uint64 // done, dropped, refilled
	lacks   map[[2]string]stats.Lack
}

// nearRoute is a route of all listeners that have it.
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

// Take copies what the routes of p have counted by now; sum is a snapshot of now.
func Take(p *proxy.Proxy, sum *stats.Snapshot) *Counts {
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

// Since is the time from an earlier moment.
func (c *Counts) Since(before *Counts) time.Duration { return c.at.Sub(before.at) }

// Of tells what the routes of t to pool have done between two moments; nil if none has a
// guard, tags or copies.
func Of(before, now *Counts, t *table.Table, pool *table.Pool) *Routes {
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
	took := now.voided.Since(&before.voided)
	is.Voided = Voided{Rate: rate(took.Count(), 0), Ever: now.voided.Count(), Bad: now.bad, P99: millis(&took, .99)}
	if pool.Copied(t) {
		is.Copies = &CopyWork{rate(now.repairs[0], before.repairs[0]), rate(now.repairs[1], before.repairs[1]), rate(now.repairs[2], before.repairs[2])}
	}
	for i := range pool.Servers {
		if l, ok := now.lacks[[2]string{pool.Name, pool.Servers[i].Name}]; ok {
			is.Lacks = append(is.Lacks, LackLine{i, lacking(&l), l.Filling, l.Copied, l.Missed, l.Waiting})
		}
	}
	if is.Copies == nil && len(is.Guards)+len(is.Tags)+len(is.Near) == 0 {
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
	return GuardLine{Route: []byte(label), Told: by(stats.GuardWin), Stored: by(stats.GuardFill), Saved: by(stats.GuardSaved), Old: by(stats.GuardStale), Late: by(stats.GuardLate),
		Refused: by(stats.GuardExists, stats.GuardGone, stats.GuardVoid), Waiting: now.waiting,
		Ever: now.events[stats.GuardSaved] + now.events[stats.GuardStale], P50: millis(&took, .5), P99: millis(&took, .99)}
}

func tagLine(label string, now, then tagCounts, rate func(now, then uint64) float64) TagLine {
	by := func(e stats.TagEvent) float64 { return rate(now.events[e], then.events[e]) }
	return TagLine{[]byte(label), by(stats.TagHit), by(stats.TagInvalid), by(stats.TagUnordered), now.events[stats.TagBroken], now.known}
}

func nearLine(label string, now, then stats.NearCounts, kept [2]int64, rate func(now, then uint64) float64) NearLine {
	of := stats.NearCounts{Hits: stats.Since(now.Hits, then.Hits), Asked: stats.Since(now.Asked, then.Asked), Age: stats.Since(now.Age, then.Age)}
	is := NearLine{Route: []byte(label), Hits: rate(of.Hits, 0), Asked: rate(of.Asked, 0), Bytes: kept[0], Values: kept[1]}
	if share, known := of.Share(); known {
		share = thousandth(share)
		is.Share = &share
	}
	if of.Hits > 0 {
		age := thousandth(float64(of.Age) / float64(of.Hits) / 1e6)
		is.Age = &age
	}
	return is
}

// millis is in milliseconds, nil without durations.
func millis(h *stats.Histogram, q float64) *float64 {
	if h.Count() == 0 {
		return nil
	}
	ms := thousandth(float64(h.Quantile(q)) / 1e6)
	return &ms
}

func thousandth(v float64) float64 { return math.Round(1000*v) / 1000 }
