package copies

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
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
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
	Window       = 8192             // keys that are remembered in a pass
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

// resync is the refill of one member.
type resync struct {
	m     *account
	bp    *routing.BoundPool
	index int // in bp
	to    *upstream.Server

	sources []copyOf // whose keys are listed in this pass
	listed  int      // how many have been
	dump    *dump    // the listing at work

	from   uint64 // keys with lower hashes are done
	Picks  []pick
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
	from *upstream.Server
}

// Refill looks after all members, and goes on with those being filled.
func (e *Copies) Refill() {
	for _, bp := range e.Pools { // in the table's order
		w := e.Ledgers[bp.Pool.Name]
		if w == nil {
			continue
		}
		for i := range w.Members {
			e.tendMember(&w.Members[i])
		}
		e.At(link.ResyncTimer, e.Now+int64(lookTime))
	}
}

func (e *Copies) tendMember(m *account) {
	bp, srv := m.of.bp, m.server()
	if m.lacks(e) || len(m.Left) > 0 {
		bp.View.SayIncomplete(m.at, e.Now+2*int64(lookTime))
	}
	m.tendLeft(e)
	if srv.Unidentified && !srv.Down || srv.StartedAt == 0 && srv.Conns[0].State == upstream.ConnUp {
		e.Identify(srv.Conns[0]) // reads ask others first, so nobody else may
	}
	switch f := m.Fill; {
	case f != nil && (!m.Lacking || m.of.rate == 0):
		m.stop()
	case f == nil && m.Lacking && m.of.rate > 0:
		m.Fill = &resync{m: m, index: m.at, to: srv, wait: int64(refillFirst)}
		fallthrough
	case f != nil:
		m.Fill.goOn(e, bp)
	}
}

// stop ends the refill of a member, if there is one.
func (m *account) stop() {
	f := m.Fill
	if f == nil {
		return
	}
	m.Fill, f.over = nil, true
	if d := f.dump; d != nil {
		f.dump = nil
		d.srv.CloseDedicated(dumpConn)
	}
}

func (f *resync) goOn(e *Copies, bp *routing.BoundPool) {
	if f.bp != bp { // it begins, or a reload has changed who has what
		if d := f.dump; d != nil {
			f.dump = nil
			d.srv.CloseDedicated(dumpConn)
		}
		f.bp = bp
		f.pass(e)
	}
	switch phase := bp.View.Phase(f.index); {
	case f.dump != nil:
	case e.Now < f.at:
		e.At(link.ResyncTimer, f.at)
	case f.to.Down || phase != health.In && phase != health.Warming && phase != health.Settling:
		f.later(e, "")
	case f.listed < len(f.sources):
		f.list(e, f.sources[f.listed])
	default:
		f.copy(e)
	}
}

// pass begins a pass from the hash f.from on.
func (f *resync) pass(e *Copies) {
	f.sources, f.listed = e.sourcesOf(f.bp, f.to), 0
	f.Picks, f.picked, f.bound = f.Picks[:0], false, noBound
	f.failed = 0
}

// later waits before it goes on, each time longer. People are told why, once.
func (f *resync) later(e *Copies, why string) {
	f.at = e.Now + f.wait
	f.wait = min(2*f.wait, int64(refillMax))
	e.At(link.ResyncTimer, f.at)
	if why != "" && why != f.why {
		f.why = why
		e.Log.Warn("a server that came back empty can't be filled now", "pool", f.bp.Pool.Name, "server", f.to.Target.Name, "why", why)
	}
}

