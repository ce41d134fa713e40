package live

// This file reports the reasons of misses, and the work that hits save.

import (
	"math"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/watch"
	"ringside/proxy/watch/missreason"
)

// Misses contains the reasons of recent misses, and the time that the application needs
// to rebuild the values. Rates are per second.
type Misses struct {
	Off      bool       `json:"off"`    // disabled: admin.misses
	Chosen   float64    `json:"chosen"` // fraction of the keys that is sampled, 0 to 1
	Reach    float64    `json:"reach"`  // seconds for which the history of these keys is known
	Routes   []MissLine `json:"routes"`
	Prefixes []MissLine `json:"prefixes"` // the prefixes with the highest cost at the origin
}

// MissLine is a route, or a prefix of keys up to the first colon.
type MissLine struct {
	Name   []byte             `json:"name"` // empty: the route of all other keys; for a prefix: keys without a colon
	Misses float64            `json:"miss"`
	Why    map[string]float64 `json:"why"`      // fraction of the misses by reason, 0 to 1
	Fills  float64            `json:"fills"`    // sets that followed a miss
	P50    *float64           `json:"p50_ms"`   // from the miss to the set; null: no set yet
	P99    *float64           `json:"p99_ms"`   // the same
	Cost   float64            `json:"cost"`     // seconds of rebuilding per second: the average number of rebuilds in progress
	Off    float64            `json:"cost_off"` // the true value is at most this much lower than Cost, and never higher
	Hits   float64            `json:"hits"`     // hits, which cost the origin nothing
	Saved  *float64           `json:"saved"`    // rebuild time that the hits saved, in seconds per second; null: unknown
}

// mostMissLines is the maximum number of prefixes in a report.
const mostMissLines = 20

// missesOf combines the report r with the hits between two samples. seen contains the
// hits of prefixes. r is nil if the analysis of misses is disabled.
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
		p50, p99 := round(1000*of.P50), round(1000*of.P99)
		l.P50, l.P99 = &p50, &p99
	}
	return l
}

// hit sets the hit rate and the rebuild time that the hits saved.
func (l *MissLine) hit(rate float64, of *missreason.Line) {
	if l.Hits = round(rate); of.Mean > 0 {
		saved := thousandth(rate * of.Mean)
		l.Saved = &saved
	}
}

// hitsOf returns how many keys per second were found on the routes with a label.
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

func thousandth(v float64) float64 { return math.Round(1000*v) / 1000 }

// Work formats a number of seconds of work.
func Work(seconds float64) string {
	switch {
	case seconds < 1:
		return Count(math.Round(1000*seconds)) + " ms"
	case seconds < 3600:
		return Count(math.Round(10*seconds)/10) + " s"
	}
	return Count(math.Round(seconds/360)/10) + " h"
}

// publishMisses publishes the reasons of misses to the watchers.
func (s *Sampler) publishMisses(before, now *Sample) {
	watched := s.pools()
	if len(watched) == 0 || now.At.Sub(before.At) < time.Millisecond {
		return
	}
	is, err := s.misses(before, now)
	if err != nil {
		return // the next tick reports the error
	}
	for pool := range watched {
		s.publishJSON(pool, "why", is)
	}
}

func (s *Sampler) misses(before, now *Sample) (*Misses, error) {
	r, err := s.p.MissReport()
	if err != nil {
		return nil, err
	}
	seen, err := s.p.Watched()
	if err != nil {
		return nil, err
	}
	return missesOf(r, before, now, seen), nil
}
