package stats

import "testing"

// TestAdd checks that counters of every kind are added: in structs, in arrays of
// arrays, in histograms.
func TestAdd(t *testing.T) {
	var c, o Counters
	for range 2 {
		o.KeysHit, o.Requests[1][2], o.Marks[3][1], o.Accepted, o.OutputClosed, o.Buffer.Lost[1], o.Near.Age = 1, 2, 3, 4, 5, 6, 7
		o.Latency[1].Observe(1000)
		c.Add(&o)
	}
	if c.KeysHit != 2 || c.Requests[1][2] != 4 || c.Marks[3][1] != 6 || c.Accepted != 8 || c.OutputClosed != 10 || c.Buffer.Lost[1] != 12 || c.Near.Age != 14 {
		t.Errorf("%+v", c.RouteCounters)
	}
	if n, sum := c.Latency[1].Count(), c.Latency[1].Sum; n != 3 || sum != 3000 {
		t.Errorf("%d durations of %d ns together", n, sum)
	}
}

// TestAddSaysWhatItCannot checks that sumUp panics on a counter of an unsupported type
// instead of skipping it.
func TestAddSaysWhatItCannot(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a counter was left out")
		}
	}()
	sumUp(&struct{ N int }{1}, &struct{ N int }{1})
}
