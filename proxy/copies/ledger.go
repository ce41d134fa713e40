package copies

// What copies are missing: keys that a member missed a write to, members that
// have come back empty, and the repairs that end it.

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// ledger is what one engine knows of how complete the members of a pool are. It
// outlives reloads.
type ledger struct {
	bp      *routing.BoundPool // as it is in the present table
	Servers []*upstream.Server
	print   string // of the placement that gives them keys
	rate    int    // keys a second that a member may be given; 0: repairs are off
	Members []account
}

// account is that of one member.
type account struct {
	of *ledger
	at int // index of the member

	Dirty    *replicate.DirtyKeys
	Left     map[uint64]*Stale // keys that are to be deleted there, or copied there again, by hash
	Order    []*Stale          // those to be deleted, as they came; and some that are not any more
	Gone     []*Stale          // so those to be copied
	leaving  int               // deletes that have been sent
	number   uint32            // when it was seen last
	seen     bool
	Lacking  bool // it has come back empty: what it doesn't have decides nothing
	Fill     *resync
	until    int64   // when that is taken to be over, if nobody fills it
	overfull bool    // it missed more writes than can be remembered: not to be read before it is flushed
	flushAt  int64   // when it may be tried again to flush it
	tokens   float64 // repairs that may be made now
	filledAt int64   // when tokens were counted
}

const (
	DirtyKeys = 16 << 10    // remembered for a server
	lackTime  = time.Minute // how long a member that nobody fills is asked twice
	flushWait = time.Minute // between attempts to flush one that refuses it
	maxMends  = 64          // at once
)

// KeepLedger keeps the ledger of a pool from the generation before if its servers
// and its placement are the same. If they are not, keys have moved, and everybody
// may lack some.
func (e *Copies) KeepLedger(bp *routing.BoundPool) {
	old := e.Ledgers[bp.Pool.Name]
	if old != nil && old.print == bp.Pool.Place.Fingerprint && slices.Equal(old.Servers, bp.Servers) {
		old.bp = bp
		return
	}
	if e.Ledgers == nil {
		e.Ledgers = map[string]*ledger{}
	}
	e.Ledgers[bp.Pool.Name] = e.newLedger(bp, old)
	old.stop()
}

// newLedger makes the ledger of a pool, which had another before.
func (e *Copies) newLedger(bp *routing.BoundPool, old *ledger) *ledger {
	w := &ledger{bp: bp, Servers: slices.Clone(bp.Servers), print: bp.Pool.Place.Fingerprint, Members: make([]account, len(bp.Servers))}
	for i, srv := range bp.Servers {
		m := &w.Members[i]
		m.of, m.at = w, i
		m.Dirty = replicate.NewDirtyKeys(DirtyKeys)
		// At a start nobody can know; a server that was in use before has only
		// what its other keys are.
		m.Lacking = old != nil || srv.Release != (wire.Release{})
		m.until = e.Now + int64(lackTime)
		if old == nil {
			continue
		}
		if j := slices.Index(old.Servers, srv); j >= 0 {
			m.Dirty, m.overfull = old.Members[j].Dirty, old.Members[j].overfull
		}
	}
	return w
}

// copyAt is a holder with what the ledger says of it. A command that has waited
// through a reload may name a pool that is no more: of that nothing is known.
func (e *Copies) copyAt(h routing.Holder) copyOf {
	w := e.Ledgers[h.Pool.Pool.Name]
	if w == nil || w.bp != h.Pool && !slices.Equal(w.Servers, h.Pool.Servers) {
		w = e.newLedger(h.Pool, w)
	}
	return copyOf{Holder: h, account: &w.Members[h.Index]}
}

// server is the member.
func (m *account) server() *upstream.Server { return m.of.bp.Servers[m.at] }

// stop ends the refills of all members.
func (w *ledger) stop() {
	if w != nil {
		for i := range w.Members {
			w.Members[i].stop()
		}
	}
}

// TakeCopies looks which pools still keep copies, once the routes are known.
func (e *Copies) TakeCopies() {
	for name, w := range e.Ledgers {
		if !slices.Contains(e.Pools, w.bp) {
			w.stop()
			delete(e.Ledgers, name)
			continue
		}
		w.rate = e.repairRate(w.bp)
		e.At(link.ResyncTimer, e.Now)
	}
}

// lacks says whether a member came back empty and nobody has filled it yet.
// That ends when it has been filled; where repairs are off, with time.
func (m *account) lacks(e *Copies) bool {
	if n := m.of.bp.View.N(m.at); m.number != n || !m.seen {
		if m.seen && health.Emptied(n) > health.Emptied(m.number) { // it was out meanwhile, and was flushed
			m.lack(e, true)
		}
		m.number, m.seen = n, true
	}
	if m.Lacking && m.of.rate == 0 && e.Now >= m.until {
		m.Lacking = false
	}
	return m.Lacking
}

// lack says that a member is empty: it was flushed, which all Ringsides waited
// for, or it was started anew. In the second case another Ringside may have
// filled it already, with what this one knows to be old.
func (m *account) lack(e *Copies, flushed bool) {
	m.stop()
	if flushed {
		m.Dirty.Clear()
		clear(m.Left)
		m.Order, m.Gone = nil, nil
		m.overfull = false
	}
	m.Lacking, m.until = true, e.Now+int64(lackTime)
	e.At(link.ResyncTimer, e.Now)
}

