package health

// This file implements pings: the keeper reads every server's view record again and again. It adopts
// new phases and overrides from the record, writes to the record what it lacks, and creates a missing
// record as soon as that is safe.

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"ringside/proxy/health/barrier"
	"ringside/proxy/health/resize"
)

// ask is a request of the keeper to a server that has no reply yet.
type ask struct {
	kind    askKind
	server  int    // the server that gets the request
	about   int    // the server that the request is about; a vote is sent to another server than the server that it is about
	n       uint32 // phase number of the server that the request is about, at the time of sending; a flush ignores the reply if the phase number has changed since
	round   uint32 // for a request of a flush: number of failed attempts to flush the server, at the time of sending; the reply is ignored if that has changed since
	list    uint32 // for a request about a server list: its hash
	sent    int64
	written record // for a write of a view record (askWrite): the record in the request
}

type askKind uint8

const (
	askPing      askKind = iota // mg: read the view record
	askWrite                    // ms: write the view record
	askProcess                  // stats: identify the server process
	askMemory                   // stats settings: read whether the server has restartable memory
	askRoll                     // mg: read the list of instances (package roll)
	askRollWrite                // ms: write the list of instances (package roll)
	askList                     // mg: read a list of this process, to restore it
	askLack                     // mg: read a list that this process lacks
	askListWrite                // ms: write a list of this process
	askFormer                   // mg: read the former lists
	askLive                     // ma: count this proxy as alive
	askVote                     // ma: count that this proxy suspects another server
	askDoubt                    // mg: read how many proxies suspect another server
	askRefused                  // ma or mg: count that another server refuses this proxy, or read how many proxies it refuses
	askDiscard                  // md: remove a counter that is not a number
	askElect                    // ms: store the election token, so that only this proxy flushes the server
	askThreads                  // stats settings: read how many threads the server has
	askFence                    // mn: wait for one thread of the server before a flush. Sent once for each thread, on its own connection
	askLook                     // mg: read the view record once more before the flush
	askFlush                    // flush_all
	askToken                    // ms: store the election token again, after the flush
	askRecord                   // ms: store the view record again, after the flush
	askFlushed                  // mn: the reply shows that all earlier requests of the flush have run
)

// send queues a request on the shared connection.
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
	case askMemory:
		k.servers[a.server].asks = false
		k.servers[a.server].memory = parseMemory(answer)
	case askRoll:
		k.rolled(a, answer, now)
	case askRollWrite:
		k.rollWritten(a, answer, now)
	case askList, askLack:
		k.listAnswered(a, answer, now)
	case askFormer:
		k.formerAnswered(a, answer, now)
	case askLive, askVote, askDoubt, askRefused:
		k.counted(a, answer, now)
	case askDiscard, askListWrite:
	default:
		k.flushAnswered(a, answer, now)
	}
}

// unanswered handles that the request a gets no reply. It reports whether that changes anything: a
// step after each vote without a reply would be too much work if many servers fail together.
func (k *Keeper) unanswered(a ask, hard bool, why string, now int64) bool {
	switch a.kind {
	case askPing:
		k.unpinged(a.server, hard, why, now)
	case askWrite:
		k.servers[a.server].writing = false
	case askProcess:
		k.servers[a.server].asking = false
	case askMemory:
		k.servers[a.server].asks = false
	case askLack:
		k.search.open--
	case askFormer:
		if k.formers.seeks {
			k.formers.open--
		}
	case askList, askListWrite, askRoll, askRollWrite, askLive, askVote, askDoubt, askRefused, askDiscard:
		return false
	default:
		k.flushUnanswered(a, now)
	}
	return true
}

// ping sends the pings that are due. All servers are pinged four times as often while a server
// refuses connections, is LEAVING or in RETURN, or is in WARM and its keys are not changed yet, in the stages Pausing and Decided of a handover, and in the stages
// Pause (also while it is announced) and Clear of a change of the server list. Another
// proxy may publish the next step at any moment then, and clients of this proxy get errors until
// this proxy has read that step.
func (k *Keeper) ping(now int64) {
	hurry := barrier.Of(k.barrier.N) >= barrier.Pausing || k.resize.Stage() == resize.Pause || k.resize.Stage() == resize.Clear || k.any(func(i int) bool {
		p := PhaseOf(k.servers[i].n)
		return k.refuses(i, now) || p == Leaving || (p == Returning || p == Warming && !k.servers[i].open) && !k.off.Early
	})
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
			k.askRefused(i, now, MetaGet(k.keys.Refused[i]))
		}
		k.send(ask{kind: askPing, server: i, about: i}, now, MetaGet(k.keys.View))
	}
}

