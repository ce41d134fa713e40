//go:build linux

package bench

// This file runs the soak: a mixed load for a long time, while servers are killed and restarted. It
// checks whether Ringside's memory grows.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringside/internal/bench/load"
)

// soakLeast is the shortest soak. A shorter one shows nothing.
const soakLeast = 10 * time.Second

// soakLoads are the loads of the soak. The first one runs all the time, and the others run once in
// each leg. Each load has another key size, and so its own keys. Values are smaller than those that
// Ringside streams: if a streamed value is cut off, Ringside must close the client.
var soakLoads = []scenario{
	{name: "steady", work: load.Workload{Conns: 50, Depth: 4, Keys: 1, Value: 100, KeySize: 20, Count: 10000, Reads: 90, Rate: 2000, Lossy: true}},
	{name: "pipelines", work: load.Workload{Conns: 50, Depth: 16, Keys: 1, Value: 100, KeySize: 24, Count: 10000, Reads: 80, Lossy: true}},
	{name: "multi-gets", work: load.Workload{Conns: 20, Depth: 1, Keys: 20, Value: 500, KeySize: 28, Count: 5000, Reads: 50, Rate: 500, Lossy: true}},
	{name: "large values", work: load.Workload{Conns: 10, Depth: 1, Keys: 1, Value: 32 << 10, KeySize: 36, Count: 500, Reads: 50, Rate: 200, Lossy: true}},
	{name: "crowd", work: load.Workload{Conns: 500, Depth: 1, Keys: 1, Value: 1000, KeySize: 40, Count: 5000, Reads: 70, Rate: 1000, Lossy: true}},
}

// resources are the resources of Ringside whose growth fails a soak. The last value may be `times`
// the first one plus `more`. That allows for differences between two garbage collections. A leak
// during millions of requests and thousands of connections exceeds it.
var resources = []struct {
	name        string
	times, more float64
}{
	{"RssAnon, bytes", 1.1, 4e6},
	{"live heap, bytes", 1.1, 1e6},
	{"goroutines", 1, 2},
	{"descriptors", 1, 4},
}

// sample has the values of the resources at one time.
type sample [4]float64

type soak struct {
	*bench
	target *process
	fail   context.CancelCauseFunc // ends the soak

	mu     sync.Mutex
	totals []soaked // by the index of the load in soakLoads
}

// soaked is the sum of the results of one load.
type soaked struct {
	runs, replies, checked int64
	lost                   load.Lost
}

// Soak runs a mixed load on Ringside for the given time. The time has legs. In every leg one server
// is killed and restarted empty; the first server always runs. Ringside uses its default timeouts
// here.
func Soak(ctx context.Context, c Config, length time.Duration) (*Report, error) {
	if length < soakLeast {
		return nil, fmt.Errorf("a soak of %v shows nothing: use at least %v", length, soakLeast)
	}
	c.Warm = 250 * time.Millisecond
	b, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	target, err := b.startPeer(ctx, b.peers[0], scenario{}, false)
	if err != nil {
		return nil, err
	}
	defer target.stop()
	s := &soak{bench: b, target: target, totals: make([]soaked, len(soakLoads))}
	r := b.newReport()
	leg := min(30*time.Second, max(soakLeast/8, length/20))
	samples, err := s.run(ctx, length, leg)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		r.Failures = append(r.Failures, err.Error())
	}
	loads := &Table{ID: "soak", Title: fmt.Sprintf("Soak of %v", length), Header: []string{"load", "runs", "requests", "keys checked", "misses", "errors"},
		Note: fmt.Sprintf("Legs of %v; in each, loads start and stop, and one of two servers is killed and returns empty; %d legs. Misses and errors of its keys are expected. A wrong byte ends the soak.", leg, len(samples))}
	for i, l := range s.totals {
		loads.Rows = append(loads.Rows, []string{soakLoads[i].name, fmt.Sprint(l.runs), fmt.Sprint(l.replies), fmt.Sprint(l.checked), fmt.Sprint(l.lost.Misses), fmt.Sprint(l.lost.Errors)})
	}
	growth, grown := growth(samples)
	r.Tables, r.Failures = []*Table{loads, growth}, append(r.Failures, grown...)
	return r, nil
}

// run runs the legs. It returns a sample for each leg, taken at its end.
func (s *soak) run(ctx context.Context, length, leg time.Duration) (samples []sample, err error) {
	ctx, s.fail = context.WithCancelCause(ctx)
	var steady, others sync.WaitGroup
	defer steady.Wait()
	defer others.Wait()
	defer s.fail(nil)
	steady.Go(func() { s.put(ctx, 0, false, length) })
	for began, n := time.Now(), 0; time.Since(began) < length-leg/2; n++ {
		for i := 1; i < len(soakLoads); i++ {
			others.Go(func() { s.put(ctx, i, n > 0, leg) }) // from the second leg on the load does not write its keys first, so it counts the keys of killed servers as misses
		}
		victim := 1 + n%(len(s.servers)-1)
		s.pause(ctx, leg/3)
		s.servers[victim].stop()
		s.pause(ctx, min(3*time.Second, leg/4))
		again, err := s.startServer(ctx, s.servers[victim].port, s.LoadCPUs)
		if err != nil {
			return samples, errors.Join(context.Cause(ctx), err)
		}
		s.servers[victim] = again
		others.Wait()
		x, err := s.sample(ctx)
		if err != nil {
			return samples, errors.Join(context.Cause(ctx), err)
		}
		samples = append(samples, x)
		s.Log.Info("leg", "n", n+1, "gone", time.Since(began).Round(time.Second), "of", length, "anon", whole(x[0]), "heap", whole(x[1]), "goroutines", x[2], "descriptors", x[3])
	}
	steady.Wait()
	if err := s.allThere(ctx); err != nil {
		return samples, errors.Join(context.Cause(ctx), err)
	}
	return samples, s.account(ctx)
}