// missedTooMuch says whether a member is not to be read because it has missed more
// than is remembered. The way out is to empty it, when the others have
// everything.
func (m *account) missedTooMuch(e *Copies) bool {
	if m.overfull && e.Now >= m.flushAt && m.othersWhole() {
		m.flushAt = e.Now + int64(flushWait)
		limit := m.of.bp.Pool.Timeouts
		e.Ask(m.server().Conns[0], &emptying{e, m}, 0, &limit, []byte("flush_all\r\n"), true)
	}
	return m.overfull
}

// othersWhole says that the member can be emptied without a loss. Of two that are
// overfull the first goes first.
func (m *account) othersWhole() bool {
	for i := range m.of.Members {
		o := &m.of.Members[i]
		if o.server().Down || o != m && (o.Lacking || o.overfull && i < m.at) {
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

func (f *emptying) Answered(_ int, r *upstream.Result) {
	if string(r.Bytes) == wire.AnswerOK {
		f.m.lack(f.e, true)
	} else if r.Bytes != nil {
		f.e.Log.Warn("a server has missed too many writes and can't be emptied: it is not read", "server", r.Server.Target.Name, "says", strings.TrimSpace(string(r.Bytes)))
	}
}

// Identify asks a server, on a new connection, since when it runs: one that
// was started anew has lost what it had.
func (e *Copies) Identify(c *upstream.Conn) {
	srv := c.Server
	if srv.Identifying || !slices.Contains(srv.Conns, c) {
		return
	}
	for _, m := range e.Keepers.Registrations[srv] {
		if m.Copies {
			limit := table.Timeouts{Request: srv.Greeting, Deadline: srv.Connect + srv.Greeting}
			srv.Identifying = true
			m.Agent.View.SayIncomplete(m.Member, e.Now+2*int64(lookTime)) // until it is known
			e.Ask(c, &introduction{e, srv}, 0, &limit, []byte("stats\r\n"), true)
			srv.Unidentified = srv.StartedAt != 0
			return
		}
	}
}

type introduction struct {
	e   *Copies
	srv *upstream.Server
}

const unsaid = -1 // since when a server runs that doesn't tell

func (d *introduction) Client() uint64 { return 0 }

func (d *introduction) Answered(_ int, r *upstream.Result) {
	e, srv := d.e, d.srv
	srv.Identifying = false
	var now, uptime, pid int64
	for line := range strings.Lines(string(r.Bytes)) {
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
	case r.Bytes == nil || now == 0 && srv.StartedAt > 0:
		return
	case now == 0:
		srv.StartedAt, srv.Unidentified = unsaid, false
		return
	}
	srv.Unidentified = false
	before, beforePID := srv.StartedAt, srv.Pid
	srv.StartedAt, srv.Pid = now-uptime, pid
	if before <= 0 || pid == beforePID && srv.StartedAt-before <= 2 && before-srv.StartedAt <= 2 { // both are whole seconds
		return
	}
	for _, m := range e.Keepers.Registrations[srv] {
		if w := e.Ledgers[m.Pool]; w != nil && m.Member < len(w.Members) {
			w.Members[m.Member].lack(e, false)
		}
	}
}

// repair wants a member made like another for one key, in the background. What
// can't be done now is dropped: reads go on without it.
func (e *Copies) repair(t *task.Task, hash uint64, from, to copyOf, overwrite bool) {
	rate := t.Route.Copies.RepairRate
	if rate == 0 {
		return
	}
	if e.LineFull(task.KeyLine(hash)) || e.Mends >= maxMends || !to.mayRepair(e, rate) {
		e.Count.RepairsDropped++
		return
	}
	e.Count.Repairs++
	e.mend(t.Route, t.Key, hash, from, to, overwrite, false, nil)
}

// mayRepair takes one repair from what this engine may give a member.
func (m *account) mayRepair(e *Copies, rate int) bool {
	each := e.share(rate)
	m.tokens = min(each/10+1, m.tokens+each*float64(e.Now-m.filledAt)/1e9)
	m.filledAt = e.Now
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
func (e *Copies) mend(rt *routing.Route, key []byte, hash uint64, from, to copyOf, overwrite, take bool, f *resync) {
	t := &task.Task{Loop: e.Tasks, ClientLoop: e.Tasks, ClientDone: true, Route: rt, Op: wire.Get, Key: key, Hash: hash}
	t.Deadline = e.Now + int64(rt.Timeouts.Deadline)
	if !wire.PlainKey(key) {
		t.Req.Flags = wire.Base64
	}
	t.Raw = t.Meta("mg", key, "", nil)
	e.Wire.Next(t.Raw, &t.Req)
	t.Rule = &command{e: e, members: []copyOf{from, to}, mends: true, fill: f, rule: replicate.Mend(1, 0, overwrite, take)}
	e.Buffers.Held += int64(len(t.Raw))
	e.Mends++
	if e.Claim(t, task.KeyLine(t.Hash)) {
		t.Run(0, nil)
	}
}
