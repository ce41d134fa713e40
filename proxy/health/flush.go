package health

// The flush of a server that comes back: the one step that is not just a
// number. When this begins nobody reads from the server and whatever is written
// to its keys is deleted there, so all it holds is old.
//
//	elect    one proxy flushes; a second flush would only cost misses
//	threads  how many threads does the server have
//	fences   one `mn` on a new connection for each of them: what other proxies
//	         had sent before they gave up has run when all have answered
//	flush    flush_all, the token of the election and the record (both are
//	         flushed too) and `mn`, on one connection of their own
//
// The record that is put back behind the flush still says RETURN. The next one
// is published when the server has said that it did flush: many are started
// so that they refuse.

import (
	"fmt"
	"strings"
	"time"

	"ringside/proxy/health/meta"
)

const (
	settleTime  = int64(time.Second) // from a server's first answer to its flush
	electedTime = 30                 // seconds that nobody else flushes
)

type flushStep uint8

const (
	flushIdle flushStep = iota
	flushElect
	flushThreads
	flushFences
	flushFlush
)

type flushing struct {
	step    flushStep
	elected bool   // by the token on the server; asked once for each n
	fences  int    // still to be answered
	answer  string // to flush_all
	retryAt int64
	round   uint32 // of attempts
}

func (k *Keeper) driveFlush(i int, now int64) {
	s := &k.servers[i]
	f := &s.flush
	settled := max(s.goodSince+settleTime, f.retryAt)
	switch {
	case s.renamed == s.n:
		k.flushed(i, "renamed, and all Ringsides know it", now)
	case k.off.Flush:
		k.flushed(i, "ablation", now)
	case f.step != flushIdle:
		s.step = "next: WARM, is being flushed"
	case s.suspect || s.good == 0:
		s.step = "next: flush, when it answers"
	case s.needed && now < s.since+onlyTime:
		s.step, s.until = "next: flush, when the servers of another pool are complete, which may have the only copy of a key here", s.since+onlyTime
	case now < settled:
		s.step, s.until = "next: flush, when what is on its way has arrived", settled
	case f.elected:
		k.askThreads(i, now)
	default:
		f.step = flushElect
		k.send(ask{kind: askElect, server: i, about: i}, now, k.tokenLine(i))
	}
}

func (k *Keeper) tokenLine(i int) []byte {
	key := fmt.Sprintf("%s:%d", k.keys.Flush, k.servers[i].n)
	return meta.Put(key, nil, 0, electedTime)
}

func (k *Keeper) askThreads(i int, now int64) {
	k.servers[i].flush.step = flushThreads
	k.send(ask{kind: askThreads, server: i, about: i}, now, []byte("stats settings\r\n"))
}

// flushAnswered takes an answer and asks what comes next.
func (k *Keeper) flushAnswered(a ask, answer []byte, now int64) {
	i, s := a.about, &k.servers[a.about]
	f := &s.flush
	if a.n != s.n || a.round != f.round {
		return // others were faster, or it failed again
	}
	line := meta.FirstLine(answer)
	switch a.kind {
	case askElect:
		if line != "HD" {
			k.flushLater(i, now) // somebody else does it
			return
		}
		f.elected = true
		k.askThreads(i, now)
	case askThreads:
		f.step = flushFences
		f.fences = meta.Threads(answer)
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
			k.sendFlush(i, now)
		}
	case askFlush:
		f.answer = line
	case askToken, askRecord:
		// They may be refused: then they are there.
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
	put := func(kind askKind, last bool, line []byte) {
		k.sendOn(conn, last, ask{kind: kind, server: i, about: i}, now, line)
	}
	put(askFlush, false, []byte("flush_all\r\n"))
	put(askToken, false, k.tokenLine(i))
	put(askRecord, false, meta.Put(k.keys.View, appendRecord(nil, r, k.members), 0, 0))
	put(askFlushed, true, []byte("mn\r\n"))
}

func (k *Keeper) judgeFlush(i int, end string, now int64) {
	s := &k.servers[i]
	answer := s.flush.answer
	switch {
	case end == "MN" && answer == "OK":
		k.flushed(i, "flushed", now)
	case end == "MN" && (strings.HasPrefix(answer, "CLIENT_ERROR") || answer == "ERROR"):
		// It refuses. Then its keys get a number that they never had: what it
		// holds can't be addressed any more. All proxies must know the number
		// before anybody reads: they delete there under that name.
		e := s.entry
		e.renamed = e.n
		k.publish(i, e, "it refuses to be flushed and is renamed: "+answer, now)
	default:
		k.flushLater(i, now)
	}
}

func (k *Keeper) flushed(i int, why string, now int64) {
	e := k.servers[i].entry
	e.n++
	k.publish(i, e, why, now)
}

// flushUnanswered begins again: nothing of it does harm when it happens twice.
func (k *Keeper) flushUnanswered(a ask, now int64) {
	if s := &k.servers[a.about]; a.n == s.n && a.round == s.flush.round {
		k.flushLater(a.about, now)
	}
}

func (k *Keeper) flushLater(i int, now int64) {
	f := &k.servers[i].flush
	*f = flushing{elected: f.elected, round: f.round + 1, retryAt: now + k.pingTime()}
}
