package stats

// This file formats statistics as STAT lines.

import "strconv"

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

// Report appends lines with the server's state and counters to a reply to `stats servers`.
func (t *ServerSnapshot) Report(r *Report) {
	state, version := "unknown", t.Version
	switch {
	case t.Down > 0:
		state = "down"
	case t.Known:
		state = "up"
	}
	if version == "" {
		version = "unknown"
	}
	r.Text("state", state)
	if t.Down > 0 {
		r.Text("why", t.Why)
		r.Int("loops_down", t.Down)
	}
	r.Text("version", version)
	r.Int("connections", t.Conns)
	r.Int("waiting", t.Waiting)
	r.Count("requests", t.Requests)
	r.Count("failed", t.Failed)
	r.Count("timed_out", t.TimedOut)
	r.Int("timeouts_in_a_row", t.Timeouts)
	r.Count("server_errors", t.Errors)
	r.Count("refused", t.Refused)
	r.Count("queue_full", t.ServerCounters.QueueFull)
	r.Count("shed", t.Shed)
	r.Count("undone", t.LateDeletes)
	r.Count("undo_lost", t.LateDeletesLost)
	r.Int("zombies", t.Lingering)
	r.Count("ordered", t.Overridden)
	r.Count("dials", t.Dials)
	r.Count("lost", t.ServerCounters.Lost)
	r.Count("closed_idle", t.ClosedIdle)
	r.Count("dead_by_ping", t.DeadByPing)
	r.Count("dead_by_request", t.DeadByRequest)
	r.Count("reads_resent", t.ReadsResent)
	r.Count("went_down", t.WentDown)
	r.Count("bytes_read", t.BytesIn)
	r.Count("bytes_written", t.BytesOut)
	r.Latency("latency_", &t.Latency)
}
