package health

// Pings: every server's record is read again and again. What it knows is taken
// over, what it doesn't know is written to it, and if it has none it gets one
// as soon as that is safe.

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"ringside/proxy/health/barrier"
	"ringside/proxy/health/meta"
)

// ask is a request that was sent.
type ask struct {
	kind    askKind
	server  int    // that was asked
	about   int    // server that it is about
	n       uint32 // of about; when that has changed the answer is of no use
	round   uint32 // of the attempts to flush about
	sent    int64
	written record // askWrite
}

type askKind uint8

const (
	askPing      askKind = iota // mg: the record
	askWrite                    // ms: the record
	askProcess                  // stats: which process is it
	askRoll                     // mg: the roll
	askRollWrite                // ms: the roll
	askLive                     // ma: this proxy lives
	askVote                     // ma: it suspects about
	askDoubt                    // mg: how many suspect about
	askRefused                  // ma or mg: how many does about refuse
	askElect                    // ms: may this proxy flush about
	askThreads                  // stats settings: how many threads has about
	askFence                    // mn: on one of them
	askFlush                    // flush_all
	askToken                    // ms: the election again, behind the flush
	askRecord                   // ms: the record again, behind the flush
	askFlushed                  // mn: end of the flush
)

// send queues a request on the usual connection.
func (k *Keeper) send(a ask, now int64, line []byte) { k.sendOn(0, false, a, now, line) }

func (k *Keeper) sendOn(conn uint32, end bool, a ask, now int64, line []byte) {
	a.sent = now
	a.n, a.round = k.servers[a.about].n, k.servers[a.about].flush.round
	k.lastID++
	k.pending[k.lastID] = a
	k.requests = append(k.requests, Request{ID: k.lastID, Server: a.server, Conn: conn, Close: end, Line: line})
}

func (k *Keeper) answered(a ask, answer []byte, now int64) {
	switch a.kind {
	case askPing:
		k.pinged(a, answer, now)
	case askWrite:
		k.wrote(a, answer, now)
	case askProcess:
		k.identified(a, answer, now)
	case askRoll:
		k.rolled(a, answer, now)
	case askRollWrite:
		k.rollWritten(a, answer, now)
	case askLive, askVote, askDoubt, askRefused:
		k.counted(a, answer, now)
	default:
		k.flushAnswered(a, answer, now)
	}
}

func (k *Keeper) unanswered(a ask, hard bool, why string, now int64) {
	switch a.kind {
	case askPing:
		k.unpinged(a.server, hard, why, now)
	case askWrite:
		k.servers[a.server].writing = false
	case askProcess:
		k.servers[a.server].asking = false
	case askRoll, askRollWrite, askLive, askVote, askDoubt, askRefused:
	default:
		k.flushUnanswered(a, now)
	}
}

// ping sends the pings that are due. While a server is about to leave, or leaves, and
// while a handover pauses, all are asked four times as often: others may publish the next step
// at any moment, and clients here get errors until this proxy has read that.
func (k *Keeper) ping(now int64) {
	hurry := barrier.Of(k.barrier.N) >= barrier.Pausing || k.any(func(i int) bool { return k.refuses(i, now) || PhaseOf(k.servers[i].n) == Leaving })
	for i := range k.servers {
		s := &k.servers[i]
		if hurry {
			s.pingAt = min(s.pingAt, now+k.pingTime()/4)
		}
		if s.pinging || now < s.pingAt {
			continue
		}
		s.pinging = true
		s.pingAt = now + k.pingTime()
		if k.refuses(i, now) {
			k.askRefused(i, now, meta.Get(k.keys.Refused[i]))
		}
		k.send(ask{kind: askPing, server: i, about: i}, now, meta.Get(k.keys.View))
	}
}

// pingTime is the time to the next ping, give or take a tenth, so that proxies
// that were started together don't stay together.
func (k *Keeper) pingTime() int64 {
	p := int64(k.set.Ping)
	return p - p/10 + k.jitter(p/5)
}

