// Package pace decides whether a busy loop waits for answers before it looks for
// events, so that more of them come at once and a wakeup serves more: most of the
// answers that one server owes, for 2 ms at most.
//
//	watching ─ at Above requests a second a good part of the clients waits for answers ─► waiting
//	waiting ─ it sleeps nearly as often for a request, or its time is over, or the load is below Above ─► watching
//
// It neither waits nor reads a clock: package loop does, and tells it the time and what
// the loop has served.
package pace

import "time"

// Moderator decides how a loop serves a high load. Under saturation waiting may
// make batches large, and so everybody's work less, that of the servers and the clients
// too; under a steady load that the loop can carry it only costs latency. How busy the
// loop is doesn't tell: on a machine that it shares it is no busier when clients wait for
// it than when they don't. Two counts do, and a count means the same whatever a wakeup or a
// system call costs on the machine.
//
// The one is how many of the clients wait for an answer at any time while the loop
// does not wait (Little's law: the share that the loop and the servers have of a
// client's round). Where it is large clients ask as soon as they are answered: few
// others would come meanwhile, and a wait for the answers is one for what comes next. Of a
// steady load with slow servers that is not true: there it may wait in vain, 2 ms at most.
//
// The other is how often the loop sleeps for a request. If it sleeps nearly as often
// while it waits, answers come in large portions anyway, as from servers that send what
// they have in one go, and waiting only keeps the two sides from working at the same time.
//
// Both are seen anew after a time; a longer one each time while the verdict stays.
type Moderator struct {
	Above  int          // requests to servers a second, for each loop, from which on it acts; 0: never
	Sleeps func() int64 // how often the loop has slept so far

	wait     bool
	until    int64    // when the look at the load ends
	ends     int64    // until when the verdict stands: to wait, or that it does not pay
	patience int64    // how long the next one does
	last     uint64   // requests when the look began
	began    int64    // when that was
	slept    int64    // sleeps by then
	plain    float64  // sleeps for a request while it did not wait
	counted  int64    // when it was counted who waits
	waits    [2]int64 // clients that waited then, of all
	crowd    [2]int64 // the same, summed up over the time of the look
}

const (
	lookTime   = int64(100 * time.Millisecond)
	crowdShare = 20  // per cent of the clients that wait
	fewer      = 0.7 // sleeps for each one without waiting, where it pays
	verdictMin = int64(1 * time.Second)
	verdictMax = int64(16 * time.Second) // reached by doubling
)

// Next says whether to wait for answers now; requests is how many were given to servers
// so far, waiting how many of the clients wait for an answer.
func (m *Moderator) Next(now int64, requests uint64, waiting, clients int) bool {
	if m.Above == 0 {
		return false
	}
	for i, n := range m.waits {
		m.crowd[i] += n * (now - m.counted)
	}
	m.counted, m.waits = now, [2]int64{int64(waiting), int64(clients)}
	if now < m.until {
		return m.wait
	}
	n, slept := float64(requests-m.last), m.Sleeps()
	each := float64(slept-m.slept) / max(n, 1)
	high := n*float64(time.Second) >= float64(m.Above)*float64(now-m.began)
	crowded := m.crowd[0] > 0 && m.crowd[0]*100 >= m.crowd[1]*crowdShare
	m.last, m.began, m.slept, m.crowd = requests, now, slept, [2]int64{}
	m.until = now + lookTime
	switch {
	case !high:
		m.wait, m.ends, m.patience = false, 0, verdictMin
	case m.wait:
		m.wait = now < m.ends && each < m.plain*fewer
	case crowded && now >= m.ends:
		m.wait, m.plain = true, each
		m.ends = now + m.patience
		m.patience = min(2*m.patience, verdictMax)
	}
	return m.wait
}
