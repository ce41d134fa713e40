package health

// This file flushes a server that rejoins. When the flush begins, no proxy reads from the server,
// and every write to its keys is also deleted there. So all data on it is old.
//
//	elect    one proxy is chosen to flush; a second flush would only cost misses
//	threads  ask how many threads the server has
//	fences   send one `mn` per thread, each on a new connection: when all have replied, the requests
//	         that other proxies sent before they timed out have run
//	look     read the view record: if it is not the one from before the election, do not flush
//	flush    send flush_all, then the election token and the view record again, because the flush
//	         removes both, and `mn`; all on one separate connection
//
// A flush removes the election token for a moment, so another proxy may win the election just then.
// It must not flush: by the time of its flush the server may be WARM, with new values. The flush
// has also removed the view record, and the new record has another incarnation. So a proxy that was
// elected after the flush sees in the look that it was too late. It then waits for WARM, or, if the
// proxy that has flushed the server does not publish WARM, for a WAIT with the new record and
// for the end of the token. A proxy that was elected before the flush was not elected while another
// proxy had the token. A full server that stores no token is an exception: see flushAnswered.
//
// The view record that is written after the flush still says RETURN. WARM is published only
// when the server has confirmed the flush, because many servers are configured to
// reject flush_all.

import (
	"fmt"
	"strings"
	"time"
)

const (
	settleTime  = int64(time.Second) // minimum delay from a server's first good ping to its flush: requests that were sent before an outage run in this time
	electedTime = 30                 // lifetime of the election token, in seconds: until it expires, no other proxy flushes the server

	// electedFor is how long after its election a proxy may send a flush. It is shorter than the
	// lifetime of the token, because the request takes time, and memcached may expire an item early.
	electedFor = (electedTime - 10) * int64(time.Second)
)

type flushStep uint8

const (
	flushIdle flushStep = iota
	flushElect
	flushThreads
	flushFences
	flushLook
	flushFlush
)

type flushing struct {
	step    flushStep
	elected int64  // until when this proxy may flush the server, because it has stored the election token on the server; 0: it has not
	before  uint64 // incarnation of the server's view record before the election
	after   uint64 // incarnation of the view record that this proxy stores after its flush; until it has sent a flush, the same as before
	fences  int    // number of mn requests before the flush that have no reply yet
	answer  string // the server's reply to flush_all
	retryAt int64
	round   uint32 // number of attempts to flush the server that have failed
}

func (k *Keeper) driveFlush(i int, now int64) {
	s := &k.servers[i]
	f := &s.flush
	settled := max(s.goodSince+settleTime, f.retryAt)
	switch {
	case s.renamed == s.n:
		k.flushed(i, "its old keys are not used, and all instances know it", now)
	case k.off.Flush:
		k.flushed(i, "ablation", now)
	case f.step != flushIdle:
		s.step = "next: WARM, is being flushed"
	case s.suspect || s.good == 0:
		s.step = "next: flush, when it answers"
	case s.needed && now < s.since+onlyTime:
		s.step, s.until = "next: flush, when the servers of another pool are complete, which may have the only copy of a key here", s.since+onlyTime
	case now < settled:
		s.step, s.until = "next: flush, when requests on their way have arrived", settled
	case k.mayFlush(i, s.record.incarnation, now):
		k.askThreads(i, now)
	default:
		f.step = flushElect
		f.before, f.after = s.record.incarnation, s.record.incarnation
		k.send(ask{kind: askElect, server: i, about: i}, now, k.tokenLine(i))
	}
}

// mayFlush reports whether this proxy may flush server i, if its view record has the given incarnation:
// it was elected for that, and no other proxy has flushed the server since.
func (k *Keeper) mayFlush(i int, incarnation uint64, now int64) bool {
	f := &k.servers[i].flush
	return now < f.elected && (incarnation == f.before || incarnation == f.after || k.off.Look)
}

func (k *Keeper) tokenLine(i int) []byte {
	key := fmt.Sprintf("%s:%d", k.keys.Flush, k.servers[i].n)
	return MetaPut(key, nil, 0, electedTime)
}

