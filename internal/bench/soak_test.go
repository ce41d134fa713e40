//go:build linux

package bench

// What a soak reports as growth. The tests of the command cover a whole soak.

import (
	"strings"
	"testing"
)

func TestGrowth(t *testing.T) {
	const mb = 1_000_000
	for name, c := range map[string]struct {
		legs   int
		sample func(i float64) sample
		says   string // "": no failure
	}{
		"steady": {20, func(float64) sample { return sample{20 * mb, 5 * mb, 9, 60} }, ""},
		"saw teeth": {20, func(i float64) sample {
			return sample{20*mb + float64(int(i)%2)*5*mb, 5 * mb, 9 + float64(int(i)%2), 60}
		}, ""},
		"growth at first":    {20, func(i float64) sample { return sample{20*mb + 30*mb*min(i, 4)} }, ""},
		"live heap":          {20, func(i float64) sample { return sample{0, 5*mb + i*mb/4} }, "live heap"},
		"memory":             {20, func(i float64) sample { return sample{20*mb + i*mb} }, "RssAnon"},
		"goroutines":         {20, func(i float64) sample { return sample{0, 0, 9 + i/2} }, "goroutines"},
		"descriptors":        {20, func(i float64) sample { return sample{0, 0, 0, 60 + i} }, "descriptors"},
		"one leg and an end": {2, func(i float64) sample { return sample{i * 100 * mb} }, ""},
		"none":               {0, nil, ""},
	} {
		var samples []sample
		for i := range c.legs {
			samples = append(samples, c.sample(float64(i)))
		}
		_, failures := growth(samples)
		got := strings.Join(failures, "; ")
		if (c.says == "") != (got == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}

func TestSoakLoadsHaveTheirOwnKeys(t *testing.T) {
	sizes := make(map[int]string)
	for _, l := range soakLoads {
		if other, taken := sizes[l.work.KeySize]; taken {
			t.Errorf("%s and %s write the same keys", l.name, other)
		}
		sizes[l.work.KeySize] = l.name
		if !l.work.Lossy {
			t.Errorf("%s ends with the first killed server", l.name)
		}
	}
}
