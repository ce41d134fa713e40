package loop

import (
	"testing"
	"time"
)

// play runs a moderator for ten seconds of model time against a load: rate
// says how many requests a second come at a wait. For 3 ms of every 83 it is
// stalled, and what came meanwhile is served in the next 3. It returns the mean
// wait of the last seven seconds.
func play(m *moderator, rate func(wait time.Duration) float64) time.Duration {
	var came, served float64
	var waited, looked time.Duration
	for now := int64(time.Hour); now < int64(time.Hour+10*time.Second); now += int64(50 * time.Microsecond) {
		wait := m.next(now, uint64(served)).wait
		came += rate(wait) * 50e-6
		switch at := now / int64(time.Millisecond) % 83; {
		case at < 3:
		case at < 6:
			served += (came - served) / float64(6-at) / 20
		default:
			served = came
		}
		if now > int64(time.Hour+3*time.Second) {
			looked++
			waited += wait
		}
	}
	return waited / looked
}

func TestModerator(t *testing.T) {
	const us = time.Microsecond
	settings := Moderation{Above: 20_000, Sleep: 200 * us}
	for _, c := range []struct {
		name     string
		rate     func(wait time.Duration) float64
		min, max time.Duration
	}{
		{"many clients: the longest wait pays most", func(w time.Duration) float64 { return 60_000 + 100*float64(w/us) }, 175 * us, 200 * us},
		{"few clients: too long a wait starves the loop", func(w time.Duration) float64 {
			if w > 150*us {
				return 55_000
			}
			return 60_000 + 150*float64(w/us)
		}, 70 * us, 90 * us},
		{"a steady load", func(time.Duration) float64 { return 40_000 }, 0, 10 * us},
		{"a load that any wait slows", func(w time.Duration) float64 { return 40_000 - 100*float64(w/us) }, 0, 10 * us},
		{"a low load", func(time.Duration) float64 { return 10_000 }, 0, 0},
	} {
		if got := play(&moderator{Moderation: settings}, c.rate); got < c.min || got > c.max {
			t.Errorf("%s: waited %v, want %v to %v", c.name, got, c.min, c.max)
		}
	}
	if got := play(&moderator{}, func(time.Duration) float64 { return 1e6 }); got != 0 {
		t.Errorf("switched off: waited %v", got)
	}
}