// pingTime returns the time from now to the next ping of a server. It varies by a tenth, so that
// proxies that started together do not stay synchronized.
func (k *Keeper) pingTime() int64 {
	p := int64(k.set.Ping)
	return p - p/10 + k.jitter(p/5)
}

func (k *Keeper) pinged(a ask, answer []byte, now int64) {
	i, s := a.server, &k.servers[a.server]
	s.pinging = false
	if s.unverified && !k.verifies(i, answer) {
		k.unpinged(i, false, unverified, now)
		return
	}
	value, cas, ok := MetaValue(answer)
	switch {
	case ok && cas == 0: // each item has this cas, so a view record can't be replaced
		k.markUp(i, now)
		s.lacks = serverNoCas
		s.absent = 0
	case ok:
		r, err := k.parse(value)
		if err != nil {
			k.complain(i, "view record refused: "+err.Error())
		} else {
			k.complain(i, "")
		}
		r.cas = cas
		k.markUp(i, now)
		s.lacks = ""
		if err == nil {
			k.read(i, r, a.sent, now)
		} else {
			k.missing(i, cas, now)
		}
	case IsMetaMiss(answer):
		k.markUp(i, now)
		if s.lacks == serverNoMeta { // a server without cas can only be recognized when it has a record
			s.lacks = ""
		}
		k.missing(i, 0, now)
	case bytes.HasPrefix(answer, []byte("ERROR")):
		k.markUp(i, now)
		s.lacks = serverNoMeta
		s.absent = 0
	default:
		k.unpinged(i, false, PingError+firstLine(answer), now)
	}
}

// PingError is the beginning of the reason why a server is suspect if it replies to pings with an error.
const PingError = "ping: "

// unpinged handles a ping without a usable reply.
func (k *Keeper) unpinged(i int, hard bool, why string, now int64) {
	s := &k.servers[i]
	s.pinging = false
	s.good = 0
	s.absent = 0 // it is not known any more whether the server has a view record
	s.soft++
	if !hard {
		s.refused = refusal{}
	}
	if hard || s.soft >= k.set.AfterFailures {
		k.markSuspect(i, why, now)
	}
}

func (k *Keeper) markUp(i int, now int64) {
	s := &k.servers[i]
	s.soft, s.refused, s.refuses = 0, refusal{}, false
	s.good++
	if s.good == 1 {
		s.goodSince = now
	}
	if s.suspect && !s.down && !s.stranger && s.good >= goodPings {
		s.suspect = false
		k.gen++
		if !k.set.Stays {
			k.event(i, "suspect", "up", fmt.Sprintf("%d good pings in a row", s.good))
		}
	}
}

func (k *Keeper) markSuspect(i int, why string, now int64) {
	s := &k.servers[i]
	s.good = 0
	if s.suspect {
		return
	}
	s.suspect, s.suspectWhy, s.suspectSince = true, why, now
	k.gen++
	if !k.set.Stays { // otherwise the suspicion has no effect on requests: see Verdict.Suspect
		k.event(i, "up", "suspect", why)
	}
}

// complain logs a problem (what) with the view record of server i, once until the problem changes;
// "": there is none.
func (k *Keeper) complain(i int, what string) {
	s := &k.servers[i]
	if s.complaint != what && what != "" {
		k.event(i, "record", "trouble", what)
	}
	s.complaint = what
}

