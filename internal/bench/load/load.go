//go:build linux

// Package load drives a memcached address with requests and checks every reply; or
// several servers, with a connection of each client to each of them, among which it
// places keys itself.
//
// One thread, one epoll, no allocation per request. Keys and values follow
// from a key's number alone, so that every write is idempotent and the right
// answer to a read is known whatever ran before: each reply is parsed, the
// header of a hit (key, flags, length) is compared with the one that belongs to
// the key, and so is every byte of its value. The first wrong, lost or
// surplus reply ends the run with an error; so does a miss, because every key
// was written before the reading began. Only a Lossy load, for servers that are
// down, counts misses and SERVER_ERROR replies and goes on; what is wrong stays
// wrong there too.
//
// A run passes through these phases: connect; fill (each key is written once);
// warm (the load runs, unmeasured); the window, which is measured; drain (all
// replies that are due arrive); fence (one more exchange on each connection, so
// that a surplus reply shows).
//
// Without a rate the load is a closed loop: a connection sends a batch of Depth
// requests in one write, waits for all their replies and sends the next; with
// Sliding each reply lets the next request go. With a rate the load is an open
// loop: request i is due i/Rate after the start, goes out on the connection that
// has been free longest, and its latency counts from when it was due, whether
// or not it could be sent then.
//
// A request is what gets one answer as a whole: a multi-get of 20 keys is one, also
// when it is split by server, and so is a quiet meta batch with its mn. Of clients that
// come and go a request is a visit: connect, ask so many times, close. It is done with
// the last answer, and its latency counts from before the connect.
//
// It neither starts what it measures nor judges the figures: package bench does. It asks
// for nothing twice. It has one core: where that is too little to load the target, CPU and
// Late of the result show it.
package load

// What to send, how long, and what came out.

import (
	"fmt"
	"time"

	"ringside/internal/bench/proc"
)

// Workload is what the load sends. The zero value of a field is what it says,
// not a default.
type Workload struct {
	Conns   int     `json:"conns"`   // connections, 1 to 20,000
	Depth   int     `json:"depth"`   // requests in flight on a connection
	Keys    int     `json:"keys"`    // keys of one read; more than 1 is a multi-get
	Quiet   int     `json:"quiet"`   // keys of one quiet meta batch, for reads and writes; 0 speaks text
	Binary  bool    `json:"binary"`  // speaks the binary protocol: a multi-get is quiet gets with a noop
	Value   int     `json:"value"`   // bytes of a value
	KeySize int     `json:"keysize"` // bytes of a key, 10 to 250
	Count   int     `json:"count"`   // how many keys there are
	Reads   int     `json:"reads"`   // per cent of requests that read
	Rate    float64 `json:"rate"`    // requests a second; 0 is a closed loop
	Sliding bool    `json:"sliding"` // refill a pipeline at each reply, not when it is empty
	Visit   int     `json:"visit"`   // requests of a connection that comes and goes, one after the other; 0: connections stay
	Idle    bool    `json:"idle"`    // after one read on each connection, send nothing
	Lossy   bool    `json:"lossy"`   // misses and SERVER_ERROR replies are counted and end nothing
}

// Bounds say how long a run takes.
type Bounds struct {
	NoFill   bool          // the keys are there already
	Cut      bool          // the window's end is that of the run: what is due then is given up, and has waited so long at least
	Warm     time.Duration // load before the window
	Window   time.Duration // the measured time; it lasts until there is a reply to measure
	Requests int64         // ends the window earlier, after so many; 0 is no limit
	Timeout  time.Duration // a connect or reply that takes longer is lost; a reply within a window that is cut is not
}

// Latency is in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Process is what a watched process did in the window.
type Process struct {
	PID      int           `json:"pid"`
	CPU      time.Duration `json:"cpu_ns"`
	User     time.Duration `json:"user_ns"`      // how the kernel divides the CPU time,
	Kernel   time.Duration `json:"kernel_ns"`    // sampled at its ticks
	Switches int64         `json:"switches"`     // times its threads went to sleep
	Memory   proc.Memory   `json:"memory"`       // at the end of the window
	AnonPeak int64         `json:"anon_sampled"` // most anonymous memory seen in the window; 0 for all but the first
}

// Lost is what a lossy load was not given, from the fill to the end of the run.
type Lost struct {
	Misses     int64 `json:"misses"`      // keys asked for and not answered
	Errors     int64 `json:"errors"`      // SERVER_ERROR replies
	KeysHit    int   `json:"keys_hit"`    // keys that were always answered
	KeysMissed int   `json:"keys_missed"` // keys that never were
	KeysBoth   int   `json:"keys_both"`   // keys that sometimes were
}