func (k *Keeper) pinged(a ask, answer []byte, now int64) {
	i, s := a.server, &k.servers[a.server]
	s.pinging = false
	value, cas, ok := meta.Value(answer)
	switch {
	case ok:
		r, err := parseRecord(value, k.index, len(k.members))
		if err != nil {
			k.complain(i, "view record refused: "+err.Error())
		} else {
			k.complain(i, "")
		}
		r.cas = cas
		k.isUp(i, now)
		s.noMeta = false
		if err == nil {
			k.read(i, r, a.sent, now)
		} else {
			k.missing(i, cas, now)
		}
	case meta.None(answer):
		k.isUp(i, now)
		s.noMeta = false
		k.missing(i, 0, now)
	case bytes.HasPrefix(answer, []byte("ERROR")):
		k.isUp(i, now)
		s.noMeta = true
		s.absent = 0
	default:
		k.unpinged(i, false, "ping: "+meta.FirstLine(answer), now)
	}
}

// unpinged counts a ping that brought nothing.
func (k *Keeper) unpinged(i int, hard bool, why string, now int64) {
	s := &k.servers[i]
	s.pinging = false
	s.good = 0
	s.absent = 0 // it may have had a record in between
	s.soft++
	if !hard {
		s.refused = refusal{}
	}
	if hard || s.soft >= k.set.AfterFailures {
		k.isSuspect(i, why, now)
	}
}

func (k *Keeper) isUp(i int, now int64) {
	s := &k.servers[i]
	s.soft, s.refused = 0, refusal{}
	s.good++
	if s.good == 1 {
		s.goodSince = now
	}
	if s.suspect && !s.down && !s.stranger && s.good >= k.set.GoodPings {
		s.suspect = false
		k.gen++
		k.event(i, "suspect", "up", fmt.Sprintf("%d good pings in a row", s.good))
	}
}

func (k *Keeper) isSuspect(i int, why string, now int64) {
	s := &k.servers[i]
	s.good = 0
	if s.suspect {
		return
	}
	s.suspect, s.suspectWhy, s.suspectSince = true, why, now
	k.gen++
	k.event(i, "up", "suspect", why)
}

// complain tells once what is wrong with a server's record.
func (k *Keeper) complain(i int, what string) {
	s := &k.servers[i]
	if s.complaint != what && what != "" {
		k.event(i, "record", "trouble", what)
	}
	s.complaint = what
}

// read takes over a record that a ping brought, and brings it up to date.
func (k *Keeper) read(i int, r record, sent, now int64) {
	s := &k.servers[i]
	s.absent = 0
	if s.record.incarnation != r.incarnation {
		if s.known = false; s.record.entries != nil {
			k.unhold(i)
		}
	}
	if k.began = cmp.Or(k.began, now); r.hash != k.hash && (s.record.entries != nil || now < k.began+2*int64(k.set.Ping)) {
		k.foreignUntil = now + foreignPings*int64(k.set.Ping)
	}
	s.record = r
	s.goodSent = sent
	if k.recognized(i) {
		s.lease, s.heard = sent+int64(k.set.Lease), sent
	}
	k.identify(i, now)
	for j, e := range r.entries {
		if m := merge(k.servers[j].entry, e); m != k.servers[j].entry {
			k.become(j, m, "the record on "+k.members[i].Name+" says so", now)
		}
	}
	k.recount()
	if k.barrier.Read(r.stage, r.hash, r.hash == k.hash, now) {
		k.tellAll(now)
	}
	k.hold(i, now)
	news := r.hash == k.hash && r.stage != k.barrier.N || !covers(r.entries, k.servers) || !bytes.Equal(k.withDeparted(r.others), r.others)
	if !s.writing && (news || r.hash != k.hash && now >= s.takeAt) {
		s.takeAt = now + foreignPings/4*int64(k.set.Ping)
		k.write(i, r, now)
	}
}

// foreignPings is for how many pings a record of proxies with another
// membership list suspends the guarantee, not of a server that was away. Each side writes its hash over the
// other's four times as often, so both see each other as long as there are both, and
// after a rolling change the last one's stays.
const foreignPings = 20

// covers says whether a record holds all that this proxy knows.
func covers(entries []entry, servers []server) bool {
	for j, e := range entries {
		if merge(e, servers[j].entry) != e {
			return false
		}
	}
	return true
}

// hold notes which numbers a server's record has by now.
func (k *Keeper) hold(i int, now int64) {
	k.barrier.Hold(i, k.servers[i].record.hash == k.hash && k.servers[i].record.stage == k.barrier.N, now)
	for j := range k.servers {
		s := &k.servers[j]
		if s.held == nil {
			continue
		}
		if e := k.servers[i].record.entries[j]; e.n != s.n || e.renamed != s.renamed {
			s.held[i] = 0
		} else if s.held[i] == 0 {
			s.held[i] = now
		}
	}
}