// put runs the load with the given index, and adds its result to the totals. A failure ends the
// soak.
func (s *soak) put(ctx context.Context, i int, filled bool, window time.Duration) {
	l := soakLoads[i]
	l.filled = filled
	got, err := s.load(ctx, s.target, nil, l, window)
	if err != nil {
		s.fail(fmt.Errorf("load %q: %w", l.name, s.target.blame(err)))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.totals[i]
	t.runs++
	t.replies += got.Replies
	t.checked += got.Checked
	t.lost.Misses += got.Lost.Misses
	t.lost.Errors += got.Lost.Errors
}

// pause sleeps, or returns at once if the soak has failed.
func (s *soak) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// sample reads the resources of Ringside when only the steady load runs. It first waits until the
// clients of the other loads are gone.
func (s *soak) sample(ctx context.Context) (x sample, err error) {
	most := float64(soakLoads[0].work.Conns)
	for range 200 {
		// A request for this page forces a garbage collection, so that only live memory is left.
		// The profile on the page is not used.
		if _, err := fetch(ctx, s.target, "/debug/pprof/heap?gc=1"); err != nil {
			return x, s.target.blame(err)
		}
		m, err := readMetrics(ctx, s.target)
		if err != nil {
			return x, s.target.blame(err)
		}
		p, err := load.ReadProcess(s.target.Process.Pid)
		if err != nil {
			return x, err
		}
		descriptors, err := load.Descriptors(p.PID)
		if err != nil || m.sum("ringside_client_connections") <= most {
			return sample{float64(p.Memory), m.sum("go_memstats_heap_alloc_bytes"), m.sum("go_goroutines"), float64(descriptors)}, err
		}
		s.pause(ctx, 50*time.Millisecond)
	}
	return x, s.target.blame(fmt.Errorf("more than %.0f clients are connected 10 s after all others went", most))
}

// allThere writes keys and reads them back while every server is up, and checks that no read
// misses. It tries up to three times, because the machine may stall.
func (s *soak) allThere(ctx context.Context) error {
	var lost load.Lost
	for range 3 {
		got, err := s.load(ctx, s.target, nil, soakLoads[0], time.Second)
		if lost = got.Lost; err != nil || lost == (load.Lost{}) {
			return s.target.blame(err)
		}
	}
	return s.target.blame(fmt.Errorf("with every server up again %d keys missed and %d requests failed", lost.Misses, lost.Errors))
}

// account returns an error if Ringside's metrics show something that must not happen in a soak.
func (s *soak) account(ctx context.Context) error {
	m, err := readMetrics(ctx, s.target)
	if err != nil {
		return err
	}
	never := []string{"ringside_desyncs_total", "ringside_client_connections_closed_total", "ringside_client_connections_refused_total", "ringside_values_refused_total"}
	for _, name := range never {
		if n := m.sum(name); n > 0 {
			err = errors.Join(err, fmt.Errorf("%s is %g", name, n))
		}
	}
	// Only without timeouts is a failed request on the server that always runs an error. A server
	// that is slow counts as down, and further requests to it fail.
	untouched := fmt.Sprintf("address=%q", s.servers[0].addr())
	if n := m.sum("ringside_server_requests_failed_total", untouched); n > 0 && m.sum("ringside_server_requests_timed_out_total", untouched) == 0 {
		err = errors.Join(err, fmt.Errorf("%g requests failed on the server that was never killed", n))
	}
	return err
}

// growth compares early and late values of the resources. The first quarter of the samples is left
// out, because buffers and pools fill in that time. It compares the medians of the first and the
// last third of the others.
func growth(samples []sample) (t *Table, failures []string) {
	t = &Table{ID: "growth", Title: "Growth", Note: "Medians of the first and the last third of the legs, without a first quarter, at the end of the leg and after a forced collection.",
		Header: []string{"what", "first", "last", "may be"}}
	samples = samples[len(samples)/4:]
	third := len(samples) / 3
	for i, r := range resources {
		if third == 0 {
			break // the soak ended early, which was already reported
		}
		median := func(some []sample) float64 {
			var values []float64
			for _, x := range some {
				values = append(values, x[i])
			}
			return spreadOf(values).median
		}
		first, last := median(samples[:third]), median(samples[len(samples)-third:])
		bound := first*r.times + r.more
		t.Rows = append(t.Rows, []string{r.name, whole(first), whole(last), whole(bound)})
		if last > bound {
			failures = append(failures, fmt.Sprintf("growth: %s went from %.0f to %.0f, beyond %.0f", r.name, first, last, bound))
		}
	}
	return t, failures
}