// sourcesOf are the servers that may have keys that belong to a member of bp.
func (e *Copies) sourcesOf(bp *routing.BoundPool, to *upstream.Server) (list []copyOf) {
	seen := map[*upstream.Server]bool{to: true}
	for _, l := range e.Listeners {
		for i := range l.Routes {
			rt := &l.Routes[i]
			if !rt.CopiesOn(bp) {
				continue
			}
			for _, p := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
				for i, srv := range p.Servers {
					if !seen[srv] {
						seen[srv] = true
						list = append(list, e.copyAt(routing.Holder{Pool: p, Index: i, Server: srv}))
					}
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b copyOf) int { return cmp.Compare(a.Server.Target.Address, b.Server.Target.Address) })
	return list
}

// repairRate is how many keys a second the routes let members of bp get.
func (e *Copies) repairRate(bp *routing.BoundPool) (rate int) {
	for _, l := range e.Listeners {
		for i := range l.Routes {
			if rt := &l.Routes[i]; rt.CopiesOn(bp) {
				rate = max(rate, rt.Copies.RepairRate)
			}
		}
	}
	return rate
}

// AddTo adds which members are yet to be filled.
func (e *Copies) AddTo(into *stats.Snapshot) {
	for pool, w := range e.Ledgers {
		for i := range w.Members {
			if !w.Members[i].lacks(e) {
				continue
			}
			if into.Filling == nil {
				into.Filling = map[[2]string]bool{}
			}
			into.Filling[[2]string{pool, w.bp.Pool.Servers[i].Name}] = true
		}
	}
}

// copiesOf appends the copies that a route keeps of key.
func (e *Copies) copiesOf(list []copyOf, rt *routing.Route, key []byte) []copyOf {
	var room [replicate.Max]routing.Holder
	for _, h := range rt.Holders(room[:0], key) {
		list = append(list, e.copyAt(h))
	}
	return list
}

// homes are the routes whose keys include key, which servers know by this name,
// and its members on each. The members are good until the next call.
func (e *Copies) homes(key []byte) iter.Seq2[*routing.Route, []copyOf] {
	return func(yield func(*routing.Route, []copyOf) bool) {
		for _, l := range e.Listeners {
			for i := range l.Routes {
				rt := &l.Routes[i]
				if rt.Copies.Copies == 0 {
					continue
				}
				named := key
				if rt.Strip != "" {
					named = append([]byte(rt.Strip), key...)
				}
				if l.Route(named) != rt {
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
func (e *Copies) shared(key []byte, from, to *upstream.Server) (rt *routing.Route, a, b copyOf, ok bool) {
	for rt, members := range e.homes(key) {
		found := 0
		for _, m := range members {
			switch m.Server {
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
	f             *resync
	srv           *upstream.Server
	conn          *upstream.Conn
	named         []byte // what its keys have before them, since it refused to be flushed
	engines, mine uint64 // which keys are this engine's
}

// list begins to list the keys of a source. The connection has to be idle
// before: memcached lists nothing behind another command.
func (f *resync) list(e *Copies, from copyOf) {
	srv := from.Server
	switch phase := from.Pool.View.Phase(from.Index); {
	case phase == health.Out, phase == health.Returning, from.overfull:
		f.listed++ // what it has will be flushed
		e.At(link.ResyncTimer, e.Now)
		return
	case srv.Down:
		f.later(e, srv.Why)
		return
	case srv.Dedicated[dumpConn] != nil: // listed for another member
		f.later(e, "")
		return
	}
	d := &dump{e: e, f: f, srv: srv, conn: srv.DedicatedConn(dumpConn)}
	if n := from.Pool.View.Renamed(from.Index); n != 0 {
		d.named = health.AppendKey(nil, uint64(n), nil)
	}
	n, mine := e.Loops.Count(e.Tasks)
	d.engines, d.mine = uint64(n), uint64(mine)
	f.dump = d
	limit := table.Timeouts{Request: srv.Greeting, Deadline: srv.Connect + srv.Greeting}
	e.Ask(d.conn, d, dumpReady, &limit, []byte(dumpReadyAsk), true)
}

func (d *dump) Client() uint64 { return 0 }

func (d *dump) Answered(id int, r *upstream.Result) {
	e, f := d.e, d.f
	if f.dump != d { // it was stopped
		return
	}
	if id == dumpReady && string(r.Bytes) == wire.AnswerBarrier {
		a := e.NewAttempt(&listing{upstream.Collector{To: d, ID: dumpListing}, d})
		a.Op, a.Dialect = wire.Dump, wire.Text
		d.conn.MarkInternal(a)
		line := dumpAll
		if d.conn.Speech&wire.HashDumps != 0 {
			line = dumpHash
		} else {
			f.gaps = true
		}
		e.AskAttempt(d.conn, a, &table.Timeouts{Request: dumpSilence, Deadline: dumpSilence}, 0, []byte(line))
		return
	}
	f.dump = nil
	d.srv.CloseDedicated(dumpConn)
	switch last := string(bytes.TrimPrefix(r.Bytes, []byte(wire.AnswerOK))); {
	case id == dumpListing && last == dumpEnd:
		f.listed++
		f.wait = int64(refillFirst)
		e.At(link.ResyncTimer, e.Now)
	case r.Bytes == nil:
		f.later(e, r.Why)
	case strings.HasPrefix(last, "BUSY"):
		f.later(e, "")
	default:
		f.later(e, "server "+d.srv.Label()+" "+dumpRefused+strings.TrimSpace(last))
	}
}

// listing receives the listing of a dump key by key, and its end as a whole.
type listing struct {
	upstream.Collector
	d *dump
}

func (l *listing) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	if r.Kind == wire.Listed {
		l.d.listed(a, r.Key.Of(b))
		return 0
	}
	return l.Collector.Reply(c, a, r, b)
}

// listed takes one key of the listing, as it is escaped there.
func (d *dump) listed(a *upstream.Attempt, escaped []byte) {
	e, f := d.e, d.f
	if f.dump != d {
		return
	}
	e.EncodedKey = wire.UnescapeKey(e.EncodedKey[:0], escaped)
	key, ok := bytes.CutPrefix(e.EncodedKey, d.named)
	hash := e.Loops.HashKey(key)
	if !ok || hash < f.from || hash > f.bound || hash%d.engines != d.mine || health.IsReserved(key) {
		return
	}
	if _, from, _, ok := e.shared(key, d.srv, f.to); !ok || from.missed().Has(hash) {
		return
	}
	f.Picks = append(f.Picks, pick{hash, string(key), d.srv})
	if len(f.Picks) >= 2*Window {
		f.trim()
	}
}

// trim brings the picks in order, each key once, and keeps the first of them.
func (f *resync) trim() {
	slices.SortFunc(f.Picks, func(a, b pick) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.key, b.key))
	})
	f.Picks = slices.CompactFunc(f.Picks, func(a, b pick) bool { return a.key == b.key })
	n := Window
	for n < len(f.Picks) && f.Picks[n].hash == f.Picks[n-1].hash {
		n++
	}
	if n < len(f.Picks) {
		f.bound = f.Picks[n-1].hash
		clear(f.Picks[n:])
		f.Picks = f.Picks[:n]
	}
}

// copy copies what was picked, as fast as it may.
func (f *resync) copy(e *Copies) {
	if !f.picked {
		f.trim()
		f.picked = true
	}
	for len(f.Picks) > 0 {
		if f.mending >= maxRefills || e.Mends >= maxMends { // goes on when one has ended
			return
		}
		p := f.Picks[0]
		rt, from, to, ok := e.shared([]byte(p.key), p.from, f.to)
		switch {
		case !ok || from.missed().Has(p.hash) || e.LineFull(task.KeyLine(p.hash)): // not now
			f.failed++
			f.Picks = f.Picks[1:]
			continue
		case !to.mayRepair(e, rt.Copies.RepairRate):
			e.At(link.ResyncTimer, e.Now+to.untilRepair(e, rt.Copies.RepairRate))
			return
		}
		f.Picks = f.Picks[1:]
		f.mending++
		e.mend(rt, []byte(p.key), p.hash, from, to, to.missed().Has(p.hash), false, f)
	}
	if len(f.Picks) == 0 && f.mending == 0 {
		f.passed(e)
	}
}

// mended is told how one of f's repairs ended.
func (f *resync) mended(e *Copies, c *command, ok bool) {
	f.mending--
	e.At(link.ResyncTimer, e.Now)
	if !ok {
		f.failed++
	} else if slices.ContainsFunc(c.asks, func(a copyAsk) bool { return a.Deed == replicate.Fill }) {
		f.found++
		f.filled++
		e.Count.Refilled++
	}
}

// passed ends a pass.
func (f *resync) passed(e *Copies) {
	m := f.m
	switch {
	case f.failed > 0:
		f.pass(e)
		f.later(e, "some keys could not be copied")
	case f.bound != noBound:
		f.from = f.bound + 1
		f.wait = int64(refillFirst)
		f.pass(e)
		e.At(link.ResyncTimer, e.Now)
	case f.gaps && f.found > 0:
		f.from, f.found, f.gaps = 0, 0, false
		f.pass(e)
		e.At(link.ResyncTimer, e.Now)
	default:
		m.Lacking, m.Fill, f.over = false, nil, true
		e.Log.Info("a server that came back empty is filled", "pool", f.bp.Pool.Name, "server", f.to.Target.Name, "keys", f.filled)
	}
}
