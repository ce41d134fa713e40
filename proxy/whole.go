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

// whole is what one engine knows of how complete the members of a pool are. It
// outlives reloads.
type whole struct {
	servers []*Server
	rate    int // keys a second that a member may be given; 0: repairs are off
	members []wholeness
}

// wholeness is that of one member.
type wholeness struct {
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
	outage    = 6               // numbers that an outage takes: see package health
)

// wholeOf is that of a pool, kept from the generation before if its servers are
// the same. If they are not, keys have moved, and everybody may lack some.
func (e *Engine) wholeOf(lp *livePool) *whole {
	old := e.wholes[lp.pool.Name]
	if old != nil && slices.Equal(old.servers, lp.servers) {
		return old
	}
	if e.wholes == nil {
		e.wholes = map[string]*whole{}
		e.graves = replicate.NewTombstones(graves)
	}
	w := &whole{servers: slices.Clone(lp.servers), members: make([]wholeness, len(lp.servers))}
	for i, srv := range lp.servers {
		w.members[i].dirty = replicate.NewDirtyKeys(dirtyKeys)
		// At a start nobody can know; a server that was in use before has only
		// what its other keys are.
		w.members[i].lacking = old != nil || srv.release != (wire.Release{})
		w.members[i].until = e.now + int64(lackTime)
		if old == nil {
			continue
		}
		if j := slices.Index(old.servers, srv); j >= 0 {
			w.members[i].dirty, w.members[i].overfull = old.members[j].dirty, old.members[j].overfull
		}
	}
	old.stop()
	e.wholes[lp.pool.Name] = w
	return w
}

// stop ends the refills of all members.
func (w *whole) stop() {
	if w != nil {
		for i := range w.members {
			w.members[i].stop()
		}
	}
}

// takeCopies notes which pools keep copies, once the routes are known.
func (e *Engine) takeCopies() {
	e.copied, e.refillAt = nil, never
	for name, w := range e.wholes {
		if !slices.ContainsFunc(e.gen.pools, func(lp *livePool) bool { return lp.whole == w }) {
			w.stop()
			delete(e.wholes, name)
		}
	}
	for _, lp := range e.gen.pools {
		if lp.whole != nil {
			lp.whole.rate = e.repairRate(lp)
			e.copied = append(e.copied, lp)
			e.refillAt = e.now
		}
	}
}

// lacks says whether a member came back empty and nobody has filled it yet.
// That ends when it has been filled; where repairs are off, with time.
func (lp *livePool) lacks(e *Engine, i int) bool {
	m := &lp.whole.members[i]
	if n := lp.watch.seen[i].n(); m.number != n || !m.seen {
		if m.seen && timesOut(n) > timesOut(m.number) { // it was out meanwhile, and was flushed
			lp.lack(e, i, true)
		}
		m.number, m.seen = n, true
	}
	if m.lacking && lp.whole.rate == 0 && e.now >= m.until {
		m.lacking = false
	}
	return m.lacking
}

// timesOut counts how often a member with the number n was flushed: before it
// was WARM.
func timesOut(n uint32) uint32 { return (n + outage - uint32(health.Warming)) / outage }

// lack says that a member is empty: it was flushed, which all Ringsides waited
// for, or it was started anew. In the second case another Ringside may have
// filled it already, with what this one knows to be old.
func (lp *livePool) lack(e *Engine, i int, flushed bool) {
	m := &lp.whole.members[i]
	m.stop()
	if flushed {
		m.dirty.Clear()
		clear(m.left)
		m.order, m.gone = nil, nil
		m.overfull = false
	}
	m.lacking, m.until = true, e.now+int64(lackTime)
	e.refillBy(e.now)
}

// overfull says whether a member is not to be read because it has missed more
// than is remembered. The way out is to empty it, when the others have
// everything.
func (lp *livePool) overfull(e *Engine, i int) bool {
	m := &lp.whole.members[i]
	if m.overfull && e.now >= m.flushAt && lp.othersWhole(i) {
		m.flushAt = e.now + int64(flushWait)
		c := lp.servers[i].conns[0]
		limit := lp.pool.Timeouts
		e.demand(c, &emptying{lp, i}, 0, &limit, []byte("flush_all\r\n"))
	}
	return m.overfull
}

