package live

// This file computes what the servers of a pool and the whole proxy did between two samples.

import (
	"math"
	"strings"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Sample is the state of a running proxy at one moment.
type Sample struct {
	At      time.Time
	Sum     *stats.Snapshot
	Servers []ServerState
	Routes  *Counts
	CPU     time.Duration // CPU time that the process has used so far
	Memory  uint64        // memory that the process uses, in bytes
	Table   *table.Table
	Gen     uint64   // number of the configuration in use
	Refused bool     // true if the configuration that was read last was rejected
	Gone    []string // Reload.Gone
	Sources []Source
}

// Tick describes what happened between two samples, and the state of the proxy at its end. Only the
// field S is about the servers of one pool.
type Tick struct {
	Moment
	Memory  uint64  `json:"rss"` // memory that the process uses, in bytes
	Gen     uint64  `json:"gen"`
	Refused bool    `json:"cfg"` // true if the configuration that was read last was rejected
	Overall         // state of all pools together
	S       Columns `json:"s"`
}

// Moment describes what the whole proxy did between two samples. Rates are per second.
type Moment struct {
	T        int64              `json:"t"`    // time of the later sample, in Unix milliseconds
	Span     int64              `json:"span"` // time between the two samples, in milliseconds
	Ops      map[string]float64 `json:"ops"`  // requests per second, by command
	Outcomes Outcomes           `json:"oc"`
	Rate     float64            `json:"rps"`  // requests per second, of all commands
	Hit      *float64           `json:"hit"`  // fraction of the requested keys that were found, 0 to 1; null: no keys were requested
	Keys     [3]float64         `json:"keys"` // requested keys per second: those that hit, missed and failed
	Latency  [3]*float64        `json:"lat"`  // 50th, 90th and 99th percentile of the latency, in microseconds; null: no requests
	Clients  int                `json:"cl"`
	InFlight int                `json:"inf"`
	BytesIn  float64            `json:"bi"`
	BytesOut float64            `json:"bo"`
	CPU      float64            `json:"cpu"` // CPU time that the process uses, as a number of CPU cores
}

// Outcomes contains requests per second, by outcome.
type Outcomes struct {
	Hit     float64 `json:"hit"`
	Miss    float64 `json:"miss"`
	Stored  float64 `json:"stored"`
	OK      float64 `json:"ok"`
	Refused float64 `json:"refused"` // requests that a server rejected (not stored, exists, not found), or that were errors of the client
	Fail    float64 `json:"fail"`    // requests without a correct reply from a server
}

// Columns describes the servers of a pool. Each field is a list with one value per server, in the
// order of the table. Servers that join are the last ones.
type Columns struct {
	State []string   `json:"st"`
	Phase []string   `json:"ph"`    // phase of each server; empty: the pool never moves keys
	Since []int64    `json:"since"` // time at which the state of each server began, in milliseconds since 1970
	Why   []string   `json:"why"`   // why each server is not up, without the name of the server; empty: no reason is known
	Order []string   `json:"ord"`   // an operator's order for each server, drain or down; empty: none
	Sure  []bool     `json:"-"`     // false if replies of the server can't be trusted now: see Failover.Unsure
	Next  []string   `json:"next"`  // next step of the keeper for each server, in words
	Rate  []float64  `json:"rps"`   // requests per second to each server, for requests of clients
	Own   []float64  `json:"own"`   // Ringside's own requests per second to each server: pings, records and repairs
	Fail  []float64  `json:"fail"`  // requests per second to each server that failed: no reply, a reply SERVER_ERROR, or not sent at all
	Cause []string   `json:"cause"` // cause of most failures of each server; empty: no failures
	P50   []*float64 `json:"p50"`   // median latency of each server, in microseconds; null: no requests
	P99   []*float64 `json:"p99"`
	Queue []int      `json:"q"`
	Conns []int      `json:"cn"`
}

// Requests returns the number of requests of all clients per second.
func (t *Moment) Requests() (n float64) {
	for _, v := range t.Ops {
		n += v
	}
	return n
}

// HitShare returns the fraction of the requested keys that were found. It returns false if no keys
// were requested.
func (t *Moment) HitShare() (float64, bool) {
	n := t.Keys[0] + t.Keys[1] + t.Keys[2]
	return t.Keys[0] / max(n, 1e-9), n > 0
}

// of returns the field of o that counts requests with the outcome out.
func (o *Outcomes) of(out stats.Outcome) *float64 {
	switch {
	case out == stats.Hit:
		return &o.Hit
	case out == stats.Miss:
		return &o.Miss
	case out == stats.Stored:
		return &o.Stored
	case out == stats.Okay:
		return &o.OK
	case out.Failed():
		return &o.Fail
	}
	return &o.Refused
}

// span returns the seconds between two samples, or a minimum if they are closer together. Rates
// over a shorter time would be meaningless.
func span(before, after *Sample) float64 {
	return max(after.At.Sub(before.At), Every/4).Seconds()
}

// between computes the part of a tick that describes the whole proxy. It leaves out the columns of
// the servers.
func between(before, after *Sample) *Tick {
	seconds := span(before, after)
	rate := func(now, then uint64) float64 { return round(float64(stats.Since(now, then)) / seconds) }
	t := &Tick{Memory: after.Memory, Gen: after.Gen, Refused: after.Refused, Moment: Moment{
		T: after.At.UnixMilli(), Span: after.At.Sub(before.At).Milliseconds(), Ops: map[string]float64{},
		Clients: after.Sum.Clients, InFlight: after.Sum.InFlight,
		BytesIn: rate(after.Sum.ClientIn, before.Sum.ClientIn), BytesOut: rate(after.Sum.ClientOut, before.Sum.ClientOut),
		CPU: math.Round(1000*(after.CPU-before.CPU).Seconds()/seconds) / 1000,
	}}
	var all stats.Histogram
	for op := range wire.NumOps {
		var n uint64
		for out := range stats.NumOutcomes {
			d := stats.Since(after.Sum.Requests[op][out], before.Sum.Requests[op][out])
			*t.Outcomes.of(out) += float64(d) / seconds
			n += d
		}
		if n > 0 {
			t.Ops[op.String()] = round(float64(n) / seconds)
			d := after.Sum.Latency[op].Since(&before.Sum.Latency[op])
			all.Add(&d)
		}
	}
	for out := range stats.NumOutcomes {
		v := t.Outcomes.of(out)
		*v = round(*v)
	}
	t.Keys = [3]float64{rate(after.Sum.KeysHit, before.Sum.KeysHit), rate(after.Sum.KeysMissed, before.Sum.KeysMissed), rate(after.Sum.KeysFailed, before.Sum.KeysFailed)}
	t.Rate = round(t.Requests())
	if hit, ok := t.HitShare(); ok {
		t.Hit = &hit
	}
	t.Latency = [3]*float64{quantile(&all, .5), quantile(&all, .9), quantile(&all, .99)}
	return t
}

// add appends the values of one server to all columns.
func (c *Columns) add(is *ServerState, before, after *Sample, target table.Target) {
	seconds := span(before, after)
	phase, next := "", ""
	if is.Failover != nil {
		phase, next = is.Failover.Phase, is.Failover.Next
	}
	var now, then stats.ServerSnapshot
	at := target.Network + " " + target.Address
	if s := after.Sum.Servers[at]; s != nil {
		now = *s
	}
	if s := before.Sum.Servers[at]; s != nil {
		then = *s
	}
	failed, cause := failures(&now, &then)
	if cause == isDown && is.State == Up && is.LoopsDown == 0 {
		cause = "it was down, and is up again"
	}
	lat := now.Latency.Since(&then.Latency)
	c.State = append(c.State, is.State)
	c.Phase = append(c.Phase, phase)
	c.Since = append(c.Since, is.Since.UnixMilli())
	c.Why = append(c.Why, unnamed(is.Why))
	c.Order = append(c.Order, is.Order)
	c.Next = append(c.Next, next)
	c.Sure = append(c.Sure, is.Failover == nil || !is.Failover.Unsure)
	own := stats.Since(now.Own, then.Own)
	c.Rate = append(c.Rate, round(float64(stats.Since(now.Requests, then.Requests)-own)/seconds))
	c.Own = append(c.Own, round(float64(own)/seconds))
	c.Fail = append(c.Fail, round(float64(failed)/seconds))
	c.Cause = append(c.Cause, cause)
	c.P50 = append(c.P50, quantile(&lat, .5))
	c.P99 = append(c.P99, quantile(&lat, .99))
	c.Queue = append(c.Queue, now.Waiting)
	c.Conns = append(c.Conns, now.Conns)
}

// isDown is the cause of requests that were not sent because the server was down.
const isDown = "it is down; check that memcached runs there"

// failures returns how many requests to a server failed between two snapshots, and why most of them
// failed.
func failures(now, then *stats.ServerSnapshot) (sum uint64, cause string) {
	var most uint64
	for _, one := range []struct {
		now, then uint64
		cause     string
	}{
		{now.TimedOut, then.TimedOut, "no answer in time; check its load and the network"},
		{now.Failed - now.TimedOut, then.Failed - then.TimedOut, "lost connections; check its log and what is between"},
		{now.Refused, then.Refused, isDown},
		{now.Errors, then.Errors, repliesError(now.Error)},
		{now.QueueFull, then.QueueFull, "its queue is full; see the pool's queue"},
		{now.Shed, then.Shed, "limits.memory is reached"},
		{now.Overridden, then.Overridden, "an operator drained it; ringside server restore ends that"},
	} {
		n := stats.Since(one.now, one.then)
		if sum += n; n > most {
			most, cause = n, one.cause
		}
	}
	return sum, cause
}

// repliesError describes a server that replies with an error line, and what to do.
func repliesError(line string) string {
	remedy := "check its memory and its log"
	if strings.Contains(line, "too large") {
		remedy = "check its item size limit, memcached's -I"
	}
	return "it replies " + Clean(line) + "; " + remedy
}

// byOperator reports whether server i gets no requests because of an operator's order.
func (c *Columns) byOperator(i int) bool {
	return c.State[i] == Drained || c.State[i] == Down && i < len(c.Order) && c.Order[i] != ""
}

// round rounds v to tenths. More digits would only make the JSON longer.
func round(v float64) float64 { return math.Round(10*v) / 10 }

// quantile returns the quantile q of a histogram in microseconds. It returns nil if the histogram
// is empty.
func quantile(h *stats.Histogram, q float64) *float64 {
	if h.Count() == 0 {
		return nil
	}
	return new(round(float64(h.Quantile(q)) / 1000))
}
