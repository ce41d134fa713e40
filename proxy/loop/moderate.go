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
	step     int       // of a trial: two for each window, to settle and to count; -1: no trial
	until    int64     // when the step, or the verdict, ends
	last     uint64    // requests when it began
	began    int64     // when that was
	served   [3]uint64 // requests counted in a trial, by wait
	waiting  bool      // the last verdict was to wait
	patience int64     // how long it holds
}

const (
	settleTime = int64(15 * time.Millisecond) // clients fall in step with a new wait in some ten rounds
	countTime  = int64(15 * time.Millisecond)
	watchTime  = int64(10 * time.Millisecond) // between looks at a low load
	trialGain  = 6                            // per cent more requests than without that prove that waiting pays
	trialEqual = 2                            // per cent fewer than the best that count as equal: the longer wait then costs less
	verdictMin = int64(400 * time.Millisecond)
	verdictMax = int64(4 * time.Second) // reached by doubling while the verdict stays the same
)

// waits are what is tried, in fifths of Moderation.Sleep: none, what suits some
// fifty clients, and what suits hundreds.
var waits = [3]time.Duration{0, 2, 5}

// turns is the order of the windows of a trial: there and back, so that a
// load that grows or shrinks meanwhile favours none.
var turns = [...]int{0, 1, 2, 2, 1, 0}

// next returns how long the loop should wait now; requests is how many were
// given to servers so far.
func (m *moderator) next(now int64, requests uint64) time.Duration {
	if m.Above == 0 {
		return 0
	}
	if now >= m.until {
		m.turn(now, requests)
	}
	return m.Sleep * waits[m.wait] / 5
}

// turn ends a step or a verdict.
func (m *moderator) turn(now int64, requests uint64) {
	elapsed, n := now-m.began, requests-m.last
	busy := int64(n)*int64(time.Second) >= int64(m.Above)*elapsed
	m.began, m.last, m.until = now, requests, now+watchTime
	switch {
	case m.patience == 0: // the first call
		m.patience, m.step = verdictMin, -1
	case !busy && m.step < 0: // low load: just watch
		m.wait, m.waiting, m.patience = 0, false, verdictMin
	default:
		m.trial(now, n)
	}
}

// trial ends one step of a trial, in which n requests came, and begins the
// next.
func (m *moderator) trial(now int64, n uint64) {
	if m.step < 0 {
		m.served = [3]uint64{}
	} else if m.step%2 == 1 {
		m.served[m.wait] += n
	}
	if m.step++; m.step == 2*len(turns) {
		m.verdict(now)
		return
	}
	m.wait, m.until = turns[m.step/2], now+settleTime
	if m.step%2 == 1 {
		m.until = now + countTime
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
	m.wait, m.step, m.until = wait, -1, now+m.patience
}
