package stats

// This file formats statistics as STAT lines.

import (
	"cmp"
	"strconv"
)

// Report appends lines of the form STAT <prefix><name> <value> to Dst.
type Report struct {
	Dst    []byte
	Prefix string
}

// Text appends a line with a text as value.
func (r *Report) Text(name, value string) { r.Dst = AppendStat(r.Dst, r.Prefix+name, value) }

// Count appends a line with a number as value.
func (r *Report) Count(name string, n uint64) { r.Text(name, Decimal(n)) }

// Int appends a line with a number as value. A negative number becomes 0.
func (r *Report) Int(name string, n int) { r.Count(name, uint64(max(n, 0))) }

// Percent appends a line with a percentage as value. share is a fraction from 0 to 1.
func (r *Report) Percent(name string, share float64) {
	r.Text(name, strconv.FormatFloat(100*share, 'f', 2, 64))
}

// Latency appends lines with the median and the 99th percentile of h in microseconds. It appends
// nothing if h is empty.
func (r *Report) Latency(name string, h *Histogram) {
	if h.Count() > 0 {
		r.Count(name+"p50_us", h.Quantile(0.50)/1000)
		r.Count(name+"p99_us", h.Quantile(0.99)/1000)
	}
}

// Figures appends a line for each value in list that has a name in the replies to stats commands,
// and two lines for a histogram.
func (r *Report) Figures(list []Figure) {
	for _, f := range list {
		switch v := f.Value.(type) {
		case *Histogram:
			r.Latency(f.Stat, v)
		case uint64:
			r.named(f.Stat, v)
		case int:
			r.named(f.Stat, uint64(max(v, 0)))
		case int64:
			r.named(f.Stat, uint64(max(v, 0)))
		}
	}
}

// named appends a line with a number as value, if name is not empty.
func (r *Report) named(name string, n uint64) {
	if name != "" {
		r.Count(name, n)
	}
}

// Quantile returns the quantile q of the durations, in nanoseconds. The result is the upper bound
// of a bucket, so it is up to 19 % too high.
func (h *Histogram) Quantile(q float64) uint64 {
	rank, seen := uint64(q*float64(h.Count())), uint64(0)
	for i, n := range h.Buckets {
		if seen += n; seen > rank {
			return Bound(i)
		}
	}
	return Bound(len(h.Buckets) - 1)
}

// State returns whether the loops use the server: unknown, up or down.
func (t *ServerSnapshot) State() string {
	switch {
	case t.Down > 0:
		return "down"
	case t.Known:
		return "up"
	}
	return "unknown" // it has neither replied nor failed yet
}

// Report appends lines with the server's state and counters to a reply to `stats servers`.
func (t *ServerSnapshot) Report(r *Report) {
	r.Text("state", t.State())
	if t.Down > 0 {
		r.Text("why", t.Why)
		r.Int("loops_down", t.Down)
	}
	r.Text("version", cmp.Or(t.Version, "unknown"))
	r.Figures(t.Figures())
}
