package live

// This file describes pools that fill from another pool (the setting fill_from).

import (
	"fmt"

	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// filling describes what a pool did with its source between two samples.
type filling struct {
	pool    string   // name of the pool that fills
	source  string   // name of the pool that is the source
	hits    float64  // reads per second that found a value at the source
	asked   float64  // reads per second of the source
	copied  float64  // keys per second that were copied to the pool
	failed  float64  // reads per second to which the source did not reply, or which it rejected
	limited float64  // reads per second that were not sent because of fill_from.rate
	down    []string // names of the servers of the source that are down
	why     string   // what the first of them does wrong, with its name; empty: none is down
	remedy  string   // what an operator can do about it
}

// fillingOf returns what the pool p did with its source between two samples. It returns nil if p has no source, or does
// not read it.
func fillingOf(before, after *Sample, p *table.Pool) *filling {
	if p.Fill == nil || p.Fill.Rate == 0 {
		return nil
	}
	f := &filling{pool: p.Name, source: p.Fill.From.Name}
	is, was := after.Sum.Fill(p.Name), &stats.FillCounters{}
	if before.Sum.Fills[p.Name] != nil {
		was = before.Sum.Fills[p.Name]
	}
	rate := func(now, then uint64) float64 { return round(float64(stats.Since(now, then)) / span(before, after)) }
	f.hits, f.failed = rate(is.Hits, was.Hits), rate(is.Failed, was.Failed)
	f.asked = f.hits + f.failed + rate(is.Misses, was.Misses)
	f.copied, f.limited = rate(is.Copied, was.Copied), rate(is.Limited, was.Limited)
	for i := range p.Fill.From.Servers {
		t := &p.Fill.From.Servers[i]
		if s := after.Sum.Servers[t.Network+" "+t.Address]; s != nil && s.State() == Down {
			if f.down = append(f.down, t.Name); len(f.down) == 1 {
				f.why, f.remedy = t.Name+" "+problemOf(s.Why).does, remedyFor(s.Why, t)
			}
		}
	}
	return f
}

// show adds the state of the source to the health of its pool.
func (f *filling) show(h *Health) {
	const effect = "Keys that the pool lacks miss, and commands that need their values fail. Keys that it has are not affected."
	switch {
	case len(f.down) > 0:
		why := f.why
		if len(f.down) > 1 {
			why = enumerate(f.down) + " are down"
		}
		h.warn(fmt.Sprintf("The pool fills from pool %s, where %s. %s. To go on without it, set fill_from.rate to 0. %s", f.source, why, f.remedy, effect))
	case f.failed > 0:
		h.warn(fmt.Sprintf("The pool fills from pool %s, where %s of %s reads/s fail. Check the load of its servers, and whether they can be reached from here. %s",
			f.source, Count(f.failed), Count(f.asked), effect))
	default:
		h.Text += fmt.Sprintf(" Pool %s fills from pool %s: %s reads/s there, %s hits/s, %s copies/s.", f.pool, f.source, Count(f.asked), Count(f.hits), Count(f.copied))
		if f.limited > 0 {
			h.Text += fmt.Sprintf(" %s more reads/s miss because of fill_from.rate.", Count(f.limited))
		}
	}
}
