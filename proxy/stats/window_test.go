package stats

import "testing"

func TestHistogramWindow(t *testing.T) {
	var h Histogram
	for range 1000 {
		h.Observe(50_000_000)
	}
	before := h
	for i := range 1000 {
		h.Observe(int64(i+1) * 1000) // 1 µs to 1 ms
	}
	d := h.Since(&before)
	if d.Count() != 1000 {
		t.Fatalf("the window has %d durations, want 1000", d.Count())
	}
	for q, want := range map[float64]float64{.5: 500_000, .9: 900_000, .99: 990_000} {
		if got := float64(d.Quantile(q)); got < want || got > want*1.2 {
			t.Errorf("the part %v is at %v ns, want about %v", q, got, want)
		}
	}
	if again := before.Since(&h); again.Count() != 1000 {
		t.Errorf("a histogram that begins anew counts %d, want its own 1000", again.Count())
	}
}
