package replication

// The ledger: what each replica of a pool is missing, and how that is detected. The
// package comment has a table of the states.

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

// ledger is what one loop knows about how complete the replicas of a pool are. It
// survives reloads. Its replicas have the order of the pool's servers.
type ledger struct {
	bp      *routing.BoundPool // the pool in the present routing table
	Servers []*upstream.Server // servers of bp when the ledger was created
	rate    int                // maximum number of keys per second to copy to a replica; 0: repairs are off
	Members []replicaState
}

// replicaState is the state of one replica in the ledger. Times are on the loop's clock.
type replicaState struct {
	ledger *ledger
	index  int // of the replica in the pool

	*entryTable               // entries of the keys that the replica has wrong
	numbers      []lastNumber // phase numbers of the replica's server at the last call of notice, one per view
	Incomplete   bool         // the replica has rejoined empty, so its miss alone does not prove that a key is missing
	Resync       *resync      // the resync that fills it; nil: none
	until        int64        // when Incomplete ends without a resync, if repairs are off
	flushPending bool         // the keepers of another pool are about to flush its server
	left         bool         // in a handover: all keys that the replica must not keep have been moved away

	tokens   float64 // token bucket: number of copies that it may receive now
	filledAt int64   // when tokens was computed
}

const incompleteTime = time.Minute // how long a replica counts as incomplete if repairs are off

// KeepLedger keeps the ledger of the pool bp over a reload, if the servers are the
// same. Otherwise it creates a new one.
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

