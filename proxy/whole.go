package proxy

// What copies are missing: keys that a member missed a write to, members that
// have come back empty, and the repairs that end it.

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// ledger is what one engine knows of how complete the members of a pool are. It
// outlives reloads.
type ledger struct {
	lp      *livePool // as it is in the present table
	servers []*Server
	print   string // of the placement that gives them keys
	rate    int    // keys a second that a member may be given; 0: repairs are off
	members []account
}

// account is that of one member.
type account struct {
	of *ledger
	at int // index of the member

	dirty    *replicate.DirtyKeys
	left     map[uint64]*leftover // keys that are to be deleted there, or copied there again, by hash
	order    []*leftover          // those to be deleted, as they came; and some that are not any more
	gone     []*leftover          // so those to be copied
	leaving  int                  // deletes that have been sent
	number   uint32               // when it was seen last
	seen     bool
	lacking  bool // it has come back empty: what it doesn't have decides nothing
	fill     *filling
	until    int64   // when that is taken to be over, if nobody fills it
	overfull bool    // it missed more writes than can be remembered: not to be read before it is flushed
	flushAt  int64   // when it may be tried again to flush it
	tokens   float64 // repairs that may be made now
	filledAt int64   // when tokens were counted
}

const (
	dirtyKeys = 16 << 10        // remembered for a server
	graves    = 64 << 10        // deletes remembered
	graveTime = 5 * time.Second // how long: longer than any read that a repair stands on
	lackTime  = time.Minute     // how long a member that nobody fills is asked twice
	flushWait = time.Minute     // between attempts to flush one that refuses it
	maxMends  = 64              // at once
)

// keepLedger keeps the ledger of a pool from the generation before if its servers
// and its placement are the same. If they are not, keys have moved, and everybody
// may lack some.
func (e *Copies) keepLedger(lp *livePool) {
	old := e.ledgers[lp.pool.Name]
	if old != nil && old.print == lp.pool.Place.Fingerprint && slices.Equal(old.servers, lp.servers) {
		old.lp = lp
		return
	}
	if e.ledgers == nil {
		e.ledgers = map[string]*ledger{}
		e.graves = replicate.NewTombstones(graves)
	}
	e.ledgers[lp.pool.Name] = e.newLedger(lp, old)
	old.stop()
}

// newLedger makes the ledger of a pool, which had another before.
func (e *Copies) newLedger(lp *livePool, old *ledger) *ledger {
	w := &ledger{lp: lp, servers: slices.Clone(lp.servers), print: lp.pool.Place.Fingerprint, members: make([]account, len(lp.servers))}
	for i, srv := range lp.servers {
		m := &w.members[i]
		m.of, m.at = w, i
		m.dirty = replicate.NewDirtyKeys(dirtyKeys)
		// At a start nobody can know; a server that was in use before has only
		// what its other keys are.
		m.lacking = old != nil || srv.release != (wire.Release{})
		m.until = e.now + int64(lackTime)
		if old == nil {
			continue
		}
		if j := slices.Index(old.servers, srv); j >= 0 {
			m.dirty, m.overfull = old.members[j].dirty, old.members[j].overfull
		}
	}
	return w
}

// copyAt is a holder with what the ledger says of it. A command that has waited
// through a reload may name a pool that is no more: of that nothing is known.
func (e *Copies) copyAt(h holder) copyOf {
	w := e.ledgers[h.lp.pool.Name]
	if w == nil || w.lp != h.lp && !slices.Equal(w.servers, h.lp.servers) {
		w = e.newLedger(h.lp, w)
	}
	return copyOf{holder: h, account: &w.members[h.index]}
}

// server is the member.
func (m *account) server() *Server { return m.of.lp.servers[m.at] }

// stop ends the refills of all members.
func (w *ledger) stop() {
	if w != nil {
		for i := range w.members {
			w.members[i].stop()
		}
	}
}

// takeCopies looks which pools still keep copies, once the routes are known.
func (e *Copies) takeCopies() {
	for name, w := range e.ledgers {
		if !slices.Contains(e.pools, w.lp) {
			w.stop()
			delete(e.ledgers, name)
			continue
		}
		w.rate = e.repairRate(w.lp)
		e.at(resyncTimer, e.now)
	}
}

// lacks says whether a member came back empty and nobody has filled it yet.
// That ends when it has been filled; where repairs are off, with time.
func (m *account) lacks(e *Copies) bool {
	if n := m.of.lp.view.N(m.at); m.number != n || !m.seen {
		if m.seen && health.Emptied(n) > health.Emptied(m.number) { // it was out meanwhile, and was flushed
			m.lack(e, true)
		}
		m.number, m.seen = n, true
	}
	if m.lacking && m.of.rate == 0 && e.now >= m.until {
		m.lacking = false
	}
	return m.lacking
}

// lack says that a member is empty: it was flushed, which all Ringsides waited
// for, or it was started anew. In the second case another Ringside may have
// filled it already, with what this one knows to be old.
func (m *account) lack(e *Copies, flushed bool) {
	m.stop()
	if flushed {
		m.dirty.Clear()
		clear(m.left)
		m.order, m.gone = nil, nil
		m.overfull = false
	}
	m.lacking, m.until = true, e.now+int64(lackTime)
	e.at(resyncTimer, e.now)
}