func (k *Keeper) askThreads(i int, now int64) {
	k.servers[i].flush.step = flushThreads
	k.send(ask{kind: askThreads, server: i, about: i}, now, askSettings)
}

// flushAnswered handles the reply to a request of a flush, and sends the next request of the flush.
func (k *Keeper) flushAnswered(a ask, answer []byte, now int64) {
	i, s := a.about, &k.servers[a.about]
	f := &s.flush
	if a.n != s.n || a.round != f.round {
		return // the reply is of no use: another proxy has published the next phase, or this attempt to flush has failed
	}
	line := firstLine(answer)
	switch a.kind {
	case askElect:
		if line != "HD" && !strings.HasPrefix(line, "SERVER_ERROR") { // a full server that evicts nothing (-M) replies SERVER_ERROR: the flush continues without a token, because only the flush frees memory. Only the look prevents a second flush then
			k.flushLater(i, now) // another proxy has stored the token, so it flushes the server
			return
		}
		f.elected = a.sent + electedFor
		k.askThreads(i, now)
	case askThreads:
		f.step = flushFences
		f.fences = parseThreads(answer)
		for range f.fences {
			k.lastConn++
			k.sendOn(k.lastConn, true, ask{kind: askFence, server: i, about: i}, now, []byte("mn\r\n"))
		}
	case askFence:
		if line != "MN" {
			k.flushLater(i, now)
			return
		}
		f.fences--
		if f.fences == 0 {
			f.step = flushLook
			k.send(ask{kind: askLook, server: i, about: i}, now, MetaGet(k.keys.View))
		}
	case askLook:
		value, _, _ := MetaValue(answer)
		if r, err := k.parse(value); err != nil || !k.mayFlush(i, r.incarnation, now) {
			f.elected = 0
			k.flushLater(i, now)
			return
		}
		k.sendFlush(i, now)
	case askFlush:
		f.answer = line
	case askToken, askRecord:
		// The flush needs no reply to these two requests. An error means that the item exists already.
	case askFlushed:
		k.judgeFlush(i, line, now)
	}
}

func (k *Keeper) sendFlush(i int, now int64) {
	s := &k.servers[i]
	s.flush.step = flushFlush
	k.lastConn++
	conn := k.lastConn
	r := k.known(record{incarnation: k.random.Uint64()})
	s.flush.after = r.incarnation
	put := func(kind askKind, last bool, line []byte) {
		k.sendOn(conn, last, ask{kind: kind, server: i, about: i}, now, line)
	}
	put(askFlush, false, []byte("flush_all\r\n"))
	put(askToken, false, k.tokenLine(i))
	put(askRecord, false, MetaPut(k.keys.View, k.format(r), 0, 0))
	put(askFlushed, true, []byte("mn\r\n"))
}

func (k *Keeper) judgeFlush(i int, end string, now int64) {
	s := &k.servers[i]
	answer := s.flush.answer
	switch {
	case end == "MN" && answer == "OK":
		k.flushed(i, "it is flushed", now)
	case end == "MN" && (strings.HasPrefix(answer, "CLIENT_ERROR") || answer == "ERROR"):
		// The server has rejected the flush. The names of its keys get its phase number as a prefix,
		// so the old data can't be addressed any more. All proxies must know this number before any of
		// them reads from the server, because writes are then deleted there under the new names.
		e := s.entry
		e.renamed = e.n
		k.publish(i, e, "it rejects flush_all, so its old keys are no longer used: "+answer, now)
	default:
		k.flushLater(i, now)
	}
}

func (k *Keeper) flushed(i int, why string, now int64) {
	e := k.servers[i].entry
	e.n++
	k.publish(i, e, why, now)
}

// flushUnanswered handles a request of a flush without a reply: it starts the flush again a little
// later. A second flush does no harm.
func (k *Keeper) flushUnanswered(a ask, now int64) {
	if s := &k.servers[a.about]; a.n == s.n && a.round == s.flush.round {
		k.flushLater(a.about, now)
	}
}

func (k *Keeper) flushLater(i int, now int64) {
	f := &k.servers[i].flush
	*f = flushing{elected: f.elected, before: f.before, after: f.after, round: f.round + 1, retryAt: now + k.pingTime()}
}