// unhold notes that a server's record was lost: whatever waits for it to be
// known starts again.
func (k *Keeper) unhold(i int) {
	k.barrier.Held[i] = 0
	for j := range k.servers {
		if s := &k.servers[j]; s.held != nil {
			s.held[i] = 0
		}
	}
}

// write sends all that this proxy knows to a server, over the record r that it
// has read there.
func (k *Keeper) write(i int, r record, now int64) {
	r = k.known(r)
	value := appendRecord(nil, r, k.members)
	k.servers[i].writing = true
	k.send(ask{kind: askWrite, server: i, about: i, written: r}, now, meta.Put(k.keys.View, value, r.cas, 0))
}

// known is all that this proxy knows, to be written in the place of r.
func (k *Keeper) known(r record) record {
	r.hash, r.stage, r.others = k.hash, k.barrier.N, k.withDeparted(r.others)
	r.entries = make([]entry, len(k.servers))
	for j := range k.servers {
		r.entries[j] = k.servers[j].entry
	}
	return r
}

func (k *Keeper) wrote(a ask, answer []byte, now int64) {
	s := &k.servers[a.server]
	s.writing = false
	switch line := meta.FirstLine(answer); {
	case strings.HasPrefix(line, "HD"):
		a.written.cas = 0
		s.known = s.known && s.record.incarnation == a.written.incarnation
		s.record = a.written
		s.absent = 0
		k.hold(a.server, now)
		if now >= s.lease || !covers(s.record.entries, k.servers) || s.record.stage != k.barrier.N {
			s.pingAt = now // for a lease, or for the cas to write again
		}
	case line == "EX", line == "NF", line == "NS":
		s.pingAt = now // somebody was faster: read what he wrote
	default:
		k.complain(a.server, "view record not written: "+line)
	}
}

// missing is called when a server answers but has no record, or one (with a
// cas) that can't be read: it was restarted or flushed, or is new.
func (k *Keeper) missing(i int, cas uint64, now int64) {
	s := &k.servers[i]
	s.record = record{}
	k.unhold(i)
	if s.absent == 0 {
		s.absent, s.known = now, false
		s.patience = k.wait() + k.jitter(int64(k.set.Lease)/4)
	}
	s.absentCas = cas
	if k.lost(now) {
		for j := range k.servers {
			if k.servers[j].absent != 0 {
				k.create(j, now)
			}
		}
	} else if k.mayRestore(i, now) {
		k.create(i, now)
	}
}

// create writes a record where there is none, when it is known who answers there.
func (k *Keeper) create(i int, now int64) {
	switch s := &k.servers[i]; {
	case !k.recognized(i):
		k.identify(i, now)
	case !s.writing:
		k.write(i, record{cas: s.absentCas, incarnation: k.random.Uint64()}, now)
	}
}

// mayRestore says whether this proxy may write the record that server i lacks.
// It must not if others may have published what it doesn't know: others would
// then read its old record and take it for the truth. So it needs leases of R
// others, or of all others that are not LEAVING or OUT: they hold whatever is in
// force. But if nobody has been able to restore it for a long time, several
// things have failed at once; then whoever has any lease goes on.
func (k *Keeper) mayRestore(i int, now int64) bool {
	if !k.strict() {
		return true
	}
	others, _ := k.leases(now, func(j int) bool { return j != i })
	if others >= k.majority() {
		return true
	}
	have, all := k.leases(now, func(j int) bool { return j != i && k.present(j) })
	s := &k.servers[i]
	return all > 0 && have == all || others > 0 && now >= s.absent+10*s.patience
}

// lost says whether R records have been absent for a WAIT, and with them
// everybody's leases. Of what was known before nothing is left but what the
// proxies that are still there remember; it is like a first start.
func (k *Keeper) lost(now int64) bool {
	absent := 0
	for j := range k.servers {
		if s := &k.servers[j]; PhaseOf(s.n) == Out || s.absent != 0 && now >= s.absent+s.patience {
			absent++
		}
	}
	return k.strict() && absent >= k.majority()
}
