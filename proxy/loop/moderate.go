package loop

// Moderation: a busy loop waits a moment, so that more comes at once.

import "time"

// moderator decides how long a loop waits before it looks for events. Under
// saturation a wait makes batches large and everybody faster, the servers and
// the clients too, and the best wait grows with the number of clients; under a
// steady load that the loop can carry it only costs latency. The two look
// alike from inside: a loop on a machine that it shares is no busier when
// clients wait for it than when they don't. So the moderator tries: it gives
// each of a few waits, none among them, some milliseconds, in turns. Clients
// that wait for their answers ask more when answers come faster; a steady load
// stays what it is.
type moderator struct {
	Moderation

	wait     int       // in force: an index into waits
	window   int       // of a trial; -1: no trial
	until    int64     // when the window, or the verdict, ends
	last     uint64    // requests when the window began
	began    int64     // when it did
	served   [4]uint64 // requests in a trial, by wait
	waiting  bool      // the last verdict was to wait
	patience int64     // how long it holds
}

const (
	trialWindow = int64(4 * time.Millisecond)
	trialRounds = 3 // windows of each wait in a trial
	trialGain   = 8 // per cent more requests than without that prove that waiting pays
	trialEqual  = 2 // per cent fewer than the best that count as equal: the longer wait then costs less
	verdictMin  = int64(500 * time.Millisecond)
	verdictMax  = int64(8 * time.Second) // reached by doubling while the verdict stays the same
)

// waits are the shares of Moderation.Sleep that are tried, in quarters.
var waits = [4]time.Duration{0, 1, 2, 4}

// next returns how long the loop should wait now; requests is how many were
// given to servers so far.
func (m *moderator) next(now int64, requests uint64) time.Duration {
	if m.Above == 0 {
		return 0
	}
	if now >= m.until {
		m.turn(now, requests)
	}
	return m.Sleep * waits[m.wait] / 4
}

// turn ends a window or a verdict.
func (m *moderator) turn(now int64, requests uint64) {
	elapsed, n := now-m.began, requests-m.last
	busy := int64(n)*int64(time.Second) >= int64(m.Above)*elapsed
	m.began, m.last, m.until = now, requests, now+trialWindow
	switch {
	case m.patience == 0: // the first call
		m.patience, m.window = verdictMin, -1
	case !busy && m.window < 0: // low load: just watch
		m.wait, m.patience = 0, verdictMin
	case m.window < 0:
		m.wait, m.window, m.served = 0, 0, [4]uint64{}
	default:
		m.served[m.wait] += n
		if m.window++; m.window < trialRounds*len(waits) {
			m.wait = m.window % len(waits)
			return
		}
		m.verdict(now)
	}
}

// verdict ends a trial.
func (m *moderator) verdict(now int64) {
	best := 0
	for i, n := range m.served {
		if n > m.served[best] {
			best = i
		}
	}
	wait := 0
	if m.served[best]*100 >= m.served[0]*(100+trialGain) {
		for wait = len(waits) - 1; m.served[wait]*100 < m.served[best]*(100-trialEqual); wait-- {
		}
	}
	if waiting := wait > 0; waiting == m.waiting {
		m.patience = min(2*m.patience, verdictMax)
	} else {
		m.waiting, m.patience = waiting, verdictMin
	}
	m.wait, m.window, m.until = wait, -1, now+m.patience
}
