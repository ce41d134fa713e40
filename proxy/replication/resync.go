package replication

// This file has the resync. It fills a replica that has rejoined empty: it lists the keys of the
// other servers, and copies those that the replica should have.

import (
	"bytes"
	"cmp"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// A listing (lru_crawler metadump) is read as fast as it arrives. If its reader
// waited, memcached's crawler would hold its lock. The next request for a listing
// would then block one of the server's worker threads, with all its clients (measured
// on 1.6.18). So a listing must not wait for memory. A pass keeps only a window of it,
// and a later pass lists the rest again:
//
//	pass 1: the window of the keys with the lowest hashes ► copied, as fast as the rate allows
//	pass 2: the window of the lowest hashes above these ► …
//	the pass in which the window holds all remaining keys ► the round is over
//
// A pass with a failed copy is repeated. Servers before 1.6.19 omit items from a
// listing that are in use at that moment. For these servers there are further rounds,
// until one finds no missing key. A key that is in use in each round is still omitted.
//
// Each loop fills replicas with the keys that it owns, and lists servers itself: n
// loops list n times, without any coordination.
const (
	Window      = 8192             // maximum number of keys that one pass of a resync remembers
	lookTime    = time.Second      // longest time between two calls of Tend, which checks for incomplete replicas
	dumpSilence = 10 * time.Second // a listing of keys fails if no data arrives for this time
	retryFirst  = 100 * time.Millisecond
	retryMax    = 10 * time.Second
	noBound     = uint64(math.MaxUint64)

	dumpConn     = 1 << 31 // number of the connection that is used only for listings; the numbers of the keepers' connections count from 1
	dumpReady    = 0       // ID of the request that checks whether the connection is idle
	dumpListing  = 1       // ID of the request for the listing of keys
	dumpReadyAsk = "mn\r\n"
	dumpAll      = "lru_crawler metadump all\r\n"
	dumpHash     = "lru_crawler metadump hash\r\n" // supported since memcached 1.6.19; this listing omits no key
	dumpEnd      = wire.AnswerEnd
	dumpRefused  = "can't list its keys: "
)

// resync fills one replica with its keys. In a handover it can instead move away the keys that
// the replica must no longer keep. Only its loop uses it.
type resync struct {
	m     *replicaState
	bp    *routing.BoundPool // pool of the replica when the present pass began; a reload may replace the pool
	index int                // index of the replica's server in bp
	to    *upstream.Server   // server of the replica

	leaving bool // in a handover: the resync does not fill the replica, but moves the keys that it must no longer keep to other servers

	sources       []replica // servers of which this pass lists the keys
	done          int       // number of servers in sources that this pass has listed already
	dump          *dump     // the listing in progress; nil: none
	engines, mine uint64    // number of loops, and index of this loop: a loop copies the keys with hash%engines == mine

	from   uint64 // hash from which this pass starts; keys with lower hashes are done
	Picks  []pick // keys that this pass copies
	bound  uint64 // highest hash of a key in Picks; noBound: this pass has omitted no key with a higher hash
	picked bool   // Picks is complete and sorted

	repairing int    // number of copies, or moves, in progress
	failed    int    // number of keys of this pass that could not be copied
	filled    uint64 // number of keys that were copied since the resync began
	found     int    // number of keys that were copied in this round
	gaps      bool   // a listing of this round may have omitted keys, because its server is older than 1.6.19

	at, wait int64  // at: earliest time of the next step, on the loop's clock; wait: delay after the next failure, which doubles with each failure
	why      string // the last reason for a failure that was logged
}

// pick is a key that the replica may be missing, found in a listing of another server.
type pick struct {
	hash uint64
	key  string           // the key as servers know it
	from *upstream.Server // the server that has the key in its listing
}

// stop ends the resync of the replica, if one is in progress.
func (m *replicaState) stop() {
	f := m.Resync
	if f == nil {
		return
	}
	m.Resync = nil
	f.dump.stop()
	f.dump = nil
}

// advance does the next step of the resync that is possible now: a listing of keys, or copies of
// listed keys.
func (f *resync) advance(e *Replicator, bp *routing.BoundPool) {
	if f.bp != bp { // true at the start, and after a reload, which may have changed the keys of the replica
		f.dump.stop()
		f.dump = nil
		f.bp = bp
		f.pass(e)
	}
	switch phase := bp.View.Phase(f.index); {
	case f.dump != nil:
	case e.Now < f.at:
		e.At(link.ResyncTimer, f.at)
	case f.to.Down || phase != health.In && phase != health.Warming && phase != health.Settling:
		f.retry(e, "")
	case f.done < len(f.sources):
		f.list(e, f.sources[f.done])
	default:
		f.copy(e)
	}
}

// pass starts a pass over the keys with the hash f.from or a higher one.
func (f *resync) pass(e *Replicator) {
	f.sources, f.done = e.sourcesOf(f.bp, f.to), 0
	if f.leaving {
		f.sources = []replica{e.replicaAt(routing.Holder{Pool: f.bp, Index: f.index, Server: f.to})}
	}
	f.Picks, f.picked, f.bound = f.Picks[:0], false, noBound
	f.failed = 0
}

// retry delays the next step of the resync, longer after each failure. It logs why, unless that
// is the reason that was logged last.
func (f *resync) retry(e *Replicator, why string) {
	f.at = e.Now + f.wait
	f.wait = min(2*f.wait, int64(retryMax))
	e.At(link.ResyncTimer, f.at)
	if why != "" && why != f.why {
		f.why = why
		what, reports := "rejoined server can't be filled now", event.ResyncFailed
		if f.leaving {
			what, reports = "keys that a server must give up can't move to other servers now", event.Other
		}
		e.LogLimited(slog.LevelWarn, f.bp.Pool.Name+" "+f.to.Target.Name, what, reports.Attr(), "pool", f.bp.Pool.Name, "server", f.to.Target.Name, "why", why)
	}
}

// dump is a listing of the keys on one server.
type dump struct {
	e     *Replicator
	to    lister
	srv   *upstream.Server
	conn  *upstream.Conn
	named []byte // prefix of all keys on the server, if it has rejected a flush; otherwise empty
	gaps  bool   // the listing may omit keys, because its server is older than 1.6.19
	over  bool   // it was stopped
}

// lister receives a listing.
type lister interface {
	// listed receives one key that commands can have. key is valid during the call.
	listed(d *dump, key []byte)

	// allListed receives the end of the listing. Otherwise, why is the reason for its failure; empty: it
	// can be repeated soon.
	allListed(d *dump, ok bool, why string)
}

// newDump starts to list the keys of server i of bp, on a dedicated connection. First it checks
// with an mn that the connection is idle, because memcached lists nothing on a connection with a
// command in progress. The caller has checked that the server is not being listed.
func (e *Replicator) newDump(bp *routing.BoundPool, i int, to lister) *dump {
	srv := bp.Server(i)
	d := &dump{e: e, to: to, srv: srv, conn: srv.DedicatedConn(dumpConn), named: divert.AppendKey(nil, uint64(bp.View.Renamed(i)), nil)}
	e.Ask(d.conn, d, dumpReady, srv.OwnTimeouts(srv.Greeting), []byte(dumpReadyAsk), true)
	return d
}

// stop ends the listing. d may be nil.
func (d *dump) stop() {
	if d != nil && !d.over {
		d.over = true
		d.srv.CloseDedicated(dumpConn)
	}
}

// list starts to list the keys of the server `from`.
func (f *resync) list(e *Replicator, from replica) {
	srv := from.Server
	switch phase := from.Pool.View.Phase(from.Index); {
	case phase == health.Out, phase == health.Returning, from.Overflowed:
		f.done++ // the server is about to be flushed, so its keys are skipped
		e.At(link.ResyncTimer, e.Now)
		return
	case srv.Down:
		f.retry(e, srv.Why)
		return
	case srv.Dedicated[dumpConn] != nil: // the server is being listed for another replica
		f.retry(e, "")
		return
	}
	n, mine := e.Loops.Count(e.Tasks)
	f.engines, f.mine = uint64(n), uint64(mine)
	if d := e.newDump(from.Pool, from.Index, f); !d.over {
		f.dump = d
	}
}

func (f *resync) allListed(d *dump, ok bool, why string) {
	f.dump = nil
	f.gaps = f.gaps || d.gaps
	if !ok {
		f.retry(d.e, why)
		return
	}
	f.done++
	f.wait = int64(retryFirst)
	d.e.At(link.ResyncTimer, d.e.Now)
}

func (d *dump) Answered(id int, r *upstream.Result) {
	e := d.e
	if d.over { // it was stopped while the listing was in progress
		return
	}
	if id == dumpReady && string(r.Bytes) == wire.AnswerBarrier {
		a := e.NewAttempt(&listing{upstream.Collector{To: d, ID: dumpListing}, d})
		a.Op, a.Dialect = wire.Dump, wire.Text
		d.conn.MarkInternal(a)
		d.conn.Server.Count.Own++
		line := dumpAll
		if d.conn.Features&wire.HashDumps != 0 {
			line = dumpHash
		} else {
			d.gaps = true
		}
		e.AskAttempt(d.conn, a, &table.Timeouts{Request: dumpSilence, Deadline: dumpSilence}, 0, []byte(line))
		return
	}
	d.stop()
	switch last := string(bytes.TrimPrefix(r.Bytes, []byte(wire.AnswerOK))); {
	case id == dumpListing && last == dumpEnd:
		d.to.allListed(d, true, "")
	case r.Bytes == nil:
		d.to.allListed(d, false, r.Why)
	case strings.HasPrefix(last, "BUSY"):
		d.to.allListed(d, false, "")
	default:
		d.to.allListed(d, false, "server "+d.srv.Label()+" "+dumpRefused+strings.TrimSpace(last))
	}
}

// listing receives the reply with the keys of a server: each key at once, and the last line as a
// complete reply. Keys in listings are URL-encoded. A key is skipped if no command can have it, because
// a client has stored it with the binary protocol.
type listing struct {
	upstream.Collector
	d *dump
}

func (l *listing) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	if r.Kind == wire.Listed {
		e := l.d.e
		e.EncodedKey = wire.UnescapeKey(e.EncodedKey[:0], r.Key.Of(b))
		if key, ok := bytes.CutPrefix(e.EncodedKey, l.d.named); ok && !l.d.over && !divert.IsReserved(key) && e.Wire.Fits(key) {
			l.d.to.listed(l.d, key)
		}
		return 0
	}
	return l.Collector.Reply(c, a, r, b)
}

