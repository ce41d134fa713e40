//go:build linux

package bench

// This file runs the soak: a mixed load for a long time, while servers are killed and restarted. It
// checks whether Ringside's memory grows.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"ringside/internal/bench/load"
)

// Limits of how much Ringside's resources may grow during a soak. They allow for differences
// between two garbage collections. A leak during millions of requests and thousands of connections
// exceeds them.
const (
	soakAnonShare      = 1.1
	soakAnonBytes      = 4e6
	soakHeapBytes      = 1e6
	soakGoroutines     = 2
	soakDescriptors    = 4
	soakLeastLength    = 10 * time.Second
	soakSampleInterval = 10 * time.Second
	soakProgressShare  = 50 // a progress line is written each time when 1/soakProgressShare of the soak is done
)

// soakLoads are the loads of the soak. The first one runs all the time, and the others run once in
// each leg. Each load has another key size, and so its own keys. Values are smaller than those that
// Ringside streams: if a streamed value is cut off, Ringside must close the client.
func soakLoads() []scenario {
	mix := []scenario{
		{ID: "steady", Work: load.Workload{Conns: 50, Depth: 4, Keys: 1, Value: 100, KeySize: 20, Count: 10000, Reads: 90, Rate: 2000}},
		{ID: "pipelines", Work: load.Workload{Conns: 50, Depth: 16, Keys: 1, Value: 100, KeySize: 24, Count: 10000, Reads: 80, Sliding: true}},
		{ID: "multi-gets", Work: load.Workload{Conns: 20, Depth: 1, Keys: 20, Value: 500, KeySize: 28, Count: 5000, Reads: 50, Rate: 500}},
		{ID: "quiet meta batches", Work: load.Workload{Conns: 20, Depth: 2, Keys: 1, Quiet: 50, Value: 100, KeySize: 32, Count: 5000, Reads: 50, Rate: 100}},
		{ID: "large values", Work: load.Workload{Conns: 10, Depth: 1, Keys: 1, Value: 32 << 10, KeySize: 36, Count: 500, Reads: 50, Rate: 200}},
		{ID: "crowd", Work: load.Workload{Conns: 500, Depth: 1, Keys: 1, Value: 1000, KeySize: 40, Count: 5000, Reads: 70, Rate: 1000}},
	}
	for i := range mix {
		mix[i].Work.Lossy = true
	}
	return mix
}

type soak struct {
	*bench
	target  *child
	servers []*child
	out     *Soak
	began   time.Time
	ticks   <-chan time.Time
	ended   chan ended
	running int
	loads   sync.WaitGroup
	said    time.Duration // time of the last progress line, measured from the start of the soak
}

// ended is the result of one load that has finished.
type ended struct {
	name   string
	result load.Result
	err    error
}

// RunSoak runs a mixed load on Ringside for the given time. The time has legs. In every leg one
// server is killed and restarted empty; the first server always runs. Ringside uses its default
// timeouts here.
func RunSoak(ctx context.Context, c Config, length time.Duration) (*Report, error) {
	if length < soakLeastLength {
		return nil, fmt.Errorf("a soak of %v shows nothing: use at least %v", length, soakLeastLength)
	}
	b, err := c.open(ctx, "ringside")
	if err != nil {
		return nil, err
	}
	defer b.close()
	if len(b.peers) == 0 {
		return nil, errors.New("there is nothing to soak: name Ringside's binary")
	}
	b.timeout, b.peers[0].Note = 0, "least configuration, ketama"
	s := &soak{bench: b, servers: b.pool.Processes, ended: make(chan ended)}
	ctx, stop := context.WithCancel(ctx)
	defer func() { // stops the loads that still run, too
		stop()
		s.loads.Wait()
	}()
	b.pool.Processes = nil // the soak restarts these processes, so the loads must not measure them
	defer func() { Pool{Processes: s.servers}.Stop() }()
	if s.target, err = b.start(ctx, b.peers[0], scenario{}); err != nil {
		return nil, err
	}
	defer s.target.Stop()

	leg := min(30*time.Second, max(soakLeastLength/8, length/20))
	s.out = &Soak{Length: length, Leg: leg, Outage: min(3*time.Second, leg/4)}
	r := b.newReport()
	r.Soak = s.out
	ticker := time.NewTicker(min(soakSampleInterval, leg/3))
	defer ticker.Stop()
	s.began, s.ticks = time.Now(), ticker.C
	if err := s.run(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		s.out.Failed = append(s.out.Failed, err.Error())
	}
	s.judge()
	return b.finish(r), nil
}

