package proxy

// Statistics as lines.

// report appends lines STAT <prefix><name> <value>.
type report struct {
	dst    []byte
	prefix string
}

func (r *report) text(name, value string) { r.dst = appendStat(r.dst, r.prefix+name, value) }

func (r *report) count(name string, n uint64) { r.text(name, decimal(n)) }

// int takes what is never negative.
func (r *report) int(name string, n int) { r.count(name, uint64(max(n, 0))) }

// latency reports quantiles in microseconds, once there is something to tell.
func (r *report) latency(name string, h *Histogram) {
	if h.Count() > 0 {
		r.count(name+"p50_us", h.quantile(0.50)/1000)
		r.count(name+"p99_us", h.quantile(0.99)/1000)
	}
}

// quantile is a bound in nanoseconds that the fraction q of the durations is
// under, 19 % above the truth at most.
func (h *Histogram) quantile(q float64) uint64 {
	rank, seen := uint64(q*float64(h.Count())), uint64(0)
	for i, n := range h.Buckets {
		if seen += n; seen > rank {
			return Bound(i)
		}
	}
	return Bound(len(h.Buckets) - 1)
}

func (t *ServerSnapshot) report(r *report) {
	state, version := "up", t.Version
	if t.Down > 0 {
		state = "down"
	}
	if version == "" {
		version = "unknown"
	}
	r.text("state", state)
	if t.Down > 0 {
		r.text("why", t.Why)
		r.int("loops_down", t.Down)
	}
	r.text("version", version)
	r.int("connections", t.Conns)
	r.int("waiting", t.Waiting)
	r.count("requests", t.Requests)
	r.count("failed", t.Failed)
	r.count("timed_out", t.TimedOut)
	r.int("timeouts_in_a_row", t.Timeouts)
	r.count("refused", t.Refused)
	r.count("crowded", t.ServerCounters.Crowded)
	r.count("shed", t.Shed)
	r.count("undone", t.Undone)
	r.count("undo_lost", t.UndoLost)
	r.int("zombies", t.Zombies)
	r.count("ordered", t.Ordered)
	r.count("dials", t.Dials)
	r.count("lost", t.ServerCounters.Lost)
	r.count("closed_idle", t.ClosedIdle)
	r.count("went_down", t.WentDown)
	r.count("bytes_read", t.BytesIn)
	r.count("bytes_written", t.BytesOut)
	r.latency("latency_", &t.Latency)
}
