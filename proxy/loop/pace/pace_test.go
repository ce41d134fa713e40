package pace

import (
	"testing"
	"time"
)

// load is what a test puts on a moderator.
type load struct {
	rate    float64                                 // requests a second
	waiting func(waits bool, now time.Duration) int // of 50 clients
	sleeps  func(waits bool) float64                // of the loop, for each request
}

// play runs a moderator for ten seconds of model time. It returns which share of the
// last seven it waited.
func play(above int, l load) float64 {
	var slept float64
	m := &Moderator{Above: above, Sleeps: func() int64 { return int64(slept) }}
	const clients, step = 50, 50 * time.Microsecond
	waits, yes, all := false, 0.0, 0.0
	for now := time.Duration(0); now < 10*time.Second; now += step {
		slept += l.rate * step.Seconds() * l.sleeps(waits)
		waits = m.Next(int64(time.Hour+now), uint64(l.rate*now.Seconds()), l.waiting(waits, now), clients)
		if now > 3*time.Second {
			all++
			if waits {
				yes++
			}
		}
	}
	return yes / all
}

func TestModerator(t *testing.T) {
	always := func(n int) func(bool, time.Duration) int { return func(bool, time.Duration) int { return n } }
	sleeps := func(plain, waiting float64) func(bool) float64 {
		return func(waits bool) float64 {
			if waits {
				return waiting
			}
			return plain
		}
	}
	fewer := sleeps(0.10, 0.03)
	for _, c := range []struct {
		name        string
		above       int
		load        load
		least, most float64
	}{
		{"clients that wait", 20_000, load{60e3, always(15), fewer}, 0.9, 1},
		{"clients that wait, and the loop sleeps as often", 20_000, load{60e3, always(15), sleeps(0.03, 0.03)}, 0, 0.1},
		{"clients that wait for a loop that never sleeps", 20_000, load{60e3, always(15), sleeps(0, 0)}, 0, 0.1},
		{"a steady load", 20_000, load{40e3, always(7), fewer}, 0, 0},
		{"clients that wait, few requests", 20_000, load{10e3, always(50), fewer}, 0, 0},
		{"switched off", 0, load{60e3, always(50), fewer}, 0, 0},
		{"a steady load in which many wait because the loop does", 20_000, load{40e3, func(waits bool, now time.Duration) int {
			if waits || now < 200*time.Millisecond {
				return 30
			}
			return 5
		}, fewer}, 0, 0},
		{"a steady load that stumbles for 10 ms in each second", 20_000, load{40e3, func(_ bool, now time.Duration) int {
			if now%time.Second < 10*time.Millisecond {
				return 50
			}
			return 5
		}, fewer}, 0, 0},
	} {
		if got := play(c.above, c.load); got < c.least || got > c.most {
			t.Errorf("%s: it waited %.2f of the time, want %.2f to %.2f", c.name, got, c.least, c.most)
		}
	}
}

// TestLoadFalls: it ends to wait with the load.
func TestLoadFalls(t *testing.T) {
	var requests uint64
	waited := false
	var slept int64
	m := &Moderator{Above: 20_000, Sleeps: func() int64 { return slept }}
	for ms := range 1200 {
		if ms < 500 {
			requests += 60
		}
		if !waited {
			slept += 6
		}
		waits := m.Next(int64(time.Hour)+int64(ms)*int64(time.Millisecond), requests, 40, 50)
		waited = waited || waits
		if ms > 700 && waits {
			t.Fatalf("it waits %d ms after the load has ended", ms-500)
		}
	}
	if !waited {
		t.Error("it never waited")
	}
}
