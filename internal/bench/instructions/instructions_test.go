//go:build linux

package instructions

// This file tests the count of a benchmark with a known amount of work, and the comparison of
// counts.

import (
	"math"
	"strings"
	"testing"
)

var sink uint64

// BenchmarkKnown has 100 requests per iteration, of 1,000 additions each.
func BenchmarkKnown(b *testing.B) {
	b.Run("additions of a/b", func(b *testing.B) {
		for b.Loop() {
			for i := range uint64(100 * 1000) {
				sink += i
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/request")
	})
}

func TestCountsKnownWork(t *testing.T) {
	counts, err := Run(t.Context(), Config{Package: "ringside/internal/bench/instructions", Bench: "^BenchmarkKnown$", Repeat: 2})
	if err != nil {
		t.Fatal(err)
	}
	// With any compiler, an addition to a variable in memory executes a few instructions.
	if c := counts[0]; len(counts) != 1 || c.Least() < 1000 || c.Least() > 20000 || len(c.Instructions) != 2 || c.Nanoseconds <= 0 {
		t.Errorf("%+v", counts)
	}
	if spread := counts[0].Spread(); spread > 0.05 {
		t.Errorf("two counts of the same differ by %.1f%%", 100*spread)
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	for _, c := range []Config{
		{Package: "ringside/no/such", Bench: ".", Repeat: 1},
		{Package: "ringside/internal/bench/instructions", Bench: "^None$", Repeat: 1},
	} {
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestParseBenchmarks(t *testing.T) {
	got := parseBenchmarks("goos: linux\nBenchmarkA/b  100  2000 ns/op  20.5 ns/request  0.5 sends/request  16 B/op  3 allocs/op\nBenchmarkC  5  7 ns/op\nPASS\n")
	want := []measured{{"BenchmarkA/b", 2000, 20.5, 3, 0.5}, {"BenchmarkC", 7, 7, 0, 0}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v", got)
	}
}

func TestCompare(t *testing.T) {
	now := []Count{{Name: "a", Instructions: []float64{1040, 1030}}, {Name: "b", Instructions: []float64{2200}}, {Name: "c", Instructions: []float64{5}}}
	earlier := []Count{{Name: "a", Instructions: []float64{1000}}, {Name: "b", Instructions: []float64{2000, 2010}}}
	if math.Abs(now[0].Spread()-1040.0/1030+1) > 1e-12 {
		t.Errorf("spread %v", now[0].Spread())
	}
	var out strings.Builder
	err := Compare(&out, now, earlier, 0.05)
	if err == nil || !strings.Contains(err.Error(), "b rose by 10.0%") || strings.Contains(err.Error(), "a rose") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"| a | 1030 | 0.97% |", "| 1000 | 1.030 |", "| 2000 | 1.100 |", "| – | – |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if err := Compare(&out, now, nil, 0); err != nil {
		t.Error(err)
	}
	now[2].Sends, earlier = 0.2, []Count{{Name: "c", Instructions: []float64{5}, Sends: 0.1}}
	if err := Compare(&out, now, earlier, 0.05); err == nil || !strings.Contains(err.Error(), "c sends more often: 0.200 times per request, was 0.100") {
		t.Errorf("error %v", err)
	}
}
