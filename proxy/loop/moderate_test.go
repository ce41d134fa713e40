package loop

import (
	"testing"
	"time"
)

// play runs a moderator for a second of model time against a load: rate says
// how many requests a second come, with and without the wait. It returns the
// share of the last half second in which the loop waited.
func play(m *moderator, rate func(waiting bool) float64) float64 {
	var requests float64
	waited, looked := 0, 0
	for now := int64(time.Hour); now < int64(time.Hour+5*time.Second); now += int64(50 * time.Microsecond) {
		on := m.wait(now, uint64(requests))
		requests += rate(on) * 50e-6
		if now > int64(time.Hour+3*time.Second) {
			looked++
			if on {
				waited++
			}
		}
	}
	return float64(waited) / float64(looked)
}

func TestModerator(t *testing.T) {
	settings := Moderation{Above: 20_000, Sleep: 40 * time.Microsecond}
	for _, c := range []struct {
		name     string
		rate     func(waiting bool) float64
		min, max float64
	}{
		{"saturation, waiting pays", func(w bool) float64 {
			if w {
				return 75_000
			}
			return 60_000
		}, 0.9, 1},
		{"a steady load", func(bool) float64 { return 40_000 }, 0, 0.05},
		{"a load that waiting slows", func(w bool) float64 {
			if w {
				return 25_000
			}
			return 40_000
		}, 0, 0.05},
		{"a low load", func(bool) float64 { return 10_000 }, 0, 0},
	} {
		if got := play(&moderator{Moderation: settings}, c.rate); got < c.min || got > c.max {
			t.Errorf("%s: waited %.3f of the time, want %.2f to %.2f", c.name, got, c.min, c.max)
		}
	}
	if got := play(&moderator{}, func(bool) float64 { return 1e6 }); got != 0 {
		t.Errorf("switched off: waited %.3f of the time", got)
	}
}
