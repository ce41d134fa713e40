package proxy

// Members that came back empty are filled: the keys of the others are listed,
// and what belongs to the member too is copied to it.

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// A listing (lru_crawler metadump) is always read as fast as it comes. A reader
// that lets it wait would be a danger: memcached's crawler then keeps its lock,
// and whoever asks for another listing blocks one of the server's worker
// threads, with all clients on it (measured on 1.6.18). So what there is no
// room for is not waited with but listed again:
//
//	pass 1: of all keys the window of those with the lowest hashes ► copied, as fast as the rate allows
//	pass 2: the window of the lowest hashes above those ► …
//	the pass in which the window holds all that is left ► the round is over
//
// A pass in which a copy failed is made again. Listings of servers before 1.6.19
// leave out what is in use just then, so on those there are further rounds,
// until one has found nothing that was missing; a key that is in use in each of
// them can still be left out. Each engine fills the members
// with the keys that it owns, and lists for itself.
const (
	window       = 8192             // keys that are remembered in a pass
	maxRefills   = maxMends / 2     // at once for one member: reads want repairs too
	lookTime     = time.Second      // between looks for members that lack something
	dumpSilence  = 10 * time.Second // a listing that brings nothing for so long is given up
	refillFirst  = 100 * time.Millisecond
	refillMax    = 10 * time.Second
	dumpConn     = 1 << 31 // the number of the connection for it; keepers count from 1
	dumpAll      = "lru_crawler metadump all\r\n"
	dumpHash     = "lru_crawler metadump hash\r\n"
	dumpRefused  = "can't list its keys: "
	dumpReady    = 0 // asks of a dump
	dumpListing  = 1
	noBound      = uint64(math.MaxUint64)
	dumpEnd      = wire.AnswerEnd
	dumpReadyAsk = "mn\r\n"
)

// filling is the refill of one member.
type filling struct {
	m     *account
	lp    *livePool
	index int // in lp
	to    *Server

	sources []copyOf // whose keys are listed in this pass
	listed  int      // how many have been
	dump    *dump    // the listing at work

	from   uint64 // keys with lower hashes are done
	picks  []pick
	bound  uint64 // no pick has a higher hash
	picked bool   // picks is complete and in order

	mending int    // at work
	failed  int    // in this pass
	filled  uint64 // keys in all
	found   int    // keys that were missing, in this round
	gaps    bool   // a listing of this round may have left something out

	at, wait int64  // nothing is done before at; wait grows while nothing works
	why      string // the last trouble that people were told of
	over     bool
}

// pick is a key that the member may lack.
type pick struct {
	hash uint64
	key  string // as servers know it
	from *Server
}

// refill looks after all members, and goes on with those being filled.
func (e *Copies) refill() {
	for _, lp := range e.pools { // in the table's order
		w := e.ledgers[lp.pool.Name]
		if w == nil {
			continue
		}
		for i := range w.members {
			e.tendMember(&w.members[i])
		}
		e.at(resyncTimer, e.now+int64(lookTime))
	}
}

func (e *Copies) tendMember(m *account) {
	lp, srv := m.of.lp, m.server()
	m.lacks(e)
	m.tendLeft(e)
	if srv.unknown && !srv.down || srv.born == 0 && srv.conns[0].state == connUp {
		e.introduce(srv.conns[0]) // reads ask others first, so nobody else may
	}
	switch f := m.fill; {
	case f != nil && (!m.lacking || m.of.rate == 0):
		m.stop()
	case f == nil && m.lacking && m.of.rate > 0:
		m.fill = &filling{m: m, index: m.at, to: srv, wait: int64(refillFirst)}
		fallthrough
	case f != nil:
		m.fill.goOn(e, lp)
	}
}

// stop ends the refill of a member, if there is one.
func (m *account) stop() {
	f := m.fill
	if f == nil {
		return
	}
	m.fill, f.over = nil, true
	if d := f.dump; d != nil {
		f.dump = nil
		d.srv.drop(dumpConn)
	}
}

func (f *filling) goOn(e *Copies, lp *livePool) {
	if f.lp != lp { // it begins, or a reload has changed who has what
		if d := f.dump; d != nil {
			f.dump = nil
			d.srv.drop(dumpConn)
		}
		f.lp = lp
		f.pass(e)
	}
	switch phase := lp.view.Phase(f.index); {
	case f.dump != nil:
	case e.now < f.at:
		e.at(resyncTimer, f.at)
	case f.to.down || phase != health.In && phase != health.Warming && phase != health.Settling:
		f.later(e, "")
	case f.listed < len(f.sources):
		f.list(e, f.sources[f.listed])
	default:
		f.copy(e)
	}
}

// pass begins a pass from the hash f.from on.
func (f *filling) pass(e *Copies) {
	f.sources, f.listed = e.sourcesOf(f.lp, f.to), 0
	f.picks, f.picked, f.bound = f.picks[:0], false, noBound
	f.failed = 0
}

