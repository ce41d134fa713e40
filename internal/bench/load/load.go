//go:build linux

// Package load sends requests to a memcached address and checks every reply. It can also place keys
// itself on several servers; each client then has a connection to each server.
//
// It uses one thread and one epoll set, and does not allocate memory per request. Keys and values
// are derived from a key's number alone. So every write is idempotent, and the right reply to a
// read is known regardless of earlier runs. Each reply is parsed. The header of a hit (key, flags,
// length) and every byte of its value must match the key. The first wrong, lost or surplus reply
// ends the run with an error. So does a miss, because every key is written before it is read. Only
// a Lossy load, for servers that are down, counts misses and SERVER_ERROR replies and continues.
// Wrong replies end it, too.
//
// The phases of a run are: connect; fill (each key is written once); warm (the load runs,
// unmeasured); the window, which is measured; drain (all due replies arrive); fence (one more
// request on each connection, to detect a surplus reply).
//
// Without a rate the load is a closed loop: a connection sends a batch of Depth requests in one
// write, waits for all their replies and sends the next batch. With a rate the load is an open
// loop: request i is due i/Rate after the start and is sent on the connection that has been free
// longest. Its latency counts from its due time, even if it had to wait for a free connection.
//
// A multi-get of 20 keys counts as one request, even if it is split by server. With Visit, a
// request is a whole visit: connect, some requests, close. It ends with the last reply, and its
// latency counts from before the connect.
//
// The package neither starts what it measures nor judges the figures: package bench does. It never
// retries a request. It uses one CPU. If that is too little to saturate the target, CPU and Late of
// the result show it.
package load

// This file defines what the load sends, for how long, and the result.

import (
	"fmt"
	"time"
)

// Workload is what the load sends. A zero field means zero, not a default.
type Workload struct {
	Conns   int     // number of connections, 1 to 20,000
	Depth   int     // number of requests in flight on a connection
	Keys    int     // number of keys of one read; more than 1: a multi-get
	Value   int     // length of a value in bytes
	KeySize int     // length of a key in bytes, 10 to 250
	Count   int     // number of keys
	Reads   int     // per cent of requests that are reads
	Rate    float64 // requests per second in an open loop; 0: closed loop
	Visit   int     // number of requests on a connection, one after the other, before it is closed; 0: connections stay open
	Lossy   bool    // true if misses and SERVER_ERROR replies are counted and do not end the run
}

// Bounds limits the time of a run.
type Bounds struct {
	NoFill   bool          // true if the keys are already written, so that they are not written first
	Warm     time.Duration // how long the load runs before the measured window
	Window   time.Duration // length of the measured window; the window is extended if it has no reply yet
	Requests int64         // the measured window ends after this number of requests, even if its time is not over; 0: no limit
	Timeout  time.Duration // longest time for a connect or a reply
}

// Result is what was measured during the measured window of a run.
type Result struct {
	Seconds   float64       `json:"seconds"`
	Requests  int64         `json:"requests"`
	Reads     int64         `json:"reads"`
	Rate      float64       `json:"rate"`            // requests per second
	P50       float64       `json:"p50_us"`          // median latency in microseconds
	P99       float64       `json:"p99_us"`          // 99th percentile of the latency in microseconds
	CPU       time.Duration `json:"load_cpu_ns"`     // CPU time of the load generator itself
	Late      float64       `json:"late_us"`         // greatest delay of the load generator's own timer of 20 ms, in microseconds
	Processes []Process     `json:"processes"`       // the watched processes, in the order in which they were passed to Run
	Cores     []Core        `json:"cores"`           // usage of each CPU of the machine
	Checked   int64         `json:"checked_keys"`    // number of keys with a checked value, in all phases of the run
	Replies   int64         `json:"replies"`         // number of requests with a reply in all phases of the run
	Lost      Lost          `json:"lost"`            // misses and errors, if the load is lossy
	From      time.Time     `json:"from"`            // time at which the window began
	Steps     []int64       `json:"steps,omitempty"` // number of replies in each Step of the window, if the load is lossy
}

// Step is the length of the steps in which replies are counted.
const Step = 100 * time.Millisecond

// Lost counts the misses and errors of a lossy load, from the fill to the end of the run.
type Lost struct {
	Misses int64 `json:"misses"` // number of keys that were read and had no value in the reply
	Errors int64 `json:"errors"` // number of SERVER_ERROR replies
}

func (w Workload) check(b Bounds, t Target) error {
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{w.Conns < 1 || w.Conns > 20000, fmt.Sprintf("connections: %d, use 1 to 20000", w.Conns)},
		{w.Depth < 1 || w.Depth > 4096, fmt.Sprintf("pipeline depth: %d, use 1 to 4096", w.Depth)},
		{w.Keys < 1 || w.Keys > 10000, fmt.Sprintf("keys of a read: %d, use 1 to 10000", w.Keys)},
		{w.Value < 0 || w.Value > 64<<20, fmt.Sprintf("value size: %d bytes, use 0 to 67108864", w.Value)},
		{w.KeySize < minKey || w.KeySize > 250, fmt.Sprintf("key size: %d bytes, use %d to 250", w.KeySize, minKey)},
		{w.Count < w.Keys || w.Count > maxCount, fmt.Sprintf("number of keys: %d, use %d to %d", w.Count, w.Keys, maxCount)},
		{w.Reads < 0 || w.Reads > 100, fmt.Sprintf("share of reads: %d per cent, use 0 to 100", w.Reads)},
		{w.Rate < 0 || w.Rate > 10e6, fmt.Sprintf("rate: %g a second, use 0 to 10000000", w.Rate)},
		{w.Visit < 0 || w.Visit > 1000, fmt.Sprintf("requests of a visit: %d, use 0 (connections stay) to 1000", w.Visit)},
		{w.Visit > 0 && (w.Depth > 1 || w.Keys > 1 || w.Rate > 0 || w.Lossy), "visits ask for one key after the other, as fast as they are answered"},
		{t.Addr == "" && (w.Keys > 1 && w.Depth > 1 || w.Lossy), "servers are asked directly for several keys in one request at a time, and without losses"},
		{b.Window <= 0 || b.Window > 24*time.Hour, fmt.Sprintf("duration: %v, use more than 0 and at most 24h", b.Window)},
		{b.Warm < 0 || b.Warm > time.Hour, fmt.Sprintf("warm-up: %v, use 0 to 1h", b.Warm)},
		{b.Requests < 0, fmt.Sprintf("requests: %d, use 0 (no limit) or more", b.Requests)},
		{b.Timeout <= 0 || b.Timeout > time.Hour, fmt.Sprintf("timeout: %v, use more than 0 and at most 1h", b.Timeout)},
	} {
		if rule.broken {
			return fmt.Errorf("%s", rule.text)
		}
	}
	return nil
}
