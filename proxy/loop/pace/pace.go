// Package pace decides what a busy loop waits for before it looks for events,
// so that more of them come at once and a wakeup serves more.
//
//	pace     the loop waits for                                 suits
//	plain    nothing                                            a load that the loop can carry
//	Answers  most of the answers that one server owes, for      some fifty clients, and pipelines
//	         2 ms at most
//	Sleep    the end of Settings.Sleep                          hundreds of clients
//
// Which one serves most can't be known, so a Moderator tries (why: see there):
//
//	watching ─ Settings.Above requests a second ─► trying, all paces in turns, a fifth of a second
//	trying ─ waiting seems to pay ─► proving ─► checking, at the plain pace ─► resting
//	trying ─ it does not, or waiting is the verdict already ─► resting
//	resting ─ the load is below Above ─► watching
//	resting ─ the verdict has stood long enough, or the load is another ─► trying
//
// A pace that the configuration names (Settings.Pace) is taken without a trial, above
// the same load.
//
// It neither waits nor reads a clock: package loop does, and tells it the time and what
// the loop has served.
package pace

import (
	"math"
	"time"
)

// Settings are what the configuration says of it (engine.moderation).
type Settings struct {
	Above int           // requests to servers a second, for each loop, above which it acts; 0: never
	Sleep time.Duration // how long a loop sleeps where sleeping pays
	Pace  Kind          // the only pace above that load, or Auto
}

// Kind names a pace.
type Kind uint8

// The paces.
const (
	Auto    Kind = iota // what trying shows to serve most for its CPU time; nothing if none does
	Answers             // wait for most of the answers due from one server, for 2 ms at most
	Sleep               // wait for the end of Settings.Sleep
)

// Moderator decides how a loop serves a high load: what it waits for before it
// looks for events, and whether requests to a busy server are held for company.
// Under saturation waiting makes batches large, and so everybody's work less,
// that of the servers and the clients too; under a steady load that the loop
// can carry it only costs latency. The two look alike from inside: a loop on a
// machine that it shares is no busier when clients wait for it than when they
// don't, and most of a client's wait is with the servers or in the client
// itself. So the Moderator tries: it gives each of a few paces, the plain one
// among them, some milliseconds, in turns. Clients that wait for their answers
// ask more when answers come faster; a steady load stays what it is.
//
// That the clients wait may also show without: when at the plain pace a good
// part of them waits for an answer at any time (Little's law: the share that the
// loop and the servers have of a client's round). Clients that ask as soon as
// they are answered would then ask less if a pace made them wait longer, so one
// at which they ask no less is taken for its CPU time. Of a steady load with slow
// servers that is not true: it may wait in vain, 2 ms at most.
//
// Once it is known that the clients wait, the pace in force is the one that
// serves most for its CPU time: a per cent of the one counts as much as one of
// the other. Which it is depends on the number of clients, on the servers and
// on what a wakeup costs on the machine.
//
// The windows of a trial are short, and a load that stumbles in one of them
// catches up in the next, so a verdict to wait must prove itself when it is new:
// a longer look at the pace that served most, or where it shows anyway that
// clients wait at the pace that was found, and one at the plain pace. A trial also
// disturbs a steady load for a fifth of a second. So a verdict against waiting
// stands long, and is looked at again early only when the load grows; one for
// waiting ends early when the load falls.
type Moderator struct {
	Settings
	Spent func() int64 // CPU time of the loop, in nanoseconds

	phase    phase
	pace     int                // in force: an index into paces
	step     int                // of a trial: two for each window, to settle and to count
	until    int64              // when the step, or the look at the load, ends
	ends     int64              // when the verdict ends
	last     uint64             // requests when the step began
	began    int64              // when that was
	since    int64              // spent by then, of a window that counts
	served   [len(paces)]uint64 // requests counted in a trial, by pace
	cost     [len(paces)]int64  // CPU time of those
	looked   int64              // when it was counted who waits
	waits    [2]int64           // clients that waited then, of all
	crowd    [2]int64           // the same, summed up over the time of a trial's windows at the plain pace
	found    int                // what the trial found, if it was right
	gain     int64              // per cent more requests than at the plain pace that prove it
	rate     int64              // requests a second in the last look; 0: not yet
	waiting  bool               // the last verdict was to wait
	patience int64              // how long it holds
}

// phase is what the Moderator does.
type phase uint8

const (
	watching phase = iota // a low load
	trying                // all paces, in turns
	proving               // that a trial was right
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
	trialEqual = 2                            // per cent fewer that count as equal
	trialNoise = 6                            // the same in windows as short as a trial's, where a proof follows
	crowdShare = 20                           // per cent of the clients that wait at the plain pace where that shows that waiting pays
	loadChange = 4                            // a load that changes by one part of so many is another load
	waitMin    = int64(1 * time.Second)
	waitMax    = int64(8 * time.Second) // reached by doubling while the verdict stays the same
	plainMin   = int64(1 * time.Second)
	plainMax   = int64(32 * time.Second)
	plainPace  = 0
)

