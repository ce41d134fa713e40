package loop

import (
	"testing"
	"time"
)

// served is a load in a test. It returns the requests per second that arrive at a pace, and the CPU
// time of each in nanoseconds.
type served func(p Pace) (rate, cost float64)

// clients is the number of clients in a test.
const clients = 50

// play runs a moderator for ten seconds of model time against a load. In each 83 ms the loop stalls
// for 3 ms and serves the missed requests in the next 3 ms. It returns the share of each pace in
// the last seven seconds.
func play(m *moderator, load served, waiting int) (share map[string]float64) {
	var came, served, spent float64
	m.Spent = func() int64 { return int64(spent) }
	share = map[string]float64{}
	looks := 0.0
	for now := int64(time.Hour); now < int64(time.Hour+10*time.Second); now += int64(50 * time.Microsecond) {
		p := m.Next(now, uint64(served), waiting, clients)
		rate, cost := load(p)
		came += rate * 50e-6
		before := served
		switch at := now / int64(time.Millisecond) % 83; {
		case at < 3:
		case at < 6:
			served += (came - served) / float64(6-at) / 20
		default:
			served = came
		}
		spent += (served - before) * cost
		if now > int64(time.Hour+3*time.Second) {
			looks++
			share[p.name()]++
		}
	}
	for name := range share {
		share[name] /= looks
	}
	return share
}

func (p Pace) name() string {
	switch {
	case p.Answers:
		return "answers"
	case p.Nap:
		return "sleep"
	}
	return "plain"
}

// by returns a load with these rates and costs at the paces plain, Answers and Sleep.
func by(rates, costs [3]float64) served {
	return func(p Pace) (float64, float64) {
		i := map[string]int{"plain": 0, "answers": 1, "sleep": 2}[p.name()]
		return rates[i], costs[i]
	}
}

func TestModerator(t *testing.T) {
	settings := Settings{Above: 20_000, Sleep: 200 * time.Microsecond}
	for _, c := range []struct {
		name    string
		load    served
		waiting int // clients that wait
		want    string
		least   float64
	}{
		{"many clients: sleeping serves most", by([3]float64{60e3, 62e3, 90e3}, [3]float64{9000, 8000, 6000}), 3, "sleep", 0.6},
		{"few clients: sleeping starves the loop", by([3]float64{60e3, 66e3, 50e3}, [3]float64{9000, 7000, 7000}), 15, "answers", 0.6},
		{"the cheaper of two that serve as much", by([3]float64{60e3, 66e3, 67e3}, [3]float64{9000, 6000, 8000}), 15, "answers", 0.6},
		{"cheap, but slower than plain", by([3]float64{60e3, 50e3, 66e3}, [3]float64{9000, 3000, 8000}), 15, "sleep", 0.6},
		{"a steady load", by([3]float64{40e3, 40e3, 40e3}, [3]float64{9000, 5000, 5000}), 7, "plain", 0.95},
		{"a load that any wait slows", by([3]float64{40e3, 30e3, 20e3}, [3]float64{9000, 5000, 5000}), 7, "plain", 0.95},
		{"clients that wait: the cheaper pace that serves as much", by([3]float64{60e3, 60e3, 50e3}, [3]float64{9000, 7000, 5000}), 15, "answers", 0.6},
		{"clients that wait, and any other pace costs more", by([3]float64{60e3, 60e3, 60e3}, [3]float64{9000, 9500, 9600}), 15, "plain", 0.95},
		{"clients that wait, and any wait slows them", by([3]float64{60e3, 50e3, 40e3}, [3]float64{9000, 4000, 4000}), 15, "plain", 0.95},
		{"a low load", by([3]float64{10e3, 20e3, 20e3}, [3]float64{9000, 5000, 5000}), 7, "plain", 1},
	} {
		if got := play(&moderator{Settings: settings}, c.load, c.waiting); got[c.want] < c.least {
			t.Errorf("%s: %v of the time, want %v %v", c.name, got, c.want, c.least)
		}
	}
	if got := play(&moderator{}, by([3]float64{1e6, 2e6, 3e6}, [3]float64{1, 1, 1}), 7); got["plain"] != 1 {
		t.Errorf("switched off: %v", got)
	}
	settings.Pace = Answers
	if got := play(&moderator{Settings: settings}, by([3]float64{60e3, 30e3, 90e3}, [3]float64{9000, 9000, 1}), 7); got["answers"] != 1 {
		t.Errorf("set to wait for answers: %v", got)
	}
	if got := play(&moderator{Settings: settings}, by([3]float64{10e3, 10e3, 10e3}, [3]float64{1, 1, 1}), 7); got["plain"] != 1 {
		t.Errorf("set to wait for answers, at a low load: %v", got)
	}
}
