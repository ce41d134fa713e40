package proxy

// What copies are missing: keys that a member missed a write to, members that
// have come back empty, and the repairs that end it.

import (
	"strconv"
	"strings"
	"time"

	"ringside/proxy/wire"
	"ringside/replicate"
)

// whole is what one engine knows of how complete the members of a pool are. It
// outlives reloads.
type whole struct {
	members []wholeness
}

// wholeness is that of one member.
type wholeness struct {
	dirty    *replicate.DirtyKeys
	number   uint32 // when it was seen last
	seen     bool
	lacking  bool  // it has come back empty: what it doesn't have decides nothing
	until    int64 // when that is taken to be over, if nobody fills it
	overfull bool  // it missed more writes than can be remembered: not to be read before it is flushed
	flushing bool
	tokens   float64 // repairs that may be made now
	filledAt int64   // when tokens were counted
}

const (
	dirtyKeys = 16 << 10        // remembered for a server
	graves    = 64 << 10        // deletes remembered
	graveTime = 5 * time.Second // how long: longer than any read that a repair stands on
	lackTime  = time.Minute     // how long a member that nobody fills is asked twice
	maxMends  = 64              // at once
	outage    = 6               // numbers that an outage takes: see package health
)

// whole is that of a pool, kept from the generation before if its servers are
// the same.
func (e *Engine) wholeOf(p *Pool) *whole {
	w := e.wholes[p.Name]
	if w == nil || len(w.members) != len(p.Servers) {
		w = &whole{members: make([]wholeness, len(p.Servers))}
		for i := range w.members {
			w.members[i].dirty = replicate.NewDirtyKeys(dirtyKeys)
		}
		if e.wholes == nil {
			e.wholes = map[string]*whole{}
			e.graves = replicate.NewTombstones(graves)
		}
		e.wholes[p.Name] = w
	}
	return w
}

// lacks says whether a member came back empty and nobody has filled it yet.
func (lp *livePool) lacks(e *Engine, i int) bool {
	m := &lp.whole.members[i]
	if n := lp.watch.seen[i].n(); m.number != n || !m.seen {
		if m.seen && n/outage > m.number/outage { // it was out meanwhile, and was flushed
			lp.lack(e, i)
			m.dirty.Clear()
			m.overfull = false
		}
		m.number, m.seen = n, true
	}
	if m.lacking && e.now >= m.until {
		m.lacking = false
	}
	return m.lacking
}

func (lp *livePool) lack(e *Engine, i int) {
	m := &lp.whole.members[i]
	m.lacking, m.until = true, e.now+int64(lackTime)
}

// overfull says whether a member is not to be read because it has missed more
// than is remembered. The way out is to empty it: the others have everything.
func (lp *livePool) overfull(e *Engine, i int) bool {
	m := &lp.whole.members[i]
	if m.overfull && !m.flushing && !lp.servers[i].down {
		m.flushing = true
		c := lp.servers[i].conns[0]
		limit := lp.pool.Timeouts
		e.demand(c, &emptying{lp, i}, 0, &limit, []byte("flush_all\r\n"))
	}
	return m.overfull
}

// emptying is a flush_all of a member that missed too much.
type emptying struct {
	lp *livePool
	i  int
}

func (f *emptying) answered(e *Engine, _ int, r *answer) {
	m := &f.lp.whole.members[f.i]
	m.flushing = false
	if string(r.bytes) == wire.AnswerOK {
		m.overfull = false
		m.dirty.Clear()
		f.lp.lack(e, f.i)
	}
}

// introduce asks a server, on a new connection, since when it runs: one that
// was started anew has lost what it had.
func (c *Conn) introduce() {
	srv := c.srv
	for _, m := range srv.watched {
		if m.copies {
			limit := Timeouts{Request: srv.greeting, Deadline: srv.greeting}
			srv.e.demand(c, &introduction{srv}, 0, &limit, []byte("stats\r\n"))
			srv.unknown = srv.born != 0
			return
		}
	}
}

type introduction struct{ srv *Server }

func (d *introduction) answered(e *Engine, _ int, r *answer) {
	srv := d.srv
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
			lp.lack(e, m.member)
			lp.whole.members[m.member].dirty.Clear()
			lp.whole.members[m.member].overfull = false
		}
	}
}

// repair wants a member made like another for one key, in the background. What
// can't be done now is dropped: reads go on without it.
func (e *Engine) repair(t *task, hash uint64, from, to copyOf, overwrite bool) {
	if e.graves.Has(hash, e.now) || e.mends >= maxMends || !to.lp.mayRepair(e, to.index, t.rt.copies.RepairRate) {
		e.count.RepairsDropped++
		return
	}
	e.mends++
	e.count.Repairs++
	e.mend(t.rt, t.key, hash, from, to, overwrite)
}

// mayRepair takes one repair from what a member may get.
func (lp *livePool) mayRepair(e *Engine, i, rate int) bool {
	m := &lp.whole.members[i]
	m.tokens = min(float64(rate)/10+1, m.tokens+float64(rate)*float64(e.now-m.filledAt)/1e9)
	m.filledAt = e.now
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

// mend makes one copy like another.
func (e *Engine) mend(rt *route, key []byte, hash uint64, from, to copyOf, overwrite bool) {
	t := &task{e: e, home: e, over: true, rt: rt, op: wire.Get, key: key}
	t.deadline = e.now + int64(rt.pool.Timeouts.Deadline)
	flags := ""
	if !plainKey(key) {
		t.req.Flags = wire.Base64
	}
	t.raw = t.meta("mg", key, flags, nil)
	e.gen.wire.Next(t.raw, &t.req)
	c := &copied{hash: hash, members: []copyOf{from, to}, mends: true, gen: 0}
	c.rule = replicate.Mend(1, 0, overwrite)
	t.rule = c
	e.pool.held += int64(len(t.raw))
	t.run(0, nil)
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
