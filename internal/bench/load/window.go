//go:build linux

package load

// This file has the measured window: what is counted between the end of the warm-up and the end of
// the measuring phase.

import (
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

type window struct {
	clock func() int64
	lossy bool

	requests, reads int64
	steps           []int64                 // number of replies in each Step of the window; only of a lossy load
	latency         *hdrhistogram.Histogram // latencies of all requests, in nanoseconds

	from, to  int64 // times at which the measured window began and ended, in nanoseconds since the loop began
	own       Process
	processes []Process
	cores     []Core

	firstTick int64 // time at which the timer was started, in nanoseconds since the loop began
	tickCount int64 // number of times that the timer has expired
	late      int64 // greatest delay of the timer in the measured window, in nanoseconds
}

func newWindow(l *loop, watch []int) window {
	w := window{clock: l.clock, latency: hdrhistogram.New(1, int64(10*time.Minute), 3), own: Process{PID: os.Getpid()}}
	for _, pid := range watch {
		w.processes = append(w.processes, Process{PID: pid})
	}
	return w
}

// tick records the delay of the timer. The timer expired `rings` times since tick was called last.
func (w *window) tick(now, rings int64, measuring bool) {
	missed := w.firstTick + (w.tickCount+1)*int64(period)
	w.tickCount += rings
	if measuring {
		w.late = max(w.late, now-missed)
	}
}

// record counts a request that has its reply. Requests that were due before w.from do not count for
// the latency. They are late because begin stops the load while it reads counters. A wait of more
// than ten minutes counts as ten minutes, the largest value of the histogram.
func (w *window) record(r request, now int64) {
	w.requests++
	if r.kind == get {
		w.reads++
	}
	if w.lossy {
		w.extend(now)
		w.steps[len(w.steps)-1]++
	}
	if r.start >= w.from {
		_ = w.latency.RecordValue(min(max(1, now-r.start), w.latency.HighestTrackableValue()))
	}
}

// extend adds the steps of the window up to the given time.
func (w *window) extend(now int64) {
	for int64(len(w.steps)) <= (now-w.from)/int64(Step) {
		w.steps = append(w.steps, 0)
	}
}

// begin reads all counters at the beginning of the measured window.
func (w *window) begin() error {
	if err := w.read(); err != nil {
		return err
	}
	w.from = w.clock()
	return nil
}

// end reads all counters at the end of the measured window and keeps the differences to the
// beginning. It reads the clock before the counters.
func (w *window) end() error {
	w.to = w.clock()
	if w.lossy {
		w.extend(w.to)
	}
	return w.read()
}

// read replaces each counter of w by its present value minus the old one. A counter is 0 before the
// first call, so the difference remains after the second call.
func (w *window) read() (err error) {
	cores, err := Cores()
	if err != nil {
		return err
	}
	for i := range min(len(cores), len(w.cores)) {
		cores[i] = cores[i].Minus(w.cores[i])
	}
	w.cores = cores
	for i := range w.processes {
		if w.processes[i], err = w.processes[i].since(); err != nil {
			return err
		}
	}
	w.own, err = w.own.since()
	return err
}

func (w *window) result() Result {
	seconds := time.Duration(w.to - w.from).Seconds()
	micro := func(ns int64) float64 { return float64(ns) / 1e3 }
	return Result{
		Seconds:   seconds,
		Requests:  w.requests,
		Reads:     w.reads,
		Rate:      float64(w.requests) / seconds,
		P50:       micro(w.latency.ValueAtQuantile(50)),
		P99:       micro(w.latency.ValueAtQuantile(99)),
		CPU:       w.own.CPU,
		Late:      micro(w.late),
		Processes: w.processes,
		Cores:     w.cores,
		Steps:     w.steps,
	}
}
