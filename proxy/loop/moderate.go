package loop

// Moderation: a busy loop waits a moment, so that more comes at once.

import "time"

// moderator decides when a loop waits a moment before it looks for events.
// Under saturation that makes batches large and everybody faster, the servers
// and the clients too; under a steady load that the loop can carry it only
// costs latency. The two look alike from inside: a busy loop on a machine
// that it shares is no busier when clients wait for it than when they don't.
// So the moderator tries: for a few milliseconds it waits, for a few it
// doesn't, and again. Clients that wait for their answers ask more when
// answers come faster; a steady load stays what it is.
type moderator struct {
	Moderation

	on       bool
	phase    int    // of a trial: even without, odd with; -1: no trial
	until    int64  // when the phase, or the verdict, ends
	last     uint64 // requests when it began
	began    int64
	with     uint64 // requests in the trial's windows
	without  uint64
	patience int64 // how long a verdict against waiting holds
}

const (
	trialWindow  = int64(4 * time.Millisecond)
	trialWindows = 12 // half of them waiting
	trialGain    = 10 // per cent more requests that prove that waiting pays
	verdictOn    = int64(500 * time.Millisecond)
	verdictOff   = int64(500 * time.Millisecond) // doubled while waiting doesn't pay
	verdictMax   = int64(8 * time.Second)
)

// wait reports whether the loop should wait now. requests is how many were
// given to servers so far.
func (m *moderator) wait(now int64, requests uint64) bool {
	if m.Above == 0 {
		return false
	}
	if now < m.until {
		return m.on
	}
	elapsed, n := now-m.began, requests-m.last
	fast := int64(n)*int64(time.Second) >= int64(m.Above)*elapsed
	m.began, m.last = now, requests
	switch {
	case m.patience == 0: // the first call
		m.patience, m.phase = verdictOff, -1
		m.until = now + trialWindow
	case !fast && (m.on || m.phase < 0): // low load: just watch
		m.on, m.phase, m.patience = false, -1, verdictOff
		m.until = now + trialWindow
	case m.phase < 0:
		m.phase, m.with, m.without = 0, 0, 0
		m.on = false
		m.until = now + trialWindow
	default:
		m.window(now, n)
	}
	return m.on
}

// window ends one window of a trial, in which n requests came, and begins the
// next, or gives the verdict.
func (m *moderator) window(now int64, n uint64) {
	if m.on {
		m.with += n
	} else {
		m.without += n
	}
	if m.phase++; m.phase < trialWindows {
		m.on = m.phase%2 == 1
		m.until = now + trialWindow
		return
	}
	m.phase = -1
	if m.with*100 >= m.without*(100+trialGain) {
		m.on, m.patience = true, verdictOff
		m.until = now + verdictOn
		return
	}
	m.on = false
	m.until = now + m.patience
	m.patience = min(2*m.patience, verdictMax)
}
