//go:build linux

package bench

// What a soak reports as growth. The tests of the command cover a whole soak.

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	const mb = 1_000_000
	for name, c := range map[string]struct {
		sample func(i int) Sample
		says   string // "": no failure
	}{
		"steady": {func(int) Sample { return Sample{Anon: 20 * mb, Goroutines: 9, Descriptors: 60} }, ""},
		"saw teeth": {func(i int) Sample {
			return Sample{Anon: int64(20+5*(i%2)) * mb, Goroutines: 9 + i%2, Descriptors: 60 + i%3}
		}, ""},
		"growth at first":    {func(i int) Sample { return Sample{Anon: int64(20+30*min(i, 4)) * mb} }, ""},
		"live heap":          {func(i int) Sample { return Sample{Heap: int64(5*mb + i*mb/4)} }, "live heap"},
		"memory":             {func(i int) Sample { return Sample{Anon: int64(20+i) * mb} }, "RssAnon at rest"},
		"goroutines":         {func(i int) Sample { return Sample{Goroutines: 9 + i/2} }, "goroutines"},
		"descriptors":        {func(i int) Sample { return Sample{Descriptors: 60 + i} }, "descriptors"},
		"one leg and an end": {func(i int) Sample { return Sample{Anon: int64(i) * 100 * mb} }, ""},
	} {
		s := &soak{out: &Soak{Leg: time.Second}}
		legs := 20
		if name == "one leg and an end" {
			legs = 2
		}
		for i := range legs {
			x := c.sample(i)
			x.Rest, x.At = true, time.Duration(i+1)*time.Second
			s.out.Samples = append(s.out.Samples, x)
		}
		s.judge()
		got := strings.Join(s.out.Failed, "; ")
		if (c.says == "") != (got == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}

func TestSoakLoadsHaveTheirOwnKeys(t *testing.T) {
	sizes := make(map[int]string)
	for _, l := range soakLoads() {
		if other, taken := sizes[l.Work.KeySize]; taken {
			t.Errorf("%s and %s write the same keys", l.ID, other)
		}
		sizes[l.Work.KeySize] = l.ID
		if !l.Work.Lossy {
			t.Errorf("%s ends with the first killed server", l.ID)
		}
	}
}

// TestSoakProgress checks that a soak logs its progress about fifty times.
func TestSoakProgress(t *testing.T) {
	var log bytes.Buffer
	s := &soak{bench: &bench{}, out: &Soak{Length: 1000 * time.Second, Kills: 3, Loads: []*Soaked{{Replies: 5}, {Replies: 7, Misses: 2}}}}
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	for at := range 1001 {
		s.progress(Sample{At: time.Duration(at) * time.Second, Anon: 30_000_000, Clients: 70})
	}
	if n := strings.Count(log.String(), "msg=soaking "); n != 50 {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(log.String(), "gone=8m20s of=16m40s kills=3 loads=0 clients=70 anon=\"30.0 MB\" replies_of_ended_loads=12 misses=2 errors=0") {
		t.Errorf("the log has\n%s", &log)
	}
}