func (s *soak) run(ctx context.Context) error {
	mix := soakLoads()
	for _, l := range mix {
		s.out.Loads = append(s.out.Loads, &Soaked{Name: l.ID})
	}
	s.launch(ctx, mix[0], s.out.Length)
	for leg := 0; time.Since(s.began) < s.out.Length-s.out.Leg/2; leg++ {
		began := time.Now()
		for _, l := range mix[1:] {
			l.filled = leg > 0 // from the second leg on the load does not write its keys first, so it counts the keys of killed servers as misses
			s.launch(ctx, l, s.out.Leg)
		}
		victim := 1 + leg%(len(s.servers)-1)
		if err := s.wait(ctx, began.Add(s.out.Leg/3)); err != nil {
			return err
		}
		s.servers[victim].Stop()
		s.out.Kills++
		if err := s.wait(ctx, began.Add(s.out.Leg/3+s.out.Outage)); err != nil {
			return err
		}
		again, err := s.starter.StartMemcached(ctx, s.Memcached, s.servers[victim].Name, []int{s.servers[victim].Port}, s.LoadCPUs)
		if err != nil {
			return err
		}
		s.servers[victim] = again
		if err := s.rest(ctx, 1, mix[0].Work.Conns); err != nil {
			return err
		}
		if err := s.sample(ctx, true); err != nil {
			return err
		}
		last := s.out.Samples[len(s.out.Samples)-1]
		s.Log.Info("rest", "leg", leg+1, "at", last.At.Round(time.Second), "anon", megabytes(last.Anon), "heap", megabytes(last.Heap), "goroutines", last.Goroutines, "descriptors", last.Descriptors)
	}
	if err := s.rest(ctx, 0, 0); err != nil {
		return err
	}
	if err := s.allThere(ctx); err != nil {
		return err
	}
	return s.account(ctx)
}

// launch starts a load of the soak in its own goroutine.
func (s *soak) launch(ctx context.Context, l scenario, window time.Duration) {
	s.running++
	s.loads.Go(func() {
		result, err := s.load(ctx, s.target, l, window)
		select {
		case s.ended <- ended{l.ID, result, err}:
		case <-ctx.Done(): // the soak has ended, so the result of this load is not needed
		}
	})
}

// wait takes samples of Ringside's resources until the given time.
func (s *soak) wait(ctx context.Context, until time.Time) error {
	alarm := time.After(time.Until(until))
	for {
		rang, err := s.next(ctx, alarm)
		if rang || err != nil {
			return err
		}
	}
}

// rest waits until no more than the given number of loads run. It then waits until Ringside has no
// more than the given number of client connections.
func (s *soak) rest(ctx context.Context, loads, clients int) error {
	for s.running > loads {
		if _, err := s.next(ctx, nil); err != nil {
			return err
		}
	}
	const patience = 10 * time.Second
	for began := time.Now(); ; {
		m, err := readMetrics(ctx, s.target)
		if err != nil {
			return err
		}
		open := int(m.Sum("ringside_client_connections"))
		if open <= clients {
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%d clients are connected %v after all but %d went", open, patience, clients)
		}
		if err := s.wait(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return err
		}
	}
}

