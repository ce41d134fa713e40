package replication

// This file has the ledger: what each replica of a pool is missing, and how the loop notices
// that. The package comment has a table of the states of a replica.

import (
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// ledger is what one loop knows about the keys that the servers of a pool are missing. It is kept
// over a reload. Its field Members has the order of the pool's servers.
type ledger struct {
	bp      *routing.BoundPool // the pool in the present routing table
	Servers []*upstream.Server // servers of the pool when the ledger was created
	rate    int                // maximum number of keys per second that are copied to one replica; 0: repairs are off
	Members []replicaState
}

// replicaState is what the ledger knows of one server of the pool. Times are on the loop's clock.
type replicaState struct {
	ledger *ledger
	index  int // index of the server in the pool

	*entryTable               // entries of the keys that the server may have wrong
	numbers      []lastNumber // phase numbers of the server at the last call of notice: one for each pool that contains the server
	Incomplete   bool         // the server may lack keys, because it was flushed or restarted or got keys by a reload. Its miss does not prove that a key is missing
	Resync       *resync      // the resync that fills the server with its keys; nil: none
	until        int64        // time at which Incomplete ends if repairs are off, because then no resync ends it
	flushPending bool         // the keepers of another pool with the same server are about to flush it
	left         bool         // in a handover: all keys that the server must give up have been moved to other servers

	bucket // its tokens: how many copies the server may receive now
}

const incompleteTime = time.Minute // how long a server counts as incomplete if repairs are off

// KeepLedger keeps the ledger of the pool bp over a reload, if the servers of the pool are the
// same. Otherwise it creates a new ledger.
func (e *Replicator) KeepLedger(bp *routing.BoundPool) {
	old := e.Ledgers[bp.Pool.Name]
	if old != nil && slices.Equal(old.Servers, bp.Servers) {
		old.bp = bp
		return
	}
	if e.Ledgers == nil {
		e.Ledgers = map[string]*ledger{}
	}
	e.Ledgers[bp.Pool.Name] = e.newLedger(bp, old)
	old.stop()
}

// newLedger returns a new ledger of a pool. old is the pool's former ledger, or nil. The entries
// of servers that are in both ledgers are kept, because their keys are still wrong.
func (e *Replicator) newLedger(bp *routing.BoundPool, old *ledger) *ledger {
	w := &ledger{bp: bp, Servers: slices.Clone(bp.Servers), Members: make([]replicaState, len(bp.Servers))}
	for i, srv := range bp.Servers {
		m := &w.Members[i]
		m.ledger, m.index = w, i
		m.entryTable = &entryTable{Keys: map[uint64]*DirtyKey{}}
		// A process that has just started can't know what a server has, so the server counts as
		// complete. A server with a known release was already in use, for other keys. It has none
		// of the keys that the pool assigns to it now.
		m.Incomplete = old != nil || srv.Release != (wire.Release{})
		m.until = e.Now + int64(incompleteTime)
		if old == nil {
			continue
		}
		if j := slices.Index(old.Servers, srv); j >= 0 {
			m.entryTable, m.Incomplete = old.Members[j].entryTable, old.Members[j].Incomplete
		}
	}
	return w
}

// server returns the server that m describes.
func (m *replicaState) server() *upstream.Server { return m.ledger.bp.Servers[m.index] }

// stop ends the resyncs of all servers in the ledger. w may be nil.
func (w *ledger) stop() {
	if w != nil {
		for i := range w.Members {
			w.Members[i].stop()
		}
	}
}

// repairRate returns how many keys per second may be copied to one server of bp: the highest rate
// that a route sets.
func (e *Replicator) repairRate(bp *routing.BoundPool) (rate int) {
	for _, l := range e.InOrder {
		for i := range l.Routes {
			if rt := &l.Routes[i]; rt.HasReplicasOn(bp) {
				rate = max(rate, rt.Copies.RepairRate)
			}
		}
	}
	if e.handover == nil {
		return rate
	}
	for _, a := range e.handover.Formers { // the keys in bp may move to another pool
		for _, l := range a.listeners {
			for i := range l.Routes {
				if rt := &l.Routes[i]; slices.ContainsFunc(append([]*routing.BoundPool{rt.BoundPool}, rt.Also...), func(o *routing.BoundPool) bool { return o.Pool.Name == bp.Pool.Name }) {
					rate = max(rate, rt.Copies.RepairRate)
				}
			}
		}
	}
	return rate
}

// incomplete reports whether the server may lack keys, because it has rejoined empty and is not
// filled yet, or may be flushed at any time. If repairs are off, the server counts as complete
// after incompleteTime.
func (m *replicaState) incomplete(e *Replicator) bool {
	return m.flushPending || m.Incomplete && (m.ledger.rate > 0 || e.Now < m.until)
}

// lastNumber is the phase number of a server in the view of one pool that contains the server.
// The number shows how often the server was flushed.
type lastNumber struct {
	view    *health.View
	replica int
	known   bool   // the keepers of the pool have learned the number n from the view records; false: n means nothing
	n       uint32 // phase number of the server: see health.View.N
}

// notice checks whether the server was flushed, by the keepers of its pool or of another pool. It
// must be called before the state of the server is used or changed, for two reasons. A miss after
// a flush does not prove that a key is missing. And the entries of writes that the server missed
// before the flush are dropped, but those of later writes must be kept.
//
// A view that has not learned its phase numbers yet, after a start or a reload, is ignored. Its
// numbers are zero, and would seem to grow when it learns them. The numbers of the server's own
// pool continue with a new view of the same servers.
func (m *replicaState) notice(e *Replicator) {
	view := m.ledger.bp.View
	if len(m.numbers) == 0 {
		m.numbers = append(m.numbers, lastNumber{})
	}
	if view.Learned() {
		m.compare(e, 0, lastNumber{view, m.index, true, view.N(m.index)})
	}
	numbers := m.numbers[:1]
	m.flushPending = false
	for _, r := range e.Keepers.Registrations[m.server()] {
		if v := r.Agent.View; v != view || r.ServerIndex != m.index {
			now := lastNumber{v, r.ServerIndex, v.Learned(), v.N(r.ServerIndex)}
			m.flushPending = m.flushPending || health.PhaseOf(now.n) == health.Returning
			if len(numbers) == len(m.numbers) {
				m.numbers = append(m.numbers, now)
			}
			numbers = m.numbers[:len(numbers)+1]
			m.compare(e, len(numbers)-1, now)
		}
	}
	m.numbers = numbers
}

// compare stores the phase number that the server has now in the i-th of its pools. It marks the
// server as empty if the number shows a flush since the last call. After a flush by another pool
// (i > 0), the entries of wrong keys are kept: if a server rejects a flush, the other pool counts
// it as flushed and renames its own keys instead.
func (m *replicaState) compare(e *Replicator, i int, now lastNumber) {
	before := m.numbers[i]
	m.numbers[i] = now
	own := i == 0
	if before.known && (own || before.view == now.view && before.replica == now.replica) && health.Emptied(before.n) < health.Emptied(now.n) {
		m.markEmpty(e, own)
	}
}

// markEmpty records that a server is empty, because it was flushed or restarted. All instances
// wait for a flush, so no dirty key can be on the server after the flush. After a restart,
// another instance may have filled the server already, also with keys that this instance knows to
// be dirty. So the entries are kept after a restart.
func (m *replicaState) markEmpty(e *Replicator, flushed bool) {
	m.stop()
	if flushed {
		*m.entryTable = entryTable{Keys: map[uint64]*DirtyKey{}, DeletesSent: m.DeletesSent}
	}
	m.Incomplete, m.until = true, e.Now+int64(incompleteTime)
	e.At(link.ResyncTimer, e.Now)
}

// othersComplete reports whether the server can be flushed without losing the only replica of a
// key, as far as this loop knows. All servers of the pool must reply, and no other server may be
// incomplete. If several servers have overflowed, the one with the lowest index is flushed first.
// The others wait until that server is filled.
func (m *replicaState) othersComplete() bool {
	for i := range m.ledger.Members {
		o := &m.ledger.Members[i]
		if o.server().Down || o != m && (o.Incomplete || o.Overflowed && i < m.index) {
			return false
		}
	}
	return true
}

// Tend does the pending work for the servers of all pools. ResyncTimer calls it. While there is a
// ledger, Tend sets the timer again, to lookTime from now at most.
func (e *Replicator) Tend() {
	e.enableDirectReads()
	e.proceed()
	for _, bp := range e.Pools { // the order of the routing table is used, and not the random order of the map Ledgers
		w := e.Ledgers[bp.Pool.Name]
		if w == nil {
			continue
		}
		for i := range w.Members {
			w.Members[i].notice(e)
		}
		for i := range w.Members {
			w.Members[i].tend(e)
		}
		e.At(link.ResyncTimer, e.Now+int64(lookTime))
	}
	for _, bp := range e.Pools {
		if k := e.walks[bp.Pool.Name]; k != nil {
			k.advance()
		}
	}
	e.endHandover()
}

// tend does the pending work for one server, in the order that matters to reads: it deletes dirty
// keys, then copies single keys, then all others. While the server lacks keys, tend informs the
// keepers of this process.
func (m *replicaState) tend(e *Replicator) {
	bp, srv := m.ledger.bp, m.server()
	if m.Incomplete = m.incomplete(e); m.lacks() {
		bp.View.SayIncomplete(m.index, e.Now+2*int64(lookTime))
	}
	m.protectFromFlush(e)
	if m.Overflowed && m.othersComplete() {
		bp.View.SayUnfit(m.index, m.numbers[0].n)
	}
	if !srv.Down && !e.handover.Pauses() {
		m.deleteStale(e)
		m.copyLost(e)
	}
	if srv.Unidentified && !srv.Down || srv.StartedAt == 0 && srv.Conns[0].State == upstream.ConnUp {
		e.Keepers.Identify(srv) // reads use other replicas of its keys, so perhaps no command opens a connection and identifies the server
	}
	leaves := !m.Incomplete && e.leaves(m)
	switch f := m.Resync; {
	case f != nil && (f.leaving != leaves || !leaves && !m.Incomplete || m.ledger.rate == 0):
		m.stop()
	case e.handover.Pauses() || m.flushPending:
	case f == nil && (m.Incomplete || leaves) && m.ledger.rate > 0:
		m.Resync = &resync{m: m, index: m.index, to: srv, leaving: leaves, wait: int64(retryFirst)}
		fallthrough
	case f != nil:
		m.Resync.advance(e, bp)
	}
}

// lacks reports whether the server may lack keys or have outdated values.
func (m *replicaState) lacks() bool { return m.Incomplete || m.HasLess() }

// protectFromFlush protects the server from a flush if it may have the only replica of a key. It
// informs the keepers of other pools with the same server. These keepers could otherwise flush
// the server, because they do not know which keys the other servers of this pool lack.
func (m *replicaState) protectFromFlush(e *Replicator) {
	view := m.ledger.bp.View
	if p := view.Phase(m.index); p == health.Leaving || p == health.Out || p == health.Returning {
		return
	}
	for i := range m.ledger.Members {
		if o := &m.ledger.Members[i]; o == m || view.Phase(i) == health.In && !o.lacks() {
			continue
		}
		for _, r := range e.Keepers.Registrations[m.server()] {
			if r.Agent.View != view {
				r.Agent.View.SayNeeded(r.ServerIndex, e.Now+2*int64(lookTime))
			}
		}
		return
	}
}

// StartedAnew records that the process of srv was restarted, so it has lost all items.
func (e *Replicator) StartedAnew(srv *upstream.Server) {
	for _, m := range e.Keepers.Registrations[srv] {
		if w := e.Ledgers[m.Pool]; w != nil && m.ServerIndex < len(w.Members) {
			w.Members[m.ServerIndex].markEmpty(e, false)
		}
	}
}

// AddTo adds to the statistics which keys the replicas are missing, as far as this loop knows.
// The loops own different keys, so the numbers of all loops can be added.
func (e *Replicator) AddTo(into *stats.Snapshot) {
	e.proceed() // AddTo calls proceed, because without requests only Tend calls it
	e.addResize(into)
	for pool, n := range e.fills {
		into.Fill(pool).Add(n)
	}
	into.Moving, into.Unsettled = into.Moving || e.handover != nil, max(into.Unsettled, e.unsettled())
	for pool, w := range e.Ledgers {
		for i := range w.Members {
			m := &w.Members[i]
			m.notice(e)
			filling := m.incomplete(e) || e.handover != nil
			if !filling && len(m.Keys) == 0 {
				continue
			}
			if into.Lacks == nil {
				into.Lacks = map[[2]string]stats.Lack{}
			}
			at := [2]string{pool, w.bp.Pool.Servers[i].Name}
			is := into.Lacks[at]
			is.Filling = is.Filling || filling
			is.Missed += m.Missed()
			if m.Resync != nil {
				is.Copied += m.Resync.filled
			}
			is.Waiting += m.Waiting()
			is.Flush = is.Flush || m.Overflowed
			into.Lacks[at] = is
		}
	}
}
