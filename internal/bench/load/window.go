//go:build linux

package load

// This file has the measured window: what is counted between the end of the warm-up and the end of
// the measuring phase.

import (
	"fmt"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

type window struct {
	clock func() int64
	watch []int

	requests, reads, hits int64
	latency               *hdrhistogram.Histogram // latencies of all requests, in nanoseconds
	apart, others         *hdrhistogram.Histogram // latencies in nanoseconds of reads of one server's keys (apart), and of all other reads (others); nil: reads are not separated
	givenUp               int
	good                  []int64

	from, to  int64 // times at which the measured window began and ended, in nanoseconds since the loop began
	cpu       time.Duration
	processes []Process
	cores     []Core

	firstTick int64 // time at which the timer was started, in nanoseconds since the loop began
	tickCount int64 // number of times that the timer has expired
	late      int64 // greatest delay of the timer in the measured window, in nanoseconds
}

func newWindow(l *loop, watch []int, apart bool) window {
	latencies := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(10*time.Minute), 3) }
	w := window{clock: l.clock, watch: watch, latency: latencies(), processes: make([]Process, len(watch))}
	if apart {
		w.apart, w.others = latencies(), latencies()
	}
	return w
}

// tick records the delay of the timer. The timer expired `rings` times since tick was called last.
// tick also samples the memory of the first watched process.
func (w *window) tick(now, rings int64, measuring bool) {
	missed := w.firstTick + (w.tickCount+1)*int64(period)
	w.tickCount += rings
	if !measuring {
		return
	}
	w.late = max(w.late, now-missed)
	if len(w.watch) > 0 {
		if m, err := ReadMemory(w.watch[0]); err == nil {
			w.processes[0].AnonPeak = max(w.processes[0].AnonPeak, m.Anon)
		}
	}
}

// record counts a request that has its reply. apart is true if the request read a key of the server
// that is measured separately. Requests that were due before w.from do not count for the latency.
// They are late because begin stops the load while it reads counters.
func (w *window) record(r request, hits int, apart bool, now int64) {
	w.requests++
	reads := r.kind == get || r.kind == quietGets
	if reads {
		w.reads++
		w.hits += int64(hits)
	}
	if r.start < w.from {
		return
	}
	w.waited(now - r.start)
	if reads && w.apart != nil {
		into := w.others
		if apart {
			into = w.apart
		}
		_ = into.RecordValue(min(max(1, now-r.start), into.HighestTrackableValue()))
	}
}

// waited records the wait of a request in nanoseconds. A wait of more than ten minutes counts as
// ten minutes, the largest value of the histogram. The timeout usually ends waits within seconds.
func (w *window) waited(ns int64) {
	_ = w.latency.RecordValue(min(max(1, ns), w.latency.HighestTrackableValue()))
}

// shows reports whether there is a latency to report. On a busy machine a short window may end
// before its first reply. It is then extended until a reply arrives or the timeout ends the run.
func (w *window) shows(idle bool) bool { return idle || w.latency.TotalCount() > 0 }

// begin reads all counters at the beginning of the measured window, the slow ones first.
func (w *window) begin() error {
	if err := w.read(-1); err != nil {
		return err
	}
	w.from = w.clock()
	return nil
}

// end reads all counters at the end of the measured window and keeps the differences to the
// beginning. It reads the clock before the counters.
func (w *window) end() error {
	w.to = w.clock()
	return w.read(1)
}

// read multiplies the current counters of the system by sign and adds them to w. sign is -1 at the
// beginning of the window and 1 at the end, so the differences remain. CPU times are read closest
// to the window: last at its beginning, first at its end.
func (w *window) read(sign int64) error {
	cpu := func() error {
		own, err := CPU(os.Getpid())
		w.cpu += time.Duration(sign) * own
		for i, pid := range w.watch {
			used, e := CPU(pid)
			if e != nil {
				err = e
			}
			w.processes[i].CPU += time.Duration(sign) * used
			user, kernel, e := Times(pid)
			if e != nil {
				err = e
			}
			w.processes[i].User += time.Duration(sign) * user
			w.processes[i].Kernel += time.Duration(sign) * kernel
		}
		return err
	}
	if sign > 0 {
		if err := cpu(); err != nil {
			return err
		}
	}
	for i, pid := range w.watch {
		p := &w.processes[i]
		switches, err := Switches(pid)
		if err != nil {
			return err
		}
		p.PID, p.Switches = pid, p.Switches+sign*switches
		if p.Memory, err = ReadMemory(pid); err != nil {
			return fmt.Errorf("memory of process %d: %w", pid, err)
		}
	}
	cores, err := Cores()
	if err != nil {
		return err
	}
	if sign < 0 {
		w.cores = cores
		return cpu()
	}
	for i := range min(len(cores), len(w.cores)) {
		w.cores[i] = cores[i].Minus(w.cores[i])
	}
	if len(w.processes) > 0 {
		w.processes[0].AnonPeak = max(w.processes[0].AnonPeak, w.processes[0].Memory.Anon)
	}
	return nil
}

func (w *window) result() Result {
	seconds := time.Duration(w.to - w.from).Seconds()
	micro := func(ns int64) float64 { return float64(ns) / 1e3 }
	summed := func(h *hdrhistogram.Histogram) Latency {
		return Latency{
			P50:  micro(h.ValueAtQuantile(50)),
			P99:  micro(h.ValueAtQuantile(99)),
			P999: micro(h.ValueAtQuantile(99.9)),
			Max:  micro(h.Max()),
			Mean: h.Mean() / 1e3,
		}
	}
	var apart *Apart
	if w.apart != nil {
		apart = &Apart{Its: summed(w.apart), Others: summed(w.others)}
	}
	return Result{
		Seconds:   seconds,
		Requests:  w.requests,
		Reads:     w.reads,
		Hits:      w.hits,
		Rate:      float64(w.requests) / seconds,
		Latency:   summed(w.latency),
		Apart:     apart,
		CPU:       w.cpu,
		Late:      micro(w.late),
		Processes: w.processes,
		Cores:     w.cores,
		GivenUp:   w.givenUp,
		Good:      w.good,
	}
}