// read handles the view record r that a ping of server i has returned. It adopts what is new in r,
// and writes the server's record if r lacks something that this proxy knows.
func (k *Keeper) read(i int, r record, sent, now int64) {
	s := &k.servers[i]
	s.absent = 0
	if s.record.incarnation != r.incarnation {
		if s.known = false; s.record.entries != nil {
			k.unhold(i)
		}
	}
	unlike := r.settings != 0 && r.settings != k.like
	if k.began = cmp.Or(k.began, now); s.record.entries != nil || now < k.began+2*int64(k.set.Ping) {
		if unlike {
			k.unlike, k.unlikeUntil = true, now+foreignPings*int64(max(k.set.Ping, k.set.Lease/3))
		}
		if r.hash != k.hash {
			k.foreignUntil = now + foreignPings*int64(k.pace())
			if r.hash != k.listed && (r.hash != k.united || k.united == 0) {
				k.strangeUntil = k.foreignUntil
			}
		}
	}
	first := s.record.entries == nil
	s.record = r
	s.goodSent = sent
	if k.recognized(i) {
		s.lease, s.heard = sent+k.leaseTime(r), sent
	}
	k.identify(i, now)
	k.askMemory(i, now)
	k.setJoined(r, now)
	for j, e := range r.entries {
		if m := k.adopted(i, j, e, first); m != k.servers[j].entry {
			k.become(j, m, "the view record on "+k.members[i].Name+" says so", now)
		}
	}
	k.recount()
	if k.barrier.Read(r.stage, r.hash, r.hash == k.hash, now) {
		k.pingAllNow(now)
	}
	k.endOrders(i, sent)
	k.readResize(r, now)
	k.readRemoved(r.others)
	k.hold(i, now)
	if by := (writer{r.hash, r.settings, r.wish}); by != s.by {
		if s.by, s.bySince = by, now; k.resize.Mine != 0 && k.resize.Opposes(r.wish) {
			k.opposedAt = now
		}
	}
	news := r.settings == 0 || r.partial || k.recalls(i, r.resize, now) || k.resize.Mine != 0 && r.resize != k.resize.State || r.hash == k.hash && r.stage != k.barrier.N || !covers(r.entries, k.servers) || !bytes.Equal(k.withDeparted(r.others), r.others)
	if !s.writing && (news || (unlike || r.hash != k.hash || k.resize.Mine != 0 && r.wish != k.resize.Vote()) && now >= s.takeAt && !k.formers.seeks && (now >= s.bySince+standPings*int64(k.pace()) || k.off.Stand)) {
		s.takeAt = now + foreignPings/4*int64(k.set.Ping)
		k.write(i, r, now)
	}
}

// adopted returns the entry of server j after this keeper has read the entry e in the view record on server i.
// first means that the keeper has read no view record of the server with that record before. Such a
// record may be older than a reload in which server j was out under another name (see Inherit). If
// its phase number then says that server j serves its keys, adopted returns the next phase number
// with phase OUT, so that server j is flushed first.
func (k *Keeper) adopted(i, j int, e entry, first bool) entry {
	s := &k.servers[j]
	m := s.order.obey(i, merge(s.entry, e))
	if first && s.inherited && m.n > s.n && !unflushed(PhaseOf(m.n)) {
		m.n = NextOut(m.n)
	}
	return m
}

// foreignPings is for how many intervals of pings a view record with another server list has an
// effect: this proxy then does nothing that requires all proxies to have the same server list. The
// first record of a server that was away has no such effect. While proxies have different lists,
// each writes the hash of its list over the hash of another list, at most four times in that period.
// Before that, the other hash has stood for standPings, so all proxies have read it, however many there
// are. So all notice again that the lists differ. After a rolling change, the records have the hash of
// the proxy that was changed last. Records with other settings have an effect for the same number of
// intervals, of the length that Keeper.pace allows.
const (
	foreignPings = 20
	standPings   = 2
)

// covers reports whether the entries of a record contain everything that this proxy knows about the
// servers.
func covers(entries []entry, servers []server) bool {
	for j, e := range entries {
		if merge(e, servers[j].entry) != e {
			return false
		}
	}
	return true
}

// hold records which of the current phase numbers the view record of server i contains, and since
// when. It also records whether the view record contains the current handover number.
func (k *Keeper) hold(i int, now int64) {
	k.barrier.Hold(i, k.servers[i].record.hash == k.hash && k.servers[i].record.stage == k.barrier.N, now)
	k.resize.Hold(i, k.servers[i].record.resize, now)
	if others := k.servers[i].record.others; k.barrier.Withheld {
		resize.Hold(&k.told.held[i], bytes.Equal(k.withDeparted(others), others), now)
	}
	for j := range k.servers {
		if s := &k.servers[j]; s.held != nil {
			e := k.servers[i].record.entries[j]
			resize.Hold(&s.held[i], e.n == s.n && e.renamed == s.renamed, now)
		}
	}
}