// othersWhole says that member i can be emptied without a loss. Of two that are
// overfull the first goes first.
func (lp *livePool) othersWhole(i int) bool {
	for j := range lp.servers {
		m := &lp.whole.members[j]
		if lp.servers[j].down || j != i && (m.lacking || m.overfull && j < i) {
			return false
		}
	}
	return true
}

// emptying is a flush_all of a member that missed too much.
type emptying struct {
	lp *livePool
	i  int
}

func (f *emptying) answered(e *Engine, _ int, r *answer) {
	if string(r.bytes) == wire.AnswerOK {
		f.lp.lack(e, f.i, true)
	} else if r.bytes != nil {
		e.Shared.Log.Warn("a server has missed too many writes and can't be emptied: it is not read", "server", r.srv.target.Name, "says", strings.TrimSpace(string(r.bytes)))
	}
}

// introduce asks a server, on a new connection, since when it runs: one that
// was started anew has lost what it had.
func (c *Conn) introduce() {
	srv := c.srv
	if srv.introducing || !slices.Contains(srv.conns, c) {
		return
	}
	for _, m := range srv.watched {
		if m.copies {
			limit := Timeouts{Request: srv.greeting, Deadline: srv.connect + srv.greeting}
			srv.introducing = true
			srv.e.demand(c, &introduction{srv}, 0, &limit, []byte("stats\r\n"))
			srv.unknown = srv.born != 0
			return
		}
	}
}

type introduction struct{ srv *Server }

func (d *introduction) answered(e *Engine, _ int, r *answer) {
	srv := d.srv
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
	if now == 0 {
		return
	}
	srv.unknown = false
	before, beforePID := srv.born, srv.bornAs
	srv.born, srv.bornAs = now-uptime, pid
	if before == 0 || pid == beforePID && srv.born-before <= 2 && before-srv.born <= 2 { // both are whole seconds
		return
	}
	for _, m := range srv.watched {
		if lp := m.live; m.copies && m.member < len(lp.servers) {
			lp.lack(e, m.member, false)
		}
	}
}

// repair wants a member made like another for one key, in the background. What
// can't be done now is dropped: reads go on without it.
func (e *Engine) repair(t *task, hash uint64, from, to copyOf, overwrite bool) {
	rate := t.rt.copies.RepairRate
	if rate == 0 {
		return
	}
	if e.graves.Has(hash, e.now) && !overwrite || e.crowded(hash) || e.mends >= maxMends || !to.lp.mayRepair(e, to.index, rate) {
		e.count.RepairsDropped++
		return
	}
	e.count.Repairs++
	e.mend(t.rt, t.key, hash, from, to, overwrite, nil)
}

// mayRepair takes one repair from what this engine may give a member.
func (lp *livePool) mayRepair(e *Engine, i, rate int) bool {
	m, each := &lp.whole.members[i], e.share(rate)
	m.tokens = min(each/10+1, m.tokens+each*float64(e.now-m.filledAt)/1e9)
	m.filledAt = e.now
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

// untilRepair is how long it takes until mayRepair says yes, in nanoseconds.
func (lp *livePool) untilRepair(e *Engine, i, rate int) int64 {
	if rate == 0 {
		return int64(lookTime)
	}
	return max(int64((1-lp.whole.members[i].tokens)/e.share(rate)*1e9), int64(time.Millisecond))
}

// share is this engine's part of a rate.
func (e *Engine) share(rate int) float64 { return float64(rate) / float64(len(e.Shared.Engines())) }

// mend makes one copy like another, in line with the writes on the key: a delete
// between its reading here and its writing there must not be undone.
func (e *Engine) mend(rt *route, key []byte, hash uint64, from, to copyOf, overwrite bool, f *filling) {
	t := &task{e: e, home: e, over: true, rt: rt, op: wire.Get, key: key}
	t.deadline = e.now + int64(rt.pool.Timeouts.Deadline)
	if !plainKey(key) {
		t.req.Flags = wire.Base64
	}
	t.raw = t.meta("mg", key, "", nil)
	e.gen.wire.Next(t.raw, &t.req)
	t.rule = &copied{hash: hash, members: []copyOf{from, to}, mends: true, fill: f, rule: replicate.Mend(1, 0, overwrite)}
	e.pool.held += int64(len(t.raw))
	e.mends++
	if e.claim(t, hash) {
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