// missedTooMuch says whether a member is not to be read because it has missed more
// than is remembered. The way out is to empty it, when the others have
// everything.
func (m *account) missedTooMuch(e *Copies) bool {
	if m.overfull && e.now >= m.flushAt && m.othersWhole() {
		m.flushAt = e.now + int64(flushWait)
		limit := m.of.lp.pool.Timeouts
		e.demand(m.server().conns[0], &emptying{e, m}, 0, &limit, []byte("flush_all\r\n"), true)
	}
	return m.overfull
}

// othersWhole says that the member can be emptied without a loss. Of two that are
// overfull the first goes first.
func (m *account) othersWhole() bool {
	for i := range m.of.members {
		o := &m.of.members[i]
		if o.server().down || o != m && (o.lacking || o.overfull && i < m.at) {
			return false
		}
	}
	return true
}

// emptying is a flush_all of a member that missed too much.
type emptying struct {
	e *Copies
	m *account
}

func (f *emptying) Client() uint64 { return 0 }

func (f *emptying) Answered(_ int, r *Result) {
	if string(r.bytes) == wire.AnswerOK {
		f.m.lack(f.e, true)
	} else if r.bytes != nil {
		f.e.log.Warn("a server has missed too many writes and can't be emptied: it is not read", "server", r.srv.target.Name, "says", strings.TrimSpace(string(r.bytes)))
	}
}

// introduce asks a server, on a new connection, since when it runs: one that
// was started anew has lost what it had.
func (e *Copies) introduce(c *Conn) {
	srv := c.srv
	if srv.introducing || !slices.Contains(srv.conns, c) {
		return
	}
	for _, m := range e.keepers.watched[srv] {
		if m.copies {
			limit := Timeouts{Request: srv.greeting, Deadline: srv.connect + srv.greeting}
			srv.introducing = true
			e.demand(c, &introduction{e, srv}, 0, &limit, []byte("stats\r\n"), true)
			srv.unknown = srv.born != 0
			return
		}
	}
}

type introduction struct {
	e   *Copies
	srv *Server
}

const unsaid = -1 // since when a server runs that doesn't tell

func (d *introduction) Client() uint64 { return 0 }

func (d *introduction) Answered(_ int, r *Result) {
	e, srv := d.e, d.srv
	srv.introducing = false
	var now, uptime, pid int64
	for line := range strings.Lines(string(r.bytes)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseInt(f[2], 10, 64)
		switch f[1] {
		case "time":
			now = n
		case "uptime":
			uptime = n
		case "pid":
			pid = n
		}
	}
	switch {
	case r.bytes == nil || now == 0 && srv.born > 0:
		return
	case now == 0:
		srv.born, srv.unknown = unsaid, false
		return
	}
	srv.unknown = false
	before, beforePID := srv.born, srv.bornAs
	srv.born, srv.bornAs = now-uptime, pid
	if before <= 0 || pid == beforePID && srv.born-before <= 2 && before-srv.born <= 2 { // both are whole seconds
		return
	}
	for _, m := range e.keepers.watched[srv] {
		if w := e.ledgers[m.pool]; w != nil && m.member < len(w.members) {
			w.members[m.member].lack(e, false)
		}
	}
}

// repair wants a member made like another for one key, in the background. What
// can't be done now is dropped: reads go on without it.
func (e *Copies) repair(t *task, hash uint64, from, to copyOf, overwrite bool) {
	rate := t.rt.copies.RepairRate
	if rate == 0 {
		return
	}
	if e.graves.Has(hash, e.now) && !overwrite || e.crowded(keyLine(hash)) || e.mends >= maxMends || !to.mayRepair(e, rate) {
		e.count.RepairsDropped++
		return
	}
	e.count.Repairs++
	e.mend(t.rt, t.key, hash, from, to, overwrite, nil)
}

// mayRepair takes one repair from what this engine may give a member.
func (m *account) mayRepair(e *Copies, rate int) bool {
	each := e.share(rate)
	m.tokens = min(each/10+1, m.tokens+each*float64(e.now-m.filledAt)/1e9)
	m.filledAt = e.now
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

// untilRepair is how long it takes until mayRepair says yes, in nanoseconds.
func (m *account) untilRepair(e *Copies, rate int) int64 {
	if rate == 0 {
		return int64(lookTime)
	}
	return max(int64((1-m.tokens)/e.share(rate)*1e9), int64(time.Millisecond))
}

// share is this engine's part of a rate.
func (e *Copies) share(rate int) float64 { return float64(rate) / float64(e.loopCount()) }

// mend makes one copy like another, in line with the writes on the key: a delete
// between its reading here and its writing there must not be undone.
func (e *Copies) mend(rt *route, key []byte, hash uint64, from, to copyOf, overwrite bool, f *filling) {
	t := &task{e: e.Tasks, home: e.Tasks, over: true, rt: rt, op: wire.Get, key: key, hash: hash}
	t.deadline = e.now + int64(rt.pool.Timeouts.Deadline)
	if !plainKey(key) {
		t.req.Flags = wire.Base64
	}
	t.raw = t.meta("mg", key, "", nil)
	e.wire.Next(t.raw, &t.req)
	t.rule = &copied{e: e, members: []copyOf{from, to}, mends: true, fill: f, rule: replicate.Mend(1, 0, overwrite)}
	e.pool.held += int64(len(t.raw))
	e.mends++
	if e.claim(t, keyLine(t.hash)) {
		t.run(0, nil)
	}
}

// plainKey says whether a key can be written as it is.
func plainKey(key []byte) bool {
	for _, b := range key {
		if b <= ' ' || b == 0x7f {
			return false
		}
	}
	return true
}