// later waits before it goes on, each time longer. People are told why, once.
func (f *filling) later(e *Copies, why string) {
	f.at = e.now + f.wait
	f.wait = min(2*f.wait, int64(refillMax))
	e.at(resyncTimer, f.at)
	if why != "" && why != f.why {
		f.why = why
		e.log.Warn("a server that came back empty can't be filled now", "pool", f.lp.pool.Name, "server", f.to.target.Name, "why", why)
	}
}

// sourcesOf are the servers that may have keys that belong to a member of lp.
func (e *Copies) sourcesOf(lp *livePool, to *Server) (list []copyOf) {
	seen := map[*Server]bool{to: true}
	for _, l := range e.listeners {
		for i := range l.routes {
			rt := &l.routes[i]
			if !rt.copiesOn(lp) {
				continue
			}
			for _, p := range append([]*livePool{rt.livePool}, rt.also...) {
				for i, srv := range p.servers {
					if !seen[srv] {
						seen[srv] = true
						list = append(list, e.copyAt(holder{lp: p, index: i, srv: srv}))
					}
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b copyOf) int { return cmp.Compare(a.srv.target.Address, b.srv.target.Address) })
	return list
}

// repairRate is how many keys a second the routes let members of lp get.
func (e *Copies) repairRate(lp *livePool) (rate int) {
	for _, l := range e.listeners {
		for i := range l.routes {
			if rt := &l.routes[i]; rt.copiesOn(lp) {
				rate = max(rate, rt.copies.RepairRate)
			}
		}
	}
	return rate
}

// copiesOf appends the copies that a route keeps of key.
func (e *Copies) copiesOf(list []copyOf, rt *route, key []byte) []copyOf {
	var room [replicate.Max]holder
	for _, h := range rt.members(room[:0], key) {
		list = append(list, e.copyAt(h))
	}
	return list
}

// homes are the routes whose keys include key, which servers know by this name,
// and its members on each. The members are good until the next call.
func (e *Copies) homes(key []byte) iter.Seq2[*route, []copyOf] {
	return func(yield func(*route, []copyOf) bool) {
		for _, l := range e.listeners {
			for i := range l.routes {
				rt := &l.routes[i]
				if rt.copies.Copies == 0 {
					continue
				}
				named := key
				if rt.strip != "" {
					named = append([]byte(rt.strip), key...)
				}
				if l.route(named) != rt {
					continue
				}
				e.holders = e.copiesOf(e.holders[:0], rt, key)
				if !yield(rt, e.holders) {
					return
				}
			}
		}
	}
}

// shared finds the route on which both servers have key.
func (e *Copies) shared(key []byte, from, to *Server) (rt *route, a, b copyOf, ok bool) {
	for rt, members := range e.homes(key) {
		found := 0
		for _, m := range members {
			switch m.srv {
			case from:
				a = m
				found++
			case to:
				b = m
				found++
			}
		}
		if found == 2 {
			return rt, a, b, true
		}
	}
	return nil, a, b, false
}

// dump is the listing of one server's keys.
type dump struct {
	e             *Copies
	f             *filling
	srv           *Server
	conn          *Conn
	named         []byte // what its keys have before them, since it refused to be flushed
	engines, mine uint64 // which keys are this engine's
}

// list begins to list the keys of a source. The connection has to be idle
// before: memcached lists nothing behind another command.
func (f *filling) list(e *Copies, from copyOf) {
	srv := from.srv
	switch phase := from.lp.view.Phase(from.index); {
	case phase == health.Out, phase == health.Returning, from.overfull:
		f.listed++ // what it has will be flushed
		e.at(resyncTimer, e.now)
		return
	case srv.down:
		f.later(e, srv.why)
		return
	case srv.own[dumpConn] != nil: // listed for another member
		f.later(e, "")
		return
	}
	d := &dump{e: e, f: f, srv: srv, conn: srv.ownConn(dumpConn)}
	if n := from.lp.view.Renamed(from.index); n != 0 {
		d.named = health.AppendKey(nil, uint64(n), nil)
	}
	n, mine := e.loops.Count(e.Tasks)
	d.engines, d.mine = uint64(n), uint64(mine)
	f.dump = d
	limit := Timeouts{Request: srv.greeting, Deadline: srv.connect + srv.greeting}
	e.demand(d.conn, d, dumpReady, &limit, []byte(dumpReadyAsk), true)
}

func (d *dump) Client() uint64 { return 0 }

func (d *dump) Answered(id int, r *Result) {
	e, f := d.e, d.f
	if f.dump != d { // it was stopped
		return
	}
	if id == dumpReady && string(r.bytes) == wire.AnswerBarrier {
		a := e.newAttempt(&listing{collector{to: d, id: dumpListing}, d})
		a.op, a.dialect = wire.Dump, wire.Text
		d.conn.own(a)
		line := dumpAll
		if d.conn.speech&wire.HashDumps != 0 {
			line = dumpHash
		} else {
			f.gaps = true
		}
		e.put(d.conn, a, &Timeouts{Request: dumpSilence, Deadline: dumpSilence}, 0, []byte(line))
		return
	}
	f.dump = nil
	d.srv.drop(dumpConn)
	switch last := string(bytes.TrimPrefix(r.bytes, []byte(wire.AnswerOK))); {
	case id == dumpListing && last == dumpEnd:
		f.listed++
		f.wait = int64(refillFirst)
		e.at(resyncTimer, e.now)
	case r.bytes == nil:
		f.later(e, r.Why)
	case strings.HasPrefix(last, "BUSY"):
		f.later(e, "")
	default:
		f.later(e, "server "+d.srv.label()+" "+dumpRefused+strings.TrimSpace(last))
	}
}

// listing receives the listing of a dump key by key, and its end as a whole.
type listing struct {
	collector
	d *dump
}

func (l *listing) Reply(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int) {
	if r.Kind == wire.Listed {
		l.d.listed(a, r.Key.Of(b))
		return 0
	}
	return l.collector.Reply(c, a, r, b)
}

// listed takes one key of the listing, as it is escaped there.
func (d *dump) listed(a *Attempt, escaped []byte) {
	e, f := d.e, d.f
	a.deadline = e.now + int64(dumpSilence)
	if f.dump != d {
		return
	}
	e.key2 = wire.UnescapeKey(e.key2[:0], escaped)
	key, ok := bytes.CutPrefix(e.key2, d.named)
	hash := e.loops.HashKey(key)
	if !ok || hash < f.from || hash > f.bound || hash%d.engines != d.mine || health.IsReserved(key) {
		return
	}
	if _, from, _, ok := e.shared(key, d.srv, f.to); !ok || from.missed().Has(hash) {
		return
	}
	f.picks = append(f.picks, pick{hash, string(key), d.srv})
	if len(f.picks) >= 2*window {
		f.trim()
	}
}

// trim brings the picks in order, each key once, and keeps the first of them.
func (f *filling) trim() {
	slices.SortFunc(f.picks, func(a, b pick) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.key, b.key))
	})
	f.picks = slices.CompactFunc(f.picks, func(a, b pick) bool { return a.key == b.key })
	n := window
	for n < len(f.picks) && f.picks[n].hash == f.picks[n-1].hash {
		n++
	}
	if n < len(f.picks) {
		f.bound = f.picks[n-1].hash
		clear(f.picks[n:])
		f.picks = f.picks[:n]
	}
}