// unhold records that the view record of server i was lost. So the time for which that record has
// contained the current phase numbers, and the handover number, starts again.
func (k *Keeper) unhold(i int) {
	k.barrier.Held[i] = 0
	k.resize.Hold(i, resize.State{}, 0)
	if k.told.held != nil {
		k.told.held[i] = 0
	}
	for j := range k.servers {
		if s := &k.servers[j]; s.held != nil {
			s.held[i] = 0
		}
	}
	k.servers[i].listsAt, k.servers[i].formersAt = 0, 0
}

// write sends to server i a view record with everything that this proxy knows. It replaces the
// record r that this proxy has read there, if the server still has r.
func (k *Keeper) write(i int, r record, now int64) {
	recalls := k.recalls(i, r.resize, now)
	if r = k.known(r); recalls {
		r.resize = r.resize.Recalled()
	}
	value := k.format(r)
	k.servers[i].writing = true
	k.send(ask{kind: askWrite, server: i, about: i, written: r}, now, MetaPut(k.keys.View, value, r.cas, 0))
}

// known returns a view record with everything that this proxy knows, to be stored in place of r.
func (k *Keeper) known(r record) record {
	r.hash, r.settings, r.stage, r.others = k.hash, k.like, k.barrier.N, k.withDeparted(r.others)
	if k.resize.Mine != 0 {
		r.resize, r.wish = k.resize.State, k.resize.Vote()
	}
	r.entries = make([]entry, len(k.servers))
	for j := range k.servers {
		r.entries[j] = k.servers[j].entry
	}
	return r
}

func (k *Keeper) wrote(a ask, answer []byte, now int64) {
	s := &k.servers[a.server]
	s.writing = false
	switch line := firstLine(answer); {
	case strings.HasPrefix(line, "HD"):
		a.written.cas = 0
		s.known = s.known && s.record.incarnation == a.written.incarnation
		s.record = a.written
		s.absent = 0
		k.endOrders(a.server, a.sent)
		k.hold(a.server, now)
		if now >= s.lease || !covers(s.record.entries, k.servers) || s.record.stage != k.barrier.N || k.resize.Mine != 0 && s.record.resize != k.resize.State {
			s.pingAt = now // ping again, for a lease, or for the cas that the next write needs
		}
	case line == "EX", line == "NF", line == "NS":
		s.pingAt = now // another proxy has written the view record first: read it
	default:
		k.complain(a.server, "view record not written: "+line)
	}
}

// missing handles that server i replies, but has no view record: the server was restarted or flushed,
// or is new. cas is the cas of an unreadable item in place of the record; 0: there is no item.
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

// create writes the missing view record of server i, once the server's process is identified.
func (k *Keeper) create(i int, now int64) {
	switch s := &k.servers[i]; {
	case !k.recognized(i):
		k.identify(i, now)
	case !s.writing:
		k.write(i, record{cas: s.absentCas, incarnation: k.random.Uint64()}, now)
	}
}

// mayRestore reports whether this proxy may write the missing view record of server i. It
// must not if other proxies may have published something that this proxy doesn't know,
// because other proxies would trust its outdated record. So it needs leases on other servers:
// on more than half of all view servers, or on all that are not LEAVING or OUT. The records
// on these servers have every phase that any proxy acts on. If no proxy could restore the
// record for a long time, several things have failed at once. One lease is enough then.
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

// lost reports whether a majority of the view servers are OUT, or have had no view record for so long
// that no proxy has valid leases. Only the running proxies remember the previous state then. So
// missing records may be created, as at a first start.
func (k *Keeper) lost(now int64) bool {
	absent := 0
	for j := range k.servers {
		if s := &k.servers[j]; PhaseOf(s.n) == Out || s.absent != 0 && now >= s.absent+s.patience {
			absent++
		}
	}
	return k.strict() && absent >= k.majority()
}
