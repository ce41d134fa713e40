package health

import "testing"

func TestRate(t *testing.T) {
	const every = 100
	for _, c := range []struct {
		name string
		seen []uint64 // one read each, at the interval `every`
		rate uint64
	}{
		{"nothing", nil, 0},
		{"one look has nothing to compare", []uint64{7}, 0},
		{"three proxies", []uint64{10, 13, 16, 19}, 3},
		{"one counted at the same moment", []uint64{10, 14, 16, 19}, 3},
		{"older looks don't count", []uint64{10, 90, 93, 96, 99}, 3},
		{"made anew", []uint64{10, 13, 1, 4}, 3},
	} {
		var y tally
		now := int64(0)
		for _, value := range c.seen {
			now += every
			y.See(value, every, now)
		}
		if got := y.Rate(); got != c.rate {
			t.Errorf("%s: %d, want %d", c.name, got, c.rate)
		}
	}
}

func TestFresh(t *testing.T) {
	const every = 100
	var y tally
	if y.Fresh(every, every) {
		t.Error("fresh before the first look")
	}
	y.SeeNone(every, every)
	y.See(2, every, 2*every)
	if !y.Fresh(every, 4*every) || y.Fresh(every, 5*every) {
		t.Error("a count stays fresh for two looks and a half")
	}
}

// TestCounterThatIsNoNumber checks that an item that is not a number, in the place of any
// counter of votes, does not prevent ejections, and is logged.
func TestCounterThatIsNoNumber(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	k := w.proxies[0].k.keys
	for _, n := range w.nodes {
		for _, key := range append(append([]string{k.Live}, k.Suspects...), k.Refused...) {
			n.put(key, "abc")
		}
	}
	w.run(w.now + 3*sec)
	w.cutAll(1, true)
	w.until(1, Out)
	if !w.logged("not a number") {
		t.Error("it was not logged")
	}
}