// Result is what the window showed.
type Result struct {
	Seconds   float64       `json:"seconds"`
	Requests  int64         `json:"requests"`
	Reads     int64         `json:"reads"`
	Hits      int64         `json:"hits"` // keys read and found right
	Rate      float64       `json:"rate"` // requests a second
	Latency   Latency       `json:"latency_us"`
	CPU       time.Duration `json:"load_cpu_ns"`  // of the load itself
	Late      float64       `json:"late_us"`      // the worst delay of the load's own 20 ms clock
	Processes []Process     `json:"processes"`    // as watched, in order
	Cores     []proc.Core   `json:"cores"`        // what each CPU of the machine did
	Checked   int64         `json:"checked_keys"` // keys checked in the whole run
	Replies   int64         `json:"replies"`      // requests of the whole run, the fill and the fences too
	Lost      Lost          `json:"lost"`         // of a lossy load
	GivenUp   int           `json:"given_up"`     // requests that were due and had no answer when the window was cut
	Apart     *Apart        `json:"apart,omitempty"`
	Good      []int64       `json:"good"` // of a window that is cut: by connection, answers without a miss or an error
}

// Apart is the latency of reads of one server's keys, and of the others'.
type Apart struct {
	Its    Latency `json:"its_us"`
	Others Latency `json:"others_us"`
}

func (w Workload) check(b Bounds, t Target) error {
	batch := max(w.Keys, w.Quiet)
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{w.Conns < 1 || w.Conns > 20000, fmt.Sprintf("connections: %d, use 1 to 20000", w.Conns)},
		{w.Depth < 1 || w.Depth > 4096, fmt.Sprintf("pipeline depth: %d, use 1 to 4096", w.Depth)},
		{w.Keys < 1 || w.Keys > 10000, fmt.Sprintf("keys of a read: %d, use 1 to 10000", w.Keys)},
		{w.Quiet < 0 || w.Quiet > 10000, fmt.Sprintf("quiet batch: %d, use 0 to 10000", w.Quiet)},
		{w.Quiet > 0 && w.Keys > 1, "a load is multi-get or quiet meta batches, not both"},
		{w.Value < 0 || w.Value > 64<<20, fmt.Sprintf("value size: %d bytes, use 0 to 67108864", w.Value)},
		{w.KeySize < minKey || w.KeySize > 250, fmt.Sprintf("key size: %d bytes, use %d to 250", w.KeySize, minKey)},
		{w.Count < batch || w.Count > maxCount, fmt.Sprintf("number of keys: %d, use %d to %d", w.Count, batch, maxCount)},
		{w.Reads < 0 || w.Reads > 100, fmt.Sprintf("share of reads: %d per cent, use 0 to 100", w.Reads)},
		{w.Rate < 0 || w.Rate > 10e6, fmt.Sprintf("rate: %g a second, use 0 to 10000000", w.Rate)},
		{w.Binary && (w.Quiet > 0 || w.Lossy), "a binary load has neither quiet meta batches nor losses"},
		{w.Idle && w.Rate > 0, "an idle load has no rate"},
		{w.Visit < 0 || w.Visit > 1000, fmt.Sprintf("requests of a visit: %d, use 0 (connections stay) to 1000", w.Visit)},
		{w.Visit > 0 && (w.Depth > 1 || w.Keys > 1 || w.Rate > 0 || w.Quiet > 0 || w.Binary || w.Lossy || w.Idle), "visits ask for one key after the other, in text, as fast as they are answered"},
		{t.Addr == "" && (w.Keys > 1 && (w.Depth > 1 || w.Sliding) || w.Quiet > 0 || w.Binary || w.Lossy || w.Idle), "servers are asked in text, for several keys in one request at a time"},
		{t.Apart != "" && (w.Keys > 1 || w.Visit > 0), "reads of one server's keys are told apart where each asks for one key"},
		{b.Window <= 0 || b.Window > 24*time.Hour, fmt.Sprintf("duration: %v, use more than 0 and at most 24h", b.Window)},
		{b.Warm < 0 || b.Warm > time.Hour, fmt.Sprintf("warm-up: %v, use 0 to 1h", b.Warm)},
		{b.Cut && (!b.NoFill || b.Warm > 0), "a window that is cut is all of its run: no fill, and no warm-up"},
		{b.Requests < 0, fmt.Sprintf("requests: %d, use 0 (no limit) or more", b.Requests)},
		{b.Timeout <= 0 || b.Timeout > time.Hour, fmt.Sprintf("timeout: %v, use more than 0 and at most 1h", b.Timeout)},
	} {
		if rule.broken {
			return fmt.Errorf("%s", rule.text)
		}
	}
	return nil
}