// copy copies what was picked, as fast as it may.
func (f *filling) copy(e *Copies) {
	if !f.picked {
		f.trim()
		f.picked = true
	}
	for len(f.picks) > 0 {
		if f.mending >= maxRefills || e.mends >= maxMends { // goes on when one has ended
			return
		}
		p := f.picks[0]
		rt, from, to, ok := e.shared([]byte(p.key), p.from, f.to)
		switch {
		case !ok || from.missed().Has(p.hash) || e.crowded(keyLine(p.hash)): // not now
			f.failed++
			f.picks = f.picks[1:]
			continue
		case !to.mayRepair(e, rt.copies.RepairRate):
			e.at(resyncTimer, e.now+to.untilRepair(e, rt.copies.RepairRate))
			return
		}
		f.picks = f.picks[1:]
		f.mending++
		e.mend(rt, []byte(p.key), p.hash, from, to, to.missed().Has(p.hash), f)
	}
	if len(f.picks) == 0 && f.mending == 0 {
		f.passed(e)
	}
}

// mended is told how one of f's repairs ended.
func (f *filling) mended(e *Copies, c *copied, ok bool) {
	f.mending--
	e.at(resyncTimer, e.now)
	if !ok {
		f.failed++
	} else if slices.ContainsFunc(c.asks, func(a copyAsk) bool { return a.Deed == replicate.Fill }) {
		f.found++
		f.filled++
		e.count.Refilled++
	}
}

// passed ends a pass.
func (f *filling) passed(e *Copies) {
	m := f.m
	switch {
	case f.failed > 0:
		f.pass(e)
		f.later(e, "some keys could not be copied")
	case f.bound != noBound:
		f.from = f.bound + 1
		f.wait = int64(refillFirst)
		f.pass(e)
		e.at(resyncTimer, e.now)
	case f.gaps && f.found > 0:
		f.from, f.found, f.gaps = 0, 0, false
		f.pass(e)
		e.at(resyncTimer, e.now)
	default:
		m.lacking, m.fill, f.over = false, nil, true
		e.log.Info("a server that came back empty is filled", "pool", f.lp.pool.Name, "server", f.to.target.Name, "keys", f.filled)
	}
}