// newLedger returns a new ledger of a pool. old is its former ledger, or nil. The
// entries of servers in both are kept, because these keys are still wrong.
func (e *Replicator) newLedger(bp *routing.BoundPool, old *ledger) *ledger {
	w := &ledger{bp: bp, Servers: slices.Clone(bp.Servers), Members: make([]replicaState, len(bp.Servers))}
	for i, srv := range bp.Servers {
		m := &w.Members[i]
		m.ledger, m.index = w, i
		m.entryTable = &entryTable{Keys: map[uint64]*DirtyKey{}}
		// When the process starts, it can't know what a server has, so the server counts as
		// complete. A server with a known release was already in use, for other keys. It has
		// none of the keys that the pool assigns to it now.
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

// server returns the server of the replica in the present routing table.
func (m *replicaState) server() *upstream.Server { return m.ledger.bp.Servers[m.index] }

// stop ends the resyncs of all replicas. w may be nil.
func (w *ledger) stop() {
	if w != nil {
		for i := range w.Members {
			w.Members[i].stop()
		}
	}
}

// TakeCopies drops the ledgers of pools without replicated keys, and sets the repair
// rates of the others. It is called after the routes of a new routing table are bound.
func (e *Replicator) TakeCopies() {
	for name, w := range e.Ledgers {
		if !slices.Contains(e.Pools, w.bp) {
			w.stop()
			delete(e.Ledgers, name)
			continue
		}
		w.rate = e.repairRate(w.bp)
		e.At(link.ResyncTimer, e.Now)
	}
	e.takeArrangement()
}

// repairRate returns the highest rate, in keys per second, that a route sets for
// replicas of bp.
func (e *Replicator) repairRate(bp *routing.BoundPool) (rate int) {
	for _, l := range e.InOrder {
		for i := range l.Routes {
			if rt := &l.Routes[i]; rt.HasReplicasOn(bp) {
				rate = max(rate, rt.Copies.RepairRate)
			}
		}
	}
	return rate
}

// incomplete reports whether a replica has rejoined empty and is not filled yet, or may
// be flushed at any time. If repairs are off, the replica counts as complete after
// incompleteTime.
func (m *replicaState) incomplete(e *Replicator) bool {
	return m.flushPending || m.Incomplete && (m.ledger.rate > 0 || e.Now < m.until)
}

// lastNumber is the phase number of a replica's server in a view. The number shows how
// often the server was flushed. The view is that of the replica's pool, or of another
// pool with the same server.
type lastNumber struct {
	view    *health.View
	replica int
	known   bool   // the view has learned n
	n       uint32 // see health.View.N
}

// notice checks whether the server was flushed, by the keepers of the replica's pool or of another
// pool. It must be called before the state of the replica is used or changed. There are two
// reasons. A miss after a flush does not prove that a key is missing. And the entries of writes
// that the replica missed before the flush are dropped, but those of later writes must be kept.
//
// A view that has not learned its numbers yet, after a start or a reload, is ignored. Its numbers
// are zero, and would seem to grow when it learns them. The numbers of the replica's own pool
// continue with a new view of the same servers.
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

// compare stores the number that the i-th view has now, and marks the replica empty if
// there was a flush since the last call. After a flush by another pool, the entries of
// the replica's keys are kept. The reason is that a server that rejects flushes counts
// as flushed in that pool, which renames its keys instead.
func (m *replicaState) compare(e *Replicator, i int, now lastNumber) {
	before := m.numbers[i]
	m.numbers[i] = now
	own := i == 0
	if before.known && (own || before.view == now.view && before.replica == now.replica) && health.Emptied(before.n) < health.Emptied(now.n) {
		m.markEmpty(e, own)
	}
}

// markEmpty records that a replica is empty, because it was flushed or restarted. All
// instances wait for a flush, so no dirty key can be there after the flush. After a
// restart, another instance may have filled the replica already, also with keys that
// this instance knows to be dirty. So the entries are kept then.
func (m *replicaState) markEmpty(e *Replicator, flushed bool) {
	m.stop()
	if flushed {
		*m.entryTable = entryTable{Keys: map[uint64]*DirtyKey{}, DeletesSent: m.DeletesSent}
	}
	m.Incomplete, m.until = true, e.Now+int64(incompleteTime)
	e.At(link.ResyncTimer, e.Now)
}

// othersComplete reports whether the replica can be flushed without losing the only
// replica of a key, as far as this loop knows. An empty replica can be filled, but a
// replica with unknown dirty keys can't be repaired. If several replicas have
// overflowed, the one with the lowest index is flushed first. The others wait until it
// is filled.
func (m *replicaState) othersComplete() bool {
	for i := range m.ledger.Members {
		o := &m.ledger.Members[i]
		if o.server().Down || o != m && (o.Incomplete || o.Overflowed && i < m.index) {
			return false
		}
	}
	return true
}

// Tend updates the replicas of all pools. ResyncTimer calls it. While there is a
// ledger, Tend sets the timer again, to lookTime from now at most.
func (e *Replicator) Tend() {
	e.enableDirectReads()
	e.proceed()
	for _, bp := range e.Pools { // in the order of the routing table
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
	e.endHandover()
}

// tend does the pending work for a replica, in the order that matters to reads: it
// deletes dirty keys, then copies single keys, then all others. While the replica is
// incomplete, it informs the keepers of this process.
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
		e.Keepers.Identify(srv) // reads use other replicas, so perhaps no command would open a connection and identify the server
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

// lacks reports whether the replica may lack keys or have outdated values.
func (m *replicaState) lacks() bool { return m.Incomplete || m.HasLess() }

// protectFromFlush protects the replica's server if it may have the only replica of a key. It
// informs the keepers of other pools with the same server. These keepers could otherwise flush the
// server, because they do not know which replicas this pool lacks.
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

// StartedAnew records that srv was restarted, so it has lost all items.
func (e *Replicator) StartedAnew(srv *upstream.Server) {
	for _, m := range e.Keepers.Registrations[srv] {
		if w := e.Ledgers[m.Pool]; w != nil && m.ServerIndex < len(w.Members) {
			w.Members[m.ServerIndex].markEmpty(e, false)
		}
	}
}

// AddTo adds to the statistics what the replicas are missing, as this loop knows it.
// The loops own different keys, so the numbers can be added.
func (e *Replicator) AddTo(into *stats.Snapshot) {
	e.proceed() // without requests, only Tend calls proceed
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