// Pace is one way to serve a load.
type Pace struct {
	Prompt  bool // hold requests only where a queue is so long that they came in batches
	Answers bool // while servers owe answers, only these end the wait
	Nap     bool // sleep for Settings.Sleep before each look
}

// paces are what is tried: the plain one; waiting for answers, which suits
// some fifty clients and pipelines; and sleeping, which suits hundreds.
var paces = [...]Pace{plainPace: {Prompt: true}, Answers: {Prompt: true, Answers: true}, Sleep: {Nap: true}}

// turns is the order of the windows of a trial: there and back, so that a
// load that grows or shrinks meanwhile favours none.
var turns = [...]int{0, 1, 2, 2, 1, 0}

// Next returns how to serve now; requests is how many were given to servers
// so far, waiting how many of the clients wait for an answer.
func (m *Moderator) Next(now int64, requests uint64, waiting, clients int) Pace {
	if m.Above == 0 {
		return Pace{}
	}
	if m.phase == trying && m.counting() && m.pace == plainPace {
		for i, n := range m.waits {
			m.crowd[i] += n * (now - m.looked)
		}
	}
	m.looked, m.waits = now, [2]int64{int64(waiting), int64(clients)}
	if now >= m.until {
		n, elapsed := requests-m.last, max(now-m.began, 1)
		m.last, m.began = requests, now
		m.turn(now, n, int64(n)*int64(time.Second)/elapsed)
	}
	return paces[m.pace]
}

// turn ends a step or a look, in which n requests came at the given rate.
func (m *Moderator) turn(now int64, n uint64, rate int64) {
	switch m.phase {
	case trying:
		m.trial(now, n)
	case proving:
		m.rate = rate
		m.enter(checking, plainPace, now+checkTime)
	case checking:
		if m.rate*100 < rate*(100+m.gain) {
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

func (m *Moderator) enter(p phase, pace int, until int64) {
	m.phase, m.pace, m.until = p, pace, until
}

// changed says whether the verdict was on another load than what comes now.
func (m *Moderator) changed(rate int64) bool {
	if m.waiting {
		return rate < m.rate-m.rate/loadChange
	}
	return rate > m.rate+m.rate/loadChange
}

// try begins a trial, or the pace that is set.
func (m *Moderator) try(now int64) {
	if m.Pace != Auto {
		m.rate, m.ends = 0, math.MaxInt64
		m.enter(resting, int(m.Pace), now+lookTime)
		return
	}
	clear(m.served[:])
	clear(m.cost[:])
	clear(m.crowd[:])
	m.step = 0
	m.enter(trying, turns[0], now+settleTime)
}

// counting says whether a step of a trial counts; those between let clients
// settle.
func (m *Moderator) counting() bool { return m.step%2 == 1 }

// trial ends one step of a trial, in which n requests came, and begins the
// next.
func (m *Moderator) trial(now int64, n uint64) {
	counted := m.counting()
	if counted {
		m.served[m.pace] += n
		m.cost[m.pace] += m.Spent() - m.since
	}
	m.step++
	switch {
	case m.step == 2*len(turns):
		m.judge(now)
	case counted:
		m.enter(trying, turns[m.step/2], now+settleTime)
	default:
		m.until, m.since = now+countTime, m.Spent()
	}
}

// judge says what a trial found.
func (m *Moderator) judge(now int64) {
	best, plain := plainPace, m.served[plainPace]
	for i, n := range m.served {
		if n > m.served[best] {
			best = i
		}
	}
	m.found, m.gain = plainPace, trialGain
	prove := best
	switch {
	case m.crowd[1] > 0 && m.crowd[0]*100 >= m.crowd[1]*crowdShare:
		slack := uint64(trialNoise)
		if m.waiting { // no proof follows
			slack = trialEqual
		}
		m.found = m.worthiest(best, plain*(100-slack))
		m.gain, prove = -trialEqual, m.found
	case m.served[best]*100 >= plain*(100+trialGain):
		m.found = m.worthiest(best, plain*(100-trialEqual))
	}
	if m.found != plainPace && !m.waiting {
		m.enter(proving, prove, now+proveTime)
		return
	}
	m.verdict(now)
}

// worthiest is the pace of most worth among best and those that served a
// hundredth of least.
func (m *Moderator) worthiest(best int, least uint64) int {
	for i, n := range m.served {
		if n*100 >= least && m.worth(i) > m.worth(best) {
			best = i
		}
	}
	return best
}

// worth is what a pace served, times what it served for its CPU time.
func (m *Moderator) worth(i int) float64 {
	n := float64(m.served[i])
	return n * n / float64(max(m.cost[i], 1))
}

// verdict rests on what was found.
func (m *Moderator) verdict(now int64) {
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
