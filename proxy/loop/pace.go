package loop

// This file decides how long a busy event loop waits before it looks for events. A wait makes
// more events arrive at once, so that each wakeup serves more.
//
//	pace     the loop waits                                     suits
//	plain    not at all                                         a load that the loop can serve in time
//	Answers  for most of the replies that one server owes,      about fifty clients, and pipelines
//	         for at most 2 ms
//	Sleep    for Settings.Sleep                                 hundreds of clients
//
// The loop cannot know in advance which pace serves most, so a moderator measures it (see there for
// the reasons):
//
//	watching ─ Settings.Above requests a second ─► trying, all paces in turn, a fifth of a second
//	trying ─ waiting seems to pay off ─► proving ─► checking, at the plain pace ─► resting
//	trying ─ it does not, or the last verdict was to wait ─► resting
//	resting ─ the load is below Above ─► watching
//	resting ─ the verdict has expired, or the load has changed ─► trying
//
// If the configuration sets a pace (Settings.Pace), the loop uses it without a trial, above the
// same load.
//
// A request with a large value counts as several: see Engine.Work.
//
// The package neither waits nor reads a clock. Package loop does both, and passes it the time and
// the number of requests served.

import (
	"math"
	"time"
)

// Settings say when and how a loop may wait under high load.
type Settings struct {
	Above int           // requests to servers per second and loop above which a loop may wait before it looks for events (see type moderator); 0: never
	Sleep time.Duration // how long a loop sleeps at the pace Sleep
	Pace  Kind          // the only pace used while the load is higher than Above, or Auto
}

// DefaultModeration has the settings for engine.moderation: on.
var DefaultModeration = Settings{Above: 20_000, Sleep: 200 * time.Microsecond, Pace: Auto}

// Kind names a pace.
type Kind uint8

// The paces of Settings.
const (
	Auto    Kind = iota // trials choose the pace that serves the most requests for its CPU time; the loop does not wait if no pace with a wait is better
	Answers             // wait for most of the replies due from one server, for at most 2 ms
	Sleep               // wait for Settings.Sleep
)

// moderator decides how a loop serves a high load: how it waits before it looks for events, and
// whether requests to a busy server are held to be sent in batches.
//
// Under saturation, waiting makes batches larger, which reduces the work of the loop, the servers
// and the clients. Under a steady load that the loop can serve in time, waiting only adds latency.
// The loop cannot distinguish the two by itself. On a shared machine it is no busier when clients
// wait for it, and clients wait mostly for servers or for themselves. So the moderator runs trials:
// it uses each pace, including the plain one, for some milliseconds in turn. Clients that wait for
// their replies send more requests if replies arrive faster; a steady load does not change.
//
// There is a second sign that the clients wait: at the plain pace, a good part of them waits for a
// reply at any time. By Little's law, that part is the share of the loop and the servers in a
// client's round trip. If a pace made such clients wait longer, they would send fewer requests. So
// a pace at which they do not send fewer is chosen for its CPU time. This conclusion is wrong for a
// steady load with slow servers. Such a load may wait in vain, for at most 2 ms.
//
// If the clients are known to wait, the moderator uses the pace that serves most for its CPU time.
// One per cent more requests counts as much as one per cent less CPU time per request. The best
// pace depends on the number of clients, on the servers, and on the cost of a wakeup on the
// machine.
//
// The windows of a trial are short, and a load that stalls in one window catches up in the next. A
// new verdict to wait must therefore be proved: a longer window at the pace that served most, and
// one at the plain pace. If the second sign shows that clients wait, the longer window uses the
// pace that was found instead. A trial also disturbs a steady load for a fifth of a second. So a
// verdict against waiting lasts long, and ends early only if the load grows. A verdict for waiting
// ends early if the load falls.
type moderator struct {
	Settings
	Spent func() int64 // returns the CPU time of the loop, in nanoseconds

	phase    phase
	pace     int                // current pace: an index into paces
	step     int                // number of the current step of a trial; each window has two steps: in the first, clients adapt to the pace, and the second counts
	until    int64              // when the current step, or the measurement of the load, ends; on the loop's clock
	ends     int64              // when the verdict expires
	last     uint64             // number of requests when the step began
	began    int64              // when the current step began, on the loop's clock
	since    int64              // value of Spent when the counted window began
	served   [len(paces)]uint64 // requests counted in a trial, by pace
	cost     [len(paces)]int64  // CPU time of the loop in the counted steps of a trial, in nanoseconds, by pace
	looked   int64              // time of the last call of Next, which set the field waits
	waits    [2]int64           // at the last call of Next: the number of waiting clients, and of all clients
	crowd    [2]int64           // sums of waits × time over the windows of a trial at the plain pace
	found    int                // the pace that the trial found, to be proved
	gain     int64              // by how many per cent the found pace must serve more requests than the plain pace, to be proved
	rate     int64              // requests per second in the last measurement; 0: not measured yet
	waiting  bool               // the last verdict was to wait
	patience int64              // how long the verdict lasts, in nanoseconds
}

