package copies

// A resync fills a member that has come back empty: the keys of the other servers are
// listed, and those that the member is to have too are copied to it.

import (
	"bytes"
	"cmp"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// A listing (lru_crawler metadump) is read as fast as it comes. If its reader waited,
// memcached's crawler would keep its lock, and whoever asked for another listing would
// block one of the server's worker threads, with all clients on it (measured on 1.6.18).
// So a listing is never held up for want of memory. A pass keeps a window of it, and
// what doesn't fit is listed again:
//
//	pass 1: of all keys the window of those with the lowest hashes ► copied, as fast as the rate allows
//	pass 2: the window of the lowest hashes above those ► …
//	the pass in which the window holds all that is left ► the round is over
//
// A pass in which a copy failed is made again. Servers before 1.6.19 leave out of a
// listing what is in use at that moment. On those there are further rounds, until one
// has found nothing that was missing. A key that is in use in each round is left out
// all the same.
//
// Each loop fills members with the keys that it leads, and lists for itself: n loops
// list n times, and need not tell each other anything.
const (
	Window      = 8192             // keys that a pass remembers
	lookTime    = time.Second      // between looks for members that are incomplete
	dumpSilence = 10 * time.Second // a listing that brings nothing for so long is given up
	retryFirst  = 100 * time.Millisecond
	retryMax    = 10 * time.Second
	noBound     = uint64(math.MaxUint64)

	dumpConn     = 1 << 31 // number of the dedicated connection; those of keepers count from 1
	dumpReady    = 0       // number of the ask whether the connection is idle
	dumpListing  = 1       // number of the ask that is the listing
	dumpReadyAsk = "mn\r\n"
	dumpAll      = "lru_crawler metadump all\r\n"
	dumpHash     = "lru_crawler metadump hash\r\n" // from 1.6.19 on: leaves nothing out
	dumpEnd      = wire.AnswerEnd
	dumpRefused  = "can't list its keys: "
)

// resync fills one member.
type resync struct {
	m     *account
	bp    *routing.BoundPool // that its pass was begun for; a reload may bring another
	index int                // of the member in bp
	to    *upstream.Server   // the member's

	leaving bool // in a handover: what it has and is not to have any more goes to whom it belongs to

	sources []copyOf // servers whose keys are listed in this pass
	listed  int      // how many of them have been
	dump    *dump    // the listing at work; nil: none

	from   uint64 // keys with lower hashes are done
	Picks  []pick // the window of this pass
	bound  uint64 // no pick has a higher hash; noBound: nothing was left out of the window
	picked bool   // Picks is complete and in order

	repairing int    // repairs at work
	failed    int    // keys of this pass that were not copied
	filled    uint64 // keys that were copied, in all rounds
	found     int    // keys that were copied, in this round
	gaps      bool   // a listing of this round may have left something out

	at, wait int64  // nothing is done before at, on the loop's clock; wait grows while nothing works
	why      string // the reason for waiting that was logged last
}

// pick is a key that the member may be missing.
type pick struct {
	hash uint64
	key  string           // as servers know it
	from *upstream.Server // that has listed it
}

// stop ends the resync of a member, if there is one.
func (m *account) stop() {
	f := m.Resync
	if f == nil {
		return
	}
	m.Resync = nil
	if d := f.dump; d != nil {
		f.dump = nil
		d.srv.CloseDedicated(dumpConn)
	}
}

// advance takes the next step that can be taken now: a listing, or copies of what has
// been listed.
func (f *resync) advance(e *Copies, bp *routing.BoundPool) {
	if f.bp != bp { // it begins, or a reload may have changed which keys the member has
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
		f.retry(e, "")
	case f.listed < len(f.sources):
		f.list(e, f.sources[f.listed])
	default:
		f.copy(e)
	}
}

// pass begins a pass over the keys from the hash f.from on.
func (f *resync) pass(e *Copies) {
	f.sources, f.listed = e.sourcesOf(f.bp, f.to), 0
	if f.leaving {
		f.sources = []copyOf{e.copyAt(routing.Holder{Pool: f.bp, Index: f.index, Server: f.to})}
	}
	f.Picks, f.picked, f.bound = f.Picks[:0], false, noBound
	f.failed = 0
}

// retry lets the resync wait before it goes on, each time longer. why is logged if it is
// another reason than the last.
func (f *resync) retry(e *Copies, why string) {
	f.at = e.Now + f.wait
	f.wait = min(2*f.wait, int64(retryMax))
	e.At(link.ResyncTimer, f.at)
	if why != "" && why != f.why {
		f.why = why
		what := "a server that came back empty can't be filled now"
		if f.leaving {
			what = "what a server is not to have any more can't go to other servers now"
		}
		e.LogLimited(slog.LevelWarn, f.bp.Pool.Name+" "+f.to.Target.Name, what, "pool", f.bp.Pool.Name, "server", f.to.Target.Name, "why", why)
	}
}

// dump is the listing of one server's keys.
type dump struct {
	e             *Copies
	f             *resync
	srv           *upstream.Server
	conn          *upstream.Conn
	named         []byte // prefix of its keys, since it refused to be flushed; else empty
	engines, mine uint64 // number of loops, and index of this one: keys are filled by hash modulo loops
}

// list begins to list the keys of a source, on a connection of its own. It first asks
// whether the connection is idle, with an mn: memcached lists nothing behind another
// command.
func (f *resync) list(e *Copies, from copyOf) {
	srv := from.Server
	switch phase := from.Pool.View.Phase(from.Index); {
	case phase == health.Out, phase == health.Returning, from.Overflowed:
		f.listed++ // it is about to be flushed, so what it has is not copied
		e.At(link.ResyncTimer, e.Now)
		return
	case srv.Down:
		f.retry(e, srv.Why)
		return
	case srv.Dedicated[dumpConn] != nil: // it is being listed for another member
		f.retry(e, "")
		return
	}
	d := &dump{e: e, f: f, srv: srv, conn: srv.DedicatedConn(dumpConn)}
	if n := from.Pool.View.Renamed(from.Index); n != 0 {
		d.named = divert.AppendKey(nil, uint64(n), nil)
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
	if f.dump != d { // the resync was stopped
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
		f.wait = int64(retryFirst)
		e.At(link.ResyncTimer, e.Now)
	case r.Bytes == nil:
		f.retry(e, r.Why)
	case strings.HasPrefix(last, "BUSY"):
		f.retry(e, "")
	default:
		f.retry(e, "server "+d.srv.Label()+" "+dumpRefused+strings.TrimSpace(last))
	}
}

// listing receives a listing key by key, and its last line as a whole answer.
type listing struct {
	upstream.Collector
	d *dump
}

func (l *listing) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	if r.Kind == wire.Listed {
		l.d.listed(r.Key.Of(b))
		return 0
	}
	return l.Collector.Reply(c, a, r, b)
}

// listed takes one key of the listing, where it is escaped like in a URL. A key that the
// source itself has missed a write to is not taken.
func (d *dump) listed(escaped []byte) {
	e, f := d.e, d.f
	if f.dump != d {
		return
	}
	e.EncodedKey = wire.UnescapeKey(e.EncodedKey[:0], escaped)
	key, ok := bytes.CutPrefix(e.EncodedKey, d.named)
	hash := e.Loops.HashKey(key)
	if !ok || hash < f.from || hash > f.bound || hash%d.engines != d.mine || divert.IsReserved(key) {
		return
	}
	if f.leaving {
		_, _, ok = e.leaver(key, f.to)
	} else {
		var from copyOf
		_, from, _, ok = e.shared(key, d.srv, f.to)
		ok = ok && !from.Dirty(hash)
	}
	if !ok {
		return
	}
	f.Picks = append(f.Picks, pick{hash, string(key), d.srv})
	if len(f.Picks) >= 2*Window {
		f.trim()
	}
}

// trim sorts the picks, keeps each key once, and cuts them to the window. Keys with the
// same hash stay together, since the next pass goes on behind a hash.
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

// copy copies what was picked, as fast as the rate allows. A key that is in use just now
// counts as failed: the pass is made again.
func (f *resync) copy(e *Copies) {
	if !f.picked {
		f.trim()
		f.picked = true
	}
	for len(f.Picks) > 0 {
		if !f.m.hasRoom(e, background) || f.leaving && f.repairing >= background { // moved goes on
			return
		}
		p := f.Picks[0]
		f.Picks = f.Picks[1:]
		if f.leaving {
			f.give(e, p)
			continue
		}
		rt, from, to, ok := e.shared([]byte(p.key), p.from, f.to)
		if !ok || !from.reachable(e, []byte(p.key)) || from.Dirty(p.hash) || e.LineFull(task.KeyLine(p.hash)) { // not now
			f.failed++
			continue
		}
		f.repairing++
		e.copyKey(rt, []byte(p.key), p.hash, from, to, to.Dirty(p.hash), false, f)
	}
	if len(f.Picks) == 0 && f.repairing == 0 {
		f.passed(e)
	}
}

// give lets a picked key leave the member.
func (f *resync) give(e *Copies, p pick) {
	rt, formers, ok := e.leaver([]byte(p.key), f.to)
	switch {
	case !ok:
	case e.moves[p.hash] != nil && !e.moves[p.hash].over:
		f.failed++
	default:
		f.repairing++
		f.m.tokens--
		e.move(rt, []byte(p.key), p.hash, formers, f)
	}
}

// moved is told how one of f's moves has ended.
func (f *resync) moved(e *Copies, ok bool) {
	f.repairing--
	e.At(link.ResyncTimer, e.Now)
	if ok {
		f.found++
	} else {
		f.failed++
	}
}

// repaired is told how one of f's repairs, c, has ended. One that found the key already
// there has not filled anything.
func (f *resync) repaired(e *Copies, c *command, ok bool) {
	f.repairing--
	e.At(link.ResyncTimer, e.Now)
	if !ok {
		f.failed++
	} else if slices.ContainsFunc(c.asks, func(a copyAsk) bool { return a.Deed == replicate.Fill }) {
		f.found++
		f.filled++
		e.Count.Refilled++
	}
}

// passed ends a pass: the next one, another round, or the member is complete.
func (f *resync) passed(e *Copies) {
	m := f.m
	switch {
	case f.failed > 0:
		f.pass(e)
		f.retry(e, "some keys could not be copied")
	case f.bound != noBound:
		f.from = f.bound + 1
		f.wait = int64(retryFirst)
		f.pass(e)
		e.At(link.ResyncTimer, e.Now)
	case f.gaps && f.found > 0:
		f.from, f.found, f.gaps = 0, 0, false
		f.pass(e)
		e.At(link.ResyncTimer, e.Now)
	case f.leaving:
		m.left, m.Resync = true, nil
		e.At(link.ResyncTimer, e.Now)
	default:
		m.Incomplete, m.Resync = false, nil
		e.LogLimited(slog.LevelInfo, f.bp.Pool.Name+" "+f.to.Target.Name, "a server that came back empty is filled", "pool", f.bp.Pool.Name, "server", f.to.Target.Name, "keys", f.filled)
	}
}