// listed adds one key of the listing to Picks, if the replica should have the key, and the listed server
// itself has not missed a write to it.
func (f *resync) listed(d *dump, key []byte) {
	e, ok := d.e, false
	hash := e.Loops.HashKey(key)
	if hash < f.from || hash > f.bound || hash%f.engines != f.mine {
		return
	}
	if f.leaving {
		_, _, ok = e.routeMovingOff(key, f.to)
	} else {
		var from replica
		_, from, _, ok = e.commonRoute(key, d.srv, f.to)
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

// trim sorts Picks, removes duplicate keys, and cuts Picks to the size Window. Keys with the same
// hash stay together, because the next pass starts at the next hash.
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

// copy copies the keys in Picks, as fast as the rate allows. A key that can't be copied now
// counts as failed, so the pass is repeated.
func (f *resync) copy(e *Replicator) {
	if !f.picked {
		f.trim()
		f.picked = true
	}
	for len(f.Picks) > 0 {
		if !f.m.hasRoom(e, background) || f.leaving && f.repairing >= background { // when a copy or a move ends, the next call of copy is scheduled
			return
		}
		p := f.Picks[0]
		f.Picks = f.Picks[1:]
		if f.leaving {
			f.give(e, p)
			continue
		}
		rt, from, to, ok := e.commonRoute([]byte(p.key), p.from, f.to)
		if !ok || !from.reachable(e, []byte(p.key)) || from.Dirty(p.hash) || e.KeyFull(p.hash) { // the key can't be copied now
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

// give moves a listed key from the replica to the servers that should have it. The replica must
// no longer keep the key.
func (f *resync) give(e *Replicator, p pick) {
	rt, formers, ok := e.routeMovingOff([]byte(p.key), f.to)
	switch {
	case !ok:
	case e.moves[p.hash] != nil && !e.moves[p.hash].over:
		f.failed++
	default:
		f.repairing++
		f.m.tokens--
		e.move(rt, []byte(p.key), p.hash, formers, f, false)
	}
}

// moved records that a move of a key, which f has requested, has ended.
func (f *resync) moved(e *Replicator, ok bool) {
	f.repairing--
	e.At(link.ResyncTimer, e.Now)
	if ok {
		f.found++
	} else {
		f.failed++
	}
}

// repaired records the end of c, a copy that f has requested. ok means that the replica now has
// what the source has. If the replica already had the key, the key does not count as filled. A key
// with a value that is too large for the replica's server is done, too: no repetition would copy it.
func (f *resync) repaired(e *Replicator, c *command, ok bool) {
	f.repairing--
	e.At(link.ResyncTimer, e.Now)
	if !ok {
		if c.refused == 0 {
			f.failed++
		}
	} else if slices.ContainsFunc(c.asks, func(a copyAsk) bool { return a.Step == replicate.Fill }) {
		f.found++
		f.filled++
		e.Count.Refilled++
	}
}

// passed ends a pass over the listed keys. It starts the next pass or another round, or ends the
// resync.
func (f *resync) passed(e *Replicator) {
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
		e.LogLimited(slog.LevelInfo, f.bp.Pool.Name+" "+f.to.Target.Name, "rejoined server is filled", event.ResyncDone.Attr(), "pool", f.bp.Pool.Name, "server", f.to.Target.Name, "keys", f.filled)
	}
}