// next waits for one event: the alarm, the time of a sample, or the end of a load. rang is true
// after the alarm.
func (s *soak) next(ctx context.Context, alarm <-chan time.Time) (rang bool, err error) {
	select {
	case <-alarm:
		return true, nil
	case <-s.ticks:
		return false, s.sample(ctx, false)
	case e := <-s.ended:
		s.running--
		if e.err != nil {
			return false, fmt.Errorf("load %q: %w", e.name, s.target.Blame(e.err))
		}
		i := slices.IndexFunc(s.out.Loads, func(l *Soaked) bool { return l.Name == e.name })
		l, r := s.out.Loads[i], e.result
		l.Runs++
		l.Replies += r.Replies
		l.Checked += r.Checked
		l.Misses += r.Lost.Misses
		l.Errors += r.Lost.Errors
		return false, nil
	case <-s.target.Ended:
		return false, s.target.Blame(errors.New("it ended"))
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (s *soak) sample(ctx context.Context, rest bool) error {
	if rest {
		// A request for this page forces a garbage collection, so that only live memory is left.
		// The profile on the page is not used.
		if _, err := fetch(ctx, s.target, "/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
	}
	m, err := readMetrics(ctx, s.target)
	if err != nil {
		return err
	}
	memory, err := load.ReadMemory(s.target.PID())
	if err != nil {
		return err
	}
	descriptors, err := load.Descriptors(s.target.PID())
	if err != nil {
		return err
	}
	x := Sample{
		At: time.Since(s.began), Rest: rest, Anon: memory.Anon, Descriptors: descriptors,
		Goroutines: int(m.Sum("go_goroutines")), Clients: int(m.Sum("ringside_client_connections")),
	}
	if rest {
		x.Heap = int64(m.Sum("go_memstats_heap_alloc_bytes"))
	}
	s.out.Samples = append(s.out.Samples, x)
	s.progress(x)
	return nil
}

// progress writes a line about the progress of the soak to the log if the last such line is old
// enough.
func (s *soak) progress(x Sample) {
	if x.At-s.said < s.out.Length/soakProgressShare {
		return
	}
	s.said = x.At
	done, misses, errors := int64(0), int64(0), int64(0)
	for _, l := range s.out.Loads {
		done, misses, errors = done+l.Replies, misses+l.Misses, errors+l.Errors
	}
	s.Log.Info("soaking", "gone", x.At.Round(time.Second), "of", s.out.Length, "kills", s.out.Kills, "loads", s.running, "clients", x.Clients,
		"anon", megabytes(x.Anon), "replies_of_ended_loads", done, "misses", misses, "errors", errors)
}

// allThere writes keys and reads them back while every server is up, and checks that no read
// misses. It tries up to three times, because the machine may stall.
func (s *soak) allThere(ctx context.Context) error {
	after := soakLoads()[0]
	var lost load.Lost
	for range 3 {
		got, err := s.load(ctx, s.target, after, time.Second)
		if err != nil {
			return s.target.Blame(err)
		}
		if lost = got.Lost; lost.Misses == 0 && lost.Errors == 0 {
			return nil
		}
	}
	return s.target.Blame(fmt.Errorf("with every server up again %d keys missed and %d requests failed", lost.Misses, lost.Errors))
}

// account reads Ringside's metrics and records what failed during the soak.
func (s *soak) account(ctx context.Context) error {
	m, err := readMetrics(ctx, s.target)
	if err != nil {
		return err
	}
	fail := func(n float64, what string) {
		if n > 0 {
			s.out.Failed = append(s.out.Failed, fmt.Sprintf("%g %s", n, what))
		}
	}
	fail(m.Sum("ringside_desyncs_total"), "replies could not be paired with a request")
	fail(m.Sum("ringside_client_connections_closed_total"), "clients were closed by Ringside")
	fail(m.Sum("ringside_client_connections_refused_total"), "clients were refused")
	fail(m.Sum("ringside_values_refused_total"), "values were refused")
	untouched := fmt.Sprintf("address=%q", s.servers[0].Addr())
	late := m.Sum("ringside_server_requests_timed_out_total", untouched)
	if late == 0 { // Only without timeouts is a failed request an error. A server that is slow counts as down, and further requests to it fail.
		fail(m.Sum("ringside_server_requests_failed_total", untouched), "requests failed on the server that was never killed")
	} else {
		s.out.Notes = append(s.out.Notes, fmt.Sprintf("%g requests were not answered in time by the server that was never killed: other work on the machine, or a fault", late))
	}
	s.out.Notes = append(s.out.Notes, fmt.Sprintf("Ringside counted %g requests that servers did not answer, %g of them for time, and %g that it did not send because the server was down",
		m.Sum("ringside_server_requests_failed_total"), m.Sum("ringside_server_requests_timed_out_total"), m.Sum("ringside_server_requests_refused_total")))
	return nil
}

// judge compares Ringside's resources at the beginning and at the end of the soak.
func (s *soak) judge() {
	anon := func(x Sample) float64 { return float64(x.Anon) }
	s.growth("RssAnon at rest, bytes", true, anon, func(first float64) float64 { return first*soakAnonShare + soakAnonBytes })
	s.growth("RssAnon under load, bytes", false, anon, func(first float64) float64 { return first*soakAnonShare + soakAnonBytes })
	s.growth("live heap at rest, bytes", true, func(x Sample) float64 { return float64(x.Heap) }, func(first float64) float64 { return first*soakAnonShare + soakHeapBytes })
	s.growth("goroutines at rest", true, func(x Sample) float64 { return float64(x.Goroutines) }, func(first float64) float64 { return first + soakGoroutines })
	s.growth("descriptors at rest", true, func(x Sample) float64 { return float64(x.Descriptors) }, func(first float64) float64 { return first + soakDescriptors })
}

func (s *soak) growth(what string, rest bool, of func(Sample) float64, bound func(first float64) float64) {
	var values []float64
	for _, x := range s.out.Samples {
		if x.Rest == rest {
			values = append(values, of(x))
		}
	}
	values = values[len(values)/4:]
	third := len(values) / 3
	if third == 0 {
		return // the soak ended early, which was already reported
	}
	g := Growth{What: what, First: spreadOf(slices.Clone(values[:third])).Median, Last: spreadOf(slices.Clone(values[len(values)-third:])).Median}
	g.Bound = bound(g.First)
	s.out.Growth = append(s.out.Growth, g)
	if g.Last > g.Bound {
		s.out.Failed = append(s.out.Failed, fmt.Sprintf("growth: %s went from %.0f to %.0f, beyond %.0f", what, g.First, g.Last, g.Bound))
	}
}
