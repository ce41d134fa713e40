package loop

// Moderation: a busy loop waits a moment, so that more comes at once.

import "time"

// moderator decides how a loop serves a high load: whether requests to a busy
// server are held for company, and how long the loop waits before it looks for
// events. Under saturation both make batches large and everybody faster, the
// servers and the clients too, and the best wait grows with the number of
// clients; under a steady load that the loop can carry they only cost latency.
// The two look alike from inside: a loop on a machine that it shares is no
// busier when clients wait for it than when they don't, and most of a client's
// wait is with the servers or in the client itself. So the moderator tries: it
// gives each of a few paces, the plain one among them, some milliseconds, in
// turns. Clients that wait for their answers ask more when answers come
// faster; a steady load stays what it is.
//
// The windows of a trial are short, and a load that stumbles in one of them
// catches up in the next, so what a trial finds must prove itself: a longer
// look at the pace and one at the plain pace. A trial also disturbs a steady
// load for a fifth of a second. So a verdict against waiting stands long, and
// is looked at again early only when the load grows; one for waiting ends
// early when the load falls.
type moderator struct {
	Moderation

	phase    phase
	pace     int                // in force: an index into paces
	step     int                // of a trial: two for each window, to settle and to count
	until    int64              // when the step, or the look at the load, ends
	ends     int64              // when the verdict ends
	last     uint64             // requests when the step began
	began    int64              // when that was
	served   [len(paces)]uint64 // requests counted in a trial, by pace
	found    int                // what the trial found, to be proved
	rate     int64              // requests a second in the last look; 0: not yet
	waiting  bool               // the last verdict was to wait
	patience int64              // how long it holds
}

// phase is what the moderator does.
type phase uint8

const (
	watching phase = iota // a low load
	trying                // all paces, in turns
	proving               // the pace that a trial found
	checking              // the plain pace, to compare
	resting               // on the verdict
)

const (
	settleTime = int64(15 * time.Millisecond) // clients fall in step with a new pace in some ten rounds
	countTime  = int64(17 * time.Millisecond)
	proveTime  = int64(150 * time.Millisecond)
	checkTime  = int64(150 * time.Millisecond)
	watchTime  = int64(10 * time.Millisecond) // between looks at a low load
	lookTime   = int64(50 * time.Millisecond) // between looks at a high one
	trialGain  = 4                            // per cent more requests than at the plain pace that show that waiting pays
	trialEqual = 2                            // per cent fewer than the best that count as equal: the longer wait then costs less
	loadChange = 4                            // a load that changes by one part of so many is another load
	waitMin    = int64(400 * time.Millisecond)
	waitMax    = int64(4 * time.Second) // reached by doubling while the verdict stays the same
	plainMin   = int64(1 * time.Second)
	plainMax   = int64(32 * time.Second)
	plainPace  = 0
)

// pace is one way to serve a load.
type pace struct {
	prompt bool          // see Engine.Prompt
	wait   time.Duration // in fifths of Moderation.Sleep
}

// paces are what is tried: the plain one, and holding with a wait that suits
// some fifty clients or one that suits hundreds. Holding alone saves CPU and
// changes nothing that a trial could count.
var paces = [...]pace{{prompt: true}, {wait: 2}, {wait: 5}}

// turns is the order of the windows of a trial: there and back, so that a
// load that grows or shrinks meanwhile favours none.
var turns = [...]int{0, 1, 2, 2, 1, 0}

// next returns how to serve now; requests is how many were given to servers
// so far.
func (m *moderator) next(now int64, requests uint64) pace {
	if m.Above == 0 {
		return pace{}
	}
	if now >= m.until {
		n, elapsed := requests-m.last, max(now-m.began, 1)
		m.last, m.began = requests, now
		m.turn(now, n, int64(n)*int64(time.Second)/elapsed)
	}
	p := paces[m.pace]
	p.wait = m.Sleep * p.wait / 5
	return p
}

// turn ends a step or a look, in which n requests came at the given rate.
func (m *moderator) turn(now int64, n uint64, rate int64) {
	switch m.phase {
	case trying:
		m.trial(now, n)
	case proving:
		m.rate = rate
		m.enter(checking, plainPace, now+checkTime)
	case checking:
		if m.rate*100 < rate*(100+trialGain) {
			m.found = plainPace
		}
		m.verdict(now)
	case watching:
		m.until = now + watchTime
		if rate >= int64(m.Above) {
			m.try(now)
		}
	case resting:
		switch {
		case rate < int64(m.Above):
			m.waiting, m.patience = false, 0
			m.enter(watching, plainPace, now+watchTime)
		case now >= m.ends || m.rate != 0 && m.changed(rate):
			m.try(now)
		default:
			m.rate, m.until = rate, min(now+lookTime, m.ends)
		}
	}
}

func (m *moderator) enter(p phase, pace int, until int64) {
	m.phase, m.pace, m.until = p, pace, until
}

// changed says whether the verdict was on another load than what comes now.
func (m *moderator) changed(rate int64) bool {
	if m.waiting {
		return rate < m.rate-m.rate/loadChange
	}
	return rate > m.rate+m.rate/loadChange
}

// try begins a trial.
func (m *moderator) try(now int64) {
	clear(m.served[:])
	m.step = 0
	m.enter(trying, turns[0], now+settleTime)
}

// trial ends one step of a trial, in which n requests came, and begins the
// next.
func (m *moderator) trial(now int64, n uint64) {
	count := m.step%2 == 1
	if count {
		m.served[m.pace] += n
	}
	m.step++
	switch {
	case m.step == 2*len(turns):
		m.judge(now)
	case count:
		m.enter(trying, turns[m.step/2], now+settleTime)
	default:
		m.until = now + countTime
	}
}

// judge says what a trial found.
func (m *moderator) judge(now int64) {
	best := plainPace
	for i, n := range m.served {
		if n > m.served[best] {
			best = i
		}
	}
	m.found = plainPace
	if m.served[best]*100 >= m.served[plainPace]*(100+trialGain) {
		for m.found = len(paces) - 1; m.served[m.found]*100 < m.served[best]*(100-trialEqual); m.found-- {
		}
	}
	if m.found != plainPace && !m.waiting {
		m.enter(proving, m.found, now+proveTime)
		return
	}
	m.verdict(now)
}

// verdict rests on what was found.
func (m *moderator) verdict(now int64) {
	waiting := m.found != plainPace
	least, most := plainMin, plainMax
	if waiting {
		least, most = waitMin, waitMax
	}
	if waiting == m.waiting && m.patience > 0 {
		m.patience = min(2*m.patience, most)
	} else {
		m.patience = least
	}
	m.waiting, m.rate = waiting, 0
	m.ends = now + m.patience
	m.enter(resting, m.found, min(now+lookTime, m.ends))
}
