package live

// This file reports the miss reasons, and the work that hits save.

import (
	"math"

	"ringside/proxy/stats"
	"ringside/proxy/watch"
	"ringside/proxy/watch/missreason"
)

// Misses contains the reasons of recent misses, and the time that the application needs to rebuild
// the values. All rates are per second.
type Misses struct {
	Off      bool       `json:"off"`    // true if the configuration disables miss reasons (admin.misses)
	Chosen   float64    `json:"chosen"` // fraction of all keys that are sampled for miss reasons, 0 to 1
	Reach    float64    `json:"reach"`  // how far back the history of the sampled keys is known, in seconds
	Routes   []MissLine `json:"routes"`
	Prefixes []MissLine `json:"prefixes"` // the prefixes of keys with the highest cost of rebuilding values
}

// MissLine describes the misses of one route, or of one prefix. A prefix is the part of a key up to
// its first colon.
type MissLine struct {
	Name   []byte             `json:"name"` // name of the route, or the prefix; an empty route means all other keys, and an empty prefix means keys without a colon
	Misses float64            `json:"miss"`
	Why    map[string]float64 `json:"why"`      // for each miss reason, its fraction of the misses, 0 to 1
	Fills  float64            `json:"fills"`    // number of sets per second that followed a miss
	P50    *float64           `json:"p50_ms"`   // median time from a miss to the set that follows it, in milliseconds; null: no set yet
	P99    *float64           `json:"p99_ms"`   // 99th percentile of the time from a miss to the set that follows it, in milliseconds; null: no set yet
	Cost   float64            `json:"cost"`     // seconds of rebuilding per second, which is the average number of rebuilds in progress
	Off    float64            `json:"cost_off"` // possible error of Cost: the true cost is at most this much lower, and never higher
	Hits   float64            `json:"hits"`     // number of hits per second; for a hit the application rebuilds nothing
	Saved  *float64           `json:"saved"`    // rebuild time that the hits saved, in seconds per second; null: unknown
}

// mostMissLines is the maximum number of prefixes in a report of miss reasons.
const mostMissLines = 20

// missesOf combines the miss reasons in r with the hits between two samples. r is nil if miss
// reasons are disabled. seen has the hits of prefixes.
func missesOf(r *missreason.Report, before, after *Sample, seen *watch.Report) *Misses {
	if r == nil {
		return &Misses{Off: true, Routes: []MissLine{}, Prefixes: []MissLine{}}
	}
	is := &Misses{Chosen: r.Chosen, Reach: math.Round(r.Reach.Seconds()), Routes: []MissLine{}, Prefixes: []MissLine{}}
	for i := range r.Routes {
		l := missLine(&r.Routes[i])
		l.hit(hitsOf(string(l.Name), before, after), &r.Routes[i])
		is.Routes = append(is.Routes, l)
	}
	for i := range r.Prefixes[:min(len(r.Prefixes), mostMissLines)] {
		l := missLine(&r.Prefixes[i])
		for j := range seen.Prefixes {
			if p := &seen.Prefixes[j]; p.Key == string(l.Name) {
				l.hit(p.Hits/max(seen.Span, 1), &r.Prefixes[i])
			}
		}
		is.Prefixes = append(is.Prefixes, l)
	}
	return is
}

func missLine(of *missreason.Line) MissLine {
	all := of.AllMissed()
	l := MissLine{Name: []byte(of.Name), Misses: round(all), Why: map[string]float64{}, Fills: round(of.Fills), Cost: thousandth(of.Cost), Off: thousandth(of.Off)}
	for reason, n := range of.Missed {
		if part := n / max(all, 1e-9); part >= .0005 {
			l.Why[missreason.Reason(reason).String()] = thousandth(part)
		}
	}
	if of.P50 > 0 {
		l.P50, l.P99 = new(round(1000*of.P50)), new(round(1000*of.P99))
	}
	return l
}

// hit sets the fields Hits and Saved of a line. rate is the number of hits per second, and of has
// the average rebuild time.
func (l *MissLine) hit(rate float64, of *missreason.Line) {
	if l.Hits = round(rate); of.Mean > 0 {
		l.Saved = new(thousandth(rate * of.Mean))
	}
}

// hitsOf returns how many keys per second were found on all routes with the given label.
func hitsOf(label string, before, after *Sample) (rate float64) {
	for name, now := range after.Sum.Routes {
		if name.Route != label {
			continue
		}
		then := uint64(0)
		if c := before.Sum.Routes[name]; c != nil {
			then = c.KeysHit
		}
		rate += float64(stats.Since(now.KeysHit, then))
	}
	return rate / max(after.At.Sub(before.At).Seconds(), 1e-3)
}

// Work formats an amount of work, which is given in seconds.
func Work(seconds float64) string {
	switch {
	case seconds < 1:
		return Count(math.Round(1000*seconds)) + " ms"
	case seconds < 3600:
		return Count(math.Round(10*seconds)/10) + " s"
	}
	return Count(math.Round(seconds/360)/10) + " h"
}