// phase is the state of the moderator.
type phase uint8

const (
	watching phase = iota // the load is low, so the plain pace is used
	trying                // a trial runs all paces in turn
	proving               // the pace found by a trial runs longer
	checking              // the plain pace runs, for comparison with the pace that a trial has found
	resting               // a verdict is in force
)

const (
	settleTime = int64(15 * time.Millisecond) // clients adapt to a new pace within about ten round trips
	countTime  = int64(17 * time.Millisecond)
	proveTime  = int64(150 * time.Millisecond)
	checkTime  = int64(150 * time.Millisecond)
	watchTime  = int64(10 * time.Millisecond) // time between two measurements while the load is low
	lookTime   = int64(50 * time.Millisecond) // time between two measurements while the load is high
	trialGain  = 4                            // waiting pays off if it serves this many per cent more requests than the plain pace
	trialEqual = 2                            // a pace that serves fewer requests by this many per cent still counts as equal
	trialNoise = 6                            // like trialEqual, for the short windows of a trial that a longer window (proving) follows
	crowdShare = 20                           // if at least this many per cent of the clients wait for replies at the plain pace (the loop does not wait), clients are known to wait: see moderator
	loadChange = 4                            // a load that changes by a quarter counts as another load
	waitMin    = int64(1 * time.Second)
	waitMax    = int64(8 * time.Second) // longest time that a verdict to wait is valid; the time doubles while the verdict stays the same
	plainMin   = int64(1 * time.Second)
	plainMax   = int64(32 * time.Second)
	plainPace  = 0
)

// Pace is one way to serve a load.
type Pace struct {
	Prompt  bool // hold requests only for a server whose queue is so long that it must be from pipelines or multi-key reads
	Answers bool // while servers owe replies, the arrival of replies is the only event that ends the wait
	Nap     bool // sleep for Settings.Sleep before looking for events
}

// paces are the paces of a trial: the plain one; waiting for replies, which suits about fifty
// clients and pipelines; and sleeping, which suits hundreds.
var paces = [...]Pace{plainPace: {Prompt: true}, Answers: {Prompt: true, Answers: true}, Sleep: {Nap: true}}

// turns is the order of the windows of a trial. It runs forward and then backward, so that a
// growing or shrinking load does not favour a pace.
var turns = [...]int{0, 1, 2, 2, 1, 0}

// Next returns the pace for the next wait. requests is the result of Engine.Work. waiting is the
// number of clients that wait for a reply, and clients the number of all.
func (m *moderator) Next(now int64, requests uint64, waiting, clients int) Pace {
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

// turn ends a step or a measurement, in which n requests arrived at the given rate.
func (m *moderator) turn(now int64, n uint64, rate int64) {
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

func (m *moderator) enter(p phase, pace int, until int64) {
	m.phase, m.pace, m.until = p, pace, until
}

// changed reports whether the load has changed so that the verdict must end early. A verdict to
// wait ends if the load has fallen, a verdict against waiting if it has grown.
func (m *moderator) changed(rate int64) bool {
	if m.waiting {
		return rate < m.rate-m.rate/loadChange
	}
	return rate > m.rate+m.rate/loadChange
}

// try begins a trial, or uses the configured pace.
func (m *moderator) try(now int64) {
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

// counting reports whether the requests of this step of a trial count. In the other steps, clients
// adapt to the pace.
func (m *moderator) counting() bool { return m.step%2 == 1 }

// trial ends one step of a trial, in which n requests arrived, and begins the next one.
func (m *moderator) trial(now int64, n uint64) {
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

// judge evaluates a trial. A new verdict to wait must first be proved by longer windows (see
// moderator), so the phase proving begins. Any other verdict is in force at once.
func (m *moderator) judge(now int64) {
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
		if m.waiting { // the last verdict was to wait too, so longer windows do not follow
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

// worthiest returns the pace with the most worth. It considers the pace `best`, and the paces
// that served at least `least`/100 requests.
func (m *moderator) worthiest(best int, least uint64) int {
	for i, n := range m.served {
		if n*100 >= least && m.worth(i) > m.worth(best) {
			best = i
		}
	}
	return best
}

// worth is the number of requests that a pace served, times that number per CPU time.
func (m *moderator) worth(i int) float64 {
	n := float64(m.served[i])
	return n * n / float64(max(m.cost[i], 1))
}

// verdict puts the pace that was found in force, until the verdict expires.
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
