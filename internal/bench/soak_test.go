//go:build linux

package bench

// What a soak calls growth. A whole one is tested with the command.

import (
	"strings"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	const mb = 1_000_000
	for name, c := range map[string]struct {
		sample func(i int) Sample
		says   string // "" is no failure
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
